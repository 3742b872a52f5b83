"""Measurements of calls: what is counted, under which names and labels, for every framework.

An observer that counts asks ``Measurements.of`` what a call's record adds, and hands that to its
framework; it needs no other hook than ``on_finish``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from honcho_fallback import FallbackConfigError, read_answer
from honcho_fallback.redaction import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from honcho_fallback import AttemptRecord, CallRecord

__all__ = ["METRICS", "SECONDS", "Measurement", "Measurements", "Metric", "token_counts"]

# As OpenTelemetry advises for a generative operation's duration, and twice more: attempts may
# take three minutes by default.
SECONDS = tuple(0.01 * 2**power for power in range(16))

_ANSWERED, _NOBODY, _OTHER = "answered", "nobody", "other"


class Metric(NamedTuple):
    """Describe one metric.

    Args:
        name: In OpenTelemetry's form, without the prefix.
        kind: What its measurements do to it: add, replace, or be one of many.
        unit: As OpenTelemetry writes it: ``s``, or what is counted in braces.
        labels: The names of its labels, in order.
        help: What it counts, in one sentence.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    labels: tuple[str, ...]
    help: str

    @property
    def prometheus_name(self) -> str:
        """Name it as it stands in queries; a histogram's series add _bucket, _sum and _count."""
        unit = "_seconds" if self.unit == "s" else ""
        total = "_total" if self.kind == "counter" else ""
        return f"honcho_fallback_{self.name.replace('.', '_')}{unit}{total}"

    @property
    def opentelemetry_name(self) -> str:
        """Name the instrument."""
        return f"honcho_fallback.{self.name}"


METRICS = (
    Metric("calls", "counter", "{call}", ("agent", "outcome", "target"),
           "Calls that ended, by how they ended and by the target that answered "
           "(nobody: none did)."),
    Metric("answers_by_fallback", "counter", "{call}", ("agent", "target"),
           "Calls that another target than the primary answered."),
    Metric("calls_ended_by_limit", "counter", "{call}", ("agent", "limit"),
           "Calls without an answer that might have asked more, but for the deadline, the retry "
           "budget or replay."),
    Metric("call.duration", "histogram", "s", ("agent", "outcome"),
           "Seconds from a call's start to its end, failed attempts and waits included."),
    Metric("time_to_first_token", "histogram", "s", ("agent", "target"),
           "Seconds from a call's start to a stream's first content, failed attempts included, "
           "by the target that sent it."),
    Metric("attempts", "counter", "{attempt}", ("agent", "target", "kind", "billed"),
           "Requests to targets, by what went wrong (answered: nothing) and by whether they are "
           "billed (no, yes, unknown); all but answered are wasted."),
    Metric("attempt.duration", "histogram", "s", ("target",),
           "Seconds that a request to a target took, whatever came of it."),
    Metric("switches", "counter", "{switch}", ("agent", "target", "kind"),
           "Switches to another target, by the target that failed and what went wrong."),
    Metric("probes", "counter", "{attempt}", ("target", "kind"),
           "Requests that tried a target after its cooldown, by what went wrong (answered: "
           "nothing)."),
    Metric("cooldown_until_timestamp", "gauge", "s", ("target",),
           "Unix time until which a target is left alone, as calls last saw it; 0 once an "
           "answer ended its rest."),
    Metric("tokens", "counter", "{token}", ("agent", "target", "type"),
           "Tokens that targets reported, failed attempts included; each counts under one type: "
           "input, cache_read, cache_write, output, reasoning."),
)  # fmt: skip


class Measurement(NamedTuple):
    """Hold one figure.

    Args:
        metric: The metric's name, as in ``METRICS``.
        labels: The values of its labels, in order.
        value: What is added to a counter, what a gauge shows, or what a histogram observes.
    """

    metric: str
    labels: tuple[str, ...]
    value: float


class Measurements:
    """Say what records add to the metrics; shared by all threads.

    Args:
        most_labels: How many agents, and how many targets, are told apart; others are ``other``.

    Raises:
        FallbackConfigError: That is no positive number.
    """

    def __init__(self, most_labels: int) -> None:
        if type(most_labels) is not int or most_labels < 1:
            problem = f"got {most_labels!r}"
            raise FallbackConfigError.about("most_labels", problem, "pass a positive number")
        self._agents, self._targets = _Names(most_labels), _Names(most_labels)

    def of(self, record: CallRecord) -> Iterator[Measurement]:
        """Yield what a call adds.

        Args:
            record: Of a call that has ended.
        """
        if record.agent not in self._agents:
            yield from self._rare(self._agents[record.agent])
        agent, outcome = self._agents[record.agent], record.outcome
        answered_by = record.answered_by
        answering = _NOBODY if answered_by is None else self._targets[answered_by]
        yield Measurement("calls", (agent, outcome, answering), 1)
        yield Measurement("call.duration", (agent, outcome), record.seconds)
        if record.is_fallback:
            yield Measurement("answers_by_fallback", (agent, answering), 1)
        if record.limit is not None:
            yield Measurement("calls_ended_by_limit", (agent, record.limit), 1)
        for name, left in (record.cooling or {}).items():
            if left:  # 0: its rest is over, and another call probes it
                # Of a target that the call came to late, this is early by what went before.
                until = record.started_at + left
                yield Measurement("cooldown_until_timestamp", (self._targets[name],), until)
        for attempt in record.attempts:
            yield from self._of_attempt(agent, attempt)
        for failed, after in pairwise(record.attempts):
            if failed.kind is not None and failed.position != after.position:
                labels = (agent, self._targets[failed.target], failed.kind.value)
                yield Measurement("switches", labels, 1)
        first = record.time_to_first_token
        if first is not None and record.attempts:
            # Whoever goes on with the text of another has not sent its beginning.
            sender = max(record.attempts, key=lambda one: (one.started <= first, one.number))
            target = self._targets[sender.target]
            yield Measurement("time_to_first_token", (agent, target), first)

    @staticmethod
    def _rare(agent: str) -> Iterator[Measurement]:
        """Begin at 0 what seldom counts: of a series that begins at 1, increase() sees nothing."""
        for outcome in ("exhausted", "interrupted"):
            yield Measurement("calls", (agent, outcome, _NOBODY), 0)
        for limit in ("deadline", "retry_budget", "replay"):
            yield Measurement("calls_ended_by_limit", (agent, limit), 0)

    def _of_attempt(self, agent: str, attempt: AttemptRecord) -> Iterator[Measurement]:
        target = self._targets[attempt.target]
        kind = _ANSWERED if attempt.kind is None else attempt.kind.value
        yield Measurement("attempts", (agent, target, kind, attempt.billed), 1)
        yield Measurement("attempt.duration", (target,), attempt.seconds)
        if attempt.is_probe:
            yield Measurement("probes", (target, kind), 1)
        if attempt.kind is None and (attempt.is_probe or attempt.is_forced):
            yield Measurement("cooldown_until_timestamp", (target,), 0)
        counts = token_counts(attempt.usage)
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
                yield Measurement("tokens", (agent, target, token_type), count)


def token_counts(usage: Mapping[str, Any] | None) -> Mapping[str, int]:
    """Return the counts of a usage, in whatever form it was reported; empty where it has none."""
    return (read_answer({"usage": usage}).usage if usage else None) or {}


class _Names(dict[str, str]):
    """Turn names into the values of one label, of which there are never too many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __missing__(self, name: str) -> str:
        # No lock, which a forked child could inherit: a few more, where threads meet here, cost
        # less.
        if len(self) >= self._most:
            return _OTHER
        # One lone surrogate would cost the whole exposition.
        return self.setdefault(name, label(name.encode("utf-8", "replace").decode()))
