"""What is counted: names, labels and meanings, the same for every framework."""

from __future__ import annotations

from typing import Literal, NamedTuple

# As OpenTelemetry advises for a generative operation's duration, and twice more: attempts may
# take three minutes by default.
SECONDS = tuple(0.01 * 2**power for power in range(16))


class Metric(NamedTuple):
    """Describe one metric.

    Args:
        name: In OpenTelemetry's form, without the prefix.
        kind: An up-down counter is a gauge in Prometheus.
        unit: As OpenTelemetry writes it: ``s``, or what is counted in braces.
        labels: The names of its labels, in order.
        help: What it counts, in one sentence.
    """

    name: str
    kind: Literal["counter", "up_down_counter", "gauge", "histogram"]
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


CALLS = Metric(
    "calls",
    "counter",
    "{call}",
    ("agent", "outcome", "target"),
    "Calls that ended, by how they ended and by the target that answered (nobody: none did).",
)
ANSWERS_BY_FALLBACK = Metric(
    "answers_by_fallback",
    "counter",
    "{call}",
    ("agent", "target"),
    "Calls that another target than the primary answered.",
)
CALLS_ENDED_BY_LIMIT = Metric(
    "calls_ended_by_limit",
    "counter",
    "{call}",
    ("agent", "limit"),
    "Calls without an answer that might have asked more, but for the deadline or retry budget.",
)
CALL_DURATION = Metric(
    "call.duration",
    "histogram",
    "s",
    ("agent", "outcome"),
    "Seconds from a call's start to its end, failed attempts and waits included.",
)
TIME_TO_FIRST_TOKEN = Metric(
    "time_to_first_token",
    "histogram",
    "s",
    ("agent", "target"),
    "Seconds from a call's start to a stream's first content, failed attempts included, by the "
    "target that sent it.",
)
CALLS_IN_FLIGHT = Metric(
    "calls_in_flight",
    "up_down_counter",
    "{call}",
    ("agent",),
    "Calls that have begun and not ended; one that never ends is dropped after an hour.",
)
ATTEMPTS = Metric(
    "attempts",
    "counter",
    "{attempt}",
    ("agent", "target", "kind"),
    "Requests to targets, by what went wrong (answered: nothing); all but answered are wasted.",
)
ATTEMPT_DURATION = Metric(
    "attempt.duration",
    "histogram",
    "s",
    ("target",),
    "Seconds that a request to a target took, whatever came of it.",
)
SWITCHES = Metric(
    "switches",
    "counter",
    "{switch}",
    ("agent", "target", "kind"),
    "Switches to another target, by the target that failed and what went wrong.",
)
PROBES = Metric(
    "probes",
    "counter",
    "{attempt}",
    ("target", "kind"),
    "Requests that tried a target after its cooldown, by what went wrong (answered: nothing).",
)
COOLDOWN_UNTIL = Metric(
    "cooldown_until_timestamp",
    "gauge",
    "s",
    ("target",),
    "Unix time until which a target is left alone, as calls last saw it; 0 once it has answered.",
)
TOKENS = Metric(
    "tokens",
    "counter",
    "{token}",
    ("agent", "target", "type"),
    "Tokens that targets reported, failed attempts included; each counts under one type: input, "
    "cache_read, cache_write, output, reasoning.",
)

METRICS = (
    CALLS,
    ANSWERS_BY_FALLBACK,
    CALLS_ENDED_BY_LIMIT,
    CALL_DURATION,
    TIME_TO_FIRST_TOKEN,
    CALLS_IN_FLIGHT,
    ATTEMPTS,
    ATTEMPT_DURATION,
    SWITCHES,
    PROBES,
    COOLDOWN_UNTIL,
    TOKENS,
)
