"""The legal steps of one call: a state machine without I/O.

Theory of operation
-------------------

A run has an attempt at hand. Whoever drives it asks that attempt's target and reports what came of
it; the run answers with the next attempt, or ends the call::

    attempt ──ask──> accept(answer) / succeed() ────────────> success
       ^      └────> fail(error) ──> rules.options(...) ──┐
       │                             the first permitted  │
       ├── Recover: something to perform, then again  <───┤
       ├── Retry: the same target, after a wait       <───┤
       ├── Switch: the next target, at once           <───┤
       │                             Stop ────────────────┴─> exhausted, rejected (raises)
       │             fail(error) after commit() ────────────> interrupted (raises)
       └──────────── cancel() ──────────────────────────────> cancelled, abandoned

Everything that a call knows is one value (``state.CallState``), and every decision is one ordered
list (``rules.options``); this module is the only one that writes the first and takes from the
second. It vetoes an option for two reasons alone: the deadline leaves no time for it, or the retry
budget does not allow a repeat.

The run does no I/O and never sleeps. Time comes in as ``now`` (or from the runtime's clock) and
goes out as ``Attempt.wait``; where something that takes I/O has to come first (a shared cooldown,
a fresh credential, a new transport) it is ``pending``: the driver performs it and calls
``resume``, or hands what it raised to ``fail``. What a step does besides is synchronous and short:
it tells the observers, writes a log line, and updates the cooldown and the budget.

``start()`` claims nothing: the cooldown is asked, and a half-open probe taken, when the attempt is
first looked at. The first ending wins and closes the record; a step in an illegal order raises
RuntimeError.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from honcho_fallback._classify._answers import plain_text
from honcho_fallback._classify._content import characters, put_together
from honcho_fallback._classify._usage import usage_of
from honcho_fallback._core import rules
from honcho_fallback._core.observers import (
    CallContent,
    CallStart,
    Observers,
    Restore,
    Switch,
    log_exhausted,
    log_rest,
    log_restored,
    log_switch,
)
from honcho_fallback._core.recovery import PendingAction, refresh_of
from honcho_fallback._core.runtime import Runtime
from honcho_fallback._core.state import FORCED, PROBE, CallState, PastAttempt
from honcho_fallback._core.target import NO_FINISH_REASON
from honcho_fallback._values import tracebacks
from honcho_fallback._values.errors import AnswerRejected, FallbackError, WrongVerbError
from honcho_fallback._values.failure import NOT_ACCEPTABLE, Failure, FailureKind
from honcho_fallback._values.record import (
    DeadlineExceeded,
    FallbackExhausted,
    OutcomeUnknown,
    StreamInterrupted,
    nobody_answered,
    unknown_outcome,
)
from honcho_fallback.redaction import label

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from honcho_fallback._core.resolved import ResolvedPolicy
    from honcho_fallback._core.shared import CooldownStore
    from honcho_fallback._core.target import Attempt, Partial, Target
    from honcho_fallback._core.turn import Turn
    from honcho_fallback._values.record import CallRecord, Outcome

T = TypeVar("T")

Chunks = tuple[Any, ...]
Facts = Mapping[str, Any] | None
Time = float | None  # on the clock's scale; None asks the clock


async def _refuse_to_wait(verdict: object) -> NoReturn:
    getattr(verdict, "close", bool)()  # a coroutine that nobody will await
    raise WrongVerbError.about("validate", "it is async", "use acall or astream")


class FallbackRun:
    """Drive one logical call; made by ``policy.start()``, used once, by one call.

    ``now`` is always the time on the clock's scale; without it the clock is asked. A step after
    the end of the call raises RuntimeError, but for ``cancel``, ``resume`` and ``report``.
    """

    __slots__ = ("_begun", "_call", "_observers", "_runtime")

    def __init__(  # noqa: PLR0913 # each is a part of what a call begins with
        self,
        policy: ResolvedPolicy,
        turn: Turn | None,
        call_id: str,
        runtime: Runtime | None,
        *,
        metadata: Facts = None,
        unfit: Mapping[int, str] | None = None,
    ) -> None:
        observers = policy.observers
        if runtime is None and Observers.everybodys is not None:
            observers = Observers.now(observers)
        self._observers = observers and observers.listening()
        self._runtime = runtime = runtime or Runtime._of_process  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # current() is one call more
        self._call = call = CallState(
            policy,
            call_id,
            runtime.monotonic(),
            runtime.time(),
            turn if policy.turn_scoped else None,  # without reset="turn" it only has a name
            None if turn is None else turn.turn_id,
            {**policy.unfit, **unfit} if unfit else policy.unfit,
            metadata,
        )
        if self._observers is not None:
            start = CallStart(call_id, policy.agent, policy.chain, metadata, call.turn_id)
            self._observers.emit("on_start", start)
        self._begun = not policy.has_call_limits
        if not self._begun:
            call.pending = self._pull()
            if call.pending is not None:
                call.positions_after_pending = call.remaining
                self._begun = True  # by resume

    def __repr__(self) -> str:
        attempt, outcome = self._call.attempt, self._call.outcome
        return f"<FallbackRun {outcome}, attempt {attempt.number} at {attempt.target}>"

    @property
    def attempt(self) -> Attempt:
        """Return what to do now; the first look takes the attempt, and a probe if it is one."""
        if self._call.outcome != "running" or not self._begun:
            self._require_running("attempt")
        return self._call.attempt

    @property
    def outcome(self) -> Outcome:
        """Return how the call ended, or ``"running"``."""
        return self._call.outcome

    @property
    def record(self) -> CallRecord:
        """Build the record of what has happened so far; complete once the call is over."""
        return self._call.record(self._now(None))

    @property
    def pending(self) -> PendingAction | None:
        """Return what has to be done before the attempt at hand, or after the end, or None.

        ``policy.perform(run)`` and ``policy.aperform(run)`` do it.
        """
        return self._call.pending

    def report(
        self,
        *,
        input: Any = None,  # noqa: A002 # the word that traces use
        output: Any = None,
        parameters: Facts = None,
        usage: Facts = None,
    ) -> None:
        """Report what is asked or answered to observers with ``on_content``; usage alone is kept.

        Args:
            input: What is asked, in the caller's form.
            output: What came back; ``accept`` and the stream drivers report it by themselves.
            parameters: The model's parameters, such as temperature.
            usage: What the answer at hand costs, for its attempt; and for the call, if it is
                taken.
        """
        call = self._call
        if usage is not None:
            call.usage = usage
        if self._observers is None or call.outcome != "running":
            return
        if input is not None or output is not None or parameters is not None:
            content = CallContent(call.attempt.call_id, input, output, parameters)
            self._observers.emit("on_content", content)

    def accept(
        self, answer: Any, *, usage: Facts = None, stream: bool = False, now: Time = None
    ) -> Attempt | None:
        """Take an answer, if nothing is wrong with it and ``validate`` takes it.

        Args:
            answer: What ``ask`` returned; of a stream that has ended, the tuple of its chunks.
            usage: What it cost; read from the answer where it is left out.
            stream: Whether the answer is a stream's chunks.

        Returns:
            None when the call is over, otherwise the next attempt.

        Raises:
            AnswerRejected: It was not acceptable and nobody is left (or FallbackExhausted).
            StreamInterrupted: Its content had been handed out.
            FallbackConfigError: ``validate`` is async.
        """
        call = self._call
        if call.outcome != "running" or not self._begun:
            self._require_running("accept")
        fault = self._read(answer, usage, stream=stream)
        # Where validate has no say, an examination is needed only to refuse an answer.
        if fault is None and call.policy.validate is None and (bool(answer) or not stream):
            self._take(answer, now)
            return None
        try:
            self._examine(answer, fault, stream=stream, now=now).send(None)
        except StopIteration as end:
            following: Attempt | None = end.value
            return following
        raise AssertionError("outside of a task an examination never waits")

    def succeed(self, *, usage: Facts = None, now: Time = None) -> None:
        """End the call with the answer of the current target, without a look at it.

        Args:
            usage: What it cost, in whatever form the caller likes; shown in the record.
        """
        self._require_running("succeed")
        if usage is not None:
            self._call.usage = usage
        self._finish("success", now)

    def commit(
        self, *, mode: Partial = "final", partial: Sequence[Any] = (), now: Time = None
    ) -> None:
        """Note that content is being handed out: from here on nobody else can be asked.

        Args:
            mode: What becomes of it where this attempt fails: with ``"replace"`` it fails as if
                nothing had been handed out; with ``"continue"`` a target may go on with it.
            partial: Where the caller keeps what it hands out; StreamInterrupted carries what it
                holds by then, unless ``fail`` is given chunks.
        """
        self._require_running("commit")
        if self._call.content_at is None:
            self._call.content_at = self._now(now)
            self._call.mode = mode
            self._call.partial = partial
            self._call.deadline_at = inf  # it ends with the first content

    def fail(
        self,
        error: BaseException,
        *,
        failure: Failure | None = None,
        partial: Chunks = (),
        now: Time = None,
    ) -> Attempt:
        """Report that the current attempt failed, and learn what to do next.

        Args:
            error: What was raised.
            failure: What it means, where the caller knows; default: what the policy makes of it.
            partial: The chunks of a stream that came, in order; handed out or not.

        Returns:
            The next attempt; wait ``attempt.wait`` seconds before it.

        Raises:
            FallbackExhausted: Every target that could be asked failed.
            StreamInterrupted: Content had been handed out.
            DeadlineExceeded: More could have been asked, but time ran out.
            BaseException: The error itself where it ends the call: a cancellation, a failure that
                no other target could help with, or any with a single target.
        """
        self._require_running("fail")
        try:
            if self._call.pending is not None and isinstance(error, Exception):
                return self._pending_failed(self._call.pending, error, now)
            policy, base = self._call.policy, None
            if type(error) is AnswerRejected and error.raised is not None:
                base, error = error.failure or policy.classify(error), error.raised
            if failure is None:
                plain = base is None and policy.config.refine is None
                failure = policy.classify(error) if plain else policy.classification(error, base)
            return self._fail(error, failure, partial, now)
        except BaseException:  # an interrupt, where the call has not ended by itself
            self.cancel(now=now)
            raise
        finally:
            del error  # as in _fail

    def cancel(
        self,
        outcome: Literal["cancelled", "abandoned"] = "cancelled",
        *,
        partial: Chunks = (),
        now: Time = None,
    ) -> None:
        """Close the record of a call that ends without an answer or a failure; once.

        Args:
            outcome: ``cancelled`` by its caller, or ``abandoned`` by a stream's reader.
            partial: The chunks that were handed out, in order.
        """
        if self._call.outcome == "running":
            if partial:
                self.report(output=partial)
                self._note_usage(partial)
                self._call.received = characters(partial) or None
            self._finish(outcome, now)

    def resume(self, result: object = None, *, now: Time = None) -> Attempt:
        """Go on after the pending action was performed; there may be another one.

        Args:
            result: What it returned: the new client, where a rebuild made one.
        """
        call = self._call
        action, call.pending = call.pending, None
        if call.outcome == "running":
            positions, call.positions_after_pending = call.positions_after_pending, ()
            call.began = now = self._now(now)
            if positions:
                self._move_to(positions, None, now)
            else:
                if action is not None and action.what == "rebuild" and result is not None:
                    call.clients = {**call.clients, call.attempt.position: result}
                # What the action took is gone from the deadline.
                at_hand = call.attempt
                attempt = _attempt_at(call, at_hand.position, at_hand.number, 0.0, now)
                call.attempt = attempt._replace(wait=at_hand.wait)
        return call.attempt

    # What follows an answer or a failure.

    def _read(self, answer: Any, usage: Facts = None, *, stream: bool) -> Failure | None:
        """Keep what an answer cost, and return what it says itself to be wrong with it."""
        call, check = self._call, self._call.policy.check
        self._note_usage(answer, usage)
        if check is None or type(answer) is str:
            return None
        return check(
            answer,
            needs_finish=NO_FINISH_REASON not in call.attempt.target.labels,
            # Nobody else can be asked for what a reader has and cannot give back.
            handed_out=stream and call.content_at is not None and call.mode != "replace",
        )

    async def _examine(
        self,
        answer: Any,
        fault: Failure | None,
        *,
        stream: bool,
        now: Time = None,
        verdict_of: Callable[[Awaitable[object]], Awaitable[object]] = _refuse_to_wait,
    ) -> Attempt | None:
        """Take an answer that nothing is wrong with, or fail with the error that stands for it.

        Of a stream ``validate`` sees what its chunks make. It alone may have to be awaited, by
        ``verdict_of``: outside of a task this coroutine never waits.
        """
        call, policy = self._call, self._call.policy
        error: Exception | None = None
        try:
            if fault is not None:
                error, fault = AnswerRejected(fault), fault._replace(error=AnswerRejected.__name__)
            elif stream and not answer:
                error = AnswerRejected(f"{call.name} sent a stream without a single chunk")
            elif policy.validate is not None:
                try:
                    verdict = policy.validate(put_together(answer) if stream else answer)
                    if inspect.isawaitable(verdict):
                        verdict = await verdict_of(verdict)
                    # Also numpy's, as a comparison of scores returns it.
                    if type(verdict).__name__.startswith("bool") and not verdict:
                        error = AnswerRejected(f"validate said no to the answer of {call.name}")
                except Exception as raised:  # noqa: BLE001 # it says no with it, or has a bug
                    error = raised
            if error is not None:
                fault = policy.classification(error, fault or _refusal(error))
        except BaseException:  # an interrupt, or a cancellation while validate was awaited
            self.cancel(now=now)
            raise
        if error is None or fault is None:
            self._take(answer, now)
            return None
        # A stream of one chunk may be nothing but the error that was sent in place of one.
        came = stream and (call.content_at is not None or len(answer) > 1)
        return self._fail(error, fault, answer if came else (), now)

    def _fail(
        self, error: BaseException, failure: Failure, partial_chunks: Chunks, now: Time
    ) -> Attempt:
        call, now = self._call, self._now(now)
        if failure.reached == "unknown":  # as it is after retries
            _warn_of_retries_made(call.attempt.target, error)
        cancelled = failure.kind is FailureKind.CANCELLED or not isinstance(error, Exception)
        # A stream that had begun was worked upon, whatever the provider says afterwards.
        has_begun = call.content_at is not None
        if has_begun or partial_chunks:
            failure = failure._replace(reached="unknown")
            partial_chunks = partial_chunks or tuple(call.partial)
            new = partial_chunks[len(call.partial) :] if call.text else partial_chunks
            self._note_usage(new)
            call.received = characters(new) or None if has_begun else None
        if call.mode == "replace" and not cancelled:
            call.content_at, call.mode, partial_chunks = None, "final", ()
        elif call.content_at is not None:
            call.partial = partial_chunks
            call.text = plain_text(partial_chunks) if call.mode == "continue" else ""
        else:  # nobody has seen them
            partial_chunks = ()
        try:
            if cancelled or not isinstance(error, Exception):
                if partial_chunks:
                    self.report(output=partial_chunks)
                self.cancel(now=now)
                raise error
            spent = call.usage, call.received
            call.past += (PastAttempt(call.attempt, call.began, now, failure, call.note, *spent),)
            call.errors += (error,)
            call.shared = _shared_with_failed(call)
            call.remaining = [one for one in call.order if one not in call.shared]
            call.usage = call.received = None
            return self._choose(error, failure, now)
        except FallbackExhausted as exhausted:
            raise exhausted.with_traceback(None)  # noqa: B904 # without the frames in between
        finally:
            # What is raised refers to this frame; the frame must not refer to what is raised.
            del error

    def _choose(self, error: Exception, failure: Failure, now: float) -> Attempt:
        """Take the first option that is permitted; a Stop raises."""
        call = self._call
        try:
            if type(error) is WrongVerbError:
                # A wrong use of this package: no preset makes a provider's failure of it.
                self._raise_final("rejected", error, now)
            for option in rules.options(call.policy, call, failure, error):
                if not self._permits(option, failure, now):
                    continue
                match option:
                    case rules.Stop(outcome, limit, which):
                        call.limit = call.limit if limit is None else limit
                        self._raise_final(outcome, call.errors[which], now)
                    case rules.Retry(wait, position) if position != call.attempt.position:
                        self._move_to((position,), failure, now, self._wait(wait))
                    case rules.Retry(wait, position):
                        call.note = ""  # it was about the attempt before
                        call.extra_attempts += rules.is_stale(failure)
                        number, wait = call.attempt.number + 1, self._wait(wait)
                        call.attempt = _attempt_at(call, position, number, wait, now)
                    case rules.Recover(action):
                        self._recover(action, now)
                    case rules.SwitchTo(positions):
                        self._move_to(positions, failure, now)
                call.began = now + call.attempt.wait
                return call.attempt
            raise AssertionError("the last option is always a Stop")
        finally:
            del error  # as in _fail

    def _permits(self, option: rules.Option, failure: Failure, now: float) -> bool:
        """Veto what the deadline has no time for, and repeats that the budget does not allow."""
        call = self._call
        policy, most = call.policy, self._runtime.max_attempts
        wait, position = 0.0, call.attempt.position
        match option:
            case rules.Stop():
                return True
            case rules.Retry(wait, position):
                pass
            case rules.Recover(action):
                wait = action.wait
            case rules.SwitchTo(positions):
                position = positions[-1]
        is_over = most is not None and call.attempt.number >= most
        if is_over or not self._is_in_time(position, now, wait):
            return False
        budget = policy.config.retry_budget
        if budget is None or isinstance(option, rules.SwitchTo) or rules.is_stale(failure):
            return True
        if budget.repeat(policy.chain[position].identity, now):
            return True
        call.limit = "retry_budget"
        return False

    def _is_in_time(self, position: int, now: float, wait: float = 0.0) -> bool:
        call = self._call
        if call.deadline_at == inf or wait < call.share_of_time(position, now):
            return True
        call.limit = "deadline"
        return False

    def _recover(self, action: PendingAction, now: float) -> None:
        call = self._call
        call.recovered |= {action.what}
        call.pending, call.note = action, action.note
        call.extra_attempts += 1
        position, number = call.attempt.position, call.attempt.number + 1
        call.attempt = _attempt_at(call, position, number, self._wait(action.wait), now)

    def _pending_failed(self, action: PendingAction, error: Exception, now: Time) -> Attempt:
        call = self._call
        if call.positions_after_pending:  # what others know is not needed to go on
            return self.resume(now=now)
        # Of a stranger's error only the class: its text may hold the credential.
        what = str(error) if isinstance(error, FallbackError) else type(error).__name__
        last = call.past[-1]._replace(note=f"its {action.what} failed: {what}")
        call.past = (*call.past[:-1], last)
        call.attempt, call.pending, call.note = last.attempt, None, ""
        call.extra_attempts -= 1
        assert last.failure is not None  # noqa: S101 # those that a call keeps have failed
        # The options are worked out anew, now without this recovery.
        return self._choose(call.errors[-1], last.failure, self._now(now))

    def _move_to(
        self, positions: Sequence[int], failure: Failure | None, now: float, wait: float = 0.0
    ) -> None:
        """Go to the best of some targets; with a failure, a switch."""
        call = self._call
        policy, attempt = call.policy, call.attempt
        position = self._select(positions, failure, now)
        if call.turn is not None:
            reached = position
            while reached - 1 in call.unfit:  # those the turn has not left: they were never asked
                reached -= 1
            call.turn.advance(reached, failed=None if failure is None else attempt.position)
        number = attempt.number + (failure is not None)
        call.attempt = following = _attempt_at(call, position, number, wait, now)
        if call.text:
            call.note = f"it went on after {len(call.text)} characters"
        if failure is not None:
            ended, target = attempt.target, following.target
            switch = Switch(call.call_id, policy.agent, policy.chain[0], ended, target, failure)
            log_switch(switch, self._runtime)
            if self._observers is not None:
                self._observers.emit("on_switch", switch)

    def _select(self, positions: Sequence[int], failure: Failure | None, now: float) -> int:
        """Choose whom to ask, and note that it is asked for the first time in this call."""
        call = self._call
        policy, config = call.policy, call.policy.config
        position, call.note = positions[0], ""
        if config.cooldown is not None:
            reports = rules.cooldown_reports(call, failure, "exhausted")
            offered = [policy.chain[one].keys.values() for one in positions]
            choice = config.cooldown.update_and_select(reports, offered, now, policy.lease)
            position, call.permit = positions[choice.place], choice.permit
            passed = {positions[place]: seconds for place, seconds in choice.passed}
            call.cooling = {**passed, **call.cooling}  # as it was when the call began
            for resting, seconds in passed.items():
                if seconds > 0 and not choice.forced:  # probed by another call, or asked later on
                    facts = self._facts("resting", resting, fallback=policy.chain[position].name)
                    log_rest(self._runtime, seconds, facts)
            call.note = FORCED if choice.forced else PROBE if choice.permit else ""
        target = policy.chain[position]
        call.limit = None
        if target is not call.attempt.target:
            call.recovered = frozenset()
        if target.credential is not None:
            call.generation = refresh_of(target.credential).generation
        if config.retry_budget is not None and not call.failures_at(position):
            config.retry_budget.first(target.identity, now)
        return position

    def _wait(self, seconds: float) -> float:
        return seconds if self._runtime.waits else 0.0

    # The end.

    def _take(self, answer: Any, now: Time) -> None:
        """End the call with an answer that was looked at."""
        if self._observers is not None:
            self.report(output=answer)
        self._finish("success", now)

    def _note_usage(self, answer: Any, usage: Facts = None) -> None:
        """Keep what an answer cost: as the caller says, as was reported, or as it says itself."""
        if usage is not None:
            self._call.usage = usage
        elif self._call.usage is None and type(answer) is not str:
            self._call.usage = usage_of(answer)

    def _raise_final(self, outcome: Outcome, error: Exception, now: float) -> NoReturn:
        call = self._call
        errors, broke = call.errors, -1
        if outcome == "interrupted":
            # What broke first: whoever could not go on with it is no reason.
            broke = next((n for n, one in enumerate(call.past) if one.received is not None), -1)
            error = errors[broke]
            self.report(output=tuple(call.partial) or None)
        try:
            self._finish(outcome, now)
            record = self.record
            if outcome == "interrupted":
                cut, chunks = record.attempts[broke], tuple(call.partial)
                what = f"{cut.target} broke off after {len(chunks)} chunks: {cut.kind}"
                what += ", and nobody went on to its end" if cut is not record.attempts[-1] else ""
                raise StreamInterrupted(what, chunks, record) from error
            if outcome == "exhausted":
                if call.limit == "deadline":
                    raise DeadlineExceeded(record.why or "", errors, record) from error
                if call.limit == "replay":
                    what = unknown_outcome(record, call.attempt.idempotency_key)
                    raise OutcomeUnknown(what, errors, record) from error
                if call.policy.grouped:
                    tracebacks.shorten(errors)
                    raise FallbackExhausted(nobody_answered(record), errors, record) from error
            tracebacks.annotate(error, record)
            raise error
        finally:
            del error  # as in _fail
            errors = ()

    def _finish(self, outcome: Outcome, now: Time) -> None:
        call = self._call
        call.ended = now = self._now(now)
        if outcome == "exhausted" and call.limit != "replay":
            self._is_in_time(len(call.policy.chain) - 1, now)
        call.outcome = outcome
        call.errors = ()
        if outcome == "success" and call.turn is not None and call.turn.place is not None:
            call.turn.place.answered(call.attempt.position, now, call.usage)
        store = call.policy.config.cooldown
        if store is not None and self._begun:
            self._close_cooldown(store, outcome, now)
        else:
            call.pending = None
        if outcome == "exhausted":
            log_exhausted(self.record, self._runtime)
        if self._observers is not None:
            self._observers.emit("on_finish", self.record)
        on_finish = self._runtime.on_finish
        if on_finish is not None:
            on_finish(self)

    def _close_cooldown(self, store: CooldownStore, outcome: Outcome, now: float) -> None:
        call = self._call
        policy, attempt = call.policy, call.attempt
        restored = outcome == "success" and call.permit is not None
        failure = call.past[-1].failure if call.past else None
        reports = rules.cooldown_reports(call, failure, outcome)
        if reports:
            store.update_and_select(reports, (), now, None)
        call.permit, call.pending, shared = None, None, store.shared
        if shared is not None:
            call.pending = PendingAction("cooldown", shared.push, shared.apush)
        if restored:
            log_restored(self._runtime, self._facts("restored", attempt.position))
            if self._observers is not None and not attempt.is_fallback:
                restore = Restore(policy.agent, policy.chain[0], "cooldown", attempt.call_id)
                self._observers.emit("on_restore", restore)

    # Small things.

    def _facts(self, what: str, position: int, **others: str) -> dict[str, str]:
        policy, chain = self._call.policy, self._call.policy.chain
        facts = {"agent": policy.agent, "primary": chain[0].name, what: chain[position].name}
        return {**facts, **others, "call_id": self._call.call_id}

    def _now(self, now: Time) -> float:
        return self._runtime.monotonic() if now is None else now

    def _pull(self) -> PendingAction | None:
        """Return the look at what other processes know of the targets."""
        policy = self._call.policy
        shared = policy.config.cooldown.shared if policy.config.cooldown else None
        if shared is None:
            return None
        keys = [tuple(policy.chain[one].keys.values()) for one in self._call.remaining]
        pull = partial(shared.pull, keys, policy.lease)
        apull = partial(shared.apull, keys, policy.lease)
        return PendingAction("cooldown", pull, apull)

    def _require_running(self, step: str) -> None:
        """Refuse a step once the call is over; take the first attempt, where nobody looked yet."""
        call = self._call
        if call.outcome != "running":
            ended = f"the call has ended ({call.outcome}) and a run serves one"
            raise RuntimeError(f"{step}: {ended}; ask policy.start() for another")
        if not self._begun:
            self._begun = True
            self._move_to(call.remaining, None, self._now(None))


def _attempt_at(call: CallState, position: int, number: int, wait: float, now: float) -> Attempt:
    """Describe an attempt that begins after a wait, with its share of the deadline."""
    target, timeout = call.policy.chain[position], call.policy.config.timeout
    if position in call.clients:
        target = replace(target, client=call.clients[position])
    if call.deadline_at != inf:
        share = max(0.001, call.share_of_time(position, now + wait))  # clients refuse 0 and less
        timeout = share if timeout is None else min(share, timeout)
    attempt = call.attempt._replace(number=number, position=position, timeout=timeout, wait=wait)
    return attempt._replace(target=target, partial=call.text.rstrip())


def _refusal(error: Exception) -> Failure:
    """Say what a refused answer means: a mistake in the validator is no provider's failure.

    Where an answer has None, such an error is about the answer.
    """
    kind, reason = FailureKind.MALFORMED_RESPONSE, NOT_ACCEPTABLE
    is_bug = isinstance(error, AttributeError | NameError | TypeError)
    if is_bug and "NoneType" not in str(error):
        kind, reason = FailureKind.LOCAL, "validate itself is at fault"
    return Failure.of(kind, reason=reason, error=type(error).__name__)


def _shared_with_failed(call: CallState) -> dict[int, str]:
    """Say by position what a target has in common with one that failed.

    The same model with other parameters is another target to a call: with less thinking it may
    answer in time. A dead key, or host, is dead for both.
    """
    # A host that was refused and then answers is there again: the last failure counts.
    failures = {one.attempt.position: one.failure for one in call.past}
    chain, shared = call.policy.chain, dict[int, str]()
    for failed, failure in failures.items():
        name, scope = call.policy.names[failed], failure.scope if failure else "model"
        key = None if scope == "model" else chain[failed].keys.get(scope)
        for position, target in enumerate(chain):
            if target.identity == chain[failed].identity and target.params == chain[failed].params:
                shared.setdefault(position, "it had failed under another name")
            elif key is not None and target.keys.get(scope) == key:
                what = "key" if scope == "credential" else "host"
                shared.setdefault(position, f"it has the same {what} as {name}")
    if any(failure and failure.kind is FailureKind.REFUSAL for failure in failures.values()):
        shared = {**call.policy.unfit_after_refusal, **shared}
    return shared


def _warn_of_retries_made(target: Target, error: BaseException) -> None:
    """Say that an SDK had retried before it raised, where the target's client could not tell so.

    A host that makes its clients itself gives the target something else. Python shows such a
    warning once, however many policies there are.
    """
    try:  # Stainless's clients count their retries there
        count = int(vars(error)["request"].headers["x-stainless-retry-count"])
        could_tell = hasattr(target.client, "max_retries")
    except Exception:  # noqa: BLE001 # most have no such count, and what cannot be read has none
        return
    if count > 0 and not could_tell:
        warnings.warn(
            f"{label(target.name)}: its client made {count} retries of its own before the policy "
            "heard of the failure; make it with max_retries=0, or pass "
            "honcho_fallback.providers.without_retries(client)",
            stacklevel=2,
        )
