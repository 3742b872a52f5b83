"""Langfuse's side of the wire: takes OpenTelemetry's exports and keeps their spans."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pytest_httpserver import HTTPServer
from werkzeug import Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from werkzeug import Request
    from werkzeug.datastructures import Headers


class ReceivedSpan(NamedTuple):
    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start: int  # nanoseconds since the epoch, as the end
    end: int
    attributes: Mapping[str, Any]
    status: str  # unset, ok or error
    status_message: str
    scope: str


class OtlpExport(NamedTuple):
    headers: Headers
    credentials: tuple[str | None, str | None] | None  # user and password
    spans: tuple[ReceivedSpan, ...]


@dataclass
class OtlpReceiver:
    base_url: str  # for LANGFUSE_BASE_URL
    exports: list[OtlpExport] = field(default_factory=list[OtlpExport])
    status: int = 200  # what is answered
    silent: bool = False  # requests are taken and never answered

    @property
    def spans(self) -> list[ReceivedSpan]:
        return [span for export in self.exports for span in export.spans]

    def clear(self) -> None:
        self.exports.clear()
        self.status, self.silent = 200, False

    def answer(self, request: Request) -> Response:
        body, login = request.get_data(), request.authorization
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        credentials = (login.username, login.password) if login else None
        spans = _spans(ExportTraceServiceRequest.FromString(body))
        self.exports.append(OtlpExport(request.headers, credentials, spans))
        if self.silent:
            Event().wait()  # in a thread that the process does not wait for
        return Response(status=self.status)


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Receive exports on a free loopback port, in this process."""
    with HTTPServer(host="127.0.0.1", threaded=True) as server:
        receiver = OtlpReceiver(server.url_for("").rstrip("/"))
        traces = server.expect_request("/api/public/otel/v1/traces", method="POST")
        traces.respond_with_handler(receiver.answer)
        yield receiver


class Traces:
    """A provider whose spans stay in memory."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def finished(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def received(self) -> list[ReceivedSpan]:
        return [*map(received, self.finished())]


def received(span: ReadableSpan) -> ReceivedSpan:
    """Say of a span in memory what the wire would say."""
    (one,) = _spans(encode_spans([span]))
    return one


def _spans(request: ExportTraceServiceRequest) -> tuple[ReceivedSpan, ...]:
    return tuple(
        ReceivedSpan(
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex() or None,
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes={one.key: _value(one.value) for one in span.attributes},
            status=("unset", "ok", "error")[int(span.status.code)],
            status_message=span.status.message,
            scope=scoped.scope.name,
        )
        for resource in request.resource_spans
        for scoped in resource.scope_spans
        for span in scoped.spans
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return kind and getattr(value, kind)
