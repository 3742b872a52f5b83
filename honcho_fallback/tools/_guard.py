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
from honcho_fallback.tools._failure import ToolFailureCategory, ToolFailureKind
from honcho_fallback.tools._messages import halt, nudge
from honcho_fallback.tools._outcome import ToolOutcome, digest
from honcho_fallback.tools._state import ToolLoopLimits, ToolLoopState, ToolLoopVerdict

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
_START, _CONTINUE = ToolLoopState(), ToolLoopVerdict()
_ACTIONS = ("continue", "nudge", "halt")
_LONGEST_CYCLE = 4  # rounds: A, B, C, D, A, B, C, D
_PASSING_END = "~"  # of the digest of a round with a failure that may pass by itself


class ToolLoopGuard:
    """Stop an agent that makes no progress; one object per run, safe to share between threads.

    Args:
        limits: When to nudge and when to halt.
        exempt_tools: Tools that may be called again and again, such as one that polls.
        state: Where to go on from, or None for a new run.

    Raises:
        FallbackConfigError: An argument has the wrong type.
    """

    __slots__ = ("_exempt", "_limits", "_lock", "_state")

    def __init__(
        self,
        limits: ToolLoopLimits | None = None,
        *,
        exempt_tools: Iterable[str] = (),
        state: ToolLoopState | None = None,
    ) -> None:
        checked_limits: Any = ToolLoopLimits() if limits is None else limits
        if not isinstance(checked_limits, ToolLoopLimits):
            raise FallbackConfigError.about(
                "limits", f"got a {type(checked_limits).__name__}", "pass ToolLoopLimits(...)"
            )
        if isinstance(exempt_tools, str):
            raise FallbackConfigError.about(
                "exempt_tools", "got a single string", "pass a list of names"
            )
        self._limits = checked_limits
        self._exempt = frozenset(exempt_tools)
        self._state = _START if state is None else state
        self._lock = Lock()

    @property
    def state(self) -> ToolLoopState:
        """Return what has been counted so far."""
        return self._state

    def before_tools(self, tools: Iterable[str]) -> ToolLoopVerdict:
        """Count one round of calls, before they are made.

        Args:
            tools: The names of the tools that the model calls.
        """
        names, cap = list(tools), self._limits.max_iterations
        if not names:
            return _CONTINUE
        with self._lock:
            made = self._state.iterations
            if cap is not None and made >= cap:
                self._state = _START
                return halt("max_iterations", names, cap)
            self._state = replace(self._state, iterations=made + 1)
        return _CONTINUE

    def after_tool(
        self,
        tool: str,
        arguments: Any = None,
        error: BaseException | str | None = None,
        *,
        timed_out: bool = False,
        exit_code: int | None = None,
    ) -> ToolLoopVerdict:
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

    def after_tools(self, outcomes: Iterable[ToolOutcome]) -> ToolLoopVerdict:
        """Take in what came of all the calls that the model made at once.

        Args:
            outcomes: In order.
        """
        batch = list(outcomes)
        if not batch:
            return _CONTINUE
        with self._lock:
            self._state, verdict = _after(self._state, batch, self._limits, self._exempt)
        return verdict


class _Failed(NamedTuple):
    """Hold one call that failed, with what is read of it once.

    Args:
        tool: Its name.
        failure: What its failure means.
        key: Digest of the call and of how it failed; that of a refusal does not hold its words.
        refused: Whether policy or a person refused it.
        passing: Whether it may pass by itself.
        missed: Whether there is no tool of that name.
    """

    tool: str
    failure: ToolFailure
    key: str
    refused: bool = False
    passing: bool = False
    missed: bool = False


def _failed(outcome: ToolOutcome) -> _Failed:
    tool, failure = outcome.tool, outcome.failure
    if failure.category in _REFUSED:
        return _Failed(tool, failure, digest("refused", outcome.call), refused=True)
    passing = failure.kind in _PASSING
    return _Failed(tool, failure, outcome.signature, passing=passing, missed=outcome.missed)


def _after(
    state: ToolLoopState,
    batch: Sequence[ToolOutcome],
    limits: ToolLoopLimits,
    exempt: Collection[str],
) -> tuple[ToolLoopState, ToolLoopVerdict]:
    # A halt starts the counts anew, so that a run that is taken up again does not stop at once.
    for outcome in batch:
        reason = outcome.terminal if outcome.failed else None
        if reason is not None:
            return _START, halt(reason, [outcome.tool], failure=outcome.failure)
    failures = [_failed(outcome) for outcome in batch if outcome.failed]
    succeeded = len(failures) < len(batch)
    # A tool that polls may wait for as long as it likes; a failure that may pass is waiting, too.
    counting = [one for one in failures if not (one.passing and one.tool in exempt)]
    identical, alike = _same_again(state, counting, limits, succeeded=succeeded)
    varied, passing, in_a_row = _in_a_row(state, counting, limits, succeeded=succeeded)
    rounds: tuple[str, ...] = ()
    repeats: tuple[int, ...] = ()
    cycle = _CONTINUE
    if any(outcome.tool not in exempt for outcome in batch):
        event = digest(
            *sorted(one.key for one in failures),
            *sorted(outcome.call for outcome in batch if not outcome.failed),
        )
        mark = _PASSING_END if any(one.passing for one in failures) else ""
        rounds, repeats = _history(state, event + mark)
        # The same failures again and again have counts of their own.
        if succeeded or not repeats[0]:
            cycle = _cycle(rounds, repeats, [outcome.tool for outcome in batch], limits)
    verdict = max((alike, in_a_row, cycle), key=lambda one: _ACTIONS.index(one.action))
    if verdict.action == "halt":
        return _START, verdict
    counts = ToolLoopState(identical, varied, passing, rounds, repeats, state.iterations)
    return counts, verdict


def _same_again(
    state: ToolLoopState, failures: Sequence[_Failed], limits: ToolLoopLimits, *, succeeded: bool
) -> tuple[dict[str, int], ToolLoopVerdict]:
    """Count each failure that was one of the last round, too."""
    counts: dict[str, int] = {}
    verdict = _CONTINUE
    for one in failures:
        # To ask again at once for what was refused is the same, whatever succeeded beside it.
        before = state.identical.get(one.key, 0) if one.refused or not succeeded else 0
        times = counts[one.key] = before + 1
        limit, reason = _limit_of(one, limits)
        if times >= limit:
            return counts, halt(reason, [one.tool], times, one.failure)
        if times == limits.identical_nudge and reason == "identical_failures":
            verdict = nudge(reason, [one.tool], times, one.failure)
    return counts, verdict


def _limit_of(one: _Failed, limits: ToolLoopLimits) -> tuple[int, str]:
    if one.refused:
        return limits.policy_rejections, "policy_rejections"
    if one.passing:
        return limits.recoverable_identical, "recoverable_identical"
    return limits.identical_failures, "identical_failures"


def _in_a_row(
    state: ToolLoopState, failures: Sequence[_Failed], limits: ToolLoopLimits, *, succeeded: bool
) -> tuple[int, int, ToolLoopVerdict]:
    """Count a round in which everything failed, by the shorter patience of its failures.

    To look for a tool under one name after another is no failure of a tool.
    """
    if succeeded:
        return 0, 0, _CONTINUE
    failures = [one for one in failures if not one.missed]
    if not failures:
        return state.varied, state.recoverable_varied, _CONTINUE
    ordinary = [one for one in failures if not one.passing]
    one, verdict = (ordinary or failures)[-1], _CONTINUE
    if not ordinary:
        times = state.recoverable_varied + 1
        if times >= limits.recoverable_varied:
            verdict = halt("recoverable_varied", [one.tool], times, one.failure)
        return state.varied, times, verdict
    times = state.varied + 1
    if times >= limits.varied_failures:
        verdict = halt("varied_failures", [one.tool], times, one.failure)
    elif times == limits.varied_nudge:
        verdict = nudge("varied_failures", [one.tool], times, one.failure)
    return times, 0, verdict


def _history(state: ToolLoopState, event: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Add a round to the latest ones, and count at each distance what is the same."""
    before, counts = state.rounds, (*state.repeats, *[0] * _LONGEST_CYCLE)
    repeats = [
        counts[lag - 1] + 1 if lag <= len(before) and before[-lag] == event else 0
        for lag in range(1, _LONGEST_CYCLE + 1)
    ]
    return (*before, event)[-_LONGEST_CYCLE:], tuple(repeats)


def _cycle(
    rounds: Sequence[str], repeats: Sequence[int], tools: Sequence[str], limits: ToolLoopLimits
) -> ToolLoopVerdict:
    """Look for rounds that come again: the same one, or the same few in turn; the fewest count."""
    lag = next((lag for lag, times in enumerate(repeats, 1) if times >= lag), 0)
    if not lag:
        return _CONTINUE
    times = repeats[lag - 1] // lag + 1
    passing = any(one.endswith(_PASSING_END) for one in rounds[-lag:])
    limit = limits.recoverable_identical if passing else limits.identical_batches
    if times >= limit:
        return halt("identical_batches" if lag == 1 else "repeated_cycle", tools, times)
    if repeats[lag - 1] == lag > 1:
        return nudge("repeated_cycle", tools, times)
    return _CONTINUE
