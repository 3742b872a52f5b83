"""One table of calls: what each target says, who is asked, and how the call ends."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from honcho_fallback import FallbackExhausted
from honcho_fallback.testing import StatusError
from tests.helpers.own_rules import of_program, of_provider

P, F, G = "primary", "fallback", "third"
ERROR_429 = StatusError(429, retry_after=30)
ERROR_503 = StatusError(503)
SAID: dict[str, Any] = {
    "429": ERROR_429,
    "503": ERROR_503,
    "400": StatusError(400),
    "401": StatusError(401),
    "bug": KeyError("x"),
    "odd": LookupError("odd client"),
}
# What comes out of a call that nobody answers, and its outcome.
ENDS: dict[str, tuple[type[BaseException], str]] = {
    "group": (FallbackExhausted, "exhausted"),
    "last": (StatusError, "exhausted"),
    "own": (StatusError, "rejected"),
    "bug": (KeyError, "rejected"),
}


class Scenario(NamedTuple):
    name: str
    replies: dict[str, list[Any]]
    order: list[str]
    answer: str | None
    error: type[BaseException] | None
    outcome: str
    config: dict[str, Any]
    waits: list[float]


ROWS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("scenarios.toml").read_text(encoding="utf-8")
)
WITH_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    **ROWS["with_options"],
    "a rule settles what is the program's own": (
        "503 / no -> P own",
        {"rules": of_program(StatusError)},
    ),
    "a rule by default settles what a provider raises": (
        "odd / hello -> PF",
        {"rules": of_provider(LookupError)},
    ),
}


def _scenario(name: str, row: str, config: dict[str, Any]) -> Scenario:
    said, _, then = row.partition(" -> ")
    asked, *ends = then.split()
    error, outcome = ENDS[ends[0]] if ends else (None, "success")
    return Scenario(
        name=name,
        replies={
            target: [SAID.get(word, word) for word in words.split()]
            for target, words in zip((P, F, G), said.split("/"), strict=False)
        },
        order=[{"P": P, "F": F, "G": G}[letter] for letter in asked],
        answer=None if ends else "hello",
        error=error,
        outcome=outcome,
        config=config,
        waits=[0, *[config.get("retry_after_cap", 0)] * (len(asked) - 1)],
    )


SCENARIOS = [
    *(_scenario(name, row, {}) for name, row in ROWS["plain"].items()),
    *(_scenario(name, row, options) for name, (row, options) in WITH_OPTIONS.items()),
]
