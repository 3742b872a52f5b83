"""What has to hold for every call, seen by its caller, in its record and by the providers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from honcho_fallback import FailureKind
from soak.plan import CUT_LATE, OK, REJECTED, STALL_LATE
from soak.provider import TARGETS, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from honcho_fallback import CallRecord
    from soak.ledger import Slot
    from soak.plan import Call

Ending = Literal["answer", "error", "interrupted", "cancelled", "left"]

# A request: to whom, and how the provider ended it.
Served = tuple[str, str]

_OUTCOMES: dict[Ending, frozenset[str]] = {
    "answer": frozenset({"success"}),
    "error": frozenset({"exhausted", "rejected"}),
    "interrupted": frozenset({"interrupted"}),
    # The cancellation may come when the answer is there and not yet handed over.
    "cancelled": frozenset({"cancelled", "abandoned", "success"}),
    "left": frozenset({"abandoned", "success"}),
}
_INTERRUPTION = "StreamInterrupted"
# LiteLLM's callers know its own errors, of which there are several.
_OWN_ERRORS = frozenset({"litellm"})
_HANDED_OUT = frozenset({OK, CUT_LATE, STALL_LATE})


@dataclass(frozen=True, slots=True)
class Told:
    """Say what the caller got.

    Args:
        ending: How its call ended.
        text: The answer, or as much of a stream as was read.
        error: Class of what was raised, or None.
        swallowed: Whether a cancellation was accepted and then did not come out.
    """

    ending: Ending
    text: str = ""
    error: str | None = None
    swallowed: bool = False


def troubles(call: Call, told: Told, slot: Slot, served: Sequence[Served]) -> Iterator[str]:
    """Tell what is wrong with a call that has ended; nothing, as a rule.

    Args:
        call: As it was planned.
        told: What its caller got.
        slot: What observers were told.
        served: Its requests, in the order in which they came.
    """
    if told.swallowed:
        yield "its cancellation was swallowed"
    if told.ending == "cancelled" and slot.opened == 0 and not served:
        return  # cancelled before it had begun
    if slot.opened != 1 or len(slot.records) != 1:
        yield f"{slot.opened} records were begun and {len(slot.records)} closed"
        return
    (record,) = slot.records
    if record.outcome not in _OUTCOMES[told.ending]:
        yield f"the caller got {told.ending} and the record says {record.outcome}"
    yield from _of_the_text(call, told, record, served)
    if told.ending in {"error", "interrupted"}:
        yield from _of_the_error(told, record, served)
    yield from _of_the_requests(record, served)


def _of_the_text(
    call: Call, told: Told, record: CallRecord, served: Sequence[Served]
) -> Iterator[str]:
    if told.ending == "error":
        return
    known = told.error == _INTERRUPTION or call.way.lane in _OWN_ERRORS
    if told.ending == "interrupted" and not known:
        yield f"it broke after {told.text!r} with {told.error}"
    if told.ending == "answer":
        good = [text for text, fault in _texts(call, served) if fault == OK]
        if told.text not in good:
            yield f"it was answered {told.text!r}, and the good answers were {good}"
        elif (target := told.text.split(" ")[2]) != _short(record.answered_by or ""):
            yield f"{target} answered and the record says {record.answered_by}"
        return
    handed = [text for text, fault in _texts(call, served) if fault in _HANDED_OUT]
    if told.text and not any(text.startswith(told.text) for text in handed):
        yield f"it read {told.text!r}, which begins none of {handed}"


def _of_the_error(told: Told, record: CallRecord, served: Sequence[Served]) -> Iterator[str]:
    late = {FailureKind.TIMEOUT, FailureKind.CONNECTION}
    for (target, fault), attempt in zip(served, record.attempts, strict=False):
        if fault == OK and attempt.kind not in late:
            yield f"the answer of {target} was lost: {told.error}, attempt {attempt.result()}"
    if record.outcome == "rejected" and served and served[-1][1] != REJECTED:
        yield f"it was rejected after {served[-1][1]}"
    asked = {_short(attempt.target) for attempt in record.attempts}
    if record.outcome == "exhausted" and asked != {*TARGETS}:
        yield f"it was exhausted and only {sorted(asked)} were asked"


def _of_the_requests(record: CallRecord, served: Sequence[Served]) -> Iterator[str]:
    left = [target for target, _ in served]
    for attempt in record.attempts:
        if left and left[0] == _short(attempt.target):
            left.pop(0)
        # The request of an attempt that was cut short may never have left.
        elif attempt.kind not in {FailureKind.TIMEOUT, FailureKind.CANCELLED}:
            yield f"{attempt.target} never saw the attempt that {attempt.result()}"
    if left:
        yield f"the providers saw {[target for target, _ in served]}, and {left} are in no record"


def _texts(call: Call, served: Sequence[Served]) -> Iterator[tuple[str, str]]:
    for place, (target, fault) in enumerate(served, 1):
        yield text_of(call.number, target, place), fault


def _short(name: str) -> str:
    return name.rpartition("/")[2]
