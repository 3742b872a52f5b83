"""SDK clients for targets: no retries of their own, one per endpoint and credential.

The SDKs read more from the environment than a key: other credentials, headers, addresses. None of
it was given for the endpoint at hand, so everything is said explicitly, and what a redirect asks
for is not followed with a key in hand.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from honcho_fallback.settings._endpoint import Endpoint, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Target

_NO_KEY = "not-needed"  # the SDKs insist on one, local servers on none
_CONNECT_SECONDS = 5.0
_KEPT = 128  # as Honcho keeps (HOM-024)


def build_client(target: Target, *, asynchronous: bool = False) -> Any:
    """Return the SDK client for a target, from the cache where there is one.

    Retries are off, since the policy decides; the timeout is the target's; a key goes to the
    endpoint that it was given for.

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


class _Clients:
    """Keep clients by what they were made of; those of an event loop go when it goes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._plain: OrderedDict[Endpoint, Any] = OrderedDict()
        self._of_loops: WeakKeyDictionary[Any, OrderedDict[Endpoint, Any]] = WeakKeyDictionary()

    def get(self, endpoint: Endpoint, *, asynchronous: bool) -> Any:
        with self._lock:
            kept = self._plain
            if asynchronous:
                # Its connections belong to the loop that they were opened in.
                kept = self._of_loops.setdefault(asyncio.get_running_loop(), OrderedDict())
            client = kept.pop(endpoint, None)
            if client is None:
                client = _BUILDERS[endpoint.wire](endpoint, asynchronous)
            kept[endpoint] = client
            if len(kept) > _KEPT:
                kept.popitem(last=False)  # not closed: somebody may be asking it
        return client


def _sdk(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"{name} is not installed: pip install 'honcho-fallback[providers]'", name=name
        ) from missing


def _openai(endpoint: Endpoint, asynchronous: bool) -> Any:  # noqa: FBT001 # one of a table
    sdk, key = _sdk("openai"), endpoint.api_key or _NO_KEY
    own = {"authorization": f"Bearer {key}"}
    client = (sdk.AsyncOpenAI if asynchronous else sdk.OpenAI)(
        api_key=key,
        default_headers=_headers("OPENAI", own, sdk.Omit()),
        **_options(sdk, endpoint, asynchronous),
    )
    client.organization = client.project = None
    return client


def _anthropic(endpoint: Endpoint, asynchronous: bool) -> Any:  # noqa: FBT001 # one of a table
    sdk, key = _sdk("anthropic"), endpoint.api_key or _NO_KEY
    client = (sdk.AsyncAnthropic if asynchronous else sdk.Anthropic)(
        api_key=key,
        default_headers=_headers("ANTHROPIC", {"x-api-key": key}, sdk.Omit()),
        **_options(sdk, endpoint, asynchronous),
    )
    client.auth_token = None
    return client


def _headers(prefix: str, own: dict[str, str], omitted: Any) -> dict[str, Any]:
    # The SDK puts the headers of this variable over its own, whatever the address.
    lines = os.environ.get(f"{prefix}_CUSTOM_HEADERS", "").split("\n")
    names = [line.partition(":")[0].strip() for line in lines if ":" in line]
    stray = {name: own.get(name.lower(), omitted) for name in names}
    return {**stray, **own} if stray else {}


def _options(sdk: Any, endpoint: Endpoint, asynchronous: bool) -> dict[str, Any]:  # noqa: FBT001 # as above
    transport = sdk.DefaultAsyncHttpxClient if asynchronous else sdk.DefaultHttpxClient
    return {
        "base_url": endpoint.base_url,
        "max_retries": 0,
        "timeout": sdk.Timeout(endpoint.timeout, connect=_CONNECT_SECONDS),
        "http_client": transport(follow_redirects=False),
    }


def _gemini(endpoint: Endpoint, asynchronous: bool) -> Any:  # noqa: FBT001 # one of a table
    sdk = _sdk("google.genai")
    transport = _sdk("google.genai._api_client").httpx  # httpx, or httpx2 in newer versions
    made = transport.AsyncClient if asynchronous else transport.Client
    own = made(follow_redirects=False)
    client = sdk.Client(
        api_key=endpoint.api_key or _NO_KEY,
        vertexai=False,
        http_options={
            "base_url": endpoint.base_url,
            "timeout": int(endpoint.timeout * 1000),
            "retry_options": {"attempts": 1},
            ("httpx_async_client" if asynchronous else "httpx_client"): own,
        },
    )
    return client.aio if asynchronous else client


_BUILDERS: dict[str, Callable[[Endpoint, bool], Any]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
# Shared by all: an endpoint and its key are all that a client knows.
_CLIENTS = _Clients()
