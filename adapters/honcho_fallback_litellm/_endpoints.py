"""What stands in for a Router's endpoints: the policy's loop around LiteLLM's own.

LiteLLM has no public hook that sees an error before it asks again. So one attempt is one ordinary
call of LiteLLM's own endpoint for the same group, narrowed to one deployment; whether, when and
whom to ask next is the policy's. The endpoints are replaced on the instance, as the Proxy holds
one, and what is no chain passes through to LiteLLM's.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from honcho_fallback_litellm._answers import attach, deployment_of, stamp
from honcho_fallback_litellm._call import Endpoint, RouterCall, Selected
from honcho_fallback_litellm._chain import id_of
from honcho_fallback_litellm._lists import rehearsed, with_chains_in_order
from honcho_fallback_litellm._request import NARROWED
from honcho_fallback_litellm._router import arotation, deployments_of, rotation
from honcho_fallback_litellm._stream import managed_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback_litellm._chain import Chain, Chains

_END: Any = object()
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
    ("create_batch", (), False),
)
ENDPOINTS = tuple(
    Endpoint(f"{prefix}{name}", parameters, bool(prefix) or name == "anthropic_messages", generic)
    for name, parameters, generic in _METHODS
    for prefix in ("", "a")
)


class Endpoints:
    """Stand in for the endpoints of one Router, which is held weakly.

    Args:
        router: A ``litellm.Router``.
        chains: Makes the chain of a group.
        respects_cooldown: Whether who cools down by LiteLLM's account is passed over.
    """

    def __init__(self, router: Any, chains: Chains, *, respects_cooldown: bool) -> None:
        self._router = weakref.ref(router)
        self._chains = chains
        self._respects_cooldown = respects_cooldown

    @property
    def router(self) -> Any:
        """Return the Router.

        Raises:
            ReferenceError: It is gone. Not a RuntimeError: LiteLLM's sync methods would run the
                whole call again.
        """
        router = self._router()
        if router is None:
            raise ReferenceError("the Router of this FallbackRoutingStrategy is gone")
        return router

    def install(self) -> None:
        """Replace the endpoints that this Router has."""
        router = self.router
        for endpoint in ENDPOINTS:
            own = getattr(router, endpoint.name, None)
            if own is not None:
                setattr(router, endpoint.name, self._replacement(endpoint, own))

    def _replacement(self, endpoint: Endpoint, own: Callable[..., Any]) -> Callable[..., Any]:
        # A bound method would hold the Router.
        held: Any = weakref.WeakMethod(own) if hasattr(own, "__self__") else lambda: own

        @wraps(own)
        async def in_a_task(*args: Any, **kwargs: Any) -> Any:
            selected = self._select(endpoint, held(), args, kwargs)
            if not isinstance(selected, Selected):
                return await held()(*args, **selected)
            where = await arotation(selected.router, selected.chain.ids, selected.request)
            call, error = selected.call(where, respects_cooldown=self._respects_cooldown), None
            if not isinstance(call, RouterCall):
                return await selected.own(**call)
            try:
                return await (_astreamed(call) if call.wants_stream else _aanswered(call))
            except Exception as raised:  # noqa: BLE001 # what the caller gets is chosen here
                error = call.final(raised)
            try:
                rest = self._rest(call, error)
                if rest is not None:
                    with suppress(Exception):  # the chain's own error says more
                        return _elsewhere(call, await selected.own(**rest))
                raise error
            finally:
                del error  # what is raised refers to this frame

        @wraps(own)
        def in_a_thread(*args: Any, **kwargs: Any) -> Any:
            selected = self._select(endpoint, held(), args, kwargs)
            if not isinstance(selected, Selected):
                return held()(*args, **selected)
            where = rotation(selected.router, selected.chain.ids, selected.request)
            call, error = selected.call(where, respects_cooldown=self._respects_cooldown), None
            if not isinstance(call, RouterCall):
                return selected.own(**call)
            try:
                return _streamed(call) if call.wants_stream else _answered(call)
            except Exception as raised:  # noqa: BLE001 # what the caller gets is chosen here
                error = call.final(raised)
            try:
                rest = self._rest(call, error)
                if rest is not None:
                    with suppress(Exception):  # the chain's own error says more
                        return _elsewhere(call, selected.own(**rest))
                raise error
            finally:
                del error  # what is raised refers to this frame

        return in_a_task if endpoint.is_async else in_a_thread

    def _select(
        self, endpoint: Endpoint, own: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Selected | dict[str, Any]:
        """Find the chain of a request, or return the keyword arguments for LiteLLM's endpoint."""
        router, names = self.router, endpoint.parameters
        request = {**dict(zip(names, args, strict=False)), **kwargs}
        group = request.get("model")
        # A request that is narrowed already is one of ours, which LiteLLM hands on to itself.
        if not isinstance(group, str) or len(args) > len(names) or NARROWED in request:
            return kwargs
        deployments = deployments_of(router, group, request)
        chain = None if request.get("specific_deployment") else self._chains.of(group, deployments)
        if chain is None:
            return with_chains_in_order(router, kwargs, self._chain_of(router, request))
        by_id = {id_of(one): one for one in deployments}
        return Selected(
            chain, router, endpoint, own, request, [by_id[one] for one in chain.ids]
        )

    def _chain_of(self, router: Any, request: dict[str, Any]) -> Callable[[str], Chain | None]:
        return lambda name: self._chains.of(name, deployments_of(router, name, request))

    def _rest(self, call: RouterCall, error: Exception) -> dict[str, Any] | None:
        """Return what LiteLLM is asked once the chain has come to its end, if anything is."""
        rest = rehearsed(call.router, call.request, error) if call.goes_elsewhere else None
        if rest is None:
            return None
        return with_chains_in_order(call.router, rest, self._chain_of(call.router, call.request))


async def _aanswered(call: RouterCall) -> Any:
    return stamp(await call.chain.policy.acall(call.aask, run=call.run), call.run.record)


def _answered(call: RouterCall) -> Any:
    return stamp(call.chain.policy.call(call.ask, run=call.run), call.run.record)


async def _astreamed(call: RouterCall) -> Any:
    policy = call.chain.policy
    chunks = policy.astream(call.aopen, run=call.run, has_content=call.is_content)
    first = await anext(chunks, _END)
    if first is not call.opened:
        return managed_stream(call, chunks, None if first is _END else first)
    async for _ in chunks:  # a whole answer in place of a stream
        pass
    return stamp(first, call.run.record)


def _streamed(call: RouterCall) -> Any:
    policy = call.chain.policy
    chunks = policy.stream(call.open, run=call.run, has_content=call.is_content)
    first = next(chunks, _END)
    if first is not call.opened:
        return managed_stream(call, chunks, None if first is _END else first)
    for _ in chunks:  # a whole answer in place of a stream
        pass
    return stamp(first, call.run.record)


def _elsewhere(call: RouterCall, answer: Any) -> Any:
    """Let an answer of another group carry the chain's record."""
    attach(answer, call.run.record, deployment_of(answer))
    return answer
