"""What a Langfuse server stores of a span: its own rules (server 4.16), stated once more.

Measured against the server's ingestion class; see ``OtelIngestionProcessor`` in its sources.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langfuse import Langfuse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers.otlp import received

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.helpers.otlp import ReceivedSpan


_LF = "langfuse.observation."
_METADATA = (f"{_LF}metadata.", "langfuse.trace.metadata.")
_OPERATIONS = {"chat", "completion", "generate_content", "generation", "text_completion"}
_LEVELS = {"DEBUG", "DEFAULT", "WARNING", "ERROR"}


@dataclass(frozen=True, slots=True)
class Stored:
    id: str
    trace_id: str
    parent_id: str | None
    type: str
    name: str
    model: str | None
    parameters: Any
    input: Any
    output: Any
    usage: dict[str, int]
    cost: dict[str, float]
    metadata: dict[str, Any]
    level: str
    status_message: str | None
    trace_name: str | None
    first_token: str | None
    start: int
    end: int


def stored(span: ReceivedSpan) -> Stored:
    read = span.attributes
    costs = _parsed(read.get(f"{_LF}cost_details"))
    is_root = span.parent_id is None or read.get("langfuse.internal.as_root") is True
    return Stored(
        id=span.span_id,
        trace_id=span.trace_id,
        parent_id=span.parent_id,
        type=_type(read),
        name=span.name,
        model=read.get(f"{_LF}model.name")
        or read.get("gen_ai.response.model")
        or read.get("gen_ai.request.model"),
        parameters=_parsed(read.get(f"{_LF}model.parameters")),
        input=_parsed(read.get(f"{_LF}input")),
        output=_parsed(read.get(f"{_LF}output")),
        usage=_usage(read),
        cost=costs if isinstance(costs, dict) else {},
        metadata=_metadata(read),
        level=_level(span),
        status_message=read.get(f"{_LF}status_message") or span.status_message or None,
        trace_name=read.get("langfuse.trace.name") or (span.name if is_root else None),
        first_token=_parsed(read.get(f"{_LF}completion_start_time")),
        start=span.start,
        end=span.end,
    )


def _type(read: Mapping[str, Any]) -> str:
    named = read.get(f"{_LF}type")
    if named is not None:
        return str(named).upper()
    if read.get("gen_ai.operation.name") in _OPERATIONS:
        return "GENERATION"
    models = (f"{_LF}model.name", "gen_ai.request.model", "gen_ai.response.model")
    return "GENERATION" if any(read.get(name) for name in models) else "SPAN"


def _level(span: ReceivedSpan) -> str:
    named = str(span.attributes.get(f"{_LF}level", "")).upper()
    if named in _LEVELS:
        return named
    return "ERROR" if span.status == "error" else "DEFAULT"


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _metadata(read: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    # The trace's come last and win.
    for prefix in _METADATA:
        for key, value in read.items():
            if key.startswith(prefix):
                fields[key.removeprefix(prefix)] = _parsed(value)
    return fields


def _usage(read: Mapping[str, Any]) -> dict[str, int]:
    raw = read.get(f"{_LF}usage_details")
    details = _parsed(raw)
    if not isinstance(raw, str) or not isinstance(details, dict):
        return {}
    counts = {
        key: int(value)
        for key, value in details.items()
        if (type(value) is int and value >= 0) or (isinstance(value, str) and value.isdecimal())
    }
    return counts if "total" in counts or not counts else {**counts, "total": sum(counts.values())}


class Memory:
    """A client, and what a server would have stored of what it exported."""

    def __init__(self, client: Langfuse, exporter: InMemorySpanExporter) -> None:
        self.client = client
        self._exporter = exporter

    def spans(self) -> list[ReceivedSpan]:
        self.client.flush()
        return [received(span) for span in self._exporter.get_finished_spans()]

    def stored(self) -> list[Stored]:
        return [stored(span) for span in self.spans()]

    def only(self) -> Stored:
        (one,) = self.stored()
        return one

    def clear(self) -> None:
        self.client.flush()
        self._exporter.clear()


@contextmanager
def langfuse_memory(key: str, **options: Any) -> Iterator[Memory]:
    """Make a client that exports to memory; the SDK keeps one for each public key."""
    exporter = InMemorySpanExporter()
    client = Langfuse(
        public_key=f"pk-{key}",
        secret_key=f"sk-{key}",
        base_url="http://127.0.0.1:9",
        span_exporter=exporter,
        **({"tracer_provider": TracerProvider()} | options),
    )
    yield Memory(client, exporter)
    client.shutdown()
