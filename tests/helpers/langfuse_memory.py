"""What a client exported to memory, as a server would have stored it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.langfuse_server import Stored, received, stored

if TYPE_CHECKING:
    from langfuse import Langfuse
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from honcho_fallback.testing import ReceivedSpan


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
