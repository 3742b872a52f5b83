"""The observer that holds that every record is closed exactly once."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from honcho_fallback import CallRecord, CallStart, Switch


@dataclass(slots=True)
class Slot:
    """Gather what is told of one planned call.

    Args:
        opened: How many records were begun.
        records: Those that were closed.
    """

    opened: int = 0
    records: list[CallRecord] = field(default_factory=list["CallRecord"])


SLOT: ContextVar[Slot | None] = ContextVar("SLOT", default=None)


class Ledger:
    """Give each record to the planned call in whose context it began."""

    def __init__(self) -> None:
        self._open: dict[str, Slot] = {}
        self.troubles: list[str] = []

    def on_start(self, call: CallStart) -> None:
        slot = SLOT.get()
        if slot is None:
            self.troubles.append(f"record {call.call_id} began outside of any planned call")
            return
        slot.opened += 1
        self._open[call.call_id] = slot

    def on_switch(self, switch: Switch) -> None:
        if switch.call_id not in self._open:
            self.troubles.append(f"record {switch.call_id} switched while it was not open")

    def on_finish(self, record: CallRecord) -> None:
        # Whose it is was settled at the start: the collector may finish a stream in any context.
        slot = self._open.pop(record.call_id, None)
        if slot is None:
            self.troubles.append(f"record {record.call_id} was closed while it was not open")
            return
        slot.records.append(record)

    @property
    def open(self) -> int:
        """Count the records that were begun and not closed."""
        return len(self._open)
