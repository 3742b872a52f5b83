"""Who hears of the runs under a call.

Langfuse's own callback handler makes an observation of each attempt, and none of them can be
withdrawn. An observer that is a ``LangfuseStandIn`` makes one of the call instead, where the
handler would have put its own.

Where a handler streams, LangChain reports tokens from inside a candidate's ``invoke``, long before
the attempt is over, and what a reader has seen cannot be taken back. A ``Gate`` stands between one
attempt and those handlers: it holds back what they would show until the attempt has content, and
from then on nobody else can be asked.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import cache, partial
from inspect import iscoroutinefunction
from threading import Lock
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler, BaseCallbackManager
from langchain_core.callbacks.manager import ahandle_event, handle_event
from langchain_core.tracers.base import BaseTracer

from honcho_fallback_langchain._outputs import has_content

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from honcho_fallback import Attempt, FallbackPolicy, FallbackRun

CallbacksT = TypeVar("CallbacksT")
AS_AROUND: Final = nullcontext()  # one for all calls: it holds nothing


@runtime_checkable
class LangfuseStandIn(Protocol):
    """Observe calls in place of Langfuse's own callback handlers."""

    @property
    def replaces_langfuse_callbacks(self) -> bool:
        """Tell whether those must not report the attempts of a call that begins now."""
        ...

    def in_place_of(
        self, handlers: Iterable[object], parent_run_id: object
    ) -> AbstractContextManager[None]:
        """Return a context to start a call in: it nests the call where they would have."""
        ...


class Detached(NamedTuple):
    """Hold the handlers that were taken out of a call's config, and whose run it belongs to."""

    handlers: list[BaseCallbackHandler]
    parent_run_id: object
    stand_in: LangfuseStandIn

    def parented(self) -> AbstractContextManager[None]:
        return self.stand_in.in_place_of(self.handlers, self.parent_run_id)


def detach_langfuse(
    callbacks: BaseCallbackManager, policy: FallbackPolicy
) -> tuple[Any, Detached | None]:
    """Return callbacks without Langfuse's handlers, and those, if an observer replaces them."""
    langfuse = [one for one in callbacks.handlers if _is_langfuse(type(one))]
    if not langfuse:  # as mostly; only otherwise are the observers looked through
        return callbacks, None
    for one in policy.observers:
        if isinstance(one, LangfuseStandIn) and one.replaces_langfuse_callbacks:
            manager = callbacks.copy()
            for handler in langfuse:
                manager.remove_handler(handler)
            return manager, Detached(langfuse, manager.parent_run_id, one)
    return callbacks, None


def _is_langfuse(kind: type) -> bool:
    return kind.__module__.startswith("langfuse.")


# What an attempt shows, and who sees it.

_TOKENS: Final = frozenset({"on_llm_new_token", "on_stream_event"})
# Ends come after the tokens, and some handlers show what ended; errors stay in line with them.
_HELD: Final = _TOKENS | {
    f"on_{kind}_{how}"
    for kind in ("chain", "llm", "retriever", "tool")
    for how in ("end", "error")
}
_NO_STREAM: Final = frozenset({"langsmith:nostream", "nostream"})
_IDLE: Final = frozenset(
    getattr(kind, name) for kind in (BaseCallbackHandler, AsyncCallbackHandler) for name in _TOKENS
)
_FRAME: Final = frozenset({"extras", "id", "index", "reasoning", "type"})  # of a content block


class Event(NamedTuple):
    """Hold a call of a handler's method."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Gate:
    """Stand between one attempt and the handlers that show tokens; without a run it is open."""

    __slots__ = ("_closed", "_heard", "_lock", "_proxies", "_reader", "_run", "_shown", "streamed")

    def __init__(self, run: FallbackRun | None) -> None:
        self._run = run  # until something is out: while there is one, the gate holds back
        self._closed = False
        self._lock = Lock()  # the parts of a candidate may run in threads
        self._proxies: dict[int, _Proxy] = {}  # by the handler's id
        self._shown: list[Any] = []
        self._reader: tuple[_Proxy, str] | None = None  # who is shown what came first, and how
        self.streamed = False
        self._heard: Callable[[], object] = bool  # called with each token

    @asynccontextmanager
    async def limit(self, attempt: Attempt) -> AsyncGenerator[None, None]:
        """Bound the silence before the first token and between two tokens, as of a stream."""
        loop, idle = asyncio.get_running_loop(), attempt.idle_timeout
        silence = attempt.first_token_timeout
        limit = asyncio.timeout(silence)

        def wait_anew() -> None:
            nonlocal silence
            silence = idle
            with suppress(RuntimeError):  # it is over
                limit.reschedule(None if idle is None else loop.time() + idle)

        # The parts of a candidate may run in threads.
        self._heard = partial(loop.call_soon_threadsafe, wait_anew)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if limit.expired():
                error.args = (f"{attempt.target.name} was silent for {silence:g} s",)
            raise
        finally:
            self._heard = bool

    def before(self, callbacks: CallbacksT) -> CallbacksT:
        """Return callbacks for the attempt, the handlers that show tokens behind the gate."""
        if isinstance(callbacks, BaseCallbackManager):
            manager = callbacks.copy()
            manager.handlers = self.before(manager.handlers)
            manager.inheritable_handlers = self.before(manager.inheritable_handlers)
            return manager
        handlers: Any = callbacks
        changed = [self._proxy(one) if _shows_tokens(one.__class__) else one for one in handlers]
        return cast("CallbacksT", changed)

    def shut(self) -> None:
        """Show no more tokens: what is behind has failed, and a thread that it left may speak."""
        with self._lock:
            self._closed = True

    def close(self, error: BaseException | None) -> None:
        """Report what is held back: of an attempt that failed, only that its runs are over."""
        for handler, event in self._rest(error):
            handle_event([handler], event.name, None, *event.args, **event.kwargs)

    async def aclose(self, error: BaseException | None) -> None:
        for handler, event in self._rest(error):
            await ahandle_event([handler], event.name, None, *event.args, **event.kwargs)

    def admit(self, proxy: _Proxy, event: Event) -> Sequence[Event]:
        """Return what a handler may be told now that an event has come."""
        is_token = event.name in _TOKENS
        self.streamed = self.streamed or is_token
        if is_token:
            self._heard()
        with self._lock:
            if self._closed:
                return () if is_token else (event,)
            if self._run is not None:
                if not (is_token and _shows_content(event)):
                    proxy.waiting.append(event)
                    return ()
                self._run.commit(partial=self._shown)
                self._run, self._reader = None, (proxy, event.name)
            events = (*proxy.waiting, event) if proxy.waiting else (event,)
            proxy.waiting.clear()
            if is_token and self._reader == (proxy, event.name):
                self._shown += [_token_of(one) for one in events if one.name == event.name]
            return events

    def _proxy(self, handler: BaseCallbackHandler) -> BaseCallbackHandler:
        proxy: Any = self._proxies.setdefault(id(handler), _Proxy(handler, self))
        return cast("BaseCallbackHandler", proxy)

    def _rest(self, error: BaseException | None) -> list[tuple[BaseCallbackHandler, Event]]:
        with self._lock:
            failed = error is not None and self._run is not None
            self._run, self._closed = None, error is not None
            rest: list[tuple[BaseCallbackHandler, Event]] = []
            for proxy in self._proxies.values():
                rest += [(proxy.handler, event) for event in proxy.waiting]
                proxy.waiting.clear()
        if failed:
            ends = [(handler, event) for handler, event in rest if event.name not in _TOKENS]
            return [(handler, _failed(event, error)) for handler, event in ends]
        return rest


class _Proxy:
    """Pass for a handler during one attempt."""

    __slots__ = ("gate", "handler", "waiting")

    gate: Gate
    handler: BaseCallbackHandler
    waiting: list[Event]

    def __init__(self, handler: BaseCallbackHandler, gate: Gate) -> None:
        for name, value in (("handler", handler), ("gate", gate), ("waiting", [])):
            object.__setattr__(self, name, value)

    @property  # type: ignore[misc] # it is read only
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] # likewise
        """Return the handler's, for which LangChain and LangGraph look."""
        return self.handler.__class__

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.handler, name)
        if name not in _HELD:
            return attribute
        return partial(self._areceive if iscoroutinefunction(attribute) else self._receive, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.handler, name, value)

    def __eq__(self, other: object) -> bool:
        # A manager that finds the handler itself adds it once more.
        return other is self or other == self.handler

    def __hash__(self) -> int:
        return hash(self.handler)

    def _receive(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        *earlier, last = self.gate.admit(self, Event(name, args, kwargs)) or (None,)
        for event in earlier:
            handle_event([self.handler], event.name, None, *event.args, **event.kwargs)
        if last is not None:
            getattr(self.handler, name)(*args, **kwargs)

    async def _areceive(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        *earlier, last = self.gate.admit(self, Event(name, args, kwargs)) or (None,)
        for event in earlier:
            await ahandle_event([self.handler], event.name, None, *event.args, **event.kwargs)
        if last is not None:
            await getattr(self.handler, name)(*args, **kwargs)


def show_tokens(handlers: Iterable[Any]) -> bool:
    """Tell whether any handler shows tokens to somebody; a proxy has the class of its own."""
    return any(_shows_tokens(one.__class__) for one in handlers)


@cache
def _shows_tokens(kind: type) -> bool:
    """Tell whether handlers of a class show tokens; a tracer only records them."""
    if issubclass(kind, BaseTracer) or any(_is_langfuse(base) for base in kind.__mro__):
        return False
    return any(getattr(kind, name, None) not in _IDLE for name in _TOKENS)


def _shows_content(event: Event) -> bool:
    # LangGraph shows nothing of a run that is tagged so; others see it when the attempt is over.
    if not _NO_STREAM.isdisjoint(event.kwargs.get("tags") or ()):
        return False
    token = _token_of(event)
    if event.name == "on_llm_new_token":
        return has_content(token)
    block: Mapping[str, Any] = token.get("delta") or token.get("content") or {}
    fields: Mapping[str, Any] = block.get("fields") or block
    return any(value for name, value in fields.items() if name not in _FRAME)


def _token_of(event: Event) -> Any:
    chunk = event.kwargs.get("chunk")
    if chunk is not None:
        return getattr(chunk, "message", chunk.text)
    return event.args[0] if event.args else event.kwargs.get("token", {})


def _failed(event: Event, error: BaseException | None) -> Event:
    if event.name.endswith("_error"):
        return event
    # What ended is positional; the keywords say which run.
    return Event(event.name.replace("_end", "_error"), (error,), event.kwargs)
