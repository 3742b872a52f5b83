"""What the demo is made of: targets, calls, what was expected of them, whether it came true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import ExitStack

    from honcho_fallback import CallRecord, Target
    from honcho_fallback.cli._stage import Stage


class Endpoint(NamedTuple):
    """Tell where a target is and how it is spoken to.

    Args:
        name: What to call it, where the choice is ours.
        model: The model's name.
        provider: Who serves it.
        wire: Whose protocol it speaks, ``openai`` or ``anthropic``.
        base_url: On this machine, with no key; None for the provider's own, with its key from the
            environment.
        params: What its requests carry.
    """

    name: str
    model: str
    provider: str
    wire: str
    base_url: str | None
    params: Mapping[str, Any]


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


class Demo(NamedTuple):
    """Say how the demo is played through the core or through an adapter.

    Args:
        connect: Makes a target of an endpoint; what has to be closed goes on the stack.
        scenarios: What is called.
    """

    connect: Callable[[Endpoint, ExitStack], Target]
    scenarios: tuple[Scenario, ...]


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
    """Return 0 only if something was played and all of it ended as it should."""
    return 0 if played and all(one.ok for one in played) else 1
