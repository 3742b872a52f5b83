"""The algorithm, once: a state machine without I/O, clock or sleep.

A run begins with an attempt at hand (``attempt``). Whoever drives it asks that attempt's target
and reports what came of it::

    attempt ──ask──> accept(answer) / succeed() ────────────> success
       ^      └────> fail(error) ── another target is free ──┐
       │                        └── the last one may recover ┤
       └────────────────────────── the next attempt <────────┘
                     fail(error) ── nothing left ───────────> exhausted, rejected (raises)
                     fail(error) ── after content() ────────> interrupted (raises)
                     cancel(), abandon() ───────────────────> cancelled, abandoned

Where something that takes I/O has to be done first (a shared cooldown, a credential, a transport)
there is an ``errand``: the driver does it and calls ``resume``, or hands what it raised to
``fail``. After the end one may be left: telling others what was learned.

The first ending wins and closes the record; a step in an illegal order raises RuntimeError. Time
comes in as ``now`` and goes out as ``Attempt.wait``. The drivers, an adapter's hooks and a user's
own loop all stand on the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from honcho_fallback._errors import (
    AnswerRejected,
    DeadlineExceeded,
    FallbackError,
    FallbackExhausted,
    StreamInterrupted,
)
from honcho_fallback._failure import Failure, FailureKind
from honcho_fallback._history import History, Step, annotate
from honcho_fallback._observer import CallContent, CallStart, Restore, Switch, log_switch
from honcho_fallback._target import Attempt
from honcho_fallback._wait import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback._outlook import Outlook
    from honcho_fallback._plan import Plan
    from honcho_fallback._record import Outcome
    from honcho_fallback._recovery import Errand, RecoveryGuards
    from honcho_fallback._turn import Turn


Chunks = tuple[Any, ...]
Clock = Callable[[], float]
Facts = Mapping[str, Any] | None
Time = float | None  # on the clock's scale; None asks the clock


class FallbackRun(History):
    """Drive one logical call; made by ``policy.start()``, used once, by one call.

    Args:
        plan: The chain and its options.
        turn: What a switch lasts for, or None.
        call_id: Unique for the call.
        clock: Seconds on a monotonic scale, asked only where no ``now`` is given.
        now: The start on that scale.
        at: The start in seconds since the epoch.
    """

    # The state that most calls never touch stands on the class: the happy path sets none of it.
    _errors: tuple[Exception, ...] = ()
    _failed_here = 0
    _coming: Sequence[int] = ()
    errand: Errand | None = None

    def __init__(  # noqa: PLR0913, PLR0917 # built in one place, by the policy
        self, plan: Plan, turn: Turn | None, call_id: str, clock: Clock, now: float, at: float
    ) -> None:
        position = 0 if turn is None or plan.reach == 1 else turn.position
        self._plan = plan
        self._turn = turn
        self._clock = clock
        self._started = self._began = now
        self._started_at = at
        # The tuple's own constructor: that of a NamedTuple costs half as much again.
        self._attempt = tuple.__new__(  # pyright: ignore[reportUnknownMemberType] # typeshed's
            Attempt,
            (plan.chain[position], 1, position, plan.timeout, plan.connect_timeout, 0.0, call_id),
        )
        self._observers = observers = plan.observers and plan.observers.listening()
        if observers is not None:
            observers.tell("on_start", CallStart(call_id, plan.agent, plan.chain))
        if plan.watchful:
            offered = range(position, plan.reach)
            self.errand = self._ahead.news(offered)
            if self.errand is None:
                self._go(offered, None, now)
            else:
                self._coming = offered

    def __repr__(self) -> str:
        attempt = self._attempt
        return f"<FallbackRun {self._outcome}, attempt {attempt.number} at {attempt.target.name}>"

    @property
    def attempt(self) -> Attempt:
        """Return what to do now.

        Raises:
            RuntimeError: The call is over.
        """
        if self._outcome != "running":
            self._refuse_once_over("attempt")
        return self._attempt

    @property
    def outcome(self) -> Outcome:
        """Return how the call ended, or ``"running"``."""
        return self._outcome

    @property
    def latest(self) -> Attempt:
        """Return the attempt at hand, or the last one where the call is over."""
        return self._attempt

    @property
    def guards(self) -> RecoveryGuards:
        """Return what has been tried on the target at hand, apart from asking it."""
        return self._ahead.guards

    @property
    def idle_timeout(self) -> float | None:
        """Return for how many seconds a stream may be silent after its first content."""
        return self._plan.config.idle_timeout

    def silence(self, attempt: Attempt) -> float | None:
        """Return for how many seconds a stream may be silent before its first content.

        Args:
            attempt: The attempt.
        """
        first, timeout = self._plan.config.first_token_timeout, attempt.timeout
        return timeout if first is None or (timeout or first) < first else first

    @property
    def wants_content(self) -> bool:
        """Tell whether an observer wants to hear what is asked and answered."""
        observers = self._observers
        return observers is not None and observers.wants_content

    def tell(
        self,
        *,
        input: Any = None,  # noqa: A002 # the word that traces use
        output: Any = None,
        parameters: Facts = None,
        usage: Facts = None,
    ) -> None:
        """Hand what is asked or answered to the observers that want it; only usage is kept.

        Args:
            input: What is asked, in the caller's form.
            output: What came back; ``accept`` and the stream drivers tell it by themselves.
            parameters: The model's parameters, such as temperature.
            usage: What the answer cost, for the record.
        """
        if usage is not None:
            self._usage = usage
        observers = self._observers
        if observers is None or not observers.wants_content or self._outcome != "running":
            return
        if input is not None or output is not None or parameters is not None:
            call_id = self._attempt.call_id
            observers.tell("on_content", CallContent(call_id, input, output, parameters))

    def check(self, answer: Any, *, partial: Chunks = (), now: Time = None) -> Attempt | None:
        """Treat an answer that failed under HTTP 200 as a failure of its kind.

        Args:
            answer: What ``ask`` returned; of a stream that has ended, the tuple of its chunks.
            partial: The chunks of it that were handed out, in order.
            now: The time on the clock's scale.

        Returns:
            None when nothing is wrong with it, otherwise the next attempt.

        Raises:
            AnswerRejected: It failed and nobody is left (or FallbackExhausted).
            StreamInterrupted: Content had been handed out.
        """
        check = self._plan.check
        failure = None if check is None else check(answer)
        if failure is None:
            return None
        self._refuse_once_over("check")
        told = failure._replace(error=AnswerRejected.__name__)
        return self._fail(AnswerRejected(failure), told, partial, now)

    def accept(self, answer: Any, *, usage: Facts = None, now: Time = None) -> Attempt | None:
        """Take an answer, if nothing is wrong with it and ``validate`` takes it.

        Args:
            answer: What ``ask`` returned.
            usage: What it cost, as for ``succeed``.
            now: The time on the clock's scale.

        Returns:
            None when the call is over, otherwise the next attempt.

        Raises:
            AnswerRejected: It was not acceptable and nobody is left (or FallbackExhausted).
        """
        if self._outcome != "running":
            self._refuse_once_over("accept")
        if type(answer) is not str:
            following = self.check(answer, now=now)
            if following is not None:
                return following
        validate = self._plan.validate
        if validate is not None:
            try:
                verdict = validate(answer)
            except Exception as error:  # noqa: BLE001 # goes out through reject
                return self.reject(error, now=now)
            except BaseException:
                self.cancel(now=now)
                raise
            if verdict is False:
                name = self._attempt.target.name
                return self.reject(
                    AnswerRejected(f"validate said no to the answer of {name}"), now=now
                )
        if self._observers is not None:
            self.tell(output=answer)
        if usage is not None:
            self._usage = usage
        self._finish("success", now)
        return None

    def succeed(self, *, usage: Facts = None, now: Time = None) -> None:
        """End the call with the answer of the current target.

        Args:
            usage: What it cost, in whatever form the caller likes; shown in the record.
            now: The time on the clock's scale.

        Raises:
            RuntimeError: The call is over.
        """
        self._refuse_once_over("succeed")
        if usage is not None:
            self._usage = usage
        self._finish("success", now)

    def content(self, *, now: Time = None) -> None:
        """Note that content is being handed out: from here on nobody else can be asked.

        Args:
            now: The time on the clock's scale.

        Raises:
            RuntimeError: The call is over.
        """
        self._refuse_once_over("content")
        if self._content_at is None:
            self._content_at = self._clock() if now is None else now

    def fail(self, error: BaseException, *, partial: Chunks = (), now: Time = None) -> Attempt:
        """Report that the current attempt failed, and learn what to do next.

        Args:
            error: What was raised.
            partial: The chunks of a stream that were handed out, in order.
            now: The time on the clock's scale.

        Returns:
            The next attempt; wait ``attempt.wait`` seconds before it.

        Raises:
            FallbackExhausted: Every target that could be asked failed.
            StreamInterrupted: Content had been handed out.
            DeadlineExceeded: More could have been asked, but time ran out.
            RuntimeError: The call was over before.
            BaseException: The error itself where it ends the call: a cancellation, a failure that
                no other target could help with, or any with a single target.
        """
        self._refuse_once_over("fail")
        try:
            if self.errand is not None and isinstance(error, Exception):
                return self._undone(self.errand, error, now)
            return self._fail(error, self._plan.classify(error), partial, now)
        finally:
            del error  # as in _fail

    def reject(self, error: Exception, *, now: Time = None) -> Attempt:
        """Report that the current attempt's answer is not usable: a malformed response.

        Args:
            error: Why.
            now: The time on the clock's scale.

        Returns:
            The next attempt.

        Raises:
            FallbackExhausted: As ``fail``.
        """
        self._refuse_once_over("reject")
        why, name = "the answer was not acceptable", type(error).__name__
        failure = Failure.of(FailureKind.MALFORMED_RESPONSE, reason=why, error=name)
        try:
            return self._fail(error, failure, (), now)
        finally:
            del error

    def skip(
        self, position: int | None, why: str, *, among: Sequence[int] = (), now: Time = None
    ) -> Attempt:
        """Go on to a target further down the chain, because those before it are out of rotation.

        For adapters whose framework decides who may be asked; nothing failed, nothing is logged.

        Args:
            position: Where in the chain to go on, or None when nobody is left who may be asked.
            why: Why the others were not asked, for the record.
            among: Who may be asked, where that is not everybody from there on.
            now: The time on the clock's scale.

        Returns:
            The attempt in place of the current one.

        Raises:
            FallbackExhausted: Nobody is left (or the last error itself, as with ``fail``).
            RuntimeError: The call is over, or has not failed yet and nobody is left.
        """
        if position is not None and position >= self._plan.reach:
            position = None
        self._refuse_once_over("skip")
        if position is None and not self._errors:
            raise RuntimeError("skip: nobody is left and nothing has failed; call cancel()")
        here, chain = self._attempt.position, self._plan.chain
        now = self._clock() if now is None else now
        passed = range(here, len(chain) if position is None else position)
        self._skipped = {**self._skipped, **dict.fromkeys(passed, why)}
        if position is None:
            self._stop("exhausted", self._errors[-1], now)
        self.errand, self._coming = None, ()
        self._go(among or range(position, self._plan.reach), None, now)
        self._began = now
        return self._attempt

    def cancel(self, *, now: Time = None) -> None:
        """Close the record of a call that its caller cancelled; nothing if it is closed.

        Args:
            now: The time on the clock's scale.
        """
        if self._outcome == "running":
            self._finish("cancelled", now)

    def abandon(self, *, partial: Chunks = (), now: Time = None) -> None:
        """Close the record of a stream whose reader stopped early; nothing if it is closed.

        Args:
            partial: The chunks that were handed out, in order.
            now: The time on the clock's scale.
        """
        if self._outcome == "running":
            if partial:
                self.tell(output=partial)
            self._finish("abandoned", now)

    def resume(self, *, now: Time = None) -> Attempt:
        """Go on after the errand was done; there may be another one.

        Args:
            now: The time on the clock's scale.
        """
        self.errand = None
        if self._outcome == "running":
            coming, self._coming = self._coming, ()
            self._began = now = self._clock() if now is None else now
            if coming:
                self._go(coming, None, now)
            else:  # what it took is gone from the deadline
                timeout = self._ahead.timeout(self._attempt.position, now)
                self._attempt = self._attempt._replace(timeout=timeout)
        return self._attempt

    def _undone(self, errand: Errand, error: Exception, now: Time) -> Attempt:
        if self._coming:  # what others know is not needed to go on
            return self.resume(now=now)
        told = str(error) if isinstance(error, FallbackError) else type(error).__name__
        step = self._steps[-1]._replace(note=f"its {errand.what} failed: {told}")
        self._steps = (*self._steps[:-1], step)
        self._attempt, self.errand = step.attempt, None
        self._ahead.note, self._ahead.granted = "", self._ahead.granted - 1
        now = self._clock() if now is None else now
        assert step.failure is not None  # noqa: S101 # those that a run keeps have failed
        return self._conclude(self._errors[-1], step.failure, now)

    def _fail(self, error: BaseException, failure: Failure, partial: Chunks, now: Time) -> Attempt:
        now = self._clock() if now is None else now
        if partial:
            self.tell(output=partial)
        try:
            if failure.kind is FailureKind.CANCELLED or not isinstance(error, Exception):
                self.cancel(now=now)
                raise error
            self._steps += (Step(self._attempt, self._began, now, failure, self._ahead.note),)
            self._errors += (error,)
            self._failed_here += 1
            if self._content_at is not None:
                self._finish("interrupted", now)
                name = self._attempt.target.name
                what = f"{name} broke off after {len(partial)} chunks: {failure.kind.value}"
                raise StreamInterrupted(what, partial, self.record) from error
            return self._conclude(error, failure, now)
        finally:
            # What is raised refers to this frame; the frame must not refer to what is raised.
            del error

    def _conclude(self, error: Exception, failure: Failure, now: float) -> Attempt:
        try:
            following = self._decide(error, failure, now)
            if isinstance(following, Attempt):
                self._attempt = following
                self._began = now + following.wait
                return following
            self._stop(following, error, now)
        finally:
            del error  # as in _fail

    def _stop(self, outcome: Outcome, error: Exception, now: float) -> NoReturn:
        errors = self._errors
        try:
            self._finish(outcome, now)
            record = self.record
            if outcome == "exhausted":
                if self._ahead.late:
                    raise DeadlineExceeded(record.why or "", errors, record) from error
                if self._plan.grouped:
                    asked = ", ".join(dict.fromkeys(step.target for step in record.attempts))
                    raise FallbackExhausted(f"no answer from {asked}", errors, record) from error
            annotate(error, record)
            raise error
        finally:
            del error  # as in _fail
            errors = ()

    def _decide(self, error: Exception, failure: Failure, now: float) -> Attempt | Outcome:
        plan, attempt, outlook = self._plan, self._attempt, self._ahead
        again = self._recovered(outlook.refresh(failure, attempt.target), now)
        if again is not None:
            return again
        free = plan.candidates(failure, attempt.position)
        at_the_end = attempt.position + 1 >= plan.reach
        if not (free or (at_the_end and failure.transient)):
            return "exhausted" if at_the_end and plan.switches(failure) else "rejected"
        more = attempt.number < plan.max_attempts + outlook.granted
        wait = self._patience(error, failure, free) if more else None
        again = None if wait is None else self._again(wait, now)
        if again is None:
            again = self._recovered(outlook.rebuild(failure, attempt, self._failed_here - 1), now)
        if again is not None or not (more and free):
            return again or "exhausted"
        pause = plan.config.switch_wait
        wait = 0.0 if pause is None else seconds(pause, self._failed_here, error)
        if not outlook.in_time(free[-1], now, wait):
            return "exhausted"
        self._go(free, failure, now, wait)
        return self._attempt

    def _patience(self, error: Exception, failure: Failure, free: Sequence[int]) -> float | None:
        """Tell how long to wait before the same target is asked again, or None to leave it."""
        config, asked = self._plan.config, failure.retry_after
        each = config.attempts_per_target
        if each is not None and self._failed_here >= each:
            return None
        if not free and asked is not None:
            return min(asked, config.retry_after_cap)
        if free and not (
            failure.transient and self._failed_here < self._plan.switch_after(failure.kind)
        ):
            return None
        wait = seconds(config.wait, self._failed_here, error)
        # Retry-After is never waited for while another target is free.
        return wait if asked is None or asked <= wait else None

    def _again(self, wait: float, now: float) -> Attempt | None:
        """Ask the same target once more, if time and the retry budget allow it."""
        attempt = self._attempt
        if self._ahead.may_repeat(attempt, now, wait):
            return self._next(attempt.position, wait, now, attempt.number + 1)
        return None

    def _recovered(self, errand: Errand | None, now: float) -> Attempt | None:
        again = None if errand is None else self._again(errand.wait, now)
        if errand is not None and again is not None:
            self.errand, self._ahead.note = errand, errand.note
            self._ahead.granted += 1
        return again

    def _go(
        self, offered: Sequence[int], failure: Failure | None, now: float, wait: float = 0.0
    ) -> None:
        """Go to the first of some targets that is not cooling down; with a failure, a switch."""
        plan, attempt = self._plan, self._attempt
        position = self._ahead.arrive(offered, attempt.target, failure, now)
        if self._turn is not None:
            self._turn.advance(position)
        if failure is not None:
            self._failed_here = 0
            primary, target = plan.chain[0], plan.chain[position]
            switch = Switch(attempt.call_id, plan.agent, primary, attempt.target, target, failure)
            log_switch(switch)
            if self._observers is not None:
                self._observers.tell("on_switch", switch)
        self._attempt = self._next(position, wait, now, attempt.number + (failure is not None))

    def _next(self, position: int, wait: float, now: float, number: int) -> Attempt:
        timeout = self._ahead.timeout(position, now + wait)
        target, connect = self._plan.chain[position], self._plan.config.connect_timeout
        call_id = self._attempt.call_id
        return Attempt(target, number, position, timeout, connect, wait, call_id)

    def _finish(self, outcome: Outcome, now: Time) -> None:
        self._ended = now = self._clock() if now is None else now
        self._outcome = outcome
        self._errors = ()
        if self._outlook is not None:
            self._close(outcome, self._outlook, now)
        if self._observers is not None:
            self._observers.tell("on_finish", self.record)

    def _close(self, outcome: Outcome, outlook: Outlook, now: float) -> None:
        plan, attempt = self._plan, self._attempt
        restored = outcome == "success" and outlook.permit is not None and attempt.position == 0
        failure = self._steps[-1].failure if self._steps else None
        self.errand = outlook.close(attempt.target, outcome, failure, now)
        if restored and self._observers is not None:
            restore = Restore(plan.agent, plan.chain[0], "cooldown", attempt.call_id)
            self._observers.tell("on_restore", restore)

    def _refuse_once_over(self, step: str) -> None:
        if self._outcome != "running":
            ended = f"the call has ended ({self._outcome}) and a run serves one"
            raise RuntimeError(f"{step}: {ended}; ask policy.start() for another")
