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

The first ending wins and closes the record; a step in an illegal order raises RuntimeError. Time
comes in as ``now`` and goes out as ``Attempt.wait``. The drivers, an adapter's hooks and a user's
own loop all stand on the same calls.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from honcho_fallback._errors import AnswerRejected, FallbackExhausted, StreamInterrupted
from honcho_fallback._failure import Failure, FailureKind
from honcho_fallback._history import Step, annotate, build_record, tell_step
from honcho_fallback._observer import CallContent, CallStart, Switch, log_switch
from honcho_fallback._target import Attempt
from honcho_fallback._wait import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback._observer import Observers
    from honcho_fallback._plan import Plan
    from honcho_fallback._record import AttemptRecord, CallRecord, Outcome
    from honcho_fallback._turn import Turn


class FallbackRun:
    """Drive one logical call; made by ``policy.start()``, used once, by one call.

    Args:
        plan: The chain and its options.
        turn: What a switch lasts for, or None.
        call_id: Unique for the call.
        clock: Seconds on a monotonic scale, asked only where no ``now`` is given.
        now: The start on that scale.
        started_at: The start in seconds since the epoch.
    """

    # The state that most calls never touch stands on the class: the happy path sets none of it.
    _outcome: Outcome = "running"
    _ended = 0.0
    _content_at: float | None = None
    _observers: Observers | None = None
    _usage: Mapping[str, Any] | None = None
    _steps: tuple[Step, ...] = ()
    _errors: tuple[Exception, ...] = ()
    _failed_here = 0
    _skipped: Mapping[int, str] = MappingProxyType({})

    def __init__(  # noqa: PLR0913, PLR0917 # built in one place, by the policy
        self,
        plan: Plan,
        turn: Turn | None,
        call_id: str,
        clock: Callable[[], float],
        now: float,
        started_at: float,
    ) -> None:
        position = 0 if turn is None else turn.position
        self._plan = plan
        self._turn = turn
        self._clock = clock
        self._started = self._began = now
        self._started_at = started_at
        # The tuple's own constructor: that of a NamedTuple costs half as much again.
        self._attempt = tuple.__new__(  # pyright: ignore[reportUnknownMemberType] # typeshed's
            Attempt,
            (plan.chain[position], 1, position, plan.timeout, plan.connect_timeout, 0.0, call_id),
        )
        if plan.observers is not None:
            self._observers = observers = plan.observers.listening()
            if observers is not None:
                observers.tell("on_start", CallStart(call_id, plan.agent, plan.chain))

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
            self._refuse("attempt")
        return self._attempt

    @property
    def outcome(self) -> Outcome:
        """Return how the call ended, or ``"running"``."""
        return self._outcome

    @property
    def record(self) -> CallRecord:
        """Build the record of what has happened so far; complete once the call is over."""
        return build_record(
            plan=self._plan,
            attempt=self._attempt,
            steps=self._steps,
            outcome=self._outcome,
            started=self._started,
            started_at=self._started_at,
            ended=self._clock() if self._outcome == "running" else self._ended,
            began=self._began,
            content_at=self._content_at,
            usage=self._usage,
            skipped=self._skipped,
        )

    @property
    def failed(self) -> tuple[AttemptRecord, ...]:
        """Return the attempts that failed so far, in order."""
        return tuple(tell_step(step, self._started) for step in self._steps)

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
        parameters: Mapping[str, Any] | None = None,
        usage: Mapping[str, Any] | None = None,
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

    def check(
        self, answer: Any, *, partial: tuple[Any, ...] = (), now: float | None = None
    ) -> Attempt | None:
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
        if self._outcome != "running":
            self._refuse("check")
        told = failure._replace(error=AnswerRejected.__name__)
        return self._settle(AnswerRejected(failure), told, partial, now)

    def accept(
        self, answer: Any, *, usage: Mapping[str, Any] | None = None, now: float | None = None
    ) -> Attempt | None:
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
            self._refuse("accept")
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

    def succeed(self, *, usage: Mapping[str, Any] | None = None, now: float | None = None) -> None:
        """End the call with the answer of the current target.

        Args:
            usage: What it cost, in whatever form the caller likes; shown in the record.
            now: The time on the clock's scale.

        Raises:
            RuntimeError: The call is over.
        """
        if self._outcome != "running":
            self._refuse("succeed")
        if usage is not None:
            self._usage = usage
        self._finish("success", now)

    def content(self, *, now: float | None = None) -> None:
        """Note that content is being handed out: from here on nobody else can be asked.

        Args:
            now: The time on the clock's scale.

        Raises:
            RuntimeError: The call is over.
        """
        if self._outcome != "running":
            self._refuse("content")
        if self._content_at is None:
            self._content_at = self._clock() if now is None else now

    def fail(
        self, error: BaseException, *, partial: tuple[Any, ...] = (), now: float | None = None
    ) -> Attempt:
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
            RuntimeError: The call was over before.
            BaseException: The error itself where it ends the call: a cancellation, a failure that
                no other target could help with, or any with a single target.
        """
        if self._outcome != "running":
            self._refuse("fail")
        try:
            return self._settle(error, self._plan.classify(error), partial, now)
        finally:
            del error  # as in _settle

    def reject(self, error: Exception, *, now: float | None = None) -> Attempt:
        """Report that the current attempt's answer is not usable: a malformed response.

        Args:
            error: Why.
            now: The time on the clock's scale.

        Returns:
            The next attempt.

        Raises:
            FallbackExhausted: As ``fail``.
        """
        if self._outcome != "running":
            self._refuse("reject")
        failure = Failure.of(
            FailureKind.MALFORMED_RESPONSE,
            reason="the answer was not acceptable",
            error=type(error).__name__,
        )
        try:
            return self._settle(error, failure, (), now)
        finally:
            del error

    def skip(self, position: int | None, why: str, *, now: float | None = None) -> Attempt:
        """Go on to a target further down the chain, because those before it are out of rotation.

        For adapters whose framework decides who may be asked; nothing failed, nothing is logged.

        Args:
            position: Where in the chain to go on, or None when nobody is left who may be asked.
            why: Why the others were not asked, for the record.
            now: The time on the clock's scale.

        Returns:
            The attempt in place of the current one.

        Raises:
            FallbackExhausted: Nobody is left (or the last error itself, as with ``fail``).
            RuntimeError: The call is over, or has not failed yet and nobody is left.
        """
        if self._outcome != "running" or (position is None and not self._errors):
            self._refuse("skip")
        here = self._attempt.position
        now = self._clock() if now is None else now
        passed = range(here, len(self._plan.chain) if position is None else position)
        self._skipped = {**self._skipped, **dict.fromkeys(passed, why)}
        if position is None:
            self._stop("exhausted", self._errors[-1], now)
        self._attempt = self._attempt._replace(
            target=self._plan.chain[position], position=position, wait=0.0
        )
        self._began = now
        return self._attempt

    def cancel(self, *, now: float | None = None) -> None:
        """Close the record of a call that its caller cancelled; nothing if it is closed.

        Args:
            now: The time on the clock's scale.
        """
        if self._outcome == "running":
            self._finish("cancelled", now)

    def abandon(self, *, partial: tuple[Any, ...] = (), now: float | None = None) -> None:
        """Close the record of a stream whose reader stopped early; nothing if it is closed.

        Args:
            partial: The chunks that were handed out, in order.
            now: The time on the clock's scale.
        """
        if self._outcome == "running":
            if partial:
                self.tell(output=partial)
            self._finish("abandoned", now)

    def _settle(
        self, error: BaseException, failure: Failure, partial: tuple[Any, ...], now: float | None
    ) -> Attempt:
        now = self._clock() if now is None else now
        if partial:
            self.tell(output=partial)
        try:
            if failure.kind is FailureKind.CANCELLED or not isinstance(error, Exception):
                self.cancel(now=now)
                raise error
            self._steps += (Step(self._attempt, self._began, now, failure),)
            self._errors += (error,)
            self._failed_here += 1
            if self._content_at is not None:
                self._finish("interrupted", now)
                name = self._attempt.target.name
                what = f"{name} broke off after {len(partial)} chunks: {failure.kind.value}"
                raise StreamInterrupted(what, partial, self.record) from error
            following = self._decide(error, failure)
            if isinstance(following, Attempt):
                self._attempt = following
                self._began = now + following.wait
                return following
            self._stop(following, error, now)
        finally:
            # What is raised refers to this frame; the frame must not refer to what is raised.
            del error

    def _stop(self, outcome: Outcome, error: Exception, now: float) -> NoReturn:
        errors = self._errors
        try:
            self._finish(outcome, now)
            record = self.record
            if outcome == "exhausted" and self._plan.grouped:
                asked = ", ".join(dict.fromkeys(step.target for step in record.attempts))
                raise FallbackExhausted(f"no answer from {asked}", errors, record) from error
            annotate(error, record)
            raise error
        finally:
            del error  # as in _settle
            errors = ()

    def _decide(self, error: Exception, failure: Failure) -> Attempt | Outcome:
        plan, attempt = self._plan, self._attempt
        free = None
        if attempt.position + 1 < len(plan.chain):
            if plan.switches(failure):
                free = plan.next_position(failure, attempt.position)
            if free is None:
                return "rejected"
        elif not failure.transient:
            return "exhausted" if plan.switches(failure) else "rejected"
        each = plan.config.attempts_per_target
        spent = each is not None and self._failed_here >= each
        if attempt.number >= plan.max_attempts or (spent and free is None):
            return "exhausted"
        asked = failure.retry_after
        if free is None:
            wait = (
                seconds(plan.config.wait, self._failed_here, error)
                if asked is None
                else min(asked, plan.config.retry_after_cap)
            )
            return self._next(attempt.position, wait)
        if failure.transient and not spent and self._failed_here < plan.switch_after(failure.kind):
            wait = seconds(plan.config.wait, self._failed_here, error)
            # Retry-After is never waited for while another target is free.
            if asked is None or asked <= wait:
                return self._next(attempt.position, wait)
        pause = plan.config.switch_wait
        wait = 0.0 if pause is None else seconds(pause, self._failed_here, error)
        return self._switch(free, failure, wait)

    def _switch(self, position: int, failure: Failure, wait: float) -> Attempt:
        plan, attempt, chain = self._plan, self._attempt, self._plan.chain
        self._failed_here = 0
        if self._turn is not None:
            self._turn.advance(position)
        switch = Switch(
            attempt.call_id, plan.agent, chain[0], attempt.target, chain[position], failure
        )
        log_switch(switch)
        if self._observers is not None:
            self._observers.tell("on_switch", switch)
        return self._next(position, wait)

    def _next(self, position: int, wait: float) -> Attempt:
        plan, attempt = self._plan, self._attempt
        return Attempt(
            plan.chain[position],
            attempt.number + 1,
            position,
            plan.timeout,
            plan.connect_timeout,
            wait,
            attempt.call_id,
        )

    def _finish(self, outcome: Outcome, now: float | None) -> None:
        self._ended = self._clock() if now is None else now
        self._outcome = outcome
        self._errors = ()
        if self._observers is not None:
            self._observers.tell("on_finish", self.record)

    def _refuse(self, step: str) -> NoReturn:
        raise RuntimeError(
            f"{step}: the call has ended ({self._outcome}); a run serves one call, "
            "ask policy.start() for another"
        )
