"""What stands beside the content: metadata of every kind, and no address with credentials."""

from __future__ import annotations

import json
import string
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from honcho_fallback import FallbackConfig, FallbackExhausted, FallbackPolicy, Target
from honcho_fallback.testing import StatusError
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_otel import OpenTelemetryHandler
from tests.helpers.langfuse_memory import langfuse_memory
from tests.helpers.langfuse_server import received
from tests.helpers.langfuse_speakers import MESSAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context

    from honcho_fallback import Attempt, FallbackObserver
    from tests.helpers.langfuse_memory import Memory
    from tests.helpers.otlp import ReceivedSpan

VALUES: dict[str, Any] = {
    "workspace": "acme",
    "run_id": "123",
    "is_batch": True,
    "is_test": False,
    "step": 3,
    "share": 0.5,
    "huge": 2**70,
    "nothing": None,
    "city": "Zürich",
    "half": "a\ud800",
}
KEPT: dict[str, Any] = {
    name: value for name, value in VALUES.items() if name not in {"huge", "nothing", "half"}
} | {"huge": str(2**70), "half": "a?"}


class AtStart(SpanProcessor):
    """See what samplers and processors see of a span that begins."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.seen.append(dict(span.attributes or {}))


class Traced:
    """An OpenTelemetry handler, and the spans that it exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.at_start = AtStart()
        provider.add_span_processor(self.at_start)
        self.handler = OpenTelemetryHandler(provider)

    def spans(self) -> list[ReceivedSpan]:
        return [received(span) for span in self._exporter.get_finished_spans()]

    def events(self) -> list[Any]:
        spans = self._exporter.get_finished_spans()
        return [
            (event.name, dict(event.attributes or {})) for one in spans for event in one.events
        ]


@pytest.fixture
def traced() -> Traced:
    return Traced()


def call(observer: FallbackObserver, **options: Any) -> None:
    FallbackPolicy([Target("one")], observers=[observer]).call(lambda _: "hello", **options)


def test_every_kind_of_metadata_reaches_the_generation(memory: Memory) -> None:
    """HON-062: a call's texts, numbers and booleans are what they were; what is None is not."""
    call(LangfuseCallbackHandler(memory.client), metadata=VALUES)
    read = memory.only().metadata
    shown = {name: read[name] for name in KEPT}
    if version("langfuse").startswith("4."):
        # What is a text to 4.x is whatever it looks like to a server.
        assert (shown.pop("run_id"), shown.pop("huge")) == (123, 2**70)
    assert shown == {name: KEPT[name] for name in shown}
    assert {name: type(value) for name, value in shown.items()} == {
        name: type(KEPT[name]) for name in shown
    }
    assert "nothing" not in read


def test_every_kind_of_metadata_reaches_the_span(traced: Traced) -> None:
    """HON-062: a call's metadata stands on the span under this package's own name."""
    call(traced.handler, metadata=VALUES)
    (span,) = traced.spans()
    prefix = "honcho_fallback.metadata."
    shown = {
        name.removeprefix(prefix): value
        for name, value in span.attributes.items()
        if name.startswith(prefix)
    }
    assert shown == KEPT
    assert {name: type(value) for name, value in shown.items()} == {
        name: type(value) for name, value in KEPT.items()
    }


def test_metadata_leaves_room_on_the_span(traced: Traced) -> None:
    """With 200 entries of the application's, the span keeps its own attributes."""
    call(traced.handler, metadata={f"key{number}": number for number in range(200)})
    (span,) = traced.spans()
    assert span.attributes["gen_ai.operation.name"] == "chat"
    assert span.attributes["honcho_fallback.metadata.key0"] == 0
    assert sum("metadata" in name for name in span.attributes) == 40


def test_the_handler_s_metadata_may_be_nested(memory: Memory) -> None:
    """What the application gives once for all calls is kept in its depth; a path is a text."""
    extra = {"app": {"path": PurePosixPath("/srv"), "tags": {"a"}, "sizes": (1, 2.5, None)}}
    call(LangfuseCallbackHandler(memory.client, metadata=extra))
    assert memory.only().metadata["app"] == {
        "path": "/srv",
        "tags": ["a"],
        "sizes": [1, 2.5, None],
    }


SECRETS = st.text(string.ascii_letters + string.digits + "-._~%:@!$*+,", min_size=1).map(
    "s3cr3t{}".format
)
FORMS = st.sampled_from(
    [
        "https://{}@host.example/v1",
        "https://me:{}@host.example:8443/v1?page=2",
        "redis+tls://:{}@host/0",
        "https://host/v1?key={}",
        "https://host/v1?page=2&api_key={}",
        "https://host/v1?X-Goog-Signature={}&page=2",
        "wss://host/#access_token={}",
    ]
)


def text_of(spans: list[ReceivedSpan], *more: Any) -> str:
    return json.dumps([[one.name, one.status_message, one.attributes] for one in spans]) + repr(
        more
    )


@given(secret=SECRETS, form=FORMS, around=st.sampled_from(["{}", "at {} now"]))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_field_shows_credentials(memory: Memory, secret: str, form: str, around: str) -> None:
    """Whatever holds an address (names, metadata, parameters, errors), the secret is nowhere."""
    memory.clear()
    traced = Traced()
    address = around.format(form.format(secret))
    nested = {address: [{"a": {address}}, (address, PurePosixPath(address))]}
    handlers = (
        traced.handler,
        LangfuseCallbackHandler(memory.client, per_attempt=True, metadata=nested),
    )
    everywhere(handlers, address)
    shown = text_of(memory.spans() + traced.spans(), traced.events(), traced.at_start.seen)
    assert len(memory.stored()) == 3 + 5  # generations and attempts
    assert "host" in shown
    assert secret not in shown


def everywhere(handlers: tuple[FallbackObserver, ...], address: str) -> None:
    """Make three calls that have an address wherever a call can have one."""
    params = {"temperature": 0.5, "stop": [address], "reasoning_effort": address}
    chain = [
        Target(f"{n} {address}", address, name=f"{address} {n}", params=params) for n in range(2)
    ]
    policy = FallbackPolicy(
        chain, FallbackConfig(wait=0, max_attempts=2), agent=address, observers=handlers
    )
    failure: type[StatusError] = type(address, (StatusError,), {})
    choice = {"finish_reason": address, "message": {"role": "assistant", "content": "hello"}}
    answer = {"model": address, "object": "chat.completion", "choices": [choice]}

    def fails(attempt: Attempt) -> Any:
        if attempt.number == 1:
            raise failure(503)
        return answer

    def always_fails(_: Attempt) -> Any:
        raise failure(503)

    metadata: Mapping[str, Any] = {"url": address, address: address}
    run = policy.start(metadata=metadata)
    run.report(input=MESSAGES, parameters={"service_tier": address})
    policy.call(fails, run=run)
    policy.call(lambda _: answer, unfit={0: address})
    with pytest.raises(FallbackExhausted):
        policy.call(always_fails)


def test_content_is_the_user_s(memory: Memory) -> None:
    """An address in a prompt is shown as it was asked; a mask is for who wants it not."""
    question = [{"role": "user", "content": "what is https://me:pw@host?"}]
    for mask in (None, lambda _: "***"):
        policy = FallbackPolicy(
            [Target("one")], observers=[LangfuseCallbackHandler(memory.client, mask=mask)]
        )
        run = policy.start()
        run.report(input=question)
        policy.call(lambda _: "hello", run=run)
    assert [one.input for one in memory.stored()] == [question, "***"]


def test_the_client_s_mask_sees_values() -> None:
    """A client's own mask gets messages as lists and dicts, as from the SDK itself."""
    seen: list[Any] = []

    def mask(*, data: Any) -> Any:
        seen.append(data)
        return "***" if data == MESSAGES else data

    with langfuse_memory("masking", mask=mask) as memory:
        policy = FallbackPolicy(
            [Target("one")], observers=[LangfuseCallbackHandler(memory.client)]
        )
        run = policy.start()
        run.report(input=MESSAGES)
        policy.call(lambda _: "hello", run=run)
        assert memory.only().input == "***"
    assert MESSAGES in seen
