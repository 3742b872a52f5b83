"""Any runnable with fallbacks: whole chains, parsers included, or a function."""

from __future__ import annotations

from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from langchain_core.runnables.utils import Input, Output

from honcho_fallback import AnswerRejected, FailureKind, FallbackConfigError
from honcho_fallback_langchain._base import FallbackBase
from honcho_fallback_langchain._call import ChainCall
from honcho_fallback_langchain._candidates import given_candidates
from honcho_fallback_langchain._options import Options, RunnableOptions, policy_over

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator

    from langchain_core.runnables import Runnable, RunnableConfig

    from honcho_fallback import Attempt, AttemptRecord, FallbackPolicy
    from honcho_fallback_langchain._direct import Request


class FallbackRunnable(FallbackBase[Input, Output, Output]):
    """Ask the next runnable on the first failure of the one before.

    Args:
        *candidates: The primary first; all take the same input.
        **options: As for ``with_fallback_config``, and ``name``, and ``exception_key``: the entry
            under which a fallback finds the error of the candidate before it, in a copy of the
            input, which has to be a dict; None where nobody was asked before it.

    Raises:
        FallbackConfigError: There is no candidate, one is no Runnable, or an option is wrong.
    """

    exception_key: str | None = None

    def __init__(
        self, *candidates: Runnable[Input, Output], **options: Unpack[RunnableOptions]
    ) -> None:
        given: dict[str, Any] = {**options}
        listed = given_candidates(candidates, given, chat_models=False)
        fields = ("exception_key", "name")
        own: dict[str, Any] = {name: given.pop(name) for name in fields if name in given}
        key = own.get("exception_key")
        if key is not None and not (isinstance(key, str) and key):
            raise FallbackConfigError.about(
                "exception_key", f"got {key!r}", "pass the name of an entry of the input"
            )
        updated_options = given.pop("options", Options()).updated(given)
        own |= {"candidates": listed, "options": updated_options}
        super().__init__(**own)
        _ = self.policy  # what is wrong with the options is said here and now

    @classmethod
    def over(
        cls, candidates: list[Runnable[Any, Any]], options: Options, before: FallbackPolicy
    ) -> Self:
        """Make one of candidates that a chat model has prepared, with its options and policy."""
        fields: Any = {"candidates": candidates, "options": replace(options, sdk_retries="keep")}
        runnable = cls(**fields)
        vars(runnable)["policy"] = policy_over(candidates, runnable.options, before)
        return runnable

    def call_of(
        self, call_input: Any, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> ChainCall:
        """Return one call of the chain, which nobody has asked yet."""
        if self.exception_key is None:
            return super().call_of(call_input, config, kwargs)
        if not isinstance(call_input, dict):
            raise FallbackConfigError.about(
                "exception_key",
                f"the input is a {type(call_input).__name__}",
                "call the chain with a dict, or leave exception_key out",
            )
        return _CallWithErrors(self, call_input, config, kwargs)

    @property
    def InputType(self) -> Any:  # noqa: N802 # LangChain's name
        """Return the primary's."""
        return self.candidates[0].InputType

    @property
    def OutputType(self) -> Any:  # noqa: N802 # LangChain's name
        """Return the primary's."""
        return self.candidates[0].OutputType

    def get_input_schema(self, config: RunnableConfig | None = None) -> Any:
        """Return the primary's."""
        return self.candidates[0].get_input_schema(config)

    def get_output_schema(self, config: RunnableConfig | None = None) -> Any:
        """Return the primary's."""
        return self.candidates[0].get_output_schema(config)


class _CallWithErrors(ChainCall):
    """Tell each fallback the error of the candidate before it."""

    def __init__(
        self,
        owner: FallbackRunnable[Any, Any],
        call_input: Any,
        config: RunnableConfig | None,
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(owner, call_input, config, kwargs)
        self.key = owner.exception_key
        self.error: Exception | None = None

    def request_for(self, attempt: Attempt, candidate: Any) -> Request:
        """Return the request; a fallback's input is a copy with the error."""
        error, self.error = self.error, None
        request = super().request_for(attempt, candidate)
        if not attempt.is_fallback:
            return request
        if error is None and attempt.number > 1:
            error = self._error_of(self.run.record.attempts[-1])
        return request._replace(input={**request.input, self.key: error})

    @staticmethod
    def _error_of(failed: AttemptRecord) -> Exception:
        # It was not the candidate that raised: its time was over, or its answer was refused.
        if failed.kind is FailureKind.TIMEOUT:
            return TimeoutError(f"{failed.target} gave no answer in time")
        return AnswerRejected(f"the answer of {failed.target} was refused")

    @contextmanager
    def _kept(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            self.error = error
            raise

    def ask(self, attempt: Attempt) -> Any:
        """Ask one candidate."""
        with self._kept():
            return super().ask(attempt)

    async def aask(self, attempt: Attempt) -> Any:
        """Ask one candidate."""
        with self._kept():
            return await super().aask(attempt)

    def ask_for_stream(self, attempt: Attempt) -> Generator[Any]:
        """Ask one candidate for its chunks."""
        with self._kept():
            yield from super().ask_for_stream(attempt)

    async def ask_for_astream(self, attempt: Attempt) -> AsyncIterator[Any]:
        """Ask one candidate for its chunks."""
        with self._kept():
            chunks = await super().ask_for_astream(attempt)
        return self._kept_chunks(cast("AsyncGenerator[Any]", chunks))

    async def _kept_chunks(self, chunks: AsyncGenerator[Any]) -> AsyncIterator[Any]:
        with self._kept():
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
