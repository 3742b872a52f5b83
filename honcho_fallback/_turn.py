"""What a switch lasts for when ``reset="turn"``: one user turn."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

# Holds a reference to a mutable Turn, not a position: what a task or a generator sets in its own
# copy of the context is lost to everybody else, what it writes into a shared object is not.
_current: ContextVar[Turn | None] = ContextVar("honcho_fallback_turn", default=None)


class Turn:
    """Remember how far down the chain one user turn has gone.

    Use it as ``with policy.turn() as turn:`` (or ``async with``), or pass it as ``turn=`` to calls
    in other threads and tasks. Hermes calls this turn-scoped restoration: the next turn starts on
    the primary again, with the whole chain.

    Args:
        owner: The policy that it belongs to.
    """

    __slots__ = ("_closed", "_entered", "_outer", "owner", "position")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.position = 0
        self._outer: Turn | None = None
        self._entered = self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Turn {state}, at position {self.position}>"

    def advance(self, position: int) -> None:
        """Go down the chain, never up: concurrent calls of a turn may finish in any order.

        Args:
            position: Where a call switched to.
        """
        self.position = max(self.position, position)

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a Turn is entered once; ask policy.turn() for a new one")
        self._entered = True
        self._outer = _current.get()
        _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        # Not a token: resetting one raises ValueError where a generator is closed in another
        # context. There the variable holds something else, and is left alone.
        if _current.get() is self:
            _current.set(self._outer)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    @classmethod
    def current(cls, owner: object) -> Turn | None:
        """Find the innermost open turn of a policy in this context.

        Args:
            owner: The policy.
        """
        turn = _current.get()
        while turn is not None and (turn.owner is not owner or turn._closed):  # noqa: SLF001 # its own class
            turn = turn._outer  # noqa: SLF001 # its own class
        return turn
