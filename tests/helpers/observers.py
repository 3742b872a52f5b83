"""Observers that keep what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackObserver

if TYPE_CHECKING:
    from honcho_fallback import CallContent, CallRecord, CallStart, Restore, Switch


class Listener(FallbackObserver):
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
    def __init__(self) -> None:
        super().__init__()
        self.contents: list[CallContent] = []

    def on_content(self, content: CallContent) -> None:
        self.contents.append(content)


class Noting(FallbackObserver):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def keep(self, event: Any, /) -> None:
        self.events.append(event)

    on_start = on_content = on_switch = on_finish = on_restore = on_turn_end = keep

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of events in order, but for content, which comes in parts: first."""
        names = [type(event).__name__ for event in self.events]
        parts = names.count("CallContent")
        return ["CallContent"] * bool(parts) + [one for one in names if one != "CallContent"]


WRONG: dict[str, Any] = {
    "no hook": [object()],
    "a class": [Noting],
    "a single one": Noting(),
    "no list": 3,
}
