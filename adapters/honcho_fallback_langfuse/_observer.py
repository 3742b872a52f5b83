"""What both handlers do alike: open a span when a call starts, fill and end it once it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from honcho_fallback_langfuse._record_fields import EndedCall
from honcho_fallback_langfuse._safe import FailureLimit

if TYPE_CHECKING:
    from honcho_fallback import CallContent, CallRecord, CallStart, Switch

# Calls that were started and never ended (a run that was dropped) must not pile up.
_MOST_IN_FLIGHT = 4096


@dataclass(slots=True, eq=False)
class CallInFlight:
    """Collect the content of one call.

    Args:
        start: The start.
        span: What was opened for it.
    """

    start: CallStart
    span: Any
    input: Any = None
    output: Any = None
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])


class SpanObserver(ABC):
    """Hear of calls as an observer does, and keep one span for each; nothing in here raises.

    Args:
        keep_input: Whether what was asked is of interest.
    """

    def __init__(self, *, keep_input: bool) -> None:
        self._keep_input = keep_input
        # By id, the oldest first. Each step is one operation on a dictionary, which the
        # interpreter does not interrupt, so calls may start and end in any thread.
        self._calls: OrderedDict[str, CallInFlight] = OrderedDict()
        self._most_calls = _MOST_IN_FLIGHT
        self._failures = FailureLimit()

    def on_start(self, call: CallStart, /) -> None:
        """Hear that a call begins."""
        if self._failures.reached:
            return
        try:
            span = self._open(call)
            if span is not None:
                self._calls[call.call_id] = CallInFlight(call, span)
                # A span that is forgotten is never exported: nobody knows how it went on.
                if len(self._calls) > self._most_calls:
                    with suppress(KeyError):  # other threads took them all
                        self._calls.popitem(last=False)
                self._failures.reset()
        except Exception as error:  # noqa: BLE001 # telemetry must not break a call
            self._failures.record(error, "opening a span")

    def on_content(self, content: CallContent, /) -> None:
        """Hear what was asked or answered; the latest counts."""
        call = self._calls.get(content.call_id)
        if call is None:
            return
        if content.input is not None and self._keep_input:
            call.input = content.input
        if content.output is not None:
            call.output = content.output
        if content.parameters:
            call.parameters.update(content.parameters)

    def on_switch(self, switch: Switch, /) -> None:  # noqa: B027 # observers have it; nothing to do
        """Hear that a call goes to another target; the record tells it again at the end."""

    def on_finish(self, record: CallRecord, /) -> None:
        """Hear how a call ended."""
        call = self._calls.pop(record.call_id, None)
        if call is None:
            return
        try:
            try:
                self._fill(call.span, EndedCall.of(call, record))
            finally:
                call.span.end()
        except Exception as error:  # noqa: BLE001 # as above
            self._failures.record(error, "ending a span")

    @abstractmethod
    def _open(self, call: CallStart) -> Any:
        """Open a span now, or return None where nobody would see it."""

    @abstractmethod
    def _fill(self, span: Any, ended: EndedCall) -> None:
        """Write into a span what is known of its call."""
