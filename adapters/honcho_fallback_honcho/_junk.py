"""An answer that does not fit the schema it was asked for: Honcho asks the fallback then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.exceptions import OutputParserException
from pydantic import ValidationError

from honcho_fallback import Failure, FailureKind

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from honcho_fallback import FallbackConfig


def with_junk_refused(config: FallbackConfig) -> FallbackConfig:
    """Return options under which an answer that cannot be parsed is a malformed response.

    A program's own parser is none of the provider's business; around Honcho's chat models there
    is no other than that of ``with_structured_output``.
    """
    configured = config.refine

    def refine(failure: Failure, error: BaseException) -> Failure | Awaitable[Failure]:
        refined = failure if configured is None else configured(failure, error)
        if isinstance(refined, Failure) and _is_junk(refined, error):
            reason = "the answer does not fit the schema"
            return Failure.of(FailureKind.MALFORMED_RESPONSE, reason=reason, error=refined.error)
        return refined

    return config.replace(refine=refine)


def _is_junk(failure: Failure, error: BaseException) -> bool:
    if failure.kind is not FailureKind.LOCAL:
        return False
    # A request that does not fit the SDK's own classes has no status.
    was_answered = failure.status == 200
    return isinstance(error, OutputParserException) or (
        isinstance(error, ValidationError) and was_answered
    )
