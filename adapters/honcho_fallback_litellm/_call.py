"""One logical call: what it has learned so far, and the ContextVar that finds it."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from honcho_fallback import AnswerRejected, FallbackPolicy, read_answer
from honcho_fallback_litellm._answers import attach
from honcho_fallback_litellm._failures import forget_loop_lookup, provider_error
from honcho_fallback_litellm._patience import Patience

if TYPE_CHECKING:
    import weakref
    from collections.abc import Awaitable, Iterable, Mapping

    from honcho_fallback import CallRecord, FallbackRun
    from honcho_fallback_litellm._chain import Chain
    from honcho_fallback_litellm._router import Deployment

OUT_OF_ROTATION = "LiteLLM had taken it out of rotation"

# LiteLLM's hooks run in the task of the call, and a stream's reader sets it again for each chunk,
# in whichever context it reads. The reference is weak, as each connection, timer and worker task
# that is made meanwhile keeps a copy of the context; who runs or reads the call holds it.
CURRENT: ContextVar[weakref.ref[Call] | None] = ContextVar(
    "honcho_fallback_litellm_call", default=None
)


def current_call() -> Call | None:
    """Return the call that this context belongs to, unless it is gone."""
    reference = CURRENT.get()
    return None if reference is None else reference()


class Call:
    """Resume one run of the machine from LiteLLM's hooks.

    Args:
        chain: The targets, in order.
        run: The machine.
        core: The router that the call belongs to.
        request: The keyword arguments that it began with.
        limit: How many attempts it may make.
        reach: How many targets of the chain it may ask.
    """

    __slots__ = (
        "__weakref__",
        "_goes_on",
        "_reported",
        "blocking",
        "chain",
        "core",
        "hides_usage",
        "limit",
        "patience",
        "reach",
        "request",
        "run",
        "streaming",
    )

    def __init__(  # noqa: PLR0913, PLR0917 # made in one place, by begin
        self,
        chain: Chain,
        run: FallbackRun,
        core: Any,
        request: dict[str, Any],
        limit: int,
        reach: int,
    ) -> None:
        self.chain = chain
        self.run = run
        self.core = core
        self.request = request
        self.limit = limit
        self.reach = reach
        config = chain.policy.config
        bounds = (config.deadline, config.first_token_timeout, config.idle_timeout)
        self.patience: Patience | None = None if bounds == (None, None, None) else Patience()
        self.blocking = False  # one of LiteLLM's sync methods asks, in whatever loop
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

    @property
    def in_question(self) -> tuple[str, ...]:
        """Return the ids of who may be asked if in rotation, that of the attempt at hand first."""
        ids, here = self.chain.ids[: self.reach], self.run.attempt.position
        return ids[here:] + (ids[:here] if self._reported is None else ())

    def may_ask(self, among: Iterable[str]) -> list[int]:
        """List the positions that the attempt at hand may go to, of those in rotation.

        Args:
            among: Ids of what is in rotation.
        """
        left, here = {*among}, self.run.attempt.position
        positions = [self.chain.ids.index(one) for one in self.in_question if one in left]
        # Before the first request no target has failed: one that cools down is better than none.
        return [position for position in positions if position >= here] or sorted(positions)

    def choose(self, eligible: Mapping[str, Deployment]) -> Deployment | None:
        """Choose the deployment of the attempt at hand, or another one that may be asked.

        Args:
            eligible: By id; what LiteLLM keeps in rotation.

        Returns:
            None when nobody is left; the run is over then, if anything has failed before.
        """
        ids, free = self.chain.ids, self.may_ask(eligible)
        if not free:
            if self._reported is not None:
                self._goes_on = False
                with suppress(Exception):  # the caller raises what was reported
                    self.run.skip(None, OUT_OF_ROTATION)
            return None
        if self.run.attempt.position not in free:
            self.run.skip(free[0], OUT_OF_ROTATION, among=free)
        return eligible[ids[self.run.attempt.position]]

    def settle(self) -> None:
        """Do in this thread what the run wants done before its attempt, or after its end.

        Raises:
            Exception: The provider's own, where that could not be done and the call is over.
        """
        while self.run.pending is not None:
            try:
                FallbackPolicy.perform(self.run)
            except Exception as error:  # noqa: BLE001 # the run knows what it means
                self._undone(error)

    async def asettle(self) -> None:
        """Do in this task what the run wants done before its attempt, or after its end.

        Raises:
            Exception: The provider's own, where that could not be done and the call is over.
        """
        while self.run.pending is not None:
            try:
                await FallbackPolicy.aperform(self.run)
            except Exception as error:  # noqa: BLE001 # the run knows what it means
                self._undone(error)

    @property
    def seconds(self) -> float | None:
        """Return how long the attempt at hand may take, a stream's up to its first content."""
        run, config = self.run, self.chain.policy.config
        if self.request.get("stream") is True:
            bound = config.deadline or config.first_token_timeout
            return run.attempt.stream_timeout if bound else None
        return run.attempt.timeout if config.deadline else None

    def be_patient(self) -> None:
        """Start the clock of the attempt at hand anew."""
        if self.patience is not None:
            self.patience.give(self.seconds, self.run.attempt.target)

    async def bear(self, awaitable: Awaitable[Any]) -> Any:
        """Await something of the attempt at hand, within its time.

        Args:
            awaitable: LiteLLM's work for the attempt.

        Raises:
            Timeout: LiteLLM's own.
        """
        return await (awaitable if self.patience is None else self.patience.bear(awaitable))

    async def leave(self) -> None:
        """Tell other processes what the call has learned, where it is over."""
        if self.blocking:  # this loop is gone in a moment, and a connection with it
            self.leave_here()
        elif self.ended and self.run.pending is not None:
            await self.asettle()

    def leave_here(self) -> None:
        """Do so in this thread."""
        if self.ended and self.run.pending is not None:
            self.settle()

    def _undone(self, error: Exception) -> None:
        try:
            self.run.fail(error)
        except Exception:
            self._goes_on = False
            raise

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
            following = self.run.accept(answer, usage=read_answer(answer).usage)
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
