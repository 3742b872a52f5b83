"""Who judges calls as they end, so that 50,000 need no more memory than a few hundred."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from soak.plan import DROP
from soak.verdict import Served, Told, troubles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from soak.ledger import Slot
    from soak.plan import Call

# Enough to see what is wrong; the rest is counted.
_SHOWN = 20


class Ended(NamedTuple):
    """Hold a call that waits for its judgement."""

    call: Call
    told: Told
    slot: Slot


class Court:
    """Judge every call once the providers have told what they saw of it."""

    def __init__(self) -> None:
        self.endings: Counter[tuple[str, str]] = Counter()
        self.troubles: list[str] = []
        self.found = 0
        self.judged = 0
        self._served: defaultdict[int, list[Served]] = defaultdict(list)
        self._running: dict[int, Call] = {}
        self._fresh: list[Ended] = []
        self._waiting: list[Ended] = []
        self._closed = _Numbers()

    def begin(self, call: Call) -> None:
        """Note that a call begins."""
        self._running[call.number] = call

    def give_up(self) -> None:
        """Judge the calls that never end."""
        for call in [*self._running.values()]:
            self.say(f"call {call.number} ({call.way}, {call.leave}, {call.faults}): never ended")

    def add(self, call: Call, told: Told, slot: Slot) -> None:
        """Take a call that has ended."""
        del self._running[call.number]
        self._fresh.append(Ended(call, told, slot))

    def hold(self, log: Iterable[tuple[int, str, str]], *, last: bool = False) -> None:
        """Judge the calls that had ended when the log before this one was taken.

        A request may be on its way while its call ends. A stream that was dropped is closed when
        the collector comes to it, so its judgement waits for that.

        Args:
            log: What the providers saw since the last time: number, target, fault.
            last: Whether nothing waits any longer.
        """
        for number, target, fault in log:
            if number in self._closed:
                self.say(f"call {number} had ended, and {target} was asked again")
            else:
                self._served[number].append((target, fault))
        due, self._waiting, self._fresh = self._waiting, self._fresh, []
        for ended in due:
            call, told, slot = ended
            if call.leave == DROP and not slot.records and not last:
                self._waiting.append(ended)
                continue
            served = self._served.pop(call.number, [])
            self._closed.add(call.number)
            self.judged += 1
            self.endings[str(call.way), told.ending] += 1
            for trouble in troubles(call, told, slot, served):
                faults = [fault for _, fault in served]
                self.say(f"call {call.number} ({call.way}, {call.leave}, {faults}): {trouble}")

    def say(self, trouble: str) -> None:
        """Note a violation."""
        self.found += 1
        if len(self.troubles) < _SHOWN:
            self.troubles.append(trouble)


class _Numbers:
    """Remember numbers, most of which come in order, in little room."""

    def __init__(self) -> None:
        self._below = 0
        self._beyond: set[int] = set()

    def add(self, number: int) -> None:
        self._beyond.add(number)
        while self._below in self._beyond:
            self._beyond.remove(self._below)
            self._below += 1

    def __contains__(self, number: int) -> bool:
        return number < self._below or number in self._beyond
