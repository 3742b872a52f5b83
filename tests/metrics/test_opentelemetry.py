"""What OpenTelemetry exports besides: the conventions' metrics for generative AI."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics.export import Histogram
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics as names
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.measurements import METRICS
from honcho_fallback.testing import StatusError
from honcho_fallback_otel import OpenTelemetryMetrics
from tests.helpers.metrics import Counted
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import Attempt

pytestmark = pytest.mark.skipif(
    not hasattr(names, "GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK"),
    reason="this release of the conventions has no such name yet",
)

CHAIN = [Target("one", "openai"), Target("two", "anthropic")]
FAILING: dict[str, Any] = {
    "openai/one": [StatusError(503)],
    "anthropic/two": [StatusError(429)],
}
OPERATION = {
    attributes.GEN_AI_OPERATION_NAME: "chat",
    attributes.GEN_AI_PROVIDER_NAME: "anthropic",
    attributes.GEN_AI_REQUEST_MODEL: "one",
}
ANSWERED = {**OPERATION, attributes.GEN_AI_RESPONSE_MODEL: "two"}


def only(counted: Counted, name: str) -> Any:
    (point,) = counted.points(name)
    return point


def test_a_fallback_is_one_operation() -> None:
    """Asked of the primary's model, answered by the fallback's, with the tokens of the answer."""
    counted = Counted(CHAIN)
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    message = {"role": "assistant", "content": "hello"}
    answer = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    run = counted.policy.start()
    counted.policy.call(repeating(**{**FAILING, "anthropic/two": [answer]}).ask, run=run)
    duration = only(counted, names.GEN_AI_CLIENT_OPERATION_DURATION)
    assert (duration.attributes, duration.count) == (ANSWERED, 1)
    assert duration.sum == run.record.seconds
    tokens = counted.points(names.GEN_AI_CLIENT_TOKEN_USAGE)
    assert {(one.attributes[attributes.GEN_AI_TOKEN_TYPE], one.sum) for one in tokens} == {
        ("input", 12),  # the conventions' input holds what came from a cache
        ("output", 7),
    }
    for one in tokens:
        kind = {attributes.GEN_AI_TOKEN_TYPE: one.attributes[attributes.GEN_AI_TOKEN_TYPE]}
        assert one.attributes == ANSWERED | kind
    assert counted.points(names.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK) == []


def test_a_stream_tells_its_first_chunk() -> None:
    """The time to it is measured from the call's start."""
    counted = Counted(CHAIN)
    run = counted.policy.start()
    list(counted.policy.stream(repeating(**{**FAILING, "anthropic/two": ["a"]}).stream, run=run))
    point = only(counted, names.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK)
    assert (point.attributes, point.sum) == (ANSWERED, run.record.time_to_first_token)


def test_a_call_that_failed_names_its_error() -> None:
    """The class of the last error, and no model that answered."""
    counted = Counted(CHAIN)
    with pytest.raises(ExceptionGroup):
        counted.policy.call(repeating(**FAILING).ask)
    point = only(counted, names.GEN_AI_CLIENT_OPERATION_DURATION)
    assert point.attributes == {**OPERATION, ERROR_TYPE: "StatusError"}


def test_a_stream_that_breaks_has_a_first_chunk_without_an_error() -> None:
    """The error is the operation's."""
    counted = Counted(CHAIN)

    def ask(_: Attempt) -> Iterator[str]:
        yield "a"
        raise StatusError(503)

    with pytest.raises(Exception, match="broke off"):
        list(counted.policy.stream(ask))
    request = {**OPERATION, attributes.GEN_AI_PROVIDER_NAME: "openai"}
    first = only(counted, names.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK)
    assert first.attributes == request
    duration = only(counted, names.GEN_AI_CLIENT_OPERATION_DURATION)
    assert duration.attributes == {**request, ERROR_TYPE: "StatusError"}


def test_who_leaves_is_no_error() -> None:
    """A call that its caller cancels has no error type."""
    counted = Counted([Target("one")])
    counted.policy.start().cancel()
    assert only(counted, names.GEN_AI_CLIENT_OPERATION_DURATION).attributes == {
        attributes.GEN_AI_OPERATION_NAME: "chat",
        attributes.GEN_AI_PROVIDER_NAME: "_OTHER",
        attributes.GEN_AI_REQUEST_MODEL: "one",
    }


def test_units_and_buckets_are_those_of_the_conventions() -> None:
    """The advised buckets, also for the package's own durations, which go on to five minutes."""
    counted = Counted(CHAIN)
    with suppress(ExceptionGroup):
        counted.policy.call(repeating(**FAILING).ask)
    counted.policy.start().succeed(usage={"input_tokens": 1, "output_tokens": 1})
    list(counted.policy.stream(lambda _: iter("a")))
    seconds = tuple(round(0.01 * 2**power, 2) for power in range(14))
    exported = {one.name: one for one in counted.instruments()}
    buckets = {
        name: one.data.data_points[0].explicit_bounds
        for name, one in exported.items()
        if isinstance(one.data, Histogram)
    }
    assert buckets == {
        names.GEN_AI_CLIENT_OPERATION_DURATION: seconds,
        names.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK: seconds,
        names.GEN_AI_CLIENT_TOKEN_USAGE: tuple(4**power for power in range(14)),
        "honcho_fallback.call.duration": (*seconds, 163.84, 327.68),
        "honcho_fallback.attempt.duration": (*seconds, 163.84, 327.68),
        "honcho_fallback.time_to_first_token": (*seconds, 163.84, 327.68),
    }
    assert exported[names.GEN_AI_CLIENT_OPERATION_DURATION].unit == "s"
    assert exported[names.GEN_AI_CLIENT_TOKEN_USAGE].unit == "{token}"
    for metric in METRICS:
        one = exported.get(metric.opentelemetry_name)
        if one is not None:
            assert (one.unit, one.description) == (metric.unit, metric.help)


def test_without_a_provider_nothing_breaks(caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody has set OpenTelemetry up, its API takes the measurements and drops them."""
    policy = FallbackPolicy(CHAIN, observers=[OpenTelemetryMetrics()])
    assert policy.call(lambda _: "hello") == "hello"
    assert caplog.records == []


def test_two_observers_on_one_provider_add_up(caplog: pytest.LogCaptureFixture) -> None:
    """One per policy counts together, without a warning of the SDK's."""
    counted = Counted()
    provider = counted.provider
    first, second = OpenTelemetryMetrics(provider), OpenTelemetryMetrics(provider)
    record = counted.policy.start().record
    first.on_finish(record)
    second.on_finish(record)
    assert sum(point.value for point in counted.points("honcho_fallback.calls")) == 2
    assert caplog.records == []
