"""What a switch lasts for: with ``reset="turn"`` one user turn, with a session many."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from honcho_fallback._classify import classify
from honcho_fallback._values.failure import FailureKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Holds a reference to a mutable Turn, not a position: what a task or a generator sets in its own
# copy of the context is lost to everybody else, what it writes into a shared object is not.
current_turn: ContextVar[Turn | None] = ContextVar("honcho_fallback_turn", default=None)


class Place(NamedTuple):
    """Say where a session's turn begins, and how to note where it was answered."""

    session_id: str
    position: int  # of the target whose prompt cache is warm, or 0
    answered: Callable[[int, float, Mapping[str, Any] | None], object]


class Turn:
    """Remember how far down the chain one user turn has gone.

    Use it as ``with policy.turn() as turn:`` (or ``async with``), or pass it as ``turn=`` to calls
    in other threads and tasks. The next turn starts on the primary again, with the whole chain.

    One that is never entered lasts until ``end``, over an interrupt and its resumption too.
    """

    def __init__(self, owner: object, turn_id: str, ended: Callable[[Turn], object]) -> None:
        self.owner = owner  # the policy
        self.turn_id = turn_id
        self.position = 0
        self.place: Place | None = None  # of the session that it is a part of
        self.outcome: Literal["open", "completed", "failed", "cancelled"] = "open"
        self._ended: Callable[[Turn], object] = ended  # is told, once
        self._outer: Turn | None = None
        self._entered = False
        self._unended = iter((True,))

    def __repr__(self) -> str:
        return f"<Turn {self.outcome}, at position {self.position}>"

    def end(self, outcome: Literal["completed", "failed", "cancelled"] = "completed") -> None:
        """End the turn; the first outcome stays, whatever comes late."""
        if next(self._unended, None) is None:  # one step of the interpreter: one thread passes
            return
        self.outcome = outcome
        # Who keeps a turn that is over, to know it again, does not keep its policy's clients.
        ended, self._ended = self._ended, bool
        ended(self)

    def advance(self, position: int, *, failed: int | None = None) -> None:
        """Stay with whom a call asks now; a call that is late does not move the turn back.

        Args:
            position: Where a call goes on.
            failed: Where it comes from. The turn goes up again only with a call that had come to
                where the turn is and found nobody there.
        """
        if position > self.position or failed == self.position:
            self.position = position

    def join(self, place: Place | None) -> None:
        """Be a turn of a session, unless it is one already."""
        if place is not None and self.place is None:
            self.place = place
            self.position = self.position or place.position

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a Turn is entered once; ask policy.turn() for a new one")
        self._entered = True
        self._outer = current_turn.get()
        current_turn.set(self)
        return self

    def __exit__(self, *raised: object) -> None:
        if isinstance(error := raised[1], BaseException):
            cancelled = classify(error).kind is FailureKind.CANCELLED
            self.end("cancelled" if cancelled else "failed")
        self.end()
        # Not a token: resetting one raises ValueError where a generator is closed in another
        # context. There the variable holds something else, and is left alone.
        if current_turn.get() is self:
            current_turn.set(self._outer)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *raised: object) -> None:
        self.__exit__(*raised)

    @classmethod
    def current(cls, owner: object) -> Turn | None:
        """Find the innermost open turn of a policy in this context."""
        turn = current_turn.get()
        while turn is not None and (turn.owner is not owner or turn.outcome != "open"):
            turn = turn._outer  # noqa: SLF001 # its own class
        return turn
