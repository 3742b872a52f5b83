"""Chat models whose SDK gives up when the attempt's time is over, where nothing else can.

A thread cannot be interrupted, so its SDK has to give up by itself. A keyword per call would reach
no model inside a chain, and would be part of a cache's key. So the clients of copies get a timeout
that looks, request by request, at how much time the attempt around it has.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from langchain_core.runnables import Runnable

from honcho_fallback_langchain._models_inside import (
    derived,
    differ,
    of_integration,
    owner_of,
    with_changed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from honcho_fallback import Attempt

T = TypeVar("T")
CandidateT = TypeVar("CandidateT", bound=Runnable[Any, Any])


class _Limits(NamedTuple):
    """Hold the seconds that the attempts around a request leave it, None for any number."""

    timeout: float | None = None
    connect: float | None = None


_NONE: Final = _Limits()
_limits: ContextVar[_Limits] = ContextVar("honcho_fallback_langchain_limits", default=_NONE)
_END: Final = object()


def within_attempts(candidate: CandidateT) -> CandidateT:
    """Return a candidate whose requests end with the attempt, or the same object if it does.

    Known are the SDKs of OpenAI, Anthropic and Groq, and what is built on them. A timeout of the
    model's own stays where it is shorter; one that is given with a call stays as it is.
    """
    bounded: CandidateT = with_changed(candidate, _bounded)
    return bounded


def in_time(ask: Callable[[Attempt], T]) -> Callable[[Attempt], T]:
    """Return an `ask` whose requests end with the attempt."""

    def bounded(attempt: Attempt) -> T:
        token = _limits.set(_inside(attempt))
        try:
            return ask(attempt)
        finally:
            _limits.reset(token)

    return bounded


def in_time_to_start(
    ask: Callable[[Attempt], Iterator[T]],
) -> Callable[[Attempt], Iterator[T]]:
    """Return an `ask` for a stream, of which the request ends with the attempt."""

    def bounded(attempt: Attempt) -> Iterator[T]:
        chunks = ask(attempt)
        try:
            # Between two chunks the context is the reader's.
            token = _limits.set(_inside(attempt))
            try:
                chunk: Any = next(chunks, _END)
            finally:
                _limits.reset(token)
            if chunk is not _END:
                yield chunk
                yield from chunks
        finally:
            getattr(chunks, "close", bool)()

    return bounded


def _inside(attempt: Attempt) -> _Limits:
    around = _limits.get()
    if around is _NONE:
        return _Limits(attempt.timeout, attempt.connect_timeout)
    # A candidate may be a chain of its own.
    return _Limits(
        _shortest(around.timeout, attempt.timeout),
        _shortest(around.connect, attempt.connect_timeout),
    )


def _shortest(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)


@cache  # one per SDK
def _timeout_of(kind: Any) -> Any:
    """Make a timeout of the attempt's out of an SDK's own kind."""

    class AttemptTimeout(kind):  # type: ignore[misc] # httpx's, of which there are two
        def __init__(self, own: Any) -> None:
            self.own = own

        @property
        def connect(self) -> float | None:
            limits = _limits.get()
            return _shortest(self.own.connect, limits.connect, limits.timeout)

        @property
        def read(self) -> float | None:
            return _shortest(self.own.read, _limits.get().timeout)

        @property
        def write(self) -> float | None:
            return _shortest(self.own.write, _limits.get().timeout)

        @property
        def pool(self) -> float | None:
            return _shortest(self.own.pool, _limits.get().timeout)

    return AttemptTimeout


def _bounded(model: Any) -> Any:
    names = of_integration(model, _SYNC_CLIENTS)
    if names is None:
        return model
    copy = model.model_copy()  # its client may be built right now, and not on the user's object
    clients = {name: getattr(copy, name) for name in names}
    changed = {name: _client_bounded(client) for name, client in clients.items()}
    vars(copy).update(changed)
    return copy if differ(changed.values(), clients.values()) else model


def _client_bounded(client: Any) -> Any:
    owner = owner_of(client)
    kind = getattr(sys.modules.get(type(owner).__module__.partition(".")[0]), "Timeout", None)
    if kind is None:
        return client
    bounded = _timeout_of(kind)
    if isinstance(owner.timeout, bounded):
        return client
    own = owner.timeout if isinstance(owner.timeout, kind) else kind(owner.timeout)
    return derived(client, timeout=bounded(own))


# In a task an attempt is interrupted; those clients keep their own timeouts.
_SYNC_CLIENTS: Final = {
    ("langchain_anthropic", "ChatAnthropic"): ("_client",),
    ("langchain_groq", "ChatGroq"): ("client",),
    ("langchain_openai", "BaseChatOpenAI"): ("client", "root_client"),
}
