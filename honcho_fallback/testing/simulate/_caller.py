"""Whoever makes calls in a simulation: a policy, or a model of somebody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import CallRecord
    from honcho_fallback.testing.simulate._world import World

    Call = Generator[float, None, CallRecord]


class Session(Protocol):
    """Make the calls of one simulation; what they learn of each other is kept here."""

    def turn(self) -> Any:
        """Open a turn; the calls of one are given the same object."""
        ...

    def call(self, call_id: str, turn: Any, /) -> Call:
        """Make one call: yield the seconds to sleep, return the record."""
        ...


@runtime_checkable
class Caller(Protocol):
    """Make calls against simulated targets."""

    def open(self, world: World, /) -> Session:
        """Start afresh: nothing is known of any target."""
        ...
