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
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from honcho_fallback._core.target import Target  # noqa: TC001 # of TransportRecovery
from honcho_fallback._values.errors import FallbackConfigError, require_texts, require_type
from honcho_fallback._values.failure import FailureKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterator

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
        """Return what has to be done before the primary is asked again, if that may help.

        Args:
            target: The primary.
            failure: What went wrong.
            failures: How often the primary has failed in this call, this time included.
        """
        connection_lost = (
            failure.kind in {FailureKind.CONNECTION, FailureKind.TIMEOUT}
            and failure.status is None
            and failure.transient
        )
        if not connection_lost or (target.provider or "").lower() in self.aggregators:
            return None
        host = urlsplit(target.endpoint or "").hostname or ""
        if any(host == name or host.endswith(f".{name}") for name in self.aggregators):
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

    __slots__ = ("_credential", "_flights", "generation")

    def __init__(self, credential: Callable[[], Credential | None]) -> None:
        self._credential = credential
        # The one under way, by the process that makes it: a forked child does not wait for its
        # parent's. Steps of a dict need no lock, which that child could inherit.
        self._flights: dict[int, Future[None]] = {}
        self.generation = 0

    def action(self, generation: int) -> PendingAction:
        """Return the refresh of a call that was refused with this generation."""
        refresh, arefresh = partial(self._refresh, generation), partial(self._arefresh, generation)
        note = "after a refresh of its credential"
        return PendingAction("refresh", refresh, arefresh, note=note)

    def _refresh(self, generation: int) -> None:
        if inspect.iscoroutinefunction(getattr(self._credential(), "refresh", None)):
            raise FallbackConfigError.about("refresh", "it is async", "use acall or astream")
        while self.generation == generation:
            flight, leads = self._join()
            if leads:
                self._lead(flight, generation, iter((True,)))
            else:
                flight.result()

    async def _arefresh(self, generation: int) -> None:
        is_async = inspect.iscoroutinefunction(getattr(self._credential(), "refresh", None))
        while self.generation == generation:
            flight, leads = self._join()
            if not leads:
                await asyncio.wrap_future(flight)
            elif is_async:
                with self._leading(flight):
                    if self.generation == generation:
                        await self._start()
                        self.generation += 1
            else:
                # The whole of it runs in the thread: where this task is cancelled, the refresh
                # goes on and the others still get what it brings. Where no thread had been free
                # for it, it never begins.
                unbegun = iter((True,))  # one iterator step: of the two one takes it
                try:
                    await asyncio.to_thread(self._lead, flight, generation, unbegun)
                finally:
                    if next(unbegun, False):
                        with self._leading(flight):
                            pass

    def _lead(self, flight: Future[None], generation: int, unbegun: Iterator[bool]) -> None:
        if not next(unbegun, False):
            return
        with self._leading(flight):
            if self.generation == generation:
                result = self._start()
                if inspect.isawaitable(result):
                    getattr(result, "close", bool)()
                    fix = "define it with async def"
                    raise FallbackConfigError.about("refresh", "it returned an awaitable", fix)
                self.generation += 1

    @contextmanager
    def _leading(self, flight: Future[None]) -> Generator[None, None, None]:
        """Tell those who wait what came of a refresh."""
        try:
            yield
        except Exception as error:
            flight.set_exception(error)
            raise
        finally:
            self._flights.pop(os.getpid(), None)
            # Where the one who led was cancelled, the next leads: its own call goes on.
            if not flight.done():
                flight.set_result(None)

    def _start(self) -> Any:
        credential = self._credential()
        return None if credential is None else credential.refresh()

    def _join(self) -> tuple[Future[None], bool]:
        """Return the refresh under way, or a new one that the caller leads."""
        mine = Future[None]()
        mine.set_running_or_notify_cancel()  # a waiter that gives up cannot cancel it
        flight = self._flights.setdefault(os.getpid(), mine)
        return flight, flight is mine


class SharedRefreshes:
    """Find the shared refresh of a credential, for as long as the credential lives.

    It stands beside the credential because a user's object is not written into. Policies that
    were built apart may hold the same credential, and a refresh token is often good for one use.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, SharedRefresh] = {}

    def of(self, credential: Credential) -> SharedRefresh:
        """Return the one refresh that all calls with this credential share."""
        key = id(credential)
        known = self._by_id.get(key)
        if known is None:  # of all threads one brings its own in
            known = self._by_id.setdefault(key, SharedRefresh(self._refer(credential, key)))
        return known

    def _refer(self, credential: Credential, key: int) -> Callable[[], Credential | None]:
        try:
            return weakref.ref(credential, lambda _: self._by_id.pop(key, None))
        except TypeError:  # a class with slots: it is kept, as programs have few credentials
            return lambda: credential


REFRESHES = SharedRefreshes()
