"""What stands in for a Router's endpoints: the policy's loop around LiteLLM's own.

LiteLLM has no public hook that sees an error before it asks again. So one attempt is one ordinary
call of LiteLLM's own endpoint for the same group, narrowed to one deployment; whether, when and
whom to ask next is the policy's. The endpoints are replaced on the instance, as the Proxy holds
one, and what is no chain passes through to LiteLLM's.
"""

from __future__ import annotations

from functools import cache, update_wrapper
from typing import TYPE_CHECKING, Any

from honcho_fallback import read_answer
from honcho_fallback_litellm._groups import ordered
from honcho_fallback_litellm._request import required_in
from honcho_fallback_litellm._responses import attach, carries, renew
from honcho_fallback_litellm._router import (
    NARROWED,
    Endpoint,
    arotation,
    deployments_of,
    in_a_loop,
    rotation,
)
from honcho_fallback_litellm._router_call import RouterCall

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
    """Stand in for the endpoints of one Router; like its methods they keep it alive."""

    def __init__(self, router: Any, chains: Chains) -> None:
        self._router, self._chains = router, chains

    def install(self) -> None:
        for endpoint in ENDPOINTS:
            own = getattr(self._router, endpoint.name, None)
            if own is not None:
                setattr(self._router, endpoint.name, self._replacement(endpoint, own))

    def _replacement(self, endpoint: Endpoint, own: Callable[..., Any]) -> Any:
        async def in_a_task(*args: Any, **kwargs: Any) -> Any:
            call = self._read(endpoint, own, args, kwargs)
            return await (own(*args, **kwargs) if call is None else _aask(call))

        def in_a_thread(*args: Any, **kwargs: Any) -> Any:
            call = self._read(endpoint, own, args, kwargs)
            return own(*args, **kwargs) if call is None else _ask(call)

        return update_wrapper(in_a_task if endpoint.is_async else in_a_thread, own)

    def _read(
        self, endpoint: Endpoint, own: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RouterCall | None:
        """Read a request that has to do with a chain; None leaves it to LiteLLM."""
        router, names = self._router, endpoint.parameters
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
    """Ask the chain, and the Router's own lists behind it."""
    group = call.of_group
    plain = call.begin(await arotation(call.router, group.ids, call.request) if group else None)
    try:
        if plain is not None:
            return await call.own(**plain)
        if call.wants_stream:
            return await _astream(call)
        answer = await call.chain.policy.acall(call.aask, run=call.run)
        return attach(answer, call.run.record)
    except Exception as raised:  # noqa: BLE001 # what the caller gets is chosen here
        error = call.final(raised)
    return await call.walk(error)


def _ask(call: RouterCall) -> Any:
    group = call.of_group
    plain = call.begin(rotation(call.router, group.ids, call.request) if group else None)
    try:
        if plain is not None:
            return call.own(**plain)
        if call.wants_stream:
            return _stream(call)
        answer = call.chain.policy.call(call.ask, run=call.run)
        return attach(answer, call.run.record)
    except Exception as raised:  # noqa: BLE001 # what the caller gets is chosen here
        error = call.final(raised)
    return in_a_loop(call.walk, error)


async def _astream(call: RouterCall) -> Any:
    """Ask the chain; return a stream, or the whole answer that came instead."""
    chunks = call.chain.policy.astream(call.aopen, run=call.run, has_content=call.has_content)
    first = await anext(chunks, None)
    if first is not call.opened:
        return _managed_stream(call, chunks, first)
    await anext(chunks, None)  # a whole answer in place of a stream: the call ends with it
    return attach(first, call.run.record)


def _stream(call: RouterCall) -> Any:
    chunks = call.chain.policy.stream(call.open, run=call.run, has_content=call.has_content)
    first = next(chunks, None)
    if first is not call.opened:
        return _managed_stream(call, chunks, first)
    next(chunks, None)  # a whole answer in place of a stream: the call ends with it
    return attach(first, call.run.record)


def _managed_stream(call: RouterCall, chunks: Any, first: Any) -> Any:
    """Return a stream that looks like LiteLLM's, of the policy's chunks behind the first."""
    attributes, kind = getattr(call.opened, "__dict__", None), ManagedStream
    if attributes is not None:
        # The class that callers can know: LiteLLM makes some anew in every call.
        classes = type(call.opened).__mro__
        kind = _like(next(one for one in classes if "<locals>" not in one.__qualname__))
    stream = kind.__new__(kind)
    if attributes is not None:
        stream.__dict__ = attributes  # shared: LiteLLM and its callers write into both
    stream.call, stream.chunks, stream.first = call, chunks, first
    record, attempt = call.run.record, call.attempt
    answering = attempt.target.name if attempt and record.outcome == "running" else None
    return attach(stream, record, answering)


class ManagedStream:
    """Hand out the policy's chunks in the shape of LiteLLM's stream.

    LiteLLM's callers look at a stream's class (the Proxy, LangChain's wrapper), so ours is a
    subclass of the one that it stands for and shares its attributes.
    """

    __slots__ = ("__dict__", "call", "chunks", "first")
    call: RouterCall
    chunks: Any
    first: Any

    def __iter__(self) -> ManagedStream:
        return self

    __aiter__ = __iter__

    async def __anext__(self) -> Any:
        try:
            while self._hides(chunk := self._begun() or await anext(self.chunks)):
                pass
        except StopAsyncIteration:
            renew(self, self.call.run.record)
            raise
        except Exception as error:  # noqa: BLE001 # the caller knows LiteLLM's
            end = self.call.final(error)
        else:
            return chunk
        raise end

    def __next__(self) -> Any:
        try:
            while self._hides(chunk := self._begun() or next(self.chunks)):
                pass
        except StopIteration:
            renew(self, self.call.run.record)
            raise
        except Exception as error:  # noqa: BLE001 # the caller knows LiteLLM's
            end = self.call.final(error)
        else:
            return chunk
        raise end

    def _begun(self) -> Any:
        first, self.first = self.first, None
        return first

    def _hides(self, chunk: Any) -> bool:
        """Tell whether a chunk has nothing but the usage that the caller did not ask for."""
        if not self.call.hides_usage or getattr(chunk, "usage", None) is None:
            return False
        return read_answer(chunk).finish_reason is None and not carries(chunk)

    async def aclose(self) -> None:
        await self.chunks.aclose()

    def close(self) -> None:
        self.chunks.close()


@cache
def _like(kind: type) -> type[ManagedStream]:
    return type(f"Managed{kind.__name__}", (ManagedStream, kind), {"__module__": __name__})
