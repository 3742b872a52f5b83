"""One table of calls: what each target says, who is asked, and how the call ends."""

from __future__ import annotations

from typing import Any, NamedTuple

from honcho_fallback import FallbackExhausted
from honcho_fallback.testing import StatusError
from tests.helpers.own_rules import of_program, of_provider

P, F, G = "primary", "fallback", "third"
ERROR_429 = StatusError(429, retry_after=30)
ERROR_503 = StatusError(503)
ERROR_400 = StatusError(400)
ERROR_401 = StatusError(401)


class Scenario(NamedTuple):
    name: str
    replies: dict[str, list[Any]]
    order: list[str]
    answer: str | None = None
    error: type[BaseException] | None = None
    outcome: str = "success"
    config: dict[str, Any] = {}  # noqa: RUF012 # never written to
    waits: list[float] | None = None


SCENARIOS = [
    Scenario("HON-001 the primary answers", {P: ["hello"], F: ["no"]}, [P], "hello"),
    Scenario(
        "HON-002 the first failure switches, with no wait",
        {P: [ERROR_503], F: ["hello"]},
        [P, F],
        "hello",
        waits=[0, 0],
    ),
    Scenario(
        "Retry-After is not waited for while another target is free",
        {P: [ERROR_429], F: ["hello"]},
        [P, F],
        "hello",
        waits=[0, 0],
    ),
    Scenario(
        "HON-003 after a switch the primary is not asked again",
        {P: [ERROR_429, "late"], F: [ERROR_503, "hello"]},
        [P, F, F],
        "hello",
    ),
    Scenario(
        "HON-004 when all attempts are used the errors come out",
        {P: [ERROR_429], F: [ERROR_503]},
        [P, F, F],
        error=FallbackExhausted,
        outcome="exhausted",
    ),
    Scenario(
        "HON-005 with one target it is asked again and its own error comes out",
        {P: [ERROR_503]},
        [P, P, P],
        error=StatusError,
        outcome="exhausted",
    ),
    Scenario("HON-005 one target may recover", {P: [ERROR_503, "hello"]}, [P, P], "hello"),
    Scenario(
        "HON-025, HON-042 a caller's bug surfaces at once, after one request",
        {P: [ERROR_400], F: ["no"]},
        [P],
        error=StatusError,
        outcome="rejected",
    ),
    Scenario(
        "a program's own bug surfaces at once",
        {P: [KeyError("x")], F: ["no"]},
        [P],
        error=KeyError,
        outcome="rejected",
    ),
    Scenario(
        "a dead key switches and is not asked twice",
        {P: [ERROR_401], F: ["hello"]},
        [P, F],
        "hello",
    ),
    Scenario(
        "a dead key at the chain's end is not asked again",
        {P: [ERROR_503], F: [ERROR_401]},
        [P, F],
        error=FallbackExhausted,
        outcome="exhausted",
    ),
    Scenario(
        "G-22 what a fallback calls a caller's bug goes on to the next target",
        {P: [ERROR_503], F: [ERROR_400], G: ["hello"]},
        [P, F, G],
        "hello",
    ),
    Scenario(
        "G-22 at the chain's end a fallback's 400 comes out inside the group",
        {P: [ERROR_503], F: [ERROR_400]},
        [P, F],
        error=FallbackExhausted,
        outcome="exhausted",
    ),
    Scenario(
        "a fallback's own bug ends the call even where another target is free",
        {P: [ERROR_503], F: [KeyError("x")], G: ["no"]},
        [P, F],
        error=KeyError,
        outcome="rejected",
    ),
    Scenario(
        "HON-008 a chain may be longer than two",
        {P: [ERROR_503], F: [ERROR_401], G: ["hello"]},
        [P, F, G],
        "hello",
    ),
    Scenario(
        "switch_after gives the primary a second chance",
        {P: [ERROR_503, "hello"], F: ["no"]},
        [P, P],
        "hello",
        config={"switch_after": 2},
    ),
    Scenario(
        "switch_after counts per target, then switches",
        {P: [ERROR_503], F: ["hello"]},
        [P, P, F],
        "hello",
        config={"switch_after": {"overloaded": 2}},
    ),
    Scenario(
        "switch_after counts anew for the next target",
        {P: [ERROR_503], F: [ERROR_503], G: ["hello"]},
        [P, P, F, F, G],
        "hello",
        config={"switch_after": 2, "max_attempts": 6},
    ),
    Scenario(
        "switch_after of another kind does not hold the switch back",
        {P: [ERROR_503], F: ["hello"]},
        [P, F],
        "hello",
        config={"switch_after": {"timeout": 2}},
    ),
    Scenario(
        "switch_after does not wait for a long Retry-After",
        {P: [ERROR_429], F: ["hello"]},
        [P, F],
        "hello",
        config={"switch_after": 2},
    ),
    Scenario(
        "switch_after does not ask a dead key again",
        {P: [ERROR_401], F: ["hello"]},
        [P, F],
        "hello",
        config={"switch_after": 2},
    ),
    Scenario(
        "max_attempts counts all targets together",
        {P: [ERROR_503], F: [ERROR_503], G: ["never"]},
        [P, F],
        error=FallbackExhausted,
        outcome="exhausted",
        config={"max_attempts": 2},
    ),
    Scenario(
        "HON-046 with one attempt it is the primary that is asked",
        {P: ["hello"], F: ["no"]},
        [P],
        "hello",
        config={"max_attempts": 1},
    ),
    Scenario(
        "Retry-After is obeyed up to its cap where nobody else is free",
        {P: [ERROR_429, "hello"]},
        [P, P],
        "hello",
        config={"retry_after_cap": 0.01},
        waits=[0, 0.01],
    ),
    Scenario(
        "fallback_on narrows what switches",
        {P: [ERROR_503], F: ["no"]},
        [P],
        error=StatusError,
        outcome="rejected",
        config={"fallback_on": {"rate_limit"}},
    ),
    Scenario(
        "fallback_on widens what switches",
        {P: [ERROR_400], F: ["hello"]},
        [P, F],
        "hello",
        config={"fallback_on": {"invalid_request"}},
    ),
    Scenario(
        "on_exhausted='last' raises the last provider error",
        {P: [ERROR_429], F: [ERROR_401]},
        [P, F],
        error=StatusError,
        outcome="exhausted",
        config={"on_exhausted": "last"},
    ),
    Scenario(
        "a rule settles what is the program's own",
        {P: [ERROR_503], F: ["no"]},
        [P],
        error=StatusError,
        outcome="rejected",
        config={"rules": of_program(StatusError)},
    ),
    Scenario(
        "a rule by default settles what a provider raises",
        {P: [LookupError("odd client")], F: ["hello"]},
        [P, F],
        "hello",
        config={"rules": of_provider(LookupError)},
    ),
]
