"""What a provider's error means, and what the default policy does about it."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import tenacity
from rich.table import Table
from rich.text import Text

from honcho_fallback import (
    Failure,
    FallbackConfig,
    FallbackPolicy,
    Target,
    classify,
)
from honcho_fallback.cli._facts import ProviderError
from honcho_fallback.redaction import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from honcho_fallback.cli._facts import Response

_PRIMARY = Target("primary", context_window=8_000)
_CHAINS: Mapping[str, tuple[Target, ...]] = {
    "with one target": (_PRIMARY,),
    "with a fallback": (_PRIMARY, Target("fallback")),
    "with a fallback of no larger context window": (
        _PRIMARY,
        Target("fallback", context_window=8_000),
    ),
}

LONGEST_WAIT = tenacity.wait_exponential(multiplier=0.5, max=8)  # the default's, without jitter


class Verdict(NamedTuple):
    """Say what the default policy does after the failure.

    Args:
        chain: Which targets there are, in words.
        action: ``switch``, ``retry`` or ``raise``.
        wait: Seconds before the next attempt, at most if it is random, or None.
        raises: Class of what the caller gets, or None.
        is_random: Whether the policy draws a wait up to that.
    """

    chain: str
    action: str
    wait: float | None
    raises: str | None
    is_random: bool = False

    def __str__(self) -> str:
        at_most = "up to " if self.is_random else ""
        return {
            "switch": f"asks the fallback after {self.wait or 0:g} s",
            "retry": f"asks the same target again after {at_most}{self.wait or 0:g} s",
            "raise": f"gives up: the caller gets {self.raises}",
        }[self.action]


class Explanation(NamedTuple):
    """Hold the failure and the verdicts.

    Args:
        failure: What the classifier makes of the facts.
        verdicts: What the default policy does, per chain.
    """

    failure: Failure
    verdicts: tuple[Verdict, ...]


def explain(response: Response, config: FallbackConfig) -> Explanation:
    """Ask the classifier, and a real run of the default policy per chain."""
    failure = classify(ProviderError(response), rules=config.rules)
    # A trial run logs its switch, and nobody has set up where to.
    logging.getLogger("honcho_fallback").addHandler(logging.NullHandler())
    alone, plain, as_small = (_verdict(words, response, config) for words in _CHAINS)
    # The window is worth a line only where it makes a difference.
    shown = (alone, plain) if plain[1:] == as_small[1:] else (alone, plain, as_small)
    return Explanation(failure, shown)


def to_json(explanation: Explanation) -> str:
    """Return the explanation as a JSON object."""
    policy = {verdict.chain: verdict._asdict() for verdict in explanation.verdicts}
    document = {**_failure_fields(explanation.failure), "policy": policy}
    return json.dumps(document, indent=2)


def show(explanation: Explanation, console: Console) -> None:
    """Print the explanation for a person."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = _failure_fields(explanation.failure)
    rows |= {verdict.chain: verdict for verdict in explanation.verdicts}
    for name, value in rows.items():
        table.add_row(name.replace("_", " "), _text(value))
    console.print(table)


def _verdict(words: str, response: Response, config: FallbackConfig) -> Verdict:
    # Without its jitter the policy says the same each time.
    run = FallbackPolicy(_CHAINS[words], config, agent="explain").start(wait=LONGEST_WAIT)
    attempt = run.attempt
    try:
        following = run.fail(ProviderError(response))
    except Exception as error:  # noqa: BLE001 # whatever comes out is what the caller would get
        return Verdict(words, "raise", None, type(error).__name__)
    run.cancel()
    if following.position > attempt.position:
        return Verdict(words, "switch", following.wait, None)
    is_random = run.record.attempts[0].retry_after is None
    return Verdict(words, "retry", following.wait, None, is_random)


def _failure_fields(failure: Failure) -> dict[str, Any]:
    meaning = {"cause": failure.cause, "next_action": failure.next_action}
    fields = failure._asdict() | {"kind": failure.kind.value} | meaning
    del fields["error"], fields["by_rule"]  # of the stand-in that carried the facts
    return fields


def _text(value: object) -> Text:
    """Show a value as it is: what a provider wrote may look like markup, or act on a terminal."""
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text("-" if value in {None, ""} else plain(str(value)))
