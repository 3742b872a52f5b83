"""The fixture ``scripted``: makes scripts and their steps, and checks that strict ones ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from honcho_fallback.testing._script import Script
from honcho_fallback.testing._script_steps import After, Always, Status, fail

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from honcho_fallback import Target
    from honcho_fallback.testing._clock import Clock

_SHOWN = 60


class Scripted:
    """Make scripts and their steps; what the fixture ``scripted`` is.

    Args:
        clock: The clock that delays move.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._strict: list[Script] = []

    def __call__(
        self,
        steps: Mapping[str | Target, Iterable[Any]] | None = None,
        /,
        *,
        strict: bool = False,
        **more: Iterable[Any],
    ) -> Script:
        """Return a script."""
        merged: dict[str | Target, Iterable[Any]] = {}
        merged.update(steps or {})
        merged.update(more)
        script = Script(merged, self._clock)
        if strict:
            self._strict.append(script)
        return script

    @staticmethod
    def status(
        status: int, *, retry_after: float | None = None, code: str | None = None
    ) -> Status:
        """Return a step that raises an HTTP error in the form of the SDKs.

        Args:
            status: Such as 429.
            retry_after: Seconds for the Retry-After header.
            code: The provider's error code, such as ``insufficient_quota``.
        """
        return Status(status, retry_after, code)

    @staticmethod
    def after(seconds: float, reply: Any) -> After:
        """Return a step, or a chunk, that comes late; beyond the attempt's timeout, a timeout.

        Args:
            seconds: How late, on the clock.
            reply: An answer, an exception or a status.
        """
        return After(seconds, reply)

    @staticmethod
    def hang() -> After:
        """Return a step, or a chunk, that never comes: the attempt's timeout ends it."""
        return After(math.inf)

    @staticmethod
    def always(reply: Any) -> Always:
        """Return a last step that is played for every further request.

        Args:
            reply: An answer, an exception or a status.
        """
        return Always(reply)

    def check(self) -> None:
        """Fail where a strict script was not played to its end; done at the test's teardown."""
        for script in self._strict:
            unplayed = [
                f"{name} has {len(steps)} left, the next is {_short(steps[0])}"
                for name, steps in script.unplayed.items()
            ]
            if unplayed:
                unplayed.append(f"asked was {', '.join(script.asked) or 'nobody'}")
                fail(f"a strict script was not played to its end: {'; '.join(unplayed)}")


def _short(step: Any) -> str:
    shown = repr(step)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
