"""What a provider's error means, and what the default policy does about it."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import tenacity
from rich.table import Table
from rich.text import Text

from honcho_fallback import (
    Failure,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    Target,
    classify,
)
from honcho_fallback.redaction import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

_PRIMARY = Target("primary")
_CHAINS: Mapping[str, tuple[Target, ...]] = {
    "with one target": (_PRIMARY,),
    "with a fallback": (_PRIMARY, Target("fallback")),
}

LONGEST_WAIT = tenacity.wait_exponential(multiplier=0.5, max=8)  # the default's, without jitter


class Response(NamedTuple):
    """Hold what is known of a failed response, where SDKs' responses have it."""

    status_code: int | None
    headers: dict[str, str]
    body: Any


class ProviderError(Exception):
    """Carry the facts of a response where SDKs carry them."""

    def __init__(self, response: Response) -> None:
        body = response.body
        super().__init__(body if isinstance(body, str) else json.dumps(body) if body else "")
        self.status_code, self.body, self.response = response.status_code, body, response


def read_response(status: int | None, body: str | None, header: Sequence[str]) -> Response:
    """Read the facts from the options; a body of ``-`` is standard input."""
    if status is None and body is None and not header:
        raise FallbackConfigError.about("explain", "no facts", "give --status, --body or --header")
    headers: dict[str, str] = {}
    for line in header:
        name, colon, value = line.partition(":")
        if not (colon and name.strip()):
            problem, fix = f"{line!r} is no header", "write it as 'name: value'"
            raise FallbackConfigError.about("--header", problem, fix)
        headers[name.strip().lower()] = value.strip()
    # Bytes: a body of another encoding is a body, too.
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if body == "-" else body
    try:
        return Response(status, headers, None if text is None else json.loads(text))
    except ValueError as error:
        # A gateway's page or sentence is the body as it is; JSON that a shell has spoilt is none.
        if not str(text).lstrip().startswith(("{", "[", '"', "'")):
            return Response(status, headers, text)
        fix = "correct it" if body == "-" else "quote it for your shell, or pass - and pipe it in"
        raise FallbackConfigError.about("--body", f"no JSON ({error})", fix) from None


class Verdict(NamedTuple):
    """Say what the default policy does after the failure."""

    action: str  # switch, retry or raise
    wait: float | None  # seconds before the next attempt
    raises: str | None  # class of what the caller gets
    is_random: bool = False  # whether the policy draws a wait up to that

    def __str__(self) -> str:
        at_most = "up to " if self.is_random else ""
        return {
            "switch": f"asks the fallback after {self.wait or 0:g} s",
            "retry": f"asks the same target again after {at_most}{self.wait or 0:g} s",
            "raise": f"gives up: the caller gets {self.raises}",
        }[self.action]


def explain(response: Response, config: FallbackConfig) -> dict[str, Any]:
    """Ask the classifier, and a real run of the default policy per chain."""
    failure = classify(ProviderError(response), rules=config.rules)
    # A trial run logs its switch, and nobody has set up where to.
    logging.getLogger("honcho_fallback").addHandler(logging.NullHandler())
    verdicts = {words: _verdict(words, response, config) for words in _CHAINS}
    return {**_failure_fields(failure), "policy": verdicts}


def to_json(explanation: Mapping[str, Any]) -> str:
    """Return the explanation as a JSON object."""
    policy = {words: verdict._asdict() for words, verdict in explanation["policy"].items()}
    return json.dumps({**explanation, "policy": policy}, indent=2)


def show(explanation: Mapping[str, Any], console: Console) -> None:
    """Print the explanation for a person."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = {name: value for name, value in explanation.items() if name != "policy"}
    for name, value in {**rows, **explanation["policy"]}.items():
        table.add_row(name.replace("_", " "), _text(value))
    console.print(table)


def _verdict(words: str, response: Response, config: FallbackConfig) -> Verdict:
    # Without its jitter the policy says the same each time.
    run = FallbackPolicy(_CHAINS[words], config, agent="explain").start(wait=LONGEST_WAIT)
    attempt = run.attempt
    try:
        following = run.fail(ProviderError(response))
    except Exception as error:  # noqa: BLE001 # whatever comes out is what the caller would get
        return Verdict("raise", None, type(error).__name__)
    run.cancel()
    if following.position > attempt.position:
        return Verdict("switch", following.wait, None)
    is_random = run.record.attempts[0].retry_after is None
    return Verdict("retry", following.wait, None, is_random)


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
