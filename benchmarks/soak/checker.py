"""What has to hold for every call, seen by its caller, in its record and by the providers."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from benchmarks.soak.plan import CUT_LATE, DROP, OK, REJECTED, STALL_LATE, TARGETS, text_of
from honcho_fallback import FailureKind, FallbackObserver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.soak.plan import Call
    from honcho_fallback import AttemptRecord, CallRecord, CallStart, Switch

Ending = Literal["answer", "error", "interrupted", "cancelled", "left"]
# A request: to whom, and how the provider ended it.
Request = tuple[str, str]

_OUTCOMES: dict[Ending, frozenset[str]] = {
    "answer": frozenset({"success"}),
    "error": frozenset({"exhausted", "rejected"}),
    "interrupted": frozenset({"interrupted"}),
    # The cancellation may come when the answer is there and not yet handed over.
    "cancelled": frozenset({"cancelled", "abandoned", "success"}),
    "left": frozenset({"abandoned", "success"}),
}
# LiteLLM's callers know its own errors, of which there are several.
_OWN_ERRORS = frozenset({"litellm"})
_HANDED_OUT = frozenset({OK, CUT_LATE, STALL_LATE})
_LATE = frozenset({FailureKind.TIMEOUT, FailureKind.CONNECTION})
_CUT_SHORT = frozenset({FailureKind.TIMEOUT, FailureKind.CANCELLED})
# Enough to see what is wrong; the rest is counted.
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Observation:
    """Say what the caller got."""

    ending: Ending
    text: str = ""
    error: str | None = None
    swallowed: bool = False


@dataclass(slots=True)
class Records:
    """Hold the records of one planned call: how many were begun, and those that were closed."""

    begun: int = 0
    closed: list[CallRecord] = field(default_factory=list["CallRecord"])


# Of the planned call in whose context the caller asks.
RECORDS: ContextVar[Records | None] = ContextVar("RECORDS", default=None)


class RecordObserver(FallbackObserver):
    """Give each record to the planned call in whose context it began."""

    def __init__(self) -> None:
        self._open: dict[str, Records] = {}
        self.violations: list[str] = []

    def on_start(self, call: CallStart) -> None:
        records = RECORDS.get()
        if records is None:
            self.violations.append(f"record {call.call_id} began outside of any planned call")
            return
        records.begun += 1
        self._open[call.call_id] = records

    def on_switch(self, switch: Switch) -> None:
        if switch.call_id not in self._open:
            self.violations.append(f"record {switch.call_id} switched while it was not open")

    def on_finish(self, record: CallRecord) -> None:
        # Whose it is was settled at the start: the collector may finish a stream in any context.
        records = self._open.pop(record.call_id, None)
        if records is None:
            self.violations.append(f"record {record.call_id} was closed while it was not open")
            return
        records.closed.append(record)

    @property
    def open(self) -> int:
        """Count the records that were begun and not closed."""
        return len(self._open)


class _Ended(NamedTuple):
    call: Call
    observation: Observation
    records: Records


class Checker:
    """Check every call once the providers have reported what they saw of it.

    Calls are checked as they end, so that 50,000 need no more memory than a few hundred.
    """

    def __init__(self, calls: int) -> None:
        self.endings: Counter[tuple[str, str]] = Counter()
        self.violations: list[str] = []
        self.count = 0
        self._requests: defaultdict[int, list[Request]] = defaultdict(list)
        self._running: dict[int, Call] = {}
        self._ended: list[_Ended] = []
        self._due: list[_Ended] = []
        self._is_checked = bytearray(calls)

    def begin(self, call: Call) -> None:
        """Note that a call begins."""
        self._running[call.number] = call

    def end(self, call: Call, observation: Observation, records: Records) -> None:
        """Take a call that has ended."""
        del self._running[call.number]
        self._ended.append(_Ended(call, observation, records))

    def give_up(self) -> None:
        """Report the calls that never end."""
        for call in [*self._running.values()]:
            self.add(f"call {call.number} ({call.way}, {call.leave}, {call.faults}): never ended")

    def check(self, requests: Iterable[tuple[int, str, str]], *, last: bool = False) -> None:
        """Check the calls that had ended when the requests before these were reported.

        A request may be on its way while its call ends. A stream that was dropped is closed when
        the collector comes to it, so its check waits for that.
        """
        for number, target, fault in requests:
            if self._is_checked[number]:
                self.add(f"call {number} had ended, and {target} was asked again")
            else:
                self._requests[number].append((target, fault))
        due, self._due, self._ended = self._due, self._ended, []
        for ended in due:
            call, observation, records = ended
            if call.leave == DROP and not records.closed and not last:
                self._due.append(ended)
                continue
            seen = self._requests.pop(call.number, [])
            self._is_checked[call.number] = True
            self.endings[str(call.way), observation.ending] += 1
            for violation in violations(call, observation, records, seen):
                faults = [fault for _, fault in seen]
                self.add(f"call {call.number} ({call.way}, {call.leave}, {faults}): {violation}")

    def add(self, violation: str) -> None:
        """Note a violation."""
        self.count += 1
        if len(self.violations) < _MOST_SHOWN:
            self.violations.append(violation)


def violations(
    call: Call, observation: Observation, records: Records, requests: Sequence[Request]
) -> Iterator[str]:
    """Say what is wrong with a call that has ended; nothing, as a rule."""
    if observation.swallowed:
        yield "its cancellation was swallowed"
    if observation.ending == "cancelled" and records.begun == 0 and not requests:
        return  # cancelled before it had begun
    if records.begun != 1 or len(records.closed) != 1:
        yield f"{records.begun} records were begun and {len(records.closed)} closed"
        return
    (record,) = records.closed
    if record.outcome not in _OUTCOMES[observation.ending]:
        yield f"the caller got {observation.ending} and the record says {record.outcome}"
    yield from _of_the_text(call, observation, record, requests)
    if observation.ending in {"error", "interrupted"}:
        yield from _of_the_error(observation, record, requests)
    yield from _of_the_requests(record, requests)


def _of_the_text(
    call: Call, observation: Observation, record: CallRecord, requests: Sequence[Request]
) -> Iterator[str]:
    ending, text, error = observation.ending, observation.text, observation.error
    texts = [
        (text_of(call.number, target, place), fault)
        for place, (target, fault) in enumerate(requests, 1)
    ]
    is_known = error == "StreamInterrupted" or call.way.backend in _OWN_ERRORS
    if ending == "interrupted" and not is_known:
        yield f"it broke after {text!r} with {error}"
    if ending == "answer":
        good = [answer for answer, fault in texts if fault == OK]
        if text not in good:
            yield f"it was answered {text!r}, and the good answers were {good}"
        elif (target := text.split(" ")[2]) != _short(record.answered_by or ""):
            yield f"{target} answered and the record says {record.answered_by}"
    elif ending != "error":
        begun = [answer for answer, fault in texts if fault in _HANDED_OUT]
        if text and not any(answer.startswith(text) for answer in begun):
            yield f"it read {text!r}, which begins none of {begun}"


def _of_the_error(
    observation: Observation, record: CallRecord, requests: Sequence[Request]
) -> Iterator[str]:
    for (target, fault), attempt in _paired(record.attempts, requests) or ():
        if fault == OK and attempt.kind not in _LATE:
            result = attempt.result()
            yield f"the answer of {target} was lost: {observation.error}, attempt {result}"
    if record.outcome == "rejected" and requests and requests[-1][1] != REJECTED:
        yield f"it was rejected after {requests[-1][1]}: {observation.error}"
    targets = {_short(attempt.target) for attempt in record.attempts}
    if record.outcome == "exhausted" and targets != {*TARGETS}:
        yield f"it was exhausted and only {sorted(targets)} were asked"


def _of_the_requests(record: CallRecord, requests: Sequence[Request]) -> Iterator[str]:
    if _paired(record.attempts, requests) is None:
        targets = [target for target, _ in requests]
        attempts = [f"{attempt.target} {attempt.result()}" for attempt in record.attempts]
        yield f"the providers saw {targets}, and the record has {attempts}"


def _paired(
    attempts: Sequence[AttemptRecord], requests: Sequence[Request]
) -> list[tuple[Request, AttemptRecord]] | None:
    """Give each request its attempt; None where that is not possible."""
    if not attempts:
        return None if requests else []
    first, rest = attempts[0], attempts[1:]
    if requests and requests[0][0] == _short(first.target):
        others = _paired(rest, requests[1:])
        if others is not None:
            return [(requests[0], first), *others]
    # The request of an attempt that was cut short may never have left.
    return _paired(rest, requests) if first.kind in _CUT_SHORT else None


def _short(name: str) -> str:
    return name.rpartition("/")[2]
