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
from honcho_fallback.tools._failure import ToolFailureCategory
from honcho_fallback.tools._failure import ToolFailureKind as Kind
from honcho_fallback.tools._messages import halt, nudge
from honcho_fallback.tools._outcome import ToolOutcome, digest
from honcho_fallback.tools._state import NUDGES, ToolLoopLimits, ToolLoopState, ToolLoopVerdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from honcho_fallback.tools._failure import ToolFailure

_REFUSED = frozenset({ToolFailureCategory.BLOCKED_BY_POLICY, ToolFailureCategory.USER_DECLINED})
_PASSING = frozenset({Kind.TIMEOUT, Kind.SERVICE_UNAVAILABLE, Kind.MODEL_CONNECTION})
_START, _CONTINUE = ToolLoopState(), ToolLoopVerdict()
_ACTIONS = ("continue", "nudge", "halt")
_LONGEST_CYCLE = 4  # rounds: A, B, C, D, A, B, C, D
_PASSING_END = "~"  # of the digest of a round with a failure that may pass by itself


class ToolLoopGuard:
    """Stop an agent that makes no progress; one object per run, safe to share between threads.

    Args:
        limits: When to nudge and when to halt.
        exempt_tools: Tools that may be called again and again, such as one that waits.
        unattended: Whether nobody waits for the run, so that its cap on rounds is
            ``autonomous_max_iterations`` where that is more.
        state: Where to go on from, or None for a new run.

    Raises:
        FallbackConfigError: An argument has the wrong type.
    """

    __slots__ = ("_cap", "_exempt", "_limits", "_lock", "_state")

    def __init__(
        self,
        limits: ToolLoopLimits | None = None,
        *,
        exempt_tools: Iterable[str] = (),
        unattended: bool = False,
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
        cap, lifted = checked_limits.max_iterations, checked_limits.autonomous_max_iterations
        self._cap = max(cap, lifted) if unattended and cap and lifted else cap
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
        names, cap = list(tools), self._cap
        if not names:
            return _CONTINUE
        with self._lock:
            made = self._state.iterations
            if cap is not None and made >= cap:
                self._state = _START
                return halt("max_iterations", names, cap)
            self._state = replace(self._state, iterations=made + 1)
        return _CONTINUE

    def after_model(
        self, text: str | None, calls: Iterable[tuple[str, Any]] = ()
    ) -> ToolLoopVerdict:
        """Compare what the model says with what it said before, before its calls are made.

        Args:
            text: The text of its answer, or None; no more than a digest is kept.
            calls: The tool and the arguments of each call in it.
        """
        made = list(calls)
        output = digest(text or "", *sorted(ToolOutcome(*call).call for call in made))
        with self._lock:
            times = self._state.outputs + 1 if output == self._state.output else 1
            if times >= self._limits.identical_outputs:
                self._state = _START
                return halt("identical_outputs", [tool for tool, _ in made], times)
            self._state = replace(self._state, output=output, outputs=times)
        return _CONTINUE

    def after_tool(  # noqa: PLR0913 # each is a part of an outcome
        self,
        tool: str,
        arguments: Any = None,
        error: BaseException | str | None = None,
        *,
        timed_out: bool = False,
        exit_code: int | None = None,
        result: Any = None,
    ) -> ToolLoopVerdict:
        """Take in what came of one call of a tool.

        Args:
            tool: Its name.
            arguments: As a mapping, or as the JSON that the model wrote.
            error: What it raised, or the text that it returned instead of a result; None is
                success.
            timed_out: Whether it was stopped for taking too long.
            exit_code: What the command exited with that it ran, or None; see ToolOutcome.
            result: What a success returned, or None where nobody says it; see ToolOutcome.
        """
        call = ToolOutcome(tool, arguments, error, timed_out, exit_code=exit_code, result=result)
        return self.after_tools([call])

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
    """Hold one call that failed, with what is read of it once."""

    tool: str
    failure: ToolFailure
    key: str  # digest of the call and of how it failed; that of a refusal does not hold its words
    limit: str  # the one that ends a run in which it comes again and again
    missed: bool = False  # there is no tool of that name

    @property
    def may_pass(self) -> bool:
        """Tell whether it may pass by itself."""
        return self.limit == "recoverable_identical"


def _failed(outcome: ToolOutcome) -> _Failed:
    tool, failure = outcome.tool, outcome.failure
    if failure.category in _REFUSED:
        return _Failed(tool, failure, digest("refused", outcome.call), "policy_rejections")
    limit = "recoverable_identical" if failure.kind in _PASSING else "identical_failures"
    return _Failed(tool, failure, outcome.signature, limit, outcome.missed)


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
    counting = [one for one in failures if not (one.may_pass and one.tool in exempt)]
    identical, alike = _same_again(state, counting, limits, succeeded=succeeded)
    varied, passing, in_a_row = _in_a_row(state, counting, limits, succeeded=succeeded)
    cycle = _CONTINUE
    if all(outcome.tool in exempt for outcome in batch):
        state = ToolLoopState(iterations=state.iterations)
    else:
        state = _with_round(state, batch, failures)
        # The same failures again and again have counts of their own.
        if succeeded or not any(state.repeats[:1]):
            cycle = _cycle(state, [outcome.tool for outcome in batch], limits)
    verdict = max((alike, in_a_row, cycle), key=lambda one: _ACTIONS.index(one.action))
    if verdict.action == "halt":
        return _START, verdict
    counts = replace(state, identical=identical, varied=varied, recoverable_varied=passing)
    return counts, verdict


def _same_again(
    state: ToolLoopState, failures: Sequence[_Failed], limits: ToolLoopLimits, *, succeeded: bool
) -> tuple[dict[str, int], ToolLoopVerdict]:
    """Count each failure that was one of the last round, too."""
    counts: dict[str, int] = {}
    verdict = _CONTINUE
    for one in failures:
        # To ask again at once for what was refused is the same, whatever succeeded beside it.
        goes_on = one.limit == "policy_rejections" or not succeeded
        times = counts[one.key] = (state.identical.get(one.key, 0) if goes_on else 0) + 1
        reached = _reached(one.limit, times, one, limits)
        if reached.action == "halt":
            return counts, reached
        verdict = reached if reached.action == "nudge" else verdict
    return counts, verdict


def _in_a_row(
    state: ToolLoopState, failures: Sequence[_Failed], limits: ToolLoopLimits, *, succeeded: bool
) -> tuple[int, int, ToolLoopVerdict]:
    """Count a round in which everything failed, by the shorter patience of its failures."""
    if succeeded:
        return 0, 0, _CONTINUE
    # To look for a tool under one name after another is no failure of a tool.
    failures = [one for one in failures if not one.missed]
    if not failures:
        return state.varied, state.recoverable_varied, _CONTINUE
    ordinary = [one for one in failures if not one.may_pass]
    if ordinary:
        times = state.varied + 1
        return times, 0, _reached("varied_failures", times, ordinary[-1], limits)
    times = state.recoverable_varied + 1
    return state.varied, times, _reached("recoverable_varied", times, failures[-1], limits)


def _reached(limit: str, times: int, one: _Failed, limits: ToolLoopLimits) -> ToolLoopVerdict:
    """Say what follows from a failure that has come so often: nothing, a nudge or a halt."""
    if times >= getattr(limits, limit):
        return halt(limit, [one.tool], times, one.failure)
    if limit in NUDGES and times == getattr(limits, NUDGES[limit]):
        return nudge(limit, [one.tool], times, one.failure)
    return _CONTINUE


def _with_round(
    state: ToolLoopState, batch: Sequence[ToolOutcome], failures: Sequence[_Failed]
) -> ToolLoopState:
    """Add a round to the latest ones, and count at each distance what is the same."""
    calls = digest(*sorted(outcome.call for outcome in batch))
    succeeded = [outcome.signature for outcome in batch if not outcome.failed]
    results = digest(*sorted(one.key for one in failures), *sorted(succeeded))
    event = f"{calls} {results}{_PASSING_END if any(one.may_pass for one in failures) else ''}"
    earlier = state.rounds[::-1]
    same = [one == event for one in earlier]
    repeats = _counted(state.repeats, same)
    call_repeats = state.call_repeats
    if succeeded:  # what fails has counts of its own
        call_repeats = _counted(call_repeats, [one.startswith(calls) for one in earlier])
    # A model that says the same of a new result does not repeat itself.
    is_new = bool(failures) or (any(call_repeats[:1]) and not same[0])
    return replace(
        state,
        rounds=(*state.rounds, event)[-_LONGEST_CYCLE:],
        repeats=repeats,
        call_repeats=call_repeats,
        outputs=0 if is_new else state.outputs,
    )


def _counted(counts: Sequence[int], same: Iterable[bool]) -> tuple[int, ...]:
    pairs = zip((*counts, 0), same, strict=False)
    return tuple(count + 1 if is_same else 0 for count, is_same in pairs)


def _turns(repeats: Sequence[int]) -> tuple[int, int]:
    """Return how many rounds come again in turn, the fewest that do, and how often; or noughts."""
    lag = next((lag for lag, times in enumerate(repeats, 1) if times >= lag), 0)
    return lag, repeats[lag - 1] // lag + 1 if lag else 0


def _cycle(state: ToolLoopState, tools: Sequence[str], limits: ToolLoopLimits) -> ToolLoopVerdict:
    """Look for rounds that come again: the same one, or the same few in turn."""
    lag, times = _turns(state.repeats)
    if not lag:
        _, times = _turns(state.call_repeats)
        # Who lets a result stay the same for longer lets it change in the end.
        is_end = times >= max(limits.polls, limits.identical_batches)
        return halt("polls", tools, times) if is_end else _CONTINUE
    passing = any(one.endswith(_PASSING_END) for one in state.rounds[-lag:])
    limit = limits.recoverable_identical if passing else limits.identical_batches
    if times >= limit:
        return halt("identical_batches" if lag == 1 else "repeated_cycle", tools, times)
    if state.repeats[lag - 1] == lag > 1:
        return nudge("repeated_cycle", tools, times)
    return _CONTINUE
