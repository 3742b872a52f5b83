"""What stands in for a Router's endpoints: the policy's loop around LiteLLM's own.

LiteLLM has no public hook that sees an error before it asks again. So one attempt is one ordinary
call of LiteLLM's own endpoint for the same group, narrowed to one deployment; whether, when and
whom to ask next is the policy's. The endpoints are replaced on the instance, as the Proxy holds
one, and what is no chain passes through to LiteLLM's.
"""

from __future__ import annotations

import weakref
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from honcho_fallback_litellm._groups import ordered
from honcho_fallback_litellm._request import required_in
from honcho_fallback_litellm._router import (
    NARROWED,
    Endpoint,
    arotation,
    deployments_of,
    in_a_loop,
    rotation,
)
from honcho_fallback_litellm._router_call import RouterCall
from honcho_fallback_litellm._stream import astream_of, stream_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback_litellm._groups import Chains

# The methods without the a that makes them async: what may be passed by position, and whether
# LiteLLM keeps its metadata in a bucket of its own there.
_METHODS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("completion", ("model", "messages"), False),
    ("text_completion", ("model", "prompt"), False),
    ("embedding", ("model", "input"), False),
    ("responses", ("input", "model"), True),
    ("anthropic_messages", (), True),
    ("generate_content", (), True),
    ("generate_content_stream", (), True),
    ("image_generation", ("prompt", "model"), False),
    ("moderation", ("input", "model"), True),
    ("rerank", ("model", "query", "documents"), False),
    ("speech", ("model", "input", "voice"), False),
    ("transcription", (), False),
    ("create_batch", (), True),
)
ENDPOINTS = tuple(
    Endpoint(f"{prefix}{name}", parameters, bool(prefix) or name == "anthropic_messages", generic)
    for name, parameters, generic in _METHODS
    for prefix in ("", "a")
)


class Endpoints:
    """Stand in for the endpoints of one Router, which is held weakly."""

    def __init__(self, router: Any, chains: Chains) -> None:
        self._router, self._chains = weakref.ref(router), chains

    def install(self) -> None:
        """Replace the endpoints that this Router has."""
        router = self._router()
        for endpoint in ENDPOINTS:
            own = getattr(router, endpoint.name, None)
            if own is not None:
                setattr(router, endpoint.name, self._replacement(endpoint, own))

    def _replacement(self, endpoint: Endpoint, own: Callable[..., Any]) -> Any:
        # A bound method would hold the Router.
        own_endpoint: Any = weakref.WeakMethod(own) if hasattr(own, "__self__") else lambda: own

        async def in_a_task(*args: Any, **kwargs: Any) -> Any:
            theirs = own_endpoint()
            call = self._read(endpoint, theirs, args, kwargs)
            return await (theirs(*args, **kwargs) if call is None else _aask(call))

        def in_a_thread(*args: Any, **kwargs: Any) -> Any:
            theirs = own_endpoint()
            call = self._read(endpoint, theirs, args, kwargs)
            return theirs(*args, **kwargs) if call is None else _ask(call)

        replacement: Any = update_wrapper(in_a_task if endpoint.is_async else in_a_thread, own)
        del replacement.__wrapped__  # it would hold the Router as well
        return replacement

    def _read(
        self, endpoint: Endpoint, own: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RouterCall | None:
        """Read a request that has to do with a chain; None leaves it to LiteLLM."""
        router, names = self._router(), endpoint.parameters
        if router is None:  # a RuntimeError would have LiteLLM's sync methods run the call again
            raise ReferenceError("the Router of this FallbackRoutingStrategy is gone")
        request = {**dict(zip(names, args, strict=False)), **kwargs}
        group = request.get("model")
        # A request that is narrowed already is one of ours, which LiteLLM hands on to itself.
        if not isinstance(group, str) or len(args) > len(names):
            return None
        required, is_ours = required_in(request, self._chains.config), NARROWED in request
        if is_ours and not required:
            return None
        deployments = deployments_of(router, group, request)
        is_single = is_ours or request.get("specific_deployment")
        chain = None if is_single else self._chains.of(group, deployments)
        if chain is not None:
            deployments = ordered(deployments)
        call = RouterCall(
            chain, router, endpoint, own, request, deployments, self._chains, required
        )
        return call if required or chain is not None or call.names_a_chain() else None


async def _aask(call: RouterCall) -> Any:
    """Ask the chain, and the Router's own lists behind it, in this task."""
    group = call.of_group
    where = await arotation(call.router, group.ids, call.request) if group else None
    plain = call.begin(where)
    try:
        if plain is not None:
            return await call.own(**plain)
        return await (astream_of(call) if call.wants_stream else call.aanswer())
    except Exception as raised:  # noqa: BLE001 # what the caller gets is chosen here
        error = call.final(raised)
    try:
        return await call.walk(error)
    finally:
        del error  # what is raised refers to this frame


def _ask(call: RouterCall) -> Any:
    """Ask the chain, and the Router's own lists behind it, in this thread."""
    group = call.of_group
    where = rotation(call.router, group.ids, call.request) if group else None
    plain = call.begin(where)
    try:
        if plain is not None:
            return call.own(**plain)
        return stream_of(call) if call.wants_stream else call.answer()
    except Exception as raised:  # noqa: BLE001 # what the caller gets is chosen here
        error = call.final(raised)
    try:
        return in_a_loop(call.walk, error)
    finally:
        del error  # what is raised refers to this frame
