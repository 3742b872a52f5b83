"""What the demo keeps: calls, what was expected of them, and whether it came true."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from honcho_fallback import CallRecord
    from honcho_fallback.cli._stage import Stage


class Call(NamedTuple):
    """Hold one call that was made.

    Args:
        record: What the policy tells of it.
        seen: Requests that reached the simulated primary for it, or None with real providers.
        said: The answer, shortened by nobody.
        error: Class of what the caller got instead of an answer, or None.
    """

    record: CallRecord
    seen: int | None
    said: str = ""
    error: str | None = None


class Check(NamedTuple):
    """Compare what should have happened with what did.

    Args:
        what: In words.
        expected: What should be.
        found: What is.
    """

    what: str
    expected: object
    found: object

    @property
    def ok(self) -> bool:
        """Tell whether they agree."""
        return self.expected == self.found


class Scenario(NamedTuple):
    """Pair some calls with how they should end.

    Args:
        name: One word or two.
        title: What is called.
        fault: What goes wrong, where the primary is simulated.
        play: Makes the calls.
        check: Judges them, where the primary is simulated.
    """

    name: str
    title: str
    fault: str
    play: Callable[[Stage], list[Call]]
    check: Callable[[Sequence[Call]], list[Check]]


class Played(NamedTuple):
    """Hold what became of a scenario.

    Args:
        scenario: Which.
        calls: What was called.
        checks: What was expected.
        log: The lines the package logged.
    """

    scenario: Scenario
    calls: list[Call]
    checks: list[Check]
    log: list[str]

    @property
    def simulated(self) -> bool:
        """Tell whether the primary was simulated."""
        return any(call.seen is not None for call in self.calls)

    @property
    def ok(self) -> bool:
        """Tell whether everything ended as it should."""
        return all(check.ok for check in self.checks)


def exit_status(played: Sequence[Played]) -> int:
    """Return 0 only if something was played and all of it ended as it should.

    Args:
        played: Everything.
    """
    return 0 if played and all(one.ok for one in played) else 1
