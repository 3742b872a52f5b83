"""What is tried once on a target before it is left: a fresh credential, a fresh transport.

Both take I/O, which the run does not do: it hands out a ``PendingAction``, and the driver performs
it before the next attempt.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from honcho_fallback._core.target import Target  # noqa: TC001 # of TransportRecovery
from honcho_fallback._values.errors import FallbackConfigError, require_texts, require_type
from honcho_fallback._values.failure import FailureKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from honcho_fallback._core.target import Credential
    from honcho_fallback._values.failure import Failure


class PendingAction(NamedTuple):
    """Say what has to be done before the attempt at hand, or after the end of a call.

    ``policy.perform(run)`` and ``policy.aperform(run)`` do it and go on with ``run.resume``.

    Args:
        what: ``cooldown``, ``refresh`` or ``rebuild``.
        call: Does it in a thread.
        acall: Does it in a task.
        wait: Seconds to wait before it.
        note: On the attempt that follows.
    """

    what: str
    call: Callable[[], object]
    acall: Callable[[], Awaitable[object]]
    wait: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class TransportRecovery:
    """Give a lost connection to the primary one more chance before the switch.

    After a wait of ``min(3 + failures, 8)`` seconds ``rebuild`` is called and the primary asked
    once more. Only where a connection was lost or timed out: not for a status (the provider
    answered), not for a certificate, not on a fallback, and not for aggregators, which have
    transports of their own behind them.

    Args:
        rebuild: Given the target, it renews what its client stands on, and may return the new
            client, which the call's next attempt then gets; sync (it must not block a loop) or
            async. Where it raises there is no recovery.
        aggregators: Providers, or the hosts of endpoints, that are switched away from at once;
            lower case.

    Raises:
        FallbackConfigError: An argument is of the wrong type.
    """

    rebuild: Callable[[Target], object] | None = None
    aggregators: frozenset[str] = frozenset(
        {"nous", "openrouter", "nousresearch.com", "openrouter.ai"}
    )

    def __post_init__(self) -> None:
        if self.rebuild is not None:
            require_type("rebuild", self.rebuild, Callable, "pass a function of a target, or None")
        require_texts("aggregators", self.aggregators, "pass a set of names, such as {'nous'}")

    def action(self, target: Target, failure: Failure, failures: int) -> PendingAction | None:
        """Return what has to be done before the primary is asked again, if that may help."""
        is_lost = failure.kind in {FailureKind.CONNECTION, FailureKind.TIMEOUT}
        if failure.status is not None or not (is_lost and failure.transient):
            return None
        host = urlsplit(target.endpoint or "").hostname or ""
        is_behind = any(host == name or host.endswith(f".{name}") for name in self.aggregators)
        if is_behind or (target.provider or "").lower() in self.aggregators:
            return None
        call = partial(_call_sync, self.rebuild, target)
        acall = partial(_call_async, self.rebuild, target)
        wait = min(3.0 + failures, 8.0)
        return PendingAction("rebuild", call, acall, wait, "after time for its transport")


def _call_sync(rebuild: Callable[[Target], object] | None, target: Target) -> object:
    result = rebuild(target) if rebuild is not None else None
    if inspect.isawaitable(result):
        getattr(result, "close", bool)()  # a coroutine that nobody will await
        raise FallbackConfigError.about("rebuild", "it is async", "use acall or astream")
    return result


async def _call_async(rebuild: Callable[[Target], object] | None, target: Target) -> object:
    result = rebuild(target) if rebuild is not None else None
    return await result if inspect.isawaitable(result) else result


class SharedRefresh:
    """Let one call refresh a credential; the others wait for it and take what it brought.

    ``generation`` counts the refreshes: a call that was refused with an older one needs none.
    """

    __slots__ = ("_flights", "_kept", "generation")

    def __init__(self, kept: object) -> None:
        self._kept = kept  # the credential, or what forgets this with it
        # The one under way, by the process that makes it: a forked child does not wait for its
        # parent's. Steps of a dict need no lock, which that child could inherit.
        self._flights: dict[int, Future[None]] = {}
        self.generation = 0

    def action(self, credential: Credential, generation: int) -> PendingAction:
        """Return the refresh of a call that was refused with this generation."""
        refresh = partial(self._refresh, credential, generation)
        arefresh = partial(self._arefresh, credential, generation)
        return PendingAction(
            "refresh", refresh, arefresh, note="after a refresh of its credential"
        )

    def _refresh(self, credential: Credential, generation: int) -> None:
        if inspect.iscoroutinefunction(credential.refresh):
            raise FallbackConfigError.about("refresh", "it is async", "use acall or astream")
        while self.generation == generation:
            flight, leads = self._join()
            if leads:
                self._lead(flight, credential, generation)
            flight.result()

    async def _arefresh(self, credential: Credential, generation: int) -> None:
        while self.generation == generation:
            flight, leads = self._join()
            if leads and inspect.iscoroutinefunction(credential.refresh):
                with self._leading(flight):
                    if self.generation == generation:
                        await credential.refresh()
                        self.generation += 1
            elif leads:
                # The whole of it runs in a thread, and nobody cancels that: where this task is
                # cancelled, the refresh goes on and the others still get what it brings.
                lead = partial(self._lead, flight, credential, generation)
                try:
                    asyncio.get_running_loop().run_in_executor(None, copy_context().run, lead)
                except RuntimeError:  # a loop that closes takes no more; somebody else leads
                    with self._leading(flight):
                        raise
            await asyncio.wrap_future(flight)

    def _lead(self, flight: Future[None], credential: Credential, generation: int) -> None:
        with self._leading(flight):
            if self.generation == generation:
                result = credential.refresh()
                if inspect.isawaitable(result):
                    getattr(result, "close", bool)()
                    fix = "define it with async def"
                    raise FallbackConfigError.about("refresh", "it returned an awaitable", fix)
                self.generation += 1

    @contextmanager
    def _leading(self, flight: Future[None]) -> Generator[None, None, None]:
        """Tell those who wait, and the one who leads, what came of a refresh."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 # raised by the flight
            flight.set_exception(error)
        finally:
            self._flights.pop(os.getpid(), None)
            # Where the one who led was cancelled, the next leads: its own call goes on.
            if not flight.done():
                flight.set_result(None)

    def _join(self) -> tuple[Future[None], bool]:
        """Return the refresh under way, or a new one that the caller leads."""
        mine = Future[None]()
        mine.set_running_or_notify_cancel()  # a waiter that gives up cannot cancel it
        flight = self._flights.setdefault(os.getpid(), mine)
        return flight, flight is mine


# By the ids of credentials, for as long as these live: a user's object is not written into.
# Policies that were built apart may hold the same one, and a refresh token is often good for one
# use.
_REFRESHES: dict[int, SharedRefresh] = {}


def refresh_of(credential: Credential) -> SharedRefresh:
    """Return the one refresh that all calls with this credential share."""
    key = id(credential)
    known = _REFRESHES.get(key)
    if known is None:
        try:
            kept: object = weakref.ref(credential, lambda _: _REFRESHES.pop(key, None))
        except TypeError:  # a class with slots: it is kept, as programs have few credentials
            kept = credential
        known = _REFRESHES.setdefault(key, SharedRefresh(kept))  # of all threads one's own is in
    return known
