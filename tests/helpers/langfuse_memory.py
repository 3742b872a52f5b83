"""What a client exported to memory, as a server would have stored it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langfuse import Langfuse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers.langfuse_server import Stored, received, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.otlp import ReceivedSpan


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
        """Return the one observation there is."""
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
        tracer_provider=TracerProvider(),
        span_exporter=exporter,
        **options,
    )
    yield Memory(client, exporter)
    client.shutdown()
