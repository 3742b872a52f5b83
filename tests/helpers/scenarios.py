"""One table of calls: what each target says, who is asked, and how the call ends."""

from __future__ import annotations

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


# What each target says in turn, its last reply for the rest; who is asked; how it ends, if not
# with an answer.
PLAIN = {
    "HON-001 the primary answers": "hello / no -> P",
    "HON-002 the first failure switches, with no wait": "503 / hello -> PF",
    "Retry-After is not waited for while another target is free": "429 / hello -> PF",
    "HON-003 after a switch the primary is not asked again": "429 late / 503 hello -> PFF",
    "HON-004 when all attempts are used the errors come out": "429 / 503 -> PFF group",
    "HON-005 with one target it is asked again and its own error comes out": "503 -> PPP last",
    "HON-005 one target may recover": "503 hello -> PP",
    "HON-025, HON-042 a caller's bug surfaces at once, after one request": "400 / no -> P own",
    "a program's own bug surfaces at once": "bug / no -> P bug",
    "a dead key switches and is not asked twice": "401 / hello -> PF",
    "a dead key at the chain's end is not asked again": "503 / 401 -> PF group",
    "G-22 what a fallback calls a caller's bug goes on to the next target": "503/400/hello -> PFG",
    "G-22 at the chain's end a fallback's 400 comes out inside the group": "503 / 400 -> PF group",
    "a fallback's own bug ends the call even where another target is free": "503/bug/no -> PF bug",
    "HON-008 a chain may be longer than two": "503 / 401 / hello -> PFG",
}
# The same with options.
WITH_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "switch_after gives the primary a second chance": (
        "503 hello / no -> PP",
        {"switch_after": 2},
    ),
    "switch_after counts per target, then switches": (
        "503 / hello -> PPF",
        {"switch_after": {"overloaded": 2}},
    ),
    "switch_after counts anew for the next target": (
        "503 / 503 / hello -> PPFFG",
        {"switch_after": 2, "max_attempts": 6},
    ),
    "switch_after of another kind does not hold the switch back": (
        "503 / hello -> PF",
        {"switch_after": {"timeout": 2}},
    ),
    "switch_after does not wait for a long Retry-After": (
        "429 / hello -> PF",
        {"switch_after": 2},
    ),
    "switch_after does not ask a dead key again": ("401 / hello -> PF", {"switch_after": 2}),
    "max_attempts counts all targets together": (
        "503 / 503 / never -> PF group",
        {"max_attempts": 2},
    ),
    "HON-046 with one attempt it is the primary that is asked": (
        "hello / no -> P",
        {"max_attempts": 1},
    ),
    "Retry-After is obeyed up to its cap where nobody else is free": (
        "429 hello -> PP",
        {"retry_after_cap": 0.01},
    ),
    "fallback_on narrows what switches": ("503 / no -> P own", {"fallback_on": {"rate_limit"}}),
    "fallback_on widens what switches": (
        "400 / hello -> PF",
        {"fallback_on": {"invalid_request"}},
    ),
    "on_exhausted='last' raises the last provider error": (
        "429 / 401 -> PF last",
        {"on_exhausted": "last"},
    ),
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
    *(_scenario(name, row, {}) for name, row in PLAIN.items()),
    *(_scenario(name, row, options) for name, (row, options) in WITH_OPTIONS.items()),
]
