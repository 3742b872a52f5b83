"""The records of all calls of a test, without a change to the code under test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, overload

from honcho_fallback import CallRecord, FallbackRun, Runtime

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable


class Records(Sequence[CallRecord]):
    """Hold the records of calls that ended, in the order in which they did.

    Args:
        records: To begin with.
    """

    def __init__(self, records: Iterable[CallRecord] = ()) -> None:
        self._records = [*records]

    def __repr__(self) -> str:
        return f"<{len(self)} records>\n{self.explain()}".rstrip()

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> CallRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CallRecord]: ...
    def __getitem__(self, index: int | slice) -> CallRecord | Sequence[CallRecord]:
        return self._records[index]

    @property
    def one(self) -> CallRecord:
        """Return the only record.

        Raises:
            AssertionError: There is none, or more than one; it shows them.
        """
        if len(self) != 1:
            raise AssertionError(f"there are {len(self)} records, not one\n{self.explain()}")
        return self._records[0]

    def of(self, agent: str) -> Records:
        """Return the records of one agent.

        Args:
            agent: The label of its policy or calls.
        """
        return Records(record for record in self if record.agent == agent)

    def explain(self) -> str:
        """Tell all calls in plain words."""
        return "\n".join(record.explain() for record in self)

    def add(self, record: CallRecord) -> None:
        """Take one more.

        Args:
            record: Of a call that ended.
        """
        self._records.append(record)


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
        records.add(run.record)

    with replace(runtime, on_finish=watch).installed():
        yield records
