"""Keep what an adapter's calls were, where the adapter makes them and not the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback.cli._played import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from honcho_fallback import CallRecord, CallStart, Switch
    from honcho_fallback.cli._stage import Stage


class Ledger:
    """Observe calls, one after the other, and count what each cost the simulated primary.

    Args:
        stage: Where they are made.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._before: int | None = None
        self._kept: list[tuple[CallRecord, int | None]] = []

    def on_start(self, call: CallStart) -> None:  # noqa: ARG002 # an observer's
        """Note what the primary saw before."""
        self._before = self._stage.seen()

    def on_switch(self, switch: Switch) -> None:
        """Pass: the record tells of it."""

    def on_finish(self, record: CallRecord) -> None:
        """Keep a call that is over."""
        after = self._stage.seen()
        seen = None if self._before is None or after is None else after - self._before
        self._kept.append((record, seen))

    def calls(self, said: Sequence[str], error: str | None) -> list[Call]:
        """Return the calls with what was said.

        Args:
            said: The answers, in order; with an error fewer than calls.
            error: Class of what the last call raised, or None.
        """
        answered = len(self._kept) - (error is not None)
        texts = [*said, *[""] * len(self._kept)]
        return [
            Call(record, seen, texts[number], error if number >= answered else None)
            for number, (record, seen) in enumerate(self._kept)
        ]


def played(stage: Stage, ask: Callable[[Ledger], Sequence[str]]) -> list[Call]:
    """Make calls through an adapter and return what became of them.

    Args:
        stage: Where.
        ask: Makes the calls with the ledger among the observers, and returns what was said.

    Raises:
        Exception: What was raised before anybody was asked.
    """
    ledger = Ledger(stage)
    said: Sequence[str] = ()
    error: str | None = None
    try:
        said = ask(ledger)
    except Exception as raised:  # how a call ends is what is shown and judged
        error = type(raised).__name__
        if not ledger.calls((), error):
            raise  # nobody was asked: that is no end of a call
    return ledger.calls(said, error)
