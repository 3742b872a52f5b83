"""An SDK client that fails on schedule: a copy whose transport answers in the provider's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback.testing._wire import provider_of, transport_of

if TYPE_CHECKING:
    from honcho_fallback.testing._failing import Failing


def is_sdk_client(subject: object) -> bool:
    """Tell the clients of openai, anthropic and groq, without importing them."""
    return provider_of(type(subject)) is not None and hasattr(subject, "with_options")


def failing_client(client: Any, failing: Failing[Any]) -> Any:
    """Return a copy of a client; what does not fail goes out by the original's connections."""
    healthy = client._client  # noqa: SLF001 # the HTTP client, which the SDKs show nowhere else
    kind: type[Any] = client.__class__
    transport, provider = transport_of(healthy.__class__), str(provider_of(kind))

    def answer(request: Any) -> Any:
        fault = failing.next()
        if fault is None:
            return healthy.send(request, stream=True)
        return fault.respond(provider, transport, request)

    async def aanswer(request: Any) -> Any:
        fault = failing.next()
        if fault is None:
            return await healthy.send(request, stream=True)
        return fault.respond(provider, transport, request)

    if isinstance(healthy, transport.AsyncClient):
        http_client = transport.AsyncClient(transport=transport.MockTransport(aanswer))
    else:
        http_client = transport.Client(transport=transport.MockTransport(answer))
    return client.with_options(http_client=http_client)
