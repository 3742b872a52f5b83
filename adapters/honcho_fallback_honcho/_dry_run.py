"""A call that is not made: its requests, in which order and after which waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from honcho_fallback import CredentialError, FallbackConfigError, FallbackError, FallbackPolicy
from honcho_fallback.simulate import load_policy
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from honcho_fallback import CallRecord
    from honcho_fallback_honcho._loaders import Reading

_WHOSE = (
    "With load_policies(), and in Honcho with policy_from(); "
    "without them the fallback is asked in the last of three attempts."
)
_WORDS: dict[str, Callable[[], Exception]] = {
    "timeout": TimeoutError,
    "connection": ConnectionResetError,
}


def rehearse(
    reading: Reading, agent: str, outcomes: Sequence[str], preset: str
) -> tuple[CallRecord, str]:
    """Ask a real run of the agent's policy what it would do, and say how the call would end."""
    if agent not in reading.chains:
        raise FallbackConfigError.unknown(agent, reading.chains, "agent")
    config = load_policy(preset)[1]
    chain = reading.chains[agent]
    targets = [planned.target for planned in chain]
    errors = [_error(outcome) for outcome in outcomes]
    if len(errors) > len(targets):
        raise FallbackConfigError.about(
            "--fail", f"given {len(errors)} times", f"{agent} has {len(targets)} targets"
        )
    # A target without its key cannot answer.
    rest = [CredentialError("no key") if one.key == "missing" else None for one in chain]
    errors += rest[len(errors) :]
    policy = FallbackPolicy(targets, config, agent=agent)
    run = policy.start(turn=policy.turn())
    attempt = run.attempt
    try:
        while (error := errors[attempt.position]) is not None:
            attempt = run.fail(error)
            while run.pending is not None:  # a fresh token, a new connection: it would succeed
                attempt = run.resume()
    except Exception as raised:  # noqa: BLE001 # the dry run shows any end
        is_ours = isinstance(raised, FallbackError)
        what = type(raised).__name__ if is_ours else "the provider's own error"
        return run.record, f"Nobody answers: {run.outcome}, the caller gets {what}."
    run.succeed()
    return run.record, f"{attempt.target.name} answers."


def show(record: CallRecord, end: str, console: Console) -> None:
    """Print it for a person."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for head in ("", "asked", "after", "says"):
        table.add_column(head, style="dim", overflow="fold")
    for number, attempt in enumerate(record.attempts, start=1):
        failed_with = " ".join(str(fact) for fact in (attempt.status, attempt.kind) if fact)
        style = "red" if failed_with else "green"
        says = Text.assemble((failed_with or "answers", style))
        if attempt.note:
            says.append(f" ({attempt.note})")
        wait = f"{attempt.wait:.2f} s" if attempt.wait else "0 s"
        table.add_row(Text(str(number)), Text(attempt.target), Text(wait), says)
    for name, why in record.untried:
        table.add_row(Text("-"), Text(name), Text(""), Text(f"never asked: {why}"))
    console.print(Text(f"\n{_WHOSE}"), table)
    console.print(Text(end, "bold green" if record.answered_by else "bold red"))


def _error(outcome: str) -> Exception | None:
    if outcome == "ok":
        return None
    if outcome in _WORDS:
        return _WORDS[outcome]()
    if outcome.isascii() and outcome.isdigit() and 400 <= int(outcome) <= 599:
        return StatusError(int(outcome))
    raise FallbackConfigError.about(
        "--fail", f"got {outcome!r}", f"pass 400 to 599, {', '.join(_WORDS)} or ok"
    )
