"""The observer that counts with OpenTelemetry's metrics API.

Beside the package's own metrics it records those of the semantic conventions for generative AI
(status: development), under the names released in ``opentelemetry-semantic-conventions`` 0.66b2
and with the buckets that the conventions advise.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry import metrics

from honcho_fallback_metrics._measurements import (
    FORGET_AFTER,
    MOST_LABELS,
    Measurements,
    MetricsObserver,
    Names,
    Series,
    token_counts,
)
from honcho_fallback_metrics._metrics import METRICS, SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import CallRecord
    from honcho_fallback_metrics._measurements import InFlight, Labels, Update
    from honcho_fallback_metrics._metrics import Metric

_GEN_AI_SECONDS = SECONDS[:14]
_GEN_AI_TOKENS = tuple(4**power for power in range(14))
_GEN_AI_ATTRIBUTES = (
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "error.type",
    "gen_ai.token.type",
)

# The conventions require a provider's name; this is their word where none is known.
_OTHER_PROVIDER = "_OTHER"

# The caller who leaves is no error of the operation.
_ERRORS = frozenset({"exhausted", "rejected", "interrupted"})


class OpenTelemetryMetrics(MetricsObserver):
    """Count calls with OpenTelemetry's metrics.

    A call that two observers on one provider observe counts twice: give one to
    ``honcho_fallback.set_observers``, or one to each policy. SDKs before 1.45 export a gauge only
    in the interval in which it was set.

    Source: OpenTelemetry's semantic conventions for generative AI metrics.

    Args:
        meter_provider: Where the measurements go; default the global one.
        most_labels: How many agents, and how many targets, are told apart; others are ``other``.
        forget_after: Seconds after which a call that has not ended is no longer in flight.

    Raises:
        FallbackConfigError: An argument is out of range.
    """

    def __init__(
        self,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        most_labels: int = MOST_LABELS,
        forget_after: float = FORGET_AFTER,
    ) -> None:
        meter = metrics.get_meter("honcho_fallback", version("honcho-fallback"), meter_provider)
        super().__init__(_Measurements(meter, most_labels, forget_after))


class _Measurements(Measurements):
    """Add the conventions' metrics to the package's own."""

    def __init__(self, meter: metrics.Meter, most_labels: int, forget_after: float) -> None:
        self._updates = {metric: _instrument(meter, metric) for metric in METRICS}
        super().__init__(self._update, most_labels, forget_after)
        self._providers, self._models = Names(most_labels), Names(most_labels)
        self._errors = Names(most_labels)
        self._operation_duration = _gen_ai(
            meter,
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration.",
            _GEN_AI_SECONDS,
        )
        self._time_to_first_chunk = _gen_ai(
            meter,
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "Time to receive the first chunk of a streamed answer.",
            _GEN_AI_SECONDS,
        )
        self._token_usage = _gen_ai(
            meter,
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            _GEN_AI_TOKENS,
        )

    def _update(self, metric: Metric, labels: Labels) -> Update:
        attributes = dict(zip(map(_attribute, metric.labels), labels, strict=True))
        return partial(self._updates[metric], attributes=attributes)

    def _count_end(self, record: CallRecord, call: InFlight | None, /) -> None:
        super()._count_end(record, call)
        about = self._about(record, call)
        self._operation_duration[about](record.seconds)
        answer = (*about[:3], "")  # what follows is of an answer, also where that broke off
        if record.time_to_first_token is not None:
            self._time_to_first_chunk[answer](record.time_to_first_token)
        counts = token_counts(record.usage)
        for token_type in ("input", "output"):
            count = counts.get(f"{token_type}_tokens")
            if count is not None:
                self._token_usage[*answer, token_type](count)

    def _about(self, record: CallRecord, call: InFlight | None) -> Labels:
        """Return the values of the conventions' attributes, empty where there is none."""
        first = record.attempts[0] if record.attempts else None
        last = record.attempts[-1] if record.attempts else None
        provider = request_model = response_model = error = None
        if call is not None:
            provider, request_model = call.primary.provider, call.primary.model
        elif first is not None and not first.is_fallback:
            request_model = first.model
        if last is not None:
            provider = last.provider
            response_model = None if record.answered_by is None else last.model
        if record.outcome in _ERRORS:
            error = (last.error or str(last.kind)) if last else record.outcome
        return (
            self._providers[provider or _OTHER_PROVIDER],
            self._models[request_model] if request_model else "",
            self._models[response_model] if response_model else "",
            self._errors[error] if error else "",
        )


def _instrument(meter: metrics.Meter, metric: Metric) -> Callable[..., object]:
    name, unit, text = metric.opentelemetry_name, metric.unit, metric.help
    match metric.kind:
        case "counter":
            return meter.create_counter(name, unit, text).add
        case "up_down_counter":
            return meter.create_up_down_counter(name, unit, text).add
        case "gauge":
            return meter.create_gauge(name, unit, text).set
        case "histogram":
            return meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=SECONDS
            ).record


def _attribute(label: str) -> str:
    """Name a label as the spans do."""
    return "gen_ai.agent.name" if label == "agent" else f"honcho_fallback.{label}"


def _gen_ai(
    meter: metrics.Meter, name: str, unit: str, text: str, buckets: tuple[float, ...]
) -> Series:
    histogram = meter.create_histogram(
        name, unit, text, explicit_bucket_boundaries_advisory=buckets
    )

    def make(labels: Labels) -> Update:
        attributes = {"gen_ai.operation.name": "chat"}
        # A label may be left out at the end: only tokens have a type.
        named = zip(_GEN_AI_ATTRIBUTES, labels, strict=False)
        attributes |= {attribute: value for attribute, value in named if value}
        return partial(histogram.record, attributes=attributes)

    return Series(make)
