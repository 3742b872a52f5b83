"""What is tried once on a target before it is left: a fresh credential, a fresh transport."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from honcho_fallback._failure import FailureKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from honcho_fallback._target import Target


@dataclass(slots=True)
class RecoveryGuards:
    """Note what has been tried on the target at hand; each is tried once (Hermes: TurnRetryState).

    Iterating yields (name, value) pairs in the order of the fields.

    Args:
        credential_refresh: The credential was refreshed.
        transport_recovery: The transport was given time, and rebuilt.
    """

    credential_refresh: bool = False
    transport_recovery: bool = False

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))


@dataclass(frozen=True, slots=True)
class TransportRecovery:
    """Give a lost connection to the primary one more chance before the switch (Hermes).

    After ``wait`` seconds the user's ``rebuild`` is called and the primary asked once more. Not
    for aggregators, which have transports of their own behind them, and not on a fallback.

    Args:
        rebuild: Given the target, it renews what its client stands on; sync (it must not block a
            loop) or async. Where it raises there is no recovery.
        aggregators: Providers that are switched away from at once, lower case.
    """

    rebuild: Callable[[Target], object] | None = None
    aggregators: frozenset[str] = frozenset({"nous", "openrouter"})

    def errand(self, target: Target, kind: FailureKind, retries: int) -> Errand | None:
        """Return what has to be done before the primary is asked again, if that may help.

        Args:
            target: The primary.
            kind: What went wrong.
            retries: Requests repeated before.
        """
        aggregates = (target.provider or "").lower() in self.aggregators
        if aggregates or kind not in {FailureKind.CONNECTION, FailureKind.TIMEOUT}:
            return None
        rebuild = partial(self.rebuild, target) if self.rebuild else bool
        wait, note = min(3.0 + retries, 8.0), "after time for its transport"
        return Errand("rebuild", rebuild, wait=wait, note=note)


@runtime_checkable
class Credential(Protocol):
    """Hold what a target is asked with; `ask` takes it from ``attempt.target.credential``.

    Where ``fingerprint`` (a string that tells keys apart without showing them) is there too, other
    processes know the target as the same. Where ``generation`` (raised by each refresh) and
    ``renew(generation)`` are there, the latter is called instead of ``refresh``: a call that was
    refused with an older one need not refresh again. ``credentials.SingleFlight`` adds all three.
    """

    def get(self) -> Any:
        """Return what is at hand; sync or async, as `ask` expects it."""

    def refresh(self) -> Any:
        """Fetch a new one, for ``get`` to return; sync (in a thread under a loop) or async."""


class Errand(NamedTuple):
    """Say what a driver has to do before the attempt at hand: the machine does no I/O.

    Args:
        what: ``cooldown``, ``refresh`` or ``rebuild``.
        call: Does it in a thread.
        acall: Does it in a task; None where ``call`` may be called there too.
        blocks: Whether ``call`` needs a thread of its own there.
        wait: Seconds to wait before it.
        note: On the attempt that follows.
    """

    what: str
    call: Callable[[], object]
    acall: Callable[[], Awaitable[object]] | None = None
    blocks: bool = False
    wait: float = 0.0
    note: str = ""
