"""What both handlers do alike: open a span when a call starts, end it once when it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from honcho_fallback_langfuse._in_flight import CallInFlight, CallsInFlight
from honcho_fallback_langfuse._safe import Fuse

if TYPE_CHECKING:
    from honcho_fallback import CallContent, CallRecord, CallStart, Switch


class SpanObserver(ABC):
    """Hear of calls as an observer does, and keep one span for each; nothing in here raises.

    Args:
        keep_input: Whether what was asked is of interest.
    """

    def __init__(self, *, keep_input: bool) -> None:
        self._keep_input = keep_input
        self._calls = CallsInFlight()
        self._fuse = Fuse()

    def on_start(self, call: CallStart, /) -> None:
        """Hear that a call begins."""
        if self._fuse.blown:
            return
        try:
            span = self._open(call)
            if span is not None:
                self._calls.add(CallInFlight(call, span))
                self._fuse.mend()
        except Exception as error:  # noqa: BLE001 # telemetry must not break a call
            self._fuse.heat(error, "opening a span")

    def on_content(self, content: CallContent, /) -> None:
        """Hear what was asked or answered."""
        call = self._calls.get(content.call_id)
        if call is not None:
            call.hear(content, keep_input=self._keep_input)

    def on_switch(self, switch: Switch, /) -> None:  # noqa: B027 # observers have it; nothing to do
        """Hear that a call goes to another target; the record tells it again at the end."""

    def on_finish(self, record: CallRecord, /) -> None:
        """Hear how a call ended."""
        call = self._calls.take(record.call_id)
        if call is None:
            return
        try:
            self._end(call, record)
        except Exception as error:  # noqa: BLE001 # as above
            self._fuse.heat(error, "ending a span")

    @abstractmethod
    def _open(self, call: CallStart) -> Any:
        """Open a span now, or return None where nobody would see it."""

    @abstractmethod
    def _end(self, call: CallInFlight, record: CallRecord) -> None:
        """Fill the span and end it."""
