"""SDK clients for targets: no retries of their own, one per endpoint and credential.

The SDKs read more from the environment than a key: other credentials, headers, addresses. None of
it belongs to the endpoint at hand, so every option is passed explicitly, and no client follows a
redirect with a key.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback.settings._endpoint import Endpoint, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Target

_NO_KEY = "not-needed"  # the SDKs insist on one, local servers on none
_CONNECT_SECONDS = 5.0
_KEPT = 128  # as many as Honcho keeps


def build_client(target: Target, *, asynchronous: bool = False) -> Any:
    """Return the SDK client for a target, from the cache where there is one.

    Retries are off, since the policy decides; the timeout is the target's; a key goes to the
    endpoint that it belongs to.

    Args:
        target: From ``load_policies``, or with an ``Endpoint`` as its client.
        asynchronous: Whether to return the SDK's asynchronous client, for the running event loop.

    Returns:
        A client of ``openai``, ``anthropic`` or ``google-genai``.

    Raises:
        FallbackConfigError: The target carries no endpoint.
        MissingKeyError: The target needs a key and has none.
        ImportError: The extra ``providers`` is not installed.
    """
    return _CLIENTS.get(endpoint_of(target), asynchronous=asynchronous)


def close_clients() -> None:
    """Close the clients that ``build_client`` made for synchronous calls."""
    for built in _CLIENTS.taken(None):
        built.transport.close()


async def aclose_clients() -> None:
    """Close those that it made for the running event loop; best before the loop ends."""
    for built in _CLIENTS.taken(asyncio.get_running_loop()):
        await built.transport.aclose()


class _Built(NamedTuple):
    """Hold a client and what it sends over, which is ours to close."""

    client: Any
    transport: Any


class _Clients:
    """Keep clients by event loop, and by what they were made of."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[asyncio.AbstractEventLoop | None, OrderedDict[Endpoint, _Built]] = {}

    def get(self, endpoint: Endpoint, *, asynchronous: bool) -> Any:
        # An asynchronous client's connections belong to the loop that they were opened in.
        loop = asyncio.get_running_loop() if asynchronous else None
        with self._lock:
            for other in [one for one in self._kept if one is not None and one.is_closed()]:
                del self._kept[other]
            kept = self._kept.setdefault(loop, OrderedDict())
            built = kept.pop(endpoint, None)
            if built is None:
                built = _BUILDERS[endpoint.wire](endpoint, asynchronous)
            kept[endpoint] = built
            if len(kept) > _KEPT:
                kept.popitem(last=False)  # not closed: a call may be using it
        return built.client

    def taken(self, loop: asyncio.AbstractEventLoop | None) -> list[_Built]:
        with self._lock:
            return list(self._kept.pop(loop, OrderedDict[Endpoint, _Built]()).values())


def _sdk(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"{name} is not installed: pip install 'honcho-fallback[providers]'", name=name
        ) from missing


def _openai(endpoint: Endpoint, asynchronous: bool) -> _Built:  # noqa: FBT001 # one of a table
    sdk, key = _sdk("openai"), endpoint.api_key or _NO_KEY
    own = {"authorization": f"Bearer {key}"}
    transport = _transport(sdk, asynchronous)
    client = (sdk.AsyncOpenAI if asynchronous else sdk.OpenAI)(
        api_key=key,
        default_headers=_headers("OPENAI", own, sdk.Omit()),
        **_options(sdk, endpoint, transport),
    )
    client.organization = client.project = None
    return _Built(client, transport)


def _anthropic(endpoint: Endpoint, asynchronous: bool) -> _Built:  # noqa: FBT001 # one of a table
    sdk, key = _sdk("anthropic"), endpoint.api_key or _NO_KEY
    transport = _transport(sdk, asynchronous)
    client = (sdk.AsyncAnthropic if asynchronous else sdk.Anthropic)(
        api_key=key,
        default_headers=_headers("ANTHROPIC", {"x-api-key": key}, sdk.Omit()),
        **_options(sdk, endpoint, transport),
    )
    client.auth_token = None
    return _Built(client, transport)


def _headers(prefix: str, own: dict[str, str], omitted: Any) -> dict[str, Any]:
    # The SDK puts the headers of this variable over its own, whatever the address.
    lines = os.environ.get(f"{prefix}_CUSTOM_HEADERS", "").split("\n")
    names = [line.partition(":")[0].strip() for line in lines if ":" in line]
    stray = {name: own.get(name.lower(), omitted) for name in names}
    return {**stray, **own} if stray else {}


def _transport(sdk: Any, asynchronous: bool) -> Any:  # noqa: FBT001 # as above
    made = sdk.DefaultAsyncHttpxClient if asynchronous else sdk.DefaultHttpxClient
    return made(follow_redirects=False)


def _options(sdk: Any, endpoint: Endpoint, transport: Any) -> dict[str, Any]:
    return {
        "base_url": endpoint.base_url,
        "max_retries": 0,
        "timeout": sdk.Timeout(endpoint.timeout, connect=_CONNECT_SECONDS),
        "http_client": transport,
    }


def _gemini(endpoint: Endpoint, asynchronous: bool) -> _Built:  # noqa: FBT001 # one of a table
    sdk = _sdk("google.genai")
    httpx = _sdk("google.genai._api_client").httpx  # or httpx2, in newer versions
    transport = (httpx.AsyncClient if asynchronous else httpx.Client)(follow_redirects=False)
    client = sdk.Client(
        api_key=endpoint.api_key or _NO_KEY,
        vertexai=False,
        http_options={
            "base_url": endpoint.base_url,
            "timeout": int(endpoint.timeout * 1000),
            "retry_options": {"attempts": 1},
            ("httpx_async_client" if asynchronous else "httpx_client"): transport,
        },
    )
    return _Built(client.aio if asynchronous else client, transport)


_BUILDERS: dict[str, Callable[[Endpoint, bool], _Built]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
# Shared by all: an endpoint and its key are all that a client knows.
_CLIENTS = _Clients()
