"""The guard of one run: what follows from each round of an agent, and the counts behind a lock.

The calls that a model makes at once are one round, and a round counts once: the model hears of
all their failures at the same time, so however many there are, they are no repetition. A failure
is looked at in this order: a delegated call that cannot succeed, a refusal, a failure that may
pass by itself, any other. The first limit that is reached decides.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import FallbackConfigError
from honcho_fallback.tools import _words
from honcho_fallback.tools._failure import ToolFailureCategory, ToolFailureKind
from honcho_fallback.tools._outcome import ToolOutcome, ToolUse, batch_digest, digest
from honcho_fallback.tools._state import (
    CONTINUE,
    LONGEST_CYCLE,
    ToolLoopLimits,
    ToolLoopState,
    Verdict,
)

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
_PASSING_END = "~"  # of the digest of a round with a failure that may pass by itself


class _Failed(NamedTuple):
    """Hold one call that failed, with what is read of it once.

    Args:
        tool: Its name.
        failure: What its failure means.
        key: Digest of the call and of how it failed; that of a refusal does not hold its words,
            that of a tool that is not there only its name.
        refused: Whether policy or a person refused it.
        passing: Whether it may pass by itself.
        unknown_tool: Whether there is no such tool.
    """

    tool: str
    failure: ToolFailure
    key: str
    refused: bool = False
    passing: bool = False
    unknown_tool: bool = False


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
        exit_code: int | None = None,
    ) -> Verdict:
        """Take in what came of one call of a tool.

        Args:
            tool: Its name.
            arguments: As a mapping, or as the JSON that the model wrote.
            error: What it raised, or the text that it returned instead of a result; None is
                success.
            timed_out: Whether it was stopped for taking too long.
            exit_code: What the command exited with that it ran, or None; see ToolOutcome.
        """
        outcome = ToolOutcome(tool, arguments, error, timed_out, exit_code=exit_code)
        return self.after_tools([outcome])

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
    if not outcomes:
        return state, CONTINUE
    failures: list[_Failed] = []
    parts: list[str] = []
    for outcome in outcomes:
        if not outcome.failed:
            parts.append(outcome.call)
            continue
        terminal = outcome.terminal
        if terminal is not None:
            message = _words.terminal(outcome.tool, terminal)
            return _START, _halt(message, terminal, [outcome.tool], outcome.failure)
        failures.append(_failed(outcome))
        parts.append(failures[-1].key)
    # A tool that polls may wait for as long as it likes; a failure that may pass is waiting, too.
    counting = failures
    if exempt:
        counting = [one for one in failures if not (one.passing and one.tool in exempt)]
    succeeded = len(failures) < len(outcomes)
    identical, alike = _same_again(state, counting, limits, succeeded=succeeded)
    varied, passing, in_a_row = _in_a_row(state, counting, limits, succeeded=succeeded)
    polls = bool(exempt) and all(outcome.tool in exempt for outcome in outcomes)
    rounds: tuple[str, ...] = ()
    repeats: tuple[int, ...] = ()
    cycle = CONTINUE
    if not polls:
        mark = _PASSING_END if any(one.passing for one in failures) else ""
        rounds, repeats = _history(state, digest(*sorted(parts)) + mark)
        # The same failures again and again have counts of their own.
        shortest = 1 if succeeded else 2
        cycle = _cycle(rounds, repeats, shortest, [outcome.tool for outcome in outcomes], limits)
    nudge = CONTINUE
    for verdict in (alike, in_a_row, cycle):
        if verdict.action == "halt":
            return _START, verdict
        if nudge is CONTINUE:
            nudge = verdict
    state = ToolLoopState(
        identical=identical,
        varied=varied,
        recoverable_varied=passing,
        rounds=rounds,
        repeats=repeats,
        output="" if failures or polls else state.output,
        outputs=0 if failures or polls else state.outputs,
        iterations=state.iterations,
    )
    return state, nudge


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
    tools = [use.tool for use in uses]
    cap = limits.iteration_cap(autonomous=autonomous)
    if cap is not None and state.iterations >= cap:
        message = _words.too_many_iterations(tools, cap)
        return _START, _halt(message, "max_iterations", tools)
    output = digest(text, batch_digest(uses))
    number = state.outputs + 1 if output == state.output else 1
    if number >= limits.identical_outputs:
        return _START, _halt(_words.same_output(tools, number), "identical_outputs", tools)
    state = replace(state, output=output, outputs=number, iterations=state.iterations + 1)
    return state, CONTINUE


def _failed(outcome: ToolOutcome) -> _Failed:
    tool, failure = outcome.tool, outcome.failure
    if failure.category in _REFUSED:
        return _Failed(tool, failure, digest("refused", outcome.call), refused=True)
    if failure.kind in _PASSING:
        return _Failed(tool, failure, outcome.signature, passing=True)
    if outcome.is_unknown_tool:
        return _Failed(tool, failure, digest("unknown tool", tool), unknown_tool=True)
    return _Failed(tool, failure, outcome.signature)


def _same_again(
    state: ToolLoopState, failures: Sequence[_Failed], limits: ToolLoopLimits, *, succeeded: bool
) -> tuple[dict[str, int], Verdict]:
    """Count each failure that was one of the last round, too."""
    counts: dict[str, int] = {}
    nudge = CONTINUE
    for one in failures:
        # To ask again at once for what was refused is the same, whatever succeeded beside it.
        before = state.identical.get(one.key, 0) if one.refused or not succeeded else 0
        times = counts[one.key] = before + 1
        limit, reason = _limit_of(one, limits)
        if times >= limit:
            words = _words.refused if one.refused else _words.failed_alike
            message = words(one.tool, one.failure, times)
            return counts, _halt(message, reason, [one.tool], one.failure)
        if times == limits.identical_nudge and reason == "identical_failures":
            message = _words.nudge_alike(one.tool, one.failure, times)
            nudge = _nudge(message, reason, [one.tool], one.failure)
    return counts, nudge


def _limit_of(one: _Failed, limits: ToolLoopLimits) -> tuple[int, str]:
    if one.refused:
        return limits.policy_rejections, "policy_rejections"
    if one.passing:
        return limits.recoverable_identical, "recoverable_identical"
    return limits.identical_failures, "identical_failures"


def _in_a_row(
    state: ToolLoopState, failures: Sequence[_Failed], limits: ToolLoopLimits, *, succeeded: bool
) -> tuple[int, int, Verdict]:
    """Count a round in which everything failed, by the shorter patience of its failures."""
    if succeeded:
        return 0, 0, CONTINUE
    if not failures:
        return state.varied, state.recoverable_varied, CONTINUE
    ordinary = [one for one in failures if not (one.passing or one.unknown_tool)]
    # A tool that is not there is no attempt at anything yet: another name may be right.
    patient = [one for one in failures if one.passing or one.unknown_tool]
    if not ordinary:
        times = state.recoverable_varied + 1 if patient else 0
        verdict = CONTINUE
        if times >= limits.recoverable_varied:
            verdict = _failed_in_a_row(patient[-1], times, "recoverable_varied")
        return state.varied, times, verdict
    one, times = ordinary[-1], state.varied + 1
    verdict = CONTINUE
    if times >= limits.varied_failures:
        verdict = _failed_in_a_row(one, times, "varied_failures")
    elif times == limits.varied_nudge:
        message = _words.nudge_in_a_row(one.tool, one.failure, times)
        verdict = _nudge(message, "varied_failures", [one.tool], one.failure)
    return times, 0, verdict


def _failed_in_a_row(one: _Failed, times: int, reason: str) -> Verdict:
    message = _words.failed_in_a_row(one.tool, one.failure, times)
    return _halt(message, reason, [one.tool], one.failure)


def _history(state: ToolLoopState, event: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Add a round to the latest ones, and count at each distance what is the same."""
    before, counts = state.rounds, (*state.repeats, *[0] * LONGEST_CYCLE)
    repeats = [
        counts[lag - 1] + 1 if lag <= len(before) and before[-lag] == event else 0
        for lag in range(1, LONGEST_CYCLE + 1)
    ]
    return (*before, event)[-LONGEST_CYCLE:], tuple(repeats)


def _cycle(
    rounds: Sequence[str],
    repeats: Sequence[int],
    shortest: int,
    tools: Sequence[str],
    limits: ToolLoopLimits,
) -> Verdict:
    """Look for rounds that come again: the same one, or the same few in turn."""
    nudge = CONTINUE
    for lag in range(shortest, LONGEST_CYCLE + 1):
        times = repeats[lag - 1] // lag + 1
        if times == 1 < lag or (lag > 1 and _is_shorter(repeats, lag)):
            continue
        passing = any(one.endswith(_PASSING_END) for one in rounds[-lag:])
        limit = limits.recoverable_identical if passing else limits.identical_batches
        if times >= limit and lag == 1:
            return _halt(_words.same_batch(tools, times), "identical_batches", tools)
        if times >= limit:
            return _halt(_words.same_cycle(tools, times), "repeated_cycle", tools)
        if repeats[lag - 1] == lag > 1:
            nudge = _nudge(_words.nudge_cycle(tools, times), "repeated_cycle", tools)
    return nudge


def _is_shorter(repeats: Sequence[int], lag: int) -> bool:
    """Tell whether a cycle is a shorter one again and again."""
    return any(
        lag % shorter == 0 and repeats[shorter - 1] >= lag - shorter for shorter in range(1, lag)
    )


def _halt(
    message: str, reason: str, tools: Sequence[str], failure: ToolFailure | None = None
) -> Verdict:
    return Verdict("halt", message, reason, failure, ", ".join(dict.fromkeys(tools)))


def _nudge(
    message: str, reason: str, tools: Sequence[str], failure: ToolFailure | None = None
) -> Verdict:
    return Verdict("nudge", message, reason, failure, ", ".join(dict.fromkeys(tools)))
