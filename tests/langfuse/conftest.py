"""One real Langfuse client per session that exports over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from langfuse import Langfuse
from opentelemetry.sdk.trace import TracerProvider

from tests.helpers.otlp import OtlpReceiver, otlp_receiver

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the machine has set out of the tests."""
    for name in ("PUBLIC_KEY", "SECRET_KEY", "BASE_URL", "HOST", "TRACING_ENABLED"):
        monkeypatch.delenv(f"LANGFUSE_{name}", raising=False)


@pytest.fixture(scope="session")
def wire_server() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def wire_client(wire_server: OtlpReceiver) -> Iterator[Langfuse]:
    client = Langfuse(
        public_key="pk-wire",
        secret_key="sk-wire",
        base_url=wire_server.base_url,
        tracer_provider=TracerProvider(),
        timeout=2,
    )
    yield client
    client.shutdown()


@pytest.fixture
def wire(wire_server: OtlpReceiver, wire_client: Langfuse) -> Iterator[OtlpReceiver]:
    wire_client.flush()
    wire_server.clear()
    yield wire_server
    wire_server.clear()
