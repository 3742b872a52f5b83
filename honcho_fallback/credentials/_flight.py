"""One refresh for many callers, in threads and in tasks."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from honcho_fallback import Credential


class SingleFlight:
    """Let one caller refresh a credential; the others wait for it and take what it brought.

    Args:
        credential: Whose ``refresh`` may be sync or async.
    """

    __slots__ = ("_credential", "_flying", "_lock", "generation")

    def __init__(self, credential: Credential) -> None:
        self._credential = credential
        self._flying: Future[None] | None = None
        self._lock = threading.Lock()
        self.generation = 0

    def __repr__(self) -> str:
        return f"<SingleFlight of a {type(self._credential).__name__}>"

    @property
    def fingerprint(self) -> str | None:
        """Return the credential's own, or None."""
        found: str | None = getattr(self._credential, "fingerprint", None)
        return found

    def get(self) -> Any:
        """Return what is at hand."""
        return self._credential.get()

    def refresh(self) -> Awaitable[None] | None:
        """Fetch a new one, or take what a refresh under way brings."""
        return self.renew(self.generation)

    def renew(self, generation: object) -> Awaitable[None] | None:
        """Fetch a new one unless somebody has done so since.

        Args:
            generation: The one that was refused.

        Returns:
            Something to await where the credential's ``refresh`` is async.
        """
        if inspect.iscoroutinefunction(self._credential.refresh):
            return self._arenew(generation)
        while self.generation == generation:
            flight, leads = self._board()
            if leads:
                self._fly(flight, generation)
            else:
                flight.result()
        return None

    def _fly(self, flight: Future[None], generation: object) -> None:
        failed: BaseException | None = None
        try:
            if self.generation == generation:
                self._credential.refresh()
                self.generation += 1
        except BaseException as error:
            failed = error
            raise
        finally:
            self._land(flight, failed)

    async def _arenew(self, generation: object) -> None:
        while self.generation == generation:
            flight, leads = self._board()
            if not leads:
                await asyncio.wrap_future(flight)
                continue
            failed: BaseException | None = None
            try:
                if self.generation == generation:
                    await self._credential.refresh()
                    self.generation += 1
            except BaseException as error:
                failed = error
                raise
            finally:
                self._land(flight, failed)

    def _board(self) -> tuple[Future[None], bool]:
        with self._lock:
            if self._flying is not None:
                return self._flying, False
            self._flying = Future()
            self._flying.set_running_or_notify_cancel()  # a waiter that gives up cannot cancel it
            return self._flying, True

    def _land(self, flight: Future[None], failed: BaseException | None) -> None:
        with self._lock:
            self._flying = None
        # Where the one who led was cancelled, the next leads: its own call goes on.
        if isinstance(failed, Exception):
            flight.set_exception(failed)
        else:
            flight.set_result(None)
