"""Assertions on records; their errors carry the explanation of the whole call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from honcho_fallback import AttemptRecord, CallRecord, FailureKind, Target


def assert_switched(
    record: CallRecord,
    *,
    from_: str | Target | None = None,
    to: str | Target | None = None,
    kind: FailureKind | str | None = None,
) -> None:
    """Check that a call went from one target to another; an argument left out matches any.

    Args:
        record: Of the call.
        from_: The target that failed, or its name.
        to: The next target, or its name.
        kind: What the failure was.

    Raises:
        AssertionError: It did not; the message lists the switches that it made.
    """
    __tracebackhide__ = True
    switches = _switches(record)
    for failed, following in switches:
        wrong = (from_ is not None and failed.target != _name(from_)) or (
            to is not None and following.target != _name(to)
        )
        if not wrong and (kind is None or _kind(failed.kind) == _kind(kind)):
            return
    expected = f"from {_name(from_)} to {_name(to)}" + (f" for {_kind(kind)}" if kind else "")
    _fail(record, f"expected a switch {expected}, but {_described(switches)}")


def assert_not_switched(record: CallRecord) -> None:
    """Check that a call sent requests to no other target than its first.

    Args:
        record: Of the call.

    Raises:
        AssertionError: It did.
    """
    __tracebackhide__ = True
    switches = _switches(record)
    if switches:
        _fail(record, f"expected no switch, but {_described(switches)}")


def assert_answered(record: CallRecord, *, by: str | Target | None = None) -> None:
    """Check that a call was answered.

    Args:
        record: Of the call.
        by: The target, or its name; left out, any target.

    Raises:
        AssertionError: It was not, or by another target.
    """
    __tracebackhide__ = True
    if record.outcome != "success" or (by is not None and record.answered_by != _name(by)):
        who = record.answered_by if record.outcome == "success" else "nobody"
        _fail(record, f"expected an answer from {_name(by)}, but {who} answered")


def assert_outcome(record: CallRecord, outcome: str) -> None:
    """Check how a call ended.

    Args:
        record: Of the call.
        outcome: Such as ``"exhausted"``; see ``CallRecord.outcome``.

    Raises:
        AssertionError: It ended otherwise.
    """
    __tracebackhide__ = True
    if record.outcome != outcome:
        _fail(record, f"expected the outcome {outcome}, but it is {record.outcome}")


def _switches(record: CallRecord) -> list[tuple[AttemptRecord, AttemptRecord]]:
    pairs = zip(record.attempts, record.attempts[1:], strict=False)
    return [(one, other) for one, other in pairs if one.position != other.position]


def _name(target: str | Target | None) -> str:
    if target is None:
        return "any target"
    return target if isinstance(target, str) else target.name


def _kind(kind: FailureKind | str | None) -> str:
    return str(getattr(kind, "value", kind))


def _described(switches: list[tuple[AttemptRecord, AttemptRecord]]) -> str:
    descriptions = [
        f"from {failed.target} to {following.target} for {_kind(failed.kind)}"
        for failed, following in switches
    ]
    return f"it switched {', then '.join(descriptions)}" if descriptions else "there was no switch"


def _fail(record: CallRecord, what: str) -> NoReturn:
    __tracebackhide__ = True
    raise AssertionError(f"{what}\n{record.explain()}")
