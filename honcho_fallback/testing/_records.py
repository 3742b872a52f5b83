"""The records of all calls of a test, and assertions that explain the whole call."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from honcho_fallback import CallRecord, FallbackRun, Runtime

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import AttemptRecord, FailureKind, Target


class Records(list[CallRecord]):
    """Hold the records of calls that ended, in the order in which they did."""

    def __repr__(self) -> str:
        return f"<{len(self)} records>\n{self.explain()}".rstrip()

    @property
    def one(self) -> CallRecord:
        """Return the only record.

        Raises:
            AssertionError: There is none, or more than one; it shows them.
        """
        if len(self) != 1:
            raise AssertionError(f"there are {len(self)} records, not one\n{self.explain()}")
        return self[0]

    def explain(self) -> str:
        """Tell all calls in plain words."""
        return "\n".join(record.explain() for record in self)


@contextmanager
def recorded() -> Generator[Records, None, None]:
    """Collect the record of every call that ends in this process until the ``with`` block does.

    Policies that were made before count, too, and so do other threads and event loops, and the
    calls of the adapters. A call that its program never ends, such as a stream that is neither
    read to its end nor closed, has no record.

    A context variable would miss other threads and the loops of test runners, an observer would
    have to be passed by the code under test: the runtime of the process hears of every end.
    """
    records = Records()
    runtime = Runtime.current()

    def watch(run: FallbackRun) -> None:
        if runtime.on_finish is not None:
            runtime.on_finish(run)
        records.append(run.record)

    with replace(runtime, on_finish=watch).installed():
        yield records


def assert_switched(
    record: CallRecord,
    *,
    from_: str | Target | None = None,
    to: str | Target | None = None,
    kind: FailureKind | str | None = None,
) -> None:
    """Check that a call went from one target to another; an argument left out matches any.

    Args:
        record: The record of the call.
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
    """Check that a call sent requests to its first target only.

    Raises:
        AssertionError: It switched; the message lists the switches that it made.
    """
    __tracebackhide__ = True
    switches = _switches(record)
    if switches:
        _fail(record, f"expected no switch, but {_described(switches)}")


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
