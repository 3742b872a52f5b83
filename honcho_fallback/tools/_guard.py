"""The guard of one run: what follows from each round of an agent, and the counts behind a lock.

A failure is looked at in this order: a delegated call that cannot succeed, a refusal, a failure
that may pass by itself, any other. The first limit that is reached decides.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfigError
from honcho_fallback.tools import _words
from honcho_fallback.tools._failure import ToolFailureCategory, ToolFailureKind
from honcho_fallback.tools._outcome import ToolOutcome, ToolUse, batch_digest, digest
from honcho_fallback.tools._state import (
    CONTINUE,
    ToolLoopLimits,
    ToolLoopState,
    Verdict,
    counted,
)
from honcho_fallback.tools._text import lowered, passes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from honcho_fallback.tools._failure import ToolFailure

_REFUSED = frozenset({ToolFailureCategory.BLOCKED_BY_POLICY, ToolFailureCategory.USER_DECLINED})
_PASSING = frozenset(
    {
        ToolFailureKind.TIMEOUT,
        ToolFailureKind.SERVICE_UNAVAILABLE,
        ToolFailureKind.MODEL_CONNECTION,
    }
)
_START = ToolLoopState()


class ToolLoopGuard:
    """Stop an agent that makes no progress; one object per run, safe to share between threads.

    Args:
        limits: When to nudge and when to halt.
        exempt_tools: Tools that may be called again and again, such as one that polls.
        autonomous: Whether nobody watches the run.
        state: Where to go on from, or None for a new run.

    Raises:
        FallbackConfigError: An argument has the wrong type.
    """

    __slots__ = ("_autonomous", "_exempt", "_limits", "_lock", "_state")

    def __init__(
        self,
        limits: ToolLoopLimits | None = None,
        *,
        exempt_tools: Iterable[str] = (),
        autonomous: bool = False,
        state: ToolLoopState | None = None,
    ) -> None:
        if isinstance(exempt_tools, str):
            raise FallbackConfigError.about(
                "exempt_tools", "got a single string", "pass a list of names"
            )
        self._limits = ToolLoopLimits() if limits is None else limits
        self._exempt = frozenset(exempt_tools)
        self._autonomous = autonomous
        self._state = ToolLoopState() if state is None else state
        self._lock = Lock()

    @property
    def state(self) -> ToolLoopState:
        """Return what has been counted so far."""
        return self._state

    def after_tool(
        self,
        tool: str,
        arguments: Any = None,
        error: BaseException | str | None = None,
        *,
        timed_out: bool = False,
    ) -> Verdict:
        """Take in what came of one call of a tool.

        Args:
            tool: Its name.
            arguments: As a mapping, or as the JSON that the model wrote.
            error: What it raised, or the text that it returned instead of a result; None is
                success.
            timed_out: Whether it was stopped for taking too long.
        """
        return self.after_tools([ToolOutcome(tool, arguments, error, timed_out)])

    def after_tools(self, outcomes: Iterable[ToolOutcome]) -> Verdict:
        """Take in what came of all the calls that the model made at once.

        Args:
            outcomes: In order.
        """
        batch = list(outcomes)
        with self._lock:
            self._state, verdict = _after_tools(self._state, batch, self._limits, self._exempt)
        return verdict

    def after_model(self, text: str, uses: Iterable[ToolUse] = ()) -> Verdict:
        """Count one output of the model, before its calls are made.

        Args:
            text: The output's text.
            uses: The calls in it.
        """
        calls = list(uses)
        with self._lock:
            self._state, verdict = _after_model(
                self._state, text, calls, self._limits, autonomous=self._autonomous
            )
        return verdict


def _after_tools(
    state: ToolLoopState,
    outcomes: Sequence[ToolOutcome],
    limits: ToolLoopLimits,
    exempt: Collection[str] = (),
) -> tuple[ToolLoopState, Verdict]:
    # A halt starts the counts anew, so that a run that is taken up again does not stop at once.
    nudged = CONTINUE
    for outcome in outcomes:
        if not outcome.failed:
            state = _succeeded(state)
            continue
        state, verdict = _failed(state, outcome, limits, exempt)
        if verdict.action == "halt":
            return _START, verdict
        nudged = verdict if verdict.action == "nudge" else nudged
    state, verdict = _progress(state, outcomes, limits, exempt)
    return (_START, verdict) if verdict.action == "halt" else (state, nudged)


def _after_model(
    state: ToolLoopState,
    text: str,
    uses: Sequence[ToolUse],
    limits: ToolLoopLimits,
    *,
    autonomous: bool = False,
) -> tuple[ToolLoopState, Verdict]:
    if not uses:
        return state, CONTINUE
    cap = limits.iteration_cap(autonomous=autonomous)
    if cap is not None and state.iterations >= cap:
        return _START, Verdict("halt", _words.too_many_iterations(cap), "max_iterations")
    output = digest(text, batch_digest(uses))
    number = state.outputs + 1 if output == state.output else 1
    if number >= limits.identical_outputs:
        return _START, Verdict("halt", _words.same_output(number), "identical_outputs")
    state = replace(state, output=output, outputs=number, iterations=state.iterations + 1)
    return state, CONTINUE


def _succeeded(state: ToolLoopState) -> ToolLoopState:
    # What may pass by itself and never does is remembered by its signature all the same.
    return replace(state, identical={}, varied=0, recoverable_varied=0, rejections=0)


def _failed(
    state: ToolLoopState, outcome: ToolOutcome, limits: ToolLoopLimits, exempt: Collection[str]
) -> tuple[ToolLoopState, Verdict]:
    failure, text = outcome.failure, lowered(outcome.text)
    terminal = outcome.terminal
    if terminal is not None:
        return state, Verdict("halt", _words.TERMINAL[terminal], terminal, failure)
    if failure.category in _REFUSED:
        return _refused(state, outcome, failure, limits)
    if failure.kind in _PASSING or (failure.recoverable and passes(text)):
        if outcome.tool in exempt:
            return state, CONTINUE
        return _may_pass(state, outcome, failure, limits)
    return _ordinary(state, outcome, failure, limits)


def _refused(
    state: ToolLoopState, outcome: ToolOutcome, failure: ToolFailure, limits: ToolLoopLimits
) -> tuple[ToolLoopState, Verdict]:
    state = replace(state, rejections=state.rejections + 1)
    if state.rejections < limits.policy_rejections:
        return state, CONTINUE
    message = _words.refused(outcome.tool, failure, state.rejections)
    return state, Verdict("halt", message, "policy_rejections", failure)


def _may_pass(
    state: ToolLoopState, outcome: ToolOutcome, failure: ToolFailure, limits: ToolLoopLimits
) -> tuple[ToolLoopState, Verdict]:
    counts, same = counted(state.recoverable_identical, outcome.signature)
    varied = state.recoverable_varied + 1
    state = replace(state, recoverable_identical=counts, recoverable_varied=varied)
    if same >= limits.recoverable_identical:
        message = _words.failed_alike(outcome.tool, failure, same)
        return state, Verdict("halt", message, "recoverable_identical", failure)
    if varied >= limits.recoverable_varied:
        message = _words.failed_in_a_row(outcome.tool, failure, varied)
        return state, Verdict("halt", message, "recoverable_varied", failure)
    return state, CONTINUE


def _ordinary(
    state: ToolLoopState, outcome: ToolOutcome, failure: ToolFailure, limits: ToolLoopLimits
) -> tuple[ToolLoopState, Verdict]:
    counts, same = counted(state.identical, outcome.signature)
    varied = state.varied + 1
    state = replace(state, identical=counts, varied=varied)
    if same >= limits.identical_failures:
        message = _words.failed_alike(outcome.tool, failure, same)
        return state, Verdict("halt", message, "identical_failures", failure)
    if varied >= limits.varied_failures:
        message = _words.failed_in_a_row(outcome.tool, failure, varied)
        return state, Verdict("halt", message, "varied_failures", failure)
    if same == limits.identical_nudge:
        message = _words.nudge_alike(outcome.tool, failure, same)
        return state, Verdict("nudge", message, "identical_failures", failure)
    if varied == limits.varied_nudge:
        message = _words.nudge_in_a_row(failure, varied)
        return state, Verdict("nudge", message, "varied_failures", failure)
    return state, CONTINUE


def _progress(
    state: ToolLoopState,
    outcomes: Sequence[ToolOutcome],
    limits: ToolLoopLimits,
    exempt: Collection[str],
) -> tuple[ToolLoopState, Verdict]:
    if not outcomes:
        return state, CONTINUE
    failed = any(outcome.failed for outcome in outcomes)
    if failed or all(outcome.tool in exempt for outcome in outcomes):
        return replace(state, batch="", batches=0, output="", outputs=0), CONTINUE
    batch = batch_digest(outcomes)
    number = state.batches + 1 if batch == state.batch else 1
    state = replace(state, batch=batch, batches=number)
    if number < limits.identical_batches:
        return state, CONTINUE
    names = [outcome.tool for outcome in outcomes]
    return state, Verdict("halt", _words.same_batch(names, number), "identical_batches")
