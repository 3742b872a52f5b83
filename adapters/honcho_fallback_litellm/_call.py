"""One logical call: what it has learned so far, and the ContextVar that finds it."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import litellm
from litellm.exceptions import Timeout

from honcho_fallback import AnswerRejected, DeadlineExceeded, FallbackPolicy, OutcomeUnknown
from honcho_fallback_litellm._answers import attach
from honcho_fallback_litellm._failures import forget_loop_lookup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterable, Mapping

    from honcho_fallback import Attempt, FallbackRun, Target
    from honcho_fallback_litellm._chain import Chain
    from honcho_fallback_litellm._router import Deployment

T = TypeVar("T")

OUT_OF_ROTATION = "LiteLLM had taken it out of rotation"

# LiteLLM's hooks run in the task of the call, and a stream's reader sets it again for each chunk,
# in whichever context it reads. The reference is weak, as each connection, timer and worker task
# that is made meanwhile keeps a copy of the context; who runs or reads the call holds it.
_CURRENT: ContextVar[weakref.ref[RouterCall] | None] = ContextVar(
    "honcho_fallback_litellm_call", default=None
)


def current_call(core: object) -> RouterCall | None:
    """Return the call that LiteLLM works for in this context, if it is one of a Router's own."""
    reference = _CURRENT.get()
    call = None if reference is None else reference()
    return call if call is not None and call.core is core else None


@contextmanager
def working_for(call: RouterCall | None) -> Generator[None]:
    """Let LiteLLM's hooks in this context find a call; None hides the one around it."""
    token = _CURRENT.set(None if call is None else weakref.ref(call))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def provider_error(error: BaseException) -> BaseException:
    """Return the exception that LiteLLM made an error from: a stream's original, or itself."""
    original = getattr(error, "original_exception", None)
    return original if isinstance(original, Exception) else error


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class RouterCall:
    """Resume one run of the machine from LiteLLM's hooks.

    LiteLLM shows a failure in several places. It is reported in one: an opening's where the
    attempt's function raises, a stream's where the stream breaks. The others ask ``goes_on``.
    """

    chain: Chain
    run: FallbackRun
    core: Any
    request: dict[str, Any]  # the keyword arguments that it began with
    limit: int  # of its attempts
    allowed: tuple[int, ...]  # the positions of those that it may ask
    wants_content: bool  # whether somebody observes what is asked and answered
    attempt: Attempt = field(init=False)  # at hand, or the last one
    ended: bool = field(init=False, default=False)
    time_limit: AttemptTimeout | None = field(init=False, default=None)
    blocking: bool = field(init=False, default=False)  # a sync method asks, in whatever loop
    streaming: bool = field(init=False, default=False)
    hides_usage: bool = field(init=False, default=False)
    # LiteLLM's own selection is at work for the attempt at hand.
    is_selecting: bool = field(init=False, default=False)
    last_error: BaseException | None = field(init=False, default=None)
    _goes_on: bool = field(init=False, default=False)  # after the last error
    _left_over: bool = field(init=False)

    def __post_init__(self) -> None:
        config = self.chain.config
        bounds = (config.deadline, config.first_token_timeout, config.idle_timeout)
        if any(one is not None for one in bounds):
            self.time_limit = AttemptTimeout()
        self.attempt = self.run.attempt
        self._left_over = len(self.allowed) == len(self.chain.ids)

    @property
    def goes_on(self) -> bool:
        """Tell whether another attempt follows the last error."""
        return self._goes_on and not self.ended

    @property
    def is_for_routers_fallbacks(self) -> bool:
        """Tell whether the Router's own lists of other groups decide what the last error means."""
        return self._left_over and not self.goes_on and self.run.outcome != "interrupted"

    @property
    def wants_stream(self) -> bool:
        return self.request.get("stream") is True

    # Whom to ask.

    @property
    def candidate_ids(self) -> tuple[str, ...]:
        """Return the ids of who may be asked if in rotation, that of the attempt at hand first."""
        here = self.attempt.position
        after = [one for one in self.allowed if one >= here]
        before = [one for one in self.allowed if one < here and self.last_error is None]
        return tuple(self.chain.ids[one] for one in (*after, *before))

    def may_ask(self, among: Iterable[str]) -> list[int]:
        """List the positions that the attempt at hand may go to, of the ids in rotation."""
        left, here = {*among}, self.attempt.position
        positions = [self.chain.ids.index(one) for one in self.candidate_ids if one in left]
        # Before the first request no target has failed: one that cools down is better than none.
        return [position for position in positions if position >= here] or sorted(positions)

    def choose(
        self, eligible: Mapping[str, Deployment], refusal: Exception | None
    ) -> Deployment | None:
        """Choose the deployment of the attempt at hand, or another one that may be asked.

        Args:
            eligible: By id; what LiteLLM keeps in rotation.
            refusal: What LiteLLM's selection said of the others.

        Returns:
            None when nobody is left; the run is over then, with the last failure or the refusal.
        """
        free = self.may_ask(eligible)
        if not free:
            refusal = refusal or LookupError("no deployment of this group is in rotation")
            self.last_error, self._goes_on, self.ended = self.last_error or refusal, False, True
            with suppress(Exception):  # the caller raises the last error
                self.run.skip(None, OUT_OF_ROTATION, error=refusal)
            return None
        if self.attempt.position not in free:
            self.attempt = self.run.skip(free[0], OUT_OF_ROTATION, among=free)
        return eligible[self.chain.ids[self.attempt.position]]

    # What came of it.

    def report(self, error: BaseException, *, partial: tuple[Any, ...] = ()) -> None:
        """Report the failure of the attempt at hand; one that is known already is not news."""
        error = provider_error(error)
        if error is self.last_error or self.ended:
            return
        self.last_error, self._goes_on = error, True
        forget_loop_lookup(error)
        try:
            self.attempt = self.run.fail(error, partial=partial)
        except BaseException as final:  # noqa: BLE001 # LiteLLM raises the error itself
            self._goes_on, self.ended = False, True
            if isinstance(final, DeadlineExceeded | OutcomeUnknown):
                self._left_over = False

    def accept(self, answer: Any) -> None:
        """Take an answer, or say no to it.

        Raises:
            AnswerRejected: ``validate`` said no; LiteLLM's loop goes on if the call does.
        """
        name = self.attempt.target.name
        try:
            following = self.run.accept(answer)
        except Exception as error:
            self.last_error, self._goes_on, self.ended = error, False, True
            raise
        if following is None:
            self.ended = True
            return
        self.attempt = following
        self.last_error = AnswerRejected(f"validate said no to the answer of {name}")
        self._goes_on = True
        raise self.last_error

    def succeed(self, usage: Mapping[str, Any] | None) -> None:
        """End the call with a stream that was read to its end."""
        self.run.succeed(usage=usage)
        self.ended = True

    def abandon(self, partial: tuple[Any, ...]) -> None:
        """End the call of a stream whose reader has left."""
        self.run.cancel("abandoned", partial=partial)
        self.ended = True

    def close(self, error: BaseException) -> None:
        """End the call with the error that goes out, and let that carry the record."""
        if isinstance(error, Exception) and self.last_error is None:
            self.report(error)  # LiteLLM raised it before it made an attempt
        # Where the machine would have gone on, LiteLLM gave up of its own accord.
        self.run.cancel()
        self.ended = True
        record = self.run.record
        theirs = litellm.LITELLM_EXCEPTION_TYPES  # pyright: ignore[reportPrivateImportUsage] # shown, not exported
        if type(error) in theirs and len(record.attempts) > 1:
            # LiteLLM writes these, which its text shows, only where its own loop comes to an end.
            counted = cast("Any", error)
            counted.num_retries, counted.max_retries = len(record.attempts) - 1, self.limit - 1
        attach(error, record)

    # I/O that the machine wants done.

    def settle(self) -> None:
        """Do in this thread what the run wants done before its attempt, or after its end.

        Raises:
            Exception: The provider's own, where that could not be done and the call is over.
        """
        while self.run.pending is not None:
            try:
                self.attempt = FallbackPolicy.perform(self.run)
            except Exception as error:  # noqa: BLE001 # the run knows what it means
                self._pending_failed(error)

    async def asettle(self) -> None:
        """Do in this task what the run wants done before its attempt, or after its end.

        Raises:
            Exception: The provider's own, where that could not be done and the call is over.
        """
        while self.run.pending is not None:
            try:
                self.attempt = await FallbackPolicy.aperform(self.run)
            except Exception as error:  # noqa: BLE001 # the run knows what it means
                self._pending_failed(error)

    def _pending_failed(self, error: Exception) -> None:
        try:
            self.attempt = self.run.fail(error)
        except Exception:
            self._goes_on, self.ended = False, True
            raise

    async def publish(self) -> None:
        """Tell other processes what the call has learned, where it is over."""
        if self.blocking:  # this loop is gone in a moment, and a connection with it
            self.publish_here()
        elif self.ended and self.chain.has_actions:
            await self.asettle()

    def publish_here(self) -> None:
        """Do so in this thread."""
        if self.ended and self.chain.has_actions:
            self.settle()

    # How long it may take.

    def restart_time_limit(self) -> None:
        """Start the clock of the attempt at hand anew: a stream's, up to its first content."""
        if self.time_limit is None:
            return
        attempt, config = self.attempt, self.chain.config
        if self.wants_stream:
            bound = config.deadline or config.first_token_timeout
            seconds = attempt.stream_timeout if bound else None
        else:
            seconds = attempt.timeout if config.deadline else None
        self.time_limit.restart(seconds, attempt.target)

    async def within_time(self, awaitable: Awaitable[T]) -> T:
        """Await something of the attempt at hand, within its time.

        Raises:
            Timeout: LiteLLM's own.
        """
        return await (awaitable if self.time_limit is None else self.time_limit.wait(awaitable))


class AttemptTimeout:
    """Bound what one attempt takes in a task, from its opening to a stream's first content.

    A reader's own time between two chunks does not count. Nothing is bounded until ``restart``.
    """

    __slots__ = ("_left", "_scope", "_seconds", "_target")

    def __init__(self) -> None:
        self._left: float | None = None
        self._scope: asyncio.Timeout | None = None
        self._seconds: float | None = None
        self._target: Target | None = None

    def restart(self, seconds: float | None, target: Target) -> None:
        """Start anew for an attempt, also from within ``wait``."""
        self._left = self._seconds = seconds
        self._target = target
        if self._scope is not None:
            now = asyncio.get_running_loop().time()
            self._scope.reschedule(None if seconds is None else now + seconds)

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await something of the attempt."""
        if self._scope is not None:  # LiteLLM goes on with another target within a chunk's reading
            return await awaitable
        self._scope = scope = asyncio.timeout(self._left)
        try:
            async with scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
            raise self._expired() from None
        finally:
            self._scope, until = None, scope.when()
            left = None if until is None else until - asyncio.get_running_loop().time()
            self._left = None if left is None else max(0.0, left)

    def _expired(self) -> Timeout:
        assert self._target is not None  # noqa: S101 # for the type checker: nothing else expires
        name, provider = self._target.name, self._target.provider
        message = f"{name} gave no answer within {self._seconds:g} s"
        return Timeout(message, model=self._target.model, llm_provider=provider or "")
