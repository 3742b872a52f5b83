"""The input of a guard: calls of tools and their outcomes, reduced to digests."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback.redaction import redact
from honcho_fallback.tools._classify import (
    classify_tool_failure,
    exit_code_in,
    terminal_error,
    text_of,
)
from honcho_fallback.tools._reading import TERMINALS, is_miss, terminal_text

if TYPE_CHECKING:
    from honcho_fallback.tools._failure import ToolFailure

_DIGEST = 16  # hexadecimal digits
_SHOWN = 8  # lines


class ToolOutcome(NamedTuple):
    """Say what came of one call of a tool.

    Args:
        tool: Its name.
        arguments: As a mapping, or as the JSON that the model wrote.
        error: What it raised, or the text that it returned instead of a result; None is success.
        timed_out: Whether it was stopped for taking too long.
        known_failure: What its failure means, where an exception was read earlier and only its
            text is left.
        known_terminal: The same for ``terminal``.
        exit_code: What the command exited with that it ran, or None; any but 0 is a failure. Then
            ``error`` is the command's output, and nothing in it says what the failure means. An
            exception's own code, and one that the text states, are found without it.
        result: What a success returned, as text or plain values, or None where nobody says it. It
            tells a call that is made again from one that brings something new.
    """

    tool: str
    arguments: Any = None
    error: BaseException | str | None = None
    timed_out: bool = False
    known_failure: ToolFailure | None = None
    known_terminal: str = ""
    exit_code: int | None = None
    result: Any = None

    @property
    def failed(self) -> bool:
        """Tell whether it did not succeed; success is never assumed of an error without words."""
        return self.error is not None or self.timed_out or bool(self.exit_code)

    @property
    def failure(self) -> ToolFailure:
        """Say what its failure means."""
        if self.known_failure is not None:
            return self.known_failure
        error = "" if self.error is None else self.error
        return classify_tool_failure(error, self.timed_out, exit_code=self.exit_code)

    @property
    def terminal(self) -> str | None:
        """Say why a model that the tool hands its work to is gone for good, or None.

        It is ``budget_exhausted`` or ``provider_config``.
        """
        if self.known_terminal in TERMINALS:
            return self.known_terminal
        recorded = terminal_error(self.error) if isinstance(self.error, BaseException) else None
        written = None if recorded else terminal_text(self.text)
        # What a command printed is its own; looked for last, as most texts are no candidates.
        if written and (self.exit_code or exit_code_in(self.error or "")):
            return None
        return recorded or written

    @property
    def missed(self) -> bool:
        """Tell whether the model called a tool that is not there, which it may mend itself."""
        return self.failed and is_miss(self.text)

    @property
    def text(self) -> str:
        """Return the text of its error."""
        error = self.error
        return text_of(error) if isinstance(error, BaseException) else error or ""

    @property
    def shown(self) -> str:
        """Return the first lines of its text, without anything that looks like a secret."""
        return "\n".join(map(redact, self.text.strip().splitlines()[:_SHOWN]))

    @property
    def call(self) -> str:
        """Return the tool and its arguments, the same however the model wrote them."""
        return f"{self.tool} {canonical(self.arguments)}"

    @property
    def signature(self) -> str:
        """Digest the call and what came of it: its result, or the first line of its error."""
        if self.failed:
            return digest(self.call, self.text.strip().partition("\n")[0])
        # A tool writes its result in one way only, and it may be long: no text is read as JSON.
        result = self.result if isinstance(self.result, str) else canonical(self.result)
        return digest(self.call, result)


# A repr may hold an address, which differs from call to call.
def _name(value: object) -> str:
    return type(value).__name__


_encode = json.JSONEncoder(sort_keys=True, default=_name).encode


def canonical(arguments: Any) -> str:
    """Return arguments as JSON with sorted keys, the same however the model wrote them."""
    try:
        return _encode(json.loads(arguments) if isinstance(arguments, str) else arguments)
    except (TypeError, ValueError):
        return arguments if isinstance(arguments, str) else _name(arguments)


def digest(*parts: str) -> str:
    """Digest some texts."""
    joined = "\0".join(parts).encode("utf-8", "replace")
    return hashlib.sha256(joined).hexdigest()[:_DIGEST]
