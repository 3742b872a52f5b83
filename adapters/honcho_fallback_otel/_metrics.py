"""The observer that counts with OpenTelemetry's metrics API.

Beside the package's own metrics it records those of the semantic conventions for generative AI
(status: development), under the names released in ``opentelemetry-semantic-conventions`` 0.66b2
and with the buckets that the conventions advise.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry import metrics

from honcho_fallback import FallbackObserver
from honcho_fallback.measurements import METRICS, SECONDS, Measurements, token_counts
from honcho_fallback.redaction import label
from honcho_fallback_otel._spans import OTHER, error_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import CallRecord
    from honcho_fallback.measurements import Metric

_GEN_AI_SECONDS = SECONDS[:14]
_GEN_AI_TOKENS = tuple(4**power for power in range(14))


class OpenTelemetryMetrics(FallbackObserver):
    """Count calls with OpenTelemetry's metrics, when they end.

    A call that two observers on one provider observe counts twice: give one to
    ``honcho_fallback.set_observers``, or one to each policy. SDKs before 1.45 export a gauge only
    in the interval in which it was set.

    Source: OpenTelemetry's semantic conventions for generative AI metrics.

    Args:
        meter_provider: Where the measurements go; default the global one.
        most_labels: How many agents, and how many targets, are told apart; others are ``other``.

    Raises:
        FallbackConfigError: An argument is out of range.
    """

    def __init__(
        self, meter_provider: metrics.MeterProvider | None = None, *, most_labels: int = 100
    ) -> None:
        meter = metrics.get_meter("honcho_fallback", version("honcho-fallback"), meter_provider)
        self._measurements = Measurements(most_labels)
        self._record = {metric.name: _instrument(meter, metric) for metric in METRICS}
        self._attributes = {
            metric.name: tuple(map(_attribute, metric.labels)) for metric in METRICS
        }
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_GEN_AI_SECONDS,
        )
        self._first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "Time to receive the first chunk of a streamed answer.",
            explicit_bucket_boundaries_advisory=_GEN_AI_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_GEN_AI_TOKENS,
        )

    def on_finish(self, record: CallRecord, /) -> None:
        for name, labels, value in self._measurements.of(record):
            self._record[name](value, dict(zip(self._attributes[name], labels, strict=True)))
        self._record_conventions(record)

    def _record_conventions(self, record: CallRecord) -> None:
        answer = _operation(record)  # what is of an answer has no error, also where that broke off
        error = error_type(record)
        self._duration.record(record.seconds, answer | ({"error.type": error} if error else {}))
        if record.time_to_first_token is not None:
            self._first_chunk.record(record.time_to_first_token, answer)
        counts = token_counts(record.usage)
        for token_type in ("input", "output"):
            count = counts.get(f"{token_type}_tokens")
            if count is not None:
                self._tokens.record(count, answer | {"gen_ai.token.type": token_type})


def _operation(record: CallRecord) -> dict[str, str]:
    """Return the conventions' attributes of a call, without those of which nothing is known."""
    last = record.attempts[-1] if record.attempts else None
    provider = (last and last.provider) or OTHER
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": label(provider)}
    if last is not None:
        attributes["gen_ai.request.model"] = label(record.attempts[0].model)
        if record.answered_by is not None:
            attributes["gen_ai.response.model"] = label(last.model)
    return attributes


def _attribute(name: str) -> str:
    """Name a label as the spans do."""
    return "gen_ai.agent.name" if name == "agent" else f"honcho_fallback.{name}"


def _instrument(meter: metrics.Meter, metric: Metric) -> Callable[..., object]:
    name, unit, text = metric.opentelemetry_name, metric.unit, metric.help
    match metric.kind:
        case "counter":
            return meter.create_counter(name, unit, text).add
        case "gauge":
            return meter.create_gauge(name, unit, text).set
        case "histogram":
            return meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=SECONDS
            ).record
