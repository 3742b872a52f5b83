"""What both handlers do alike: open a span when a call starts, fill and end it once it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackObserver
from honcho_fallback_langfuse._record_fields import EndedCall
from honcho_fallback_langfuse._safe import FailureLimit

if TYPE_CHECKING:
    from honcho_fallback import CallContent, CallRecord, CallStart, TurnEnd

# Calls and turns that began and never ended (a run that was dropped) must not pile up.
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


class SpanObserver(FallbackObserver, ABC):
    """Observe calls and turns, and keep one span for each; nothing in here raises.

    The calls of a turn lie under the turn's span, which opens with the first of them.

    Args:
        keep_input: Whether what was asked is of interest.
    """

    def __init__(self, *, keep_input: bool) -> None:
        self._keep_input = keep_input
        # By id, the oldest first. Each step is one operation on a dictionary, which the
        # interpreter does not interrupt, so calls may start and end in any thread.
        self._calls: OrderedDict[str, CallInFlight] = OrderedDict()
        self._most_calls = self._most_turns = _MOST_IN_FLIGHT
        self._turns: OrderedDict[str, Any] = OrderedDict()  # spans by the turn's id
        self._failures = FailureLimit()

    def on_start(self, call: CallStart, /) -> None:
        """Hear that a call begins."""
        if self._failures.reached:
            return
        try:
            span = self._open(call, self._turn_span(call))
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

    def on_turn_end(self, turn: TurnEnd, /) -> None:
        """End the span of a turn."""
        self._end_turn(self._turns.pop(turn.turn_id, None), turn)

    def _turn_span(self, call: CallStart) -> Any:
        """Return the span of a call's turn, or None."""
        turn_id = call.turn_id
        if turn_id is None:
            return None
        span = self._turns.get(turn_id)
        if span is None:
            opened = self._open_turn(call)
            if opened is None:
                return None
            # Of two calls that begin a turn at once one is first; the other's span never ends, so
            # it is never exported.
            span = self._turns.setdefault(turn_id, opened)
            while len(self._turns) > self._most_turns:
                with suppress(KeyError):  # other threads took them all
                    self._end_turn(self._turns.popitem(last=False)[1], None)
        return span

    def _end_turns(self) -> None:
        """End the spans of all turns: what lies under them has been exported."""
        while self._turns:
            with suppress(KeyError):  # it ended meanwhile
                self._end_turn(self._turns.popitem()[1], None)

    def _end_turn(self, span: Any, turn: TurnEnd | None) -> None:
        if span is None:
            return
        try:
            try:
                if turn is not None:
                    self._fill_turn(span, turn)
            finally:
                span.end()
        except Exception as error:  # noqa: BLE001 # as above
            self._failures.record(error, "ending a turn's span")

    @abstractmethod
    def _open(self, call: CallStart, turn: Any) -> Any:
        """Open a call's span now, under its turn's, or return None where nobody would see it."""

    @abstractmethod
    def _open_turn(self, call: CallStart) -> Any:
        """Open the span of a turn that begins with a call, or return None as above."""

    @abstractmethod
    def _fill_turn(self, span: Any, turn: TurnEnd) -> None:
        """Write into a turn's span how the turn ended."""

    @abstractmethod
    def _fill(self, span: Any, ended: EndedCall) -> None:
        """Write into a span what is known of its call."""
