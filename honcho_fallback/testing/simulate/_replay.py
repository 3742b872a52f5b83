"""What happened, as a scenario: saved records played again under another policy."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from honcho_fallback import CallRecord, FailureKind, FallbackConfigError
from honcho_fallback.records import RecordError, read_records
from honcho_fallback.testing.simulate._border import explain
from honcho_fallback.testing.simulate._latency import Latency, Moment
from honcho_fallback.testing.simulate._recorded import Observation, Recorded, moment
from honcho_fallback.testing.simulate._scenario import Scenario, SimulatedTarget
from honcho_fallback.testing.simulate._traffic import RecordedTraffic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

# What says nothing about a provider.
_OURS = frozenset({FailureKind.CANCELLED, FailureKind.LOCAL})
_LEAST = 0.001  # seconds: a scenario is never shorter


class _Attempt(BaseModel):
    """Read what is needed of a saved attempt."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    target: str
    started: float
    seconds: Moment
    kind: FailureKind | None = None
    status: int | None = None
    code: str | None = None
    error: str | None = None
    retry_after: float | None = None


class _Call(BaseModel):
    """Read what is needed of a saved record."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    chain: tuple[str, ...]
    attempts: tuple[_Attempt, ...]
    outcome: str
    started_at: float
    time_to_first_token: float | None = None


def load_records(path: str | Path) -> list[CallRecord]:
    """Read records from a file with a JSON object on each line, as ``record.to_dict()`` gives it.

    Args:
        path: Where it is; empty lines are passed over.

    Raises:
        FallbackConfigError: It cannot be read, or a line is no record.
    """
    try:
        return list(read_records(path))
    except RecordError as error:
        fix = "write json.dumps(record.to_dict()) on each line"
        raise FallbackConfigError.about(str(path), str(error), fix) from None
    except OSError as error:
        found, fix = error.strerror or "it is no file", "pass a file with a record on each line"
        raise FallbackConfigError.about(str(path), found, fix) from None


def replay(records: Iterable[CallRecord | Mapping[str, Any]], *, name: str = "replay") -> Scenario:
    """Build a scenario from what calls met.

    What can be inferred: when calls began; what each target that was asked said, when, and after
    how long. A request in the simulation meets what the request on record that is nearest in time
    to it met at the same target. So the policy that made the records fares as it did.

    What cannot, and is taken for granted instead (``Scenario.assumptions`` says which of it was
    needed): how a target would have fared that nobody asked (it answers, in the median time of all
    answers on record); what would have come had a caller waited longer than its timeout (nothing);
    which calls belong to a turn (each is one of its own, so ``reset="turn"`` gains nothing); and
    that another load would have been met otherwise (limits are repeated as seen, not counted). A
    timeout on connecting is told from others only where the exception's class says so.
    Cancelled attempts and local errors say nothing about a provider and are left out.

    Args:
        records: Of calls over the same targets, as objects or as ``to_dict()`` gives them.
        name: The scenario's.

    Raises:
        FallbackConfigError: There are none, or one has a field missing or of the wrong type.
    """
    calls = sorted(
        (_read(record, number) for number, record in enumerate(records, start=1)),
        key=lambda call: call.started_at,
    )
    if not calls:
        raise FallbackConfigError.about("records", "there are none", "pass at least one")
    start = calls[0].started_at
    seen = _observations(calls, start)
    times = tuple(call.started_at - start for call in calls)
    targets, assumptions = _targets(calls, seen)
    return Scenario(
        name=name,
        summary=f"{len(calls)} calls on record, played again.",
        seconds=times[-1] + _LEAST,
        traffic=RecordedTraffic(
            at=times,
            stream=any(call.time_to_first_token is not None for call in calls),
        ),
        targets=targets,
        started_at=start,
        assumptions=assumptions,
    )


def _read(record: CallRecord | Mapping[str, Any], number: int) -> _Call:
    given = record.to_dict() if isinstance(record, CallRecord) else record
    try:
        return _Call.model_validate(given)
    except ValidationError as error:
        raise FallbackConfigError(explain(error, f"record {number}", _Call)) from None


def _observations(calls: Sequence[_Call], start: float) -> dict[str, list[Observation]]:
    seen: dict[str, list[Observation]] = {}
    for call in calls:
        for attempt in call.attempts:
            if attempt.kind in _OURS:
                continue
            one = _observation(call, attempt, start, last=attempt is call.attempts[-1])
            seen.setdefault(attempt.target, []).append(one)
    for observed in seen.values():
        observed.sort(key=lambda one: one.at)
    return seen


def _observation(call: _Call, attempt: _Attempt, start: float, *, last: bool) -> Observation:
    # Only a call's last attempt can have brought content.
    token = call.time_to_first_token if last else None
    never = attempt.kind is FailureKind.TIMEOUT and "connect" in (attempt.error or "").lower()
    return Observation(
        at=moment(max(0.0, call.started_at - start + attempt.started)),
        seconds=attempt.seconds,
        kind=attempt.kind,
        status=attempt.status,
        code=attempt.code,
        retry_after=attempt.retry_after,
        first=None if token is None else max(0.0, token - attempt.started),
        connected=not never,
    )


def _targets(
    calls: Sequence[_Call], seen: Mapping[str, list[Observation]]
) -> tuple[tuple[SimulatedTarget, ...], tuple[str, ...]]:
    names = dict.fromkeys(name for call in calls for name in call.chain)
    answers = [one.seconds for found in seen.values() for one in found if one.kind is None]
    usual = Latency(median=max(_LEAST, median(answers) if answers else 1.0))
    targets: list[SimulatedTarget] = []
    assumptions: list[str] = []
    for name in names:
        observed = seen.get(name, [])
        if not observed:
            told = f"{name} was never asked; it is taken to answer in {usual.median:.2f} s"
            assumptions.append(told)
        if any(one.kind is FailureKind.TIMEOUT and one.status is None for one in observed):
            assumptions.append(f"{name} would not have answered after the timeouts on record")
        phases = (Recorded(seen=tuple(observed)),) if observed else ()
        targets.append(SimulatedTarget(name=name, latency=usual, phases=phases))
    if len(calls) > 1:
        assumptions.append("each call is a turn of its own")
    return tuple(targets), tuple(assumptions)
