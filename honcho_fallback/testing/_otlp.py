"""A stand-in for Langfuse's side of the wire: takes exports and keeps the spans."""

from __future__ import annotations

import base64
import gzip
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Any

from honcho_fallback.testing._need import need

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

_PATH = "/api/public/otel/v1/traces"
_EXTRA = "langfuse"
_STATUSES: tuple[str, ...] = ("unset", "ok", "error")


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """Tell one span as it came over the wire.

    Args:
        name: The span's name.
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        parent_id: 16 hexadecimal digits, or None for a root.
        start: Nanoseconds since the epoch.
        end: The same.
        attributes: As they were encoded.
        status: ``unset``, ``ok`` or ``error``.
        status_message: What stands beside it.
        scope: Name of the instrumentation.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start: int
    end: int
    attributes: Mapping[str, Any]
    status: str
    status_message: str
    scope: str


@dataclass(frozen=True, slots=True)
class OtlpExport:
    """Tell one request of an exporter.

    Args:
        path: The request's.
        headers: In lower case.
        credentials: User and password of basic authorisation, or None.
        spans: What it carried.
    """

    path: str
    headers: Mapping[str, str]
    credentials: tuple[str, str] | None
    spans: tuple[ReceivedSpan, ...]


@dataclass(slots=True)
class OtlpReceiver:
    """Keep what exporters sent; made by ``otlp_receiver()``.

    Args:
        base_url: For ``LANGFUSE_BASE_URL``.
        status: What is answered, 200 for yes; may be changed at any time.
        silent: While set, requests are taken and not answered.
    """

    base_url: str
    status: int = 200
    silent: bool = False
    _exports: list[OtlpExport] = field(default_factory=list[OtlpExport])
    _arrived: Condition = field(default_factory=Condition)
    _stopped: Event = field(default_factory=Event)

    @property
    def exports(self) -> list[OtlpExport]:
        """Return the requests so far, in the order they came."""
        with self._arrived:
            return list(self._exports)

    @property
    def spans(self) -> list[ReceivedSpan]:
        """Return the spans so far, in the order they came."""
        return [span for export in self.exports for span in export.spans]

    def wait_for(self, spans: int, timeout: float = 10.0) -> list[ReceivedSpan]:
        """Return the spans as soon as there are so many, or what there is in the end.

        Args:
            spans: How many.
            timeout: Seconds.
        """
        with self._arrived:
            self._arrived.wait_for(
                lambda: sum(len(export.spans) for export in self._exports) >= spans, timeout
            )
        return self.spans

    def clear(self) -> None:
        """Forget what came, and answer again."""
        with self._arrived:
            self._exports.clear()
        self.status, self.silent = 200, False

    def take(self, export: OtlpExport) -> int:
        """Keep an export, and return the status to answer.

        Args:
            export: What came.
        """
        with self._arrived:
            self._exports.append(export)
            self._arrived.notify_all()
        if self.silent:
            self._stopped.wait()
        return self.status

    def stop(self) -> None:
        """Let go of the requests that were never answered."""
        self._stopped.set()


@contextmanager
def otlp_receiver() -> Generator[OtlpReceiver, None, None]:
    """Receive OpenTelemetry's exports on a free loopback port, in this process.

    Raises:
        ImportError: The extra ``langfuse`` is not installed.
    """
    requests = need("opentelemetry.proto.collector.trace.v1.trace_service_pb2", _EXTRA)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_address[1]}")
        server.daemon_threads = True
        # A request that is never answered would be waited for.
        server.block_on_close = False
        server.RequestHandlerClass = _handler(receiver, requests.ExportTraceServiceRequest)
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.stop()
            server.shutdown()
            thread.join()


def _handler(receiver: OtlpReceiver, request: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            spans = _spans(request.FromString(body)) if self.path == _PATH else ()
            export = OtlpExport(self.path, headers, _credentials(headers), spans)
            self.send_response(receiver.take(export))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its name
            """Keep the terminal clean."""

    return Handler


def _credentials(headers: Mapping[str, str]) -> tuple[str, str] | None:
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    if scheme != "Basic":
        return None
    user, _, password = base64.b64decode(encoded).decode().partition(":")
    return user, password


def _spans(request: Any) -> tuple[ReceivedSpan, ...]:
    return tuple(
        ReceivedSpan(
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex() or None,
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes={one.key: _value(one.value) for one in span.attributes},
            status=_STATUSES[int(span.status.code)],
            status_message=span.status.message,
            scope=scoped.scope.name,
        )
        for resource in request.resource_spans
        for scoped in resource.scope_spans
        for span in scoped.spans
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: _value(one.value) for one in value.kvlist_value.values}
    return getattr(value, kind)
