"""What a handler remembers of a call between its start and its end."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from honcho_fallback import CallContent, CallStart, Target

# Calls that were started and never ended (a run that was dropped) must not pile up.
MOST_IN_FLIGHT = 4096


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

    def hear(self, content: CallContent, *, keep_input: bool) -> None:
        """Take one part of what was asked or answered; the latest one counts."""
        if content.input is not None and keep_input:
            self.input = content.input
        if content.output is not None:
            self.output = content.output
        if content.parameters:
            self.parameters.update(content.parameters)

    def target(self, name: str | None) -> Target | None:
        """Return the target of a name."""
        return next((one for one in self.start.chain if one.name == name), None)


class CallsInFlight:
    """Hold the calls in flight by their id, the oldest first, and never too many.

    Each step is one operation on a dictionary, which the interpreter does not interrupt, so calls
    may start and end in any thread.
    """

    __slots__ = ("_calls", "_most")

    def __init__(self, most: int = MOST_IN_FLIGHT) -> None:
        self._calls: OrderedDict[str, CallInFlight] = OrderedDict()
        self._most = most

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: CallInFlight) -> None:
        """Hold a call, and forget the oldest one where there are too many.

        A span that is forgotten is never ended and never exported: nobody knows how it went on.
        """
        self._calls[call.start.call_id] = call
        if len(self._calls) > self._most:
            with suppress(KeyError):  # other threads took them all
                self._calls.popitem(last=False)

    def get(self, call_id: str) -> CallInFlight | None:
        """Return a call in flight, or None."""
        return self._calls.get(call_id)

    def take(self, call_id: str) -> CallInFlight | None:
        """Remove a call and return it, or return None."""
        return self._calls.pop(call_id, None)
