"""Observers that keep what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from honcho_fallback import CallContent, CallRecord, CallStart, Restore, Switch


class Listener:
    """Keep the starts, switches, records and restores of calls, in order."""

    def __init__(self) -> None:
        self.starts: list[CallStart] = []
        self.switches: list[Switch] = []
        self.records: list[CallRecord] = []
        self.restores: list[Restore] = []

    def on_start(self, call: CallStart) -> None:
        self.starts.append(call)

    def on_switch(self, switch: Switch) -> None:
        self.switches.append(switch)

    def on_finish(self, record: CallRecord) -> None:
        self.records.append(record)

    def on_restore(self, restore: Restore) -> None:
        self.restores.append(restore)

    @property
    def record(self) -> CallRecord:
        """Return the record of the one call that there was."""
        (record,) = self.records
        assert len(self.starts) == 1
        return record

    @property
    def kinds(self) -> list[str | None]:
        """Return what went wrong in each attempt of the last call, None for an answer."""
        attempts = self.records[-1].attempts
        return [attempt.kind and attempt.kind.value for attempt in attempts]


class ContentListener(Listener):
    """Keep prompts and answers, too."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[CallContent] = []

    def on_content(self, content: CallContent) -> None:
        self.contents.append(content)
