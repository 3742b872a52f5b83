"""One logical call: what it has learned so far, and the ContextVar that finds it."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from honcho_fallback import AnswerRejected
from honcho_fallback_litellm._answers import attach, usage_of
from honcho_fallback_litellm._failures import forget_loop_lookup, provider_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import CallRecord, FallbackRun
    from honcho_fallback_litellm._chain import Chain
    from honcho_fallback_litellm._router import Deployment

OUT_OF_ROTATION = "LiteLLM had taken it out of rotation"

# Holds a reference to a mutable Call: LiteLLM's hooks run in the task of the call, and a stream's
# reader sets it again for each chunk, in whichever context it reads.
CURRENT: ContextVar[Call | None] = ContextVar("honcho_fallback_litellm_call", default=None)


class Call:
    """Resume one run of the machine from LiteLLM's hooks.

    Args:
        chain: Whom to ask.
        run: The machine.
        core: The router that the call belongs to.
        request: The keyword arguments that it began with.
        limit: How many attempts it may make.
    """

    __slots__ = (
        "_goes_on",
        "_reported",
        "chain",
        "core",
        "hides_usage",
        "limit",
        "request",
        "run",
        "streaming",
    )

    def __init__(
        self, chain: Chain, run: FallbackRun, core: Any, request: dict[str, Any], limit: int
    ) -> None:
        self.chain = chain
        self.run = run
        self.core = core
        self.request = request
        self.limit = limit
        self.streaming = False
        self.hides_usage = False
        self._reported: BaseException | None = None
        self._goes_on = False

    @property
    def record(self) -> CallRecord:
        """Build the record of the call so far."""
        return self.run.record

    @property
    def ended(self) -> bool:
        """Tell whether the run is over."""
        return self.run.outcome != "running"

    def choose(self, eligible: Mapping[str, Deployment]) -> Deployment | None:
        """Choose the deployment of the attempt at hand, or the next one that may be asked.

        Args:
            eligible: By id; what LiteLLM keeps in rotation.

        Returns:
            None when nobody is left; the run is over then, if anything has failed before.
        """
        ids = self.chain.ids
        here = self.run.attempt.position
        found = next((p for p in range(here, len(ids)) if ids[p] in eligible), None)
        if found is None:
            if self._reported is not None:
                self._goes_on = False
                with suppress(Exception):  # the caller raises what was reported
                    self.run.skip(None, OUT_OF_ROTATION)
            return None
        if found != here:
            self.run.skip(found, OUT_OF_ROTATION)
        return eligible[ids[found]]

    def report(self, error: BaseException, *, partial: tuple[Any, ...] = ()) -> bool:
        """Report a failure, however often LiteLLM shows it, and learn whether the call goes on.

        Args:
            error: What was raised.
            partial: The chunks that were handed out.
        """
        error = provider_error(error)
        if error is self._reported or self.ended:
            return self._goes_on
        self._reported = error
        self._goes_on = True
        forget_loop_lookup(error)
        try:
            self.run.fail(error, partial=partial)
        except BaseException:  # noqa: BLE001 # LiteLLM raises the error itself
            self._goes_on = False
        return self._goes_on

    def accept(self, answer: Any) -> None:
        """Take an answer, or say no to it.

        Args:
            answer: As LiteLLM returns it.

        Raises:
            AnswerRejected: ``validate`` said no; LiteLLM's loop goes on if the call does.
        """
        name = self.run.attempt.target.name
        try:
            following = self.run.accept(answer, usage=usage_of(answer))
        except Exception as error:
            self._reported, self._goes_on = error, False
            raise
        if following is not None:
            self._reported = AnswerRejected(f"validate said no to the answer of {name}")
            self._goes_on = True
            raise self._reported

    @property
    def last_error(self) -> BaseException | None:
        """Return what was reported last."""
        return self._reported

    def close(self, error: BaseException) -> None:
        """End the call with an error, and let the error carry the record.

        Args:
            error: What goes out to the caller.
        """
        if not isinstance(error, Exception):
            self.run.cancel()
        elif self.report(error):
            # LiteLLM gave up of its own accord, where the machine would have gone on.
            self.run.cancel()
        attach(error, self.record)
