"""A call that is not made: its requests, in which order and after which waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table
from rich.text import Text

from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackPolicy, classify
from honcho_fallback.cli._facts import Facts, ProviderError, without_log_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from honcho_fallback_honcho._policies import HonchoSettings

PRESETS: dict[str, Callable[[], FallbackConfig]] = {
    "honcho": FallbackConfig.honcho,
    "default": FallbackConfig,
    "resilient": FallbackConfig.resilient,
    "honcho_main": FallbackConfig.honcho_main,
    "hermes": FallbackConfig.hermes,
}
_WORDS: dict[str, Callable[[], Exception]] = {
    "timeout": TimeoutError,
    "connection": ConnectionResetError,
}


class PlannedRequest(NamedTuple):
    """Hold one request that would be made.

    Args:
        target: The target's name.
        wait: Seconds before the request.
        result: The target's answer or failure, in a few words.
    """

    target: str
    wait: float
    result: str


class DryRun(NamedTuple):
    """Hold a call that was not made.

    Args:
        requests: The requests in order.
        end: How it would end, in words.
        answered: Whether a target would answer.
    """

    requests: tuple[PlannedRequest, ...]
    end: str
    answered: bool


def plan(settings: HonchoSettings, agent: str, fails: Sequence[str], preset: str) -> DryRun:
    """Ask a real run of the agent's policy what it would do."""
    chains = {one.slot.name: one.chain for one in settings.agents}
    if agent not in chains:
        raise FallbackConfigError.about(
            "--agent", f"got {agent!r}", f"choose from {', '.join(chains)}"
        )
    if preset not in PRESETS:
        raise FallbackConfigError.about(
            "--preset", f"got {preset!r}", f"choose from {', '.join(PRESETS)}"
        )
    errors = [_error(outcome) for outcome in fails]
    targets = [planned.target for planned in chains[agent]]
    if len(errors) > len(targets):
        raise FallbackConfigError.about(
            "--fail", f"given {len(errors)} times", f"{agent} has {len(targets)} targets"
        )
    policy = FallbackPolicy(targets, PRESETS[preset](), agent=agent)
    run = policy.start(turn=policy.turn())
    requests: list[PlannedRequest] = []
    attempt = run.attempt
    with without_log_lines():
        while True:
            error = errors[attempt.position] if attempt.position < len(errors) else None
            if error is None:
                run.succeed()
                requests.append(PlannedRequest(attempt.target.name, attempt.wait, "answers"))
                end = f"{attempt.target.name} answers."
                return DryRun(tuple(requests), end, answered=True)
            failure = classify(error)
            result = " ".join(str(fact) for fact in (failure.status, failure.kind.value) if fact)
            requests.append(PlannedRequest(attempt.target.name, attempt.wait, result))
            try:
                attempt = run.fail(error)
            except Exception as raised:  # noqa: BLE001 # the dry run shows any end
                end = f"Nobody answers: {run.record.outcome}, the caller gets {_name(raised)}."
                return DryRun(tuple(requests), end, answered=False)


def show(dry_run: DryRun, console: Console) -> None:
    """Print it for a person."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for head in ("", "asked", "after", "says"):
        table.add_column(head, style="dim", overflow="fold")
    for number, request in enumerate(dry_run.requests, start=1):
        style = "green" if request.result == "answers" else "red"
        wait = Text(f"{request.wait:.2f} s" if request.wait else "0 s")
        table.add_row(
            Text(str(number)), Text(request.target), wait, Text(request.result, style=style)
        )
    console.print(table)
    console.print(Text(dry_run.end, style="bold green" if dry_run.answered else "bold red"))


def _error(outcome: str) -> Exception | None:
    if outcome == "ok":
        return None
    if outcome in _WORDS:
        return _WORDS[outcome]()
    if outcome.isascii() and outcome.isdigit() and 400 <= int(outcome) <= 599:
        return ProviderError(Facts(status=int(outcome)))
    raise FallbackConfigError.about(
        "--fail", f"got {outcome!r}", f"pass 400 to 599, {', '.join(_WORDS)} or ok"
    )


def _name(raised: Exception) -> str:
    name = type(raised).__name__
    return "the provider's own error" if isinstance(raised, ProviderError) else name
