"""A call that is not made: who would be asked, in which order, after which waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table
from rich.text import Text

from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackPolicy, classify
from honcho_fallback.cli._facts import Facts, ProviderError
from honcho_fallback.cli._log import kept_log_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from honcho_fallback.settings._load import HonchoSettings

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


class Asked(NamedTuple):
    """Hold one request that would be made.

    Args:
        target: Its name.
        wait: Seconds before it.
        said: What it would be told, in a few words.
    """

    target: str
    wait: float
    said: str


class DryRun(NamedTuple):
    """Hold a call that was not made.

    Args:
        asked: The requests in order.
        end: How it would end, in words.
        answered: Whether somebody would answer.
    """

    asked: tuple[Asked, ...]
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
    errors = [_error(given) for given in fails]
    targets = [planned.target for planned in chains[agent]]
    if len(errors) > len(targets):
        raise FallbackConfigError.about(
            "--fail", f"given {len(errors)} times", f"{agent} has {len(targets)} targets"
        )
    policy = FallbackPolicy(targets, PRESETS[preset](), agent=agent)
    run = policy.start(turn=policy.turn())
    asked: list[Asked] = []
    attempt = run.attempt
    with kept_log_lines():
        while True:
            error = errors[attempt.position] if attempt.position < len(errors) else None
            if error is None:
                run.succeed()
                asked.append(Asked(attempt.target.name, attempt.wait, "answers"))
                return DryRun(tuple(asked), f"{attempt.target.name} answers.", answered=True)
            failure = classify(error)
            said = " ".join(str(fact) for fact in (failure.status, failure.kind.value) if fact)
            asked.append(Asked(attempt.target.name, attempt.wait, said))
            try:
                attempt = run.fail(error)
            except Exception as raised:  # noqa: BLE001 # how it ends is what is shown
                end = f"Nobody answers: {run.record.outcome}, the caller gets {_name(raised)}."
                return DryRun(tuple(asked), end, answered=False)


def show(dry_run: DryRun, console: Console) -> None:
    """Print it for a person."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for head in ("", "asked", "after", "says"):
        table.add_column(head, style="dim", overflow="fold")
    for number, one in enumerate(dry_run.asked, start=1):
        style = "green" if one.said == "answers" else "red"
        wait = Text(f"{one.wait:.2f} s" if one.wait else "0 s")
        table.add_row(Text(str(number)), Text(one.target), wait, Text(one.said, style=style))
    console.print(table)
    console.print(Text(dry_run.end, style="bold green" if dry_run.answered else "bold red"))


def _error(given: str) -> Exception | None:
    if given == "ok":
        return None
    if given in _WORDS:
        return _WORDS[given]()
    if given.isascii() and given.isdigit() and 400 <= int(given) <= 599:
        return ProviderError(Facts(status=int(given)))
    raise FallbackConfigError.about(
        "--fail", f"got {given!r}", f"pass 400 to 599, {', '.join(_WORDS)} or ok"
    )


def _name(raised: Exception) -> str:
    name = type(raised).__name__
    return "the provider's own error" if isinstance(raised, ProviderError) else name
