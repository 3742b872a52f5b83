"""How measurements follow from what observers hear; where they go is the framework's matter."""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict, deque
from functools import partial
from math import inf
from threading import Lock, get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from honcho_fallback import (
    CallRecord,
    CallStart,
    FallbackConfigError,
    FallbackObserver,
    Switch,
    read_answer,
)
from honcho_fallback_metrics import _metrics as metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback import AttemptRecord, Target
    from honcho_fallback_metrics._metrics import Metric

Labels: TypeAlias = tuple[str, ...]
Update: TypeAlias = "Callable[[float], object]"
MakeUpdate: TypeAlias = "Callable[[Metric, Labels], Update]"
Event: TypeAlias = CallStart | Switch | CallRecord

MOST_LABELS = 100
FORGET_AFTER = 3600.0
# So many runs that were dropped cost a few megabytes.
MOST_IN_FLIGHT = 10_000

_ANSWERED, _NOBODY, _OTHER = "answered", "nobody", "other"

# An address names a target as well without who may ask it, and its query may hold a key.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s?#]*@")
_QUERY = re.compile(r"(://[^\s?#]*)[?#]\S*")

# The core's own form of usage: what is in it need not be looked for.
_NO_COUNTS: Mapping[str, int] = MappingProxyType({})
_COUNTS = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
    }
)


class Series(dict[Labels, Update]):
    """Hold what updates one metric, by label values; made when first asked for."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Labels], Update]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, labels: Labels) -> Update:
        update = self[labels] = self._make(labels)
        return update


class Names(dict[str, str]):
    """Turn names into the values of one label, of which there are never too many."""

    __slots__ = ("_lock", "_most")

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._lock = Lock()

    def __missing__(self, name: str) -> str:
        with self._lock:
            if len(self) >= self._most and name not in self:
                return _OTHER
            label = self[name] = _label(name)
            return label


def _label(name: str) -> str:
    """Return a name without an address's credentials, in a form that UTF-8 can carry."""
    if "://" in name:
        name = _QUERY.sub(r"\1", _CREDENTIALS.sub("", name))
    # One lone surrogate would cost the whole exposition.
    return str.encode(name, "utf-8", "replace").decode()


class InFlight(NamedTuple):
    """Remember a call from its start to its end."""

    begun: float
    agent: str
    primary: Target


class Measurements:
    """Derive measurements from events, in any thread.

    Args:
        make: Returns what updates a metric under some label values; asked once for each.
        most_labels: How many agents, and how many targets, are told apart; others are ``other``.
        forget_after: Seconds after which a call that has not ended is no longer in flight.

    Raises:
        FallbackConfigError: An argument is out of range.
    """

    def __init__(self, make: MakeUpdate, most_labels: int, forget_after: float) -> None:
        if type(most_labels) is not int or most_labels < 1:
            problem = f"got {most_labels!r}"
            raise FallbackConfigError.about("most_labels", problem, "pass a positive number")
        if not forget_after >= 0:
            problem = f"got {forget_after!r}"
            raise FallbackConfigError.about("forget_after", problem, "pass a number of seconds")
        self._agents, self._targets = Names(most_labels), Names(most_labels)
        self._calls = Series(partial(make, metrics.CALLS))
        self._answers_by_fallback = Series(partial(make, metrics.ANSWERS_BY_FALLBACK))
        self._calls_ended_by_limit = Series(partial(make, metrics.CALLS_ENDED_BY_LIMIT))
        self._call_duration = Series(partial(make, metrics.CALL_DURATION))
        self._time_to_first_token = Series(partial(make, metrics.TIME_TO_FIRST_TOKEN))
        self._calls_in_flight = Series(partial(make, metrics.CALLS_IN_FLIGHT))
        self._attempts = Series(partial(make, metrics.ATTEMPTS))
        self._attempt_duration = Series(partial(make, metrics.ATTEMPT_DURATION))
        self._switches = Series(partial(make, metrics.SWITCHES))
        self._probes = Series(partial(make, metrics.PROBES))
        self._cooldown_until = Series(partial(make, metrics.COOLDOWN_UNTIL))
        self._tokens = Series(partial(make, metrics.TOKENS))
        self._forget_after = forget_after
        self._in_flight: OrderedDict[str, InFlight] = OrderedDict()
        self._lock = Lock()
        self._process = os.getpid()
        # Targets that rest, each with the time at which a call saw it.
        self._resting: dict[str, float] = {}
        self._updating: set[int] = set()
        self._deferred: deque[Event] = deque()

    def take(self, event: Event) -> None:
        """Count an event.

        Where the garbage collector ends a forgotten stream in the middle of an update, its end
        waits for that: the frameworks' locks are not reentrant.
        """
        thread = get_ident()
        if thread in self._updating:
            self._deferred.append(event)
            return
        self._updating.add(thread)
        try:
            self._count(event)
            while self._deferred:
                try:
                    deferred = self._deferred.popleft()
                except IndexError:  # another thread took it
                    break
                self._count(deferred)
        finally:
            self._updating.discard(thread)

    def _count(self, event: Event) -> None:
        if isinstance(event, CallRecord):
            self._count_end(event, self._end(event.call_id))
        elif isinstance(event, CallStart):
            self._begin(event)
        else:
            agent, target = self._agents[event.agent], self._targets[event.failed.name]
            self._switches[agent, target, event.failure.kind.value](1)

    # Calls in flight.

    def _begin(self, call: CallStart) -> None:
        if call.agent not in self._agents:
            self._show_rare(self._agents[call.agent])
        agent, now = self._agents[call.agent], time.monotonic()
        with self._lock:
            if self._process != os.getpid():  # a fork: the calls in flight are the parent's
                self._process = os.getpid()
                self._in_flight.clear()
            forgotten = self._forgotten(now)
            self._in_flight[call.call_id] = InFlight(now, agent, call.chain[0])
        self._leave(forgotten)
        self._calls_in_flight[agent,](1)

    def _show_rare(self, agent: str) -> None:
        """Begin at 0 what seldom counts: of a series that begins at 1, increase() sees nothing."""
        for outcome in ("exhausted", "interrupted"):
            self._calls[agent, outcome, _NOBODY](0)
        for limit in ("deadline", "retry_budget"):
            self._calls_ended_by_limit[agent, limit](0)

    def _end(self, call_id: str) -> InFlight | None:
        with self._lock:
            ended = self._in_flight.pop(call_id, None)
            forgotten = self._forgotten(time.monotonic())
        self._leave(forgotten if ended is None else [*forgotten, ended])
        return ended

    def _forgotten(self, now: float) -> list[InFlight]:
        """Remove and return the calls that nobody will end: their runs were dropped."""
        forgotten: list[InFlight] = []
        while self._in_flight:
            oldest = next(iter(self._in_flight.values()))
            is_too_old = now - oldest.begun >= self._forget_after
            if not is_too_old and len(self._in_flight) < MOST_IN_FLIGHT:
                break
            forgotten.append(oldest)
            self._in_flight.popitem(last=False)
        return forgotten

    def _leave(self, calls: list[InFlight]) -> None:
        for call in calls:
            self._calls_in_flight[call.agent,](-1)

    # Ends.

    def _count_end(self, record: CallRecord, _call: InFlight | None, /) -> None:
        """Count what became of a call; its start is None where it was not heard."""
        agent, outcome = self._agents[record.agent], record.outcome
        answered_by = record.answered_by
        answering = _NOBODY if answered_by is None else self._targets[answered_by]
        self._calls[agent, outcome, answering](1)
        self._call_duration[agent, outcome](record.seconds)
        if record.is_fallback:
            self._answers_by_fallback[agent, answering](1)
        if record.limit is not None:
            self._calls_ended_by_limit[agent, record.limit](1)
        if record.cooling is not None:
            self._note_cooldowns(record, record.cooling)
        for attempt in record.attempts:
            target = self._targets[attempt.target]
            kind = _ANSWERED if attempt.kind is None else attempt.kind.value
            self._attempts[agent, target, kind](1)
            self._attempt_duration[target,](attempt.seconds)
            if attempt.usage is not None:
                self._count_tokens(agent, target, attempt.usage)
            if attempt.is_probe:
                self._probes[target, kind](1)
            if attempt.kind is None and (attempt.is_probe or self._resting):
                self._end_cooldown(target, record, attempt)
        if record.time_to_first_token is not None and record.attempts:
            target = self._targets[record.attempts[-1].target]
            self._time_to_first_token[agent, target](record.time_to_first_token)

    def _count_tokens(self, agent: str, target: str, usage: Mapping[str, Any]) -> None:
        counts = token_counts(usage)
        read, written = counts.get("cache_read_tokens", 0), counts.get("cache_write_tokens", 0)
        reasoning = counts.get("reasoning_tokens", 0)
        by_type = {
            "input": counts.get("input_tokens", 0) - read - written,
            "cache_read": read,
            "cache_write": written,
            "output": counts.get("output_tokens", 0) - reasoning,
            "reasoning": reasoning,
        }
        for token_type, count in by_type.items():
            if count > 0:
                self._tokens[agent, target, token_type](count)

    def _note_cooldowns(self, record: CallRecord, cooling: Mapping[str, float]) -> None:
        for name, seconds in cooling.items():
            if seconds:  # 0: its rest is over, and another call probes it
                target, seen_at = self._targets[name], _passed_over_at(record, name)
                self._resting[target] = seen_at
                self._cooldown_until[target,](seen_at + seconds)

    def _end_cooldown(self, target: str, record: CallRecord, attempt: AttemptRecord) -> None:
        """Note that a target answered; not where it was asked before it began to rest."""
        asked_at = record.started_at + attempt.started
        if attempt.is_probe or self._resting.get(target, inf) <= asked_at:
            self._resting.pop(target, None)
            # Also where this process never saw it rest: another one did.
            self._cooldown_until[target,](0)


def token_counts(usage: Mapping[str, Any] | None) -> Mapping[str, int]:
    """Return the counts of a usage in the core's form; empty where there are none."""
    if usage is None:
        return _NO_COUNTS
    # Reading takes longer than all counting, and most usages were read by the core.
    if all(map(_COUNTS.__contains__, usage)) and all(type(one) is int for one in usage.values()):
        return usage
    return read_answer({"usage": usage}).usage or _NO_COUNTS


def _passed_over_at(record: CallRecord, target: str) -> float:
    """Return the unix time at which a call went past a target: when it chose the one after it."""
    if not record.attempts:
        return record.started_at
    position = record.chain.index(target)
    # Where all rested it may be one before it, which is asked once and last.
    after = (one for one in record.attempts if one.position > position)
    chosen = next(after, record.attempts[-1])
    return record.started_at + chosen.started - chosen.wait


class MetricsObserver(FallbackObserver):
    """Hand what an observer hears to its measurements."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements

    def on_start(self, call: CallStart, /) -> None:
        """Count a call in flight."""
        self._measurements.take(call)

    def on_switch(self, switch: Switch, /) -> None:
        """Count a switch."""
        self._measurements.take(switch)

    def on_finish(self, record: CallRecord, /) -> None:
        """Count what became of a call."""
        self._measurements.take(record)
