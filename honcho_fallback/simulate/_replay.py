"""What happened, as a scenario: saved records played again under another policy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from honcho_fallback import Failure, FailureKind, FallbackConfigError
from honcho_fallback.records import RecordError, read_records
from honcho_fallback.simulate._scenario import Latency, Reply, Scenario, SimulatedTarget, Traffic
from honcho_fallback.simulate._simulated import KEPT_ALIVE, RecordedError, dropped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import AttemptRecord, CallRecord

# What says nothing about a provider.
_OURS = frozenset({FailureKind.CANCELLED, FailureKind.LOCAL})
_LEAST = 0.001  # seconds: no scenario and no answer is shorter


def replay(records: str | Path | Iterable[CallRecord], *, name: str = "replay") -> Scenario:
    """Build a scenario from what calls met.

    A request in the simulation meets what the request on record that is nearest in time met at
    the same target, so the policy that made the records fares as it did. What they cannot say is
    assumed: a target that nobody asked answers, in the median time of all answers; after a timeout
    nothing would have come; each call is a turn of its own; and limits are repeated as seen, not
    counted. Cancelled attempts and local errors say nothing about a provider and are left out.

    Args:
        records: Of calls over the same targets; or a file with ``json.dumps(record.to_dict())`` on
            each line.
        name: The scenario's.

    Raises:
        FallbackConfigError: There are none, the file cannot be read, or a line is no record.
    """
    if isinstance(records, str | Path):
        try:
            records = list(read_records(records))
        except (RecordError, OSError) as error:
            problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
            fix = "pass a file with json.dumps(record.to_dict()) on each line"
            raise FallbackConfigError.about(str(records), problem, fix) from None
    calls = sorted(records, key=lambda call: call.started_at)
    if not calls:
        raise FallbackConfigError.about("records", "there are none", "pass at least one")
    start = calls[0].started_at
    replies = {target: list[tuple[float, Reply]]() for call in calls for target in call.chain}
    attempts = [(call, attempt) for call in calls for attempt in call.attempts]
    for call, attempt in attempts:
        if attempt.kind not in _OURS:
            at = round(max(0.0, call.started_at - start + attempt.started), 6)
            replies.setdefault(attempt.target, []).append((at, _reply(call, attempt)))
    usual = median([one.seconds for _, one in attempts if one.kind is None] or [1.0])
    times = [call.started_at - start for call in calls]
    is_stream = any(call.time_to_first_token is not None for call in calls)
    return Scenario(
        name=name,
        summary=f"{len(calls)} calls on record, played again.",
        seconds=times[-1] + _LEAST,
        traffic=Traffic(kind="steady", at=tuple(times), stream=is_stream),
        targets=tuple(
            SimulatedTarget(
                name=target,
                latency=Latency(median=max(_LEAST, usual)),
                recorded=tuple(sorted(pairs, key=lambda pair: pair[0])),
            )
            for target, pairs in replies.items()
        ),
        started_at=start,
    )


def _reply(call: CallRecord, attempt: AttemptRecord) -> Reply:
    # Only a call's last attempt can have brought content.
    content_at = call.time_to_first_token if attempt is call.attempts[-1] else None
    first = None if content_at is None else max(0.0, content_at - attempt.started)
    if attempt.kind is None:
        return Reply(attempt.seconds, None, first)
    hung_up = attempt.status is None and "connect" not in (attempt.error or "").lower()
    if attempt.kind is FailureKind.TIMEOUT and hung_up:
        # The caller hung up: nobody knows what would have come.
        return Reply(KEPT_ALIVE, dropped, first, quiet=first is not None)
    failure = Failure.of(
        attempt.kind,
        transient=attempt.transient,
        status=attempt.status,
        code=attempt.code,
        retry_after=attempt.retry_after,
        reached=attempt.reached,
        reason="on record",
    )
    return Reply(attempt.seconds, partial(RecordedError, failure), first)
