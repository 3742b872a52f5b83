"""One table of scenarios, driven over call, acall, stream and astream."""

from __future__ import annotations

import socket
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import openai
import pytest

from honcho_fallback import FallbackConfig, FallbackExhausted, FallbackPolicy, Target
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from honcho_fallback import Attempt

P, F, G = "primary", "fallback", "third"
ERROR_429 = StatusError(429, retry_after=30)
ERROR_503 = StatusError(503)
ERROR_400 = StatusError(400)
ERROR_401 = StatusError(401)


class Scenario(NamedTuple):
    name: str
    said: dict[str, list[Any]]
    asked: list[str]
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
        "local_errors settle what is the program's own",
        {P: [ERROR_503], F: ["no"]},
        [P],
        error=StatusError,
        outcome="rejected",
        config={"local_errors": (StatusError,)},
    ),
    Scenario(
        "provider_errors settle what a provider raises",
        {P: [LookupError("odd client")], F: ["hello"]},
        [P, F],
        "hello",
        config={"provider_errors": (LookupError,)},
    ),
]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario, driver: str) -> None:
    """Every driver asks the same targets in the same order and ends the same way."""
    script = repeating(**scenario.said)
    config = FallbackConfig(**{"wait": 0, **scenario.config})
    policy = FallbackPolicy([Target(name) for name in scenario.said], config)
    run = policy.start()
    if scenario.error is None:
        assert DRIVERS[driver](policy, script, run) == scenario.answer
        assert run.record.answered_by == scenario.asked[-1]
    else:
        with pytest.raises(scenario.error):
            DRIVERS[driver](policy, script, run)
        assert run.record.answered_by is None
    record = run.record
    assert script.asked == scenario.asked
    assert [attempt.target for attempt in record.attempts] == scenario.asked
    assert record.outcome == scenario.outcome
    assert record.is_fallback == (record.answered_by in {F, G})
    attempts = [request.attempt for request in script.requests]
    assert [attempt.number for attempt in attempts] == list(range(1, len(script.asked) + 1))
    if scenario.waits is not None:
        assert [attempt.wait for attempt in attempts] == scenario.waits


def test_exhaustion_carries_every_error_the_record_and_the_last_cause() -> None:
    """HON-043, HON-004: callers can catch the providers' own types, and see the attempts."""
    script = repeating(primary=[ERROR_429], fallback=[ERROR_503])
    policy = FallbackPolicy([Target(P), Target(F)], FallbackConfig(wait=0))
    with pytest.raises(FallbackExhausted) as caught:
        policy.call(script.ask)
    error = caught.value
    assert error.exceptions == (ERROR_429, ERROR_503, ERROR_503)
    assert error.__cause__ is ERROR_503
    assert [attempt.kind for attempt in error.attempts] == [
        "rate_limit",
        "overloaded",
        "overloaded",
    ]
    assert error.split(lambda member: member is ERROR_429)[0].record is error.record  # type: ignore[union-attr] # it has such a member


def test_the_traceback_of_an_exhaustion_can_be_read() -> None:
    """Two SDKs that found nobody: who failed is on a page, and every cause is still there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    client = openai.OpenAI(base_url=address, api_key="x", max_retries=0)

    def ask(attempt: Attempt) -> Any:
        return client.chat.completions.create(model=attempt.target.model, messages=[])

    with client, pytest.raises(FallbackExhausted) as caught:
        FallbackPolicy([Target(P), Target(F)], max_attempts=2).call(ask)
    error = caught.value
    shown = "".join(traceback.format_exception(error))
    assert len(shown.splitlines()) < 60, shown
    for member in error.exceptions:
        assert isinstance(member, openai.APIConnectionError)
        assert isinstance(member.__cause__, httpx.ConnectError)
        assert member.__cause__.__cause__ is not None
        assert member.__traceback__ is not None


def test_an_untouched_error_tells_the_attempts_in_a_note() -> None:
    """A provider's own exception comes out as itself, with one note however often it is raised."""
    error = StatusError(503)
    policy = FallbackPolicy([Target(P)], FallbackConfig(wait=0, max_attempts=2))
    for _ in range(2):
        with pytest.raises(StatusError) as caught:
            policy.call(repeating(primary=[error]).ask)
        assert caught.value is error
    (note,) = error.__notes__
    assert note.count("primary overloaded (503, StatusError)") == 2


def test_a_larger_prompt_goes_only_to_a_larger_window() -> None:
    """A context overflow skips targets that are no larger or unknown, and says so."""
    overflow = StatusError(400, code="context_length_exceeded")
    chain = [
        Target(P, context_window=100),
        Target(F, context_window=100),
        Target("unknown"),
        Target(G, context_window=200),
    ]
    script = repeating(primary=[overflow], third=["hello"])
    policy = FallbackPolicy(chain)
    run = policy.start()
    assert policy.call(script.ask, run=run) == "hello"
    assert script.asked == [P, G]
    why = "its context window is not larger"
    assert run.record.untried == ((F, why), ("unknown", why))


def test_a_larger_prompt_with_no_larger_window_comes_out_as_it_is() -> None:
    """Where no window is known to be larger, the provider's own error surfaces at once."""
    overflow = StatusError(400, code="context_length_exceeded")
    script = repeating(primary=[overflow], fallback=["no"])
    with pytest.raises(StatusError):
        FallbackPolicy([Target(P), Target(F, context_window=5)]).call(script.ask)
    assert script.asked == [P]


def test_validate_makes_a_malformed_response_of_an_answer() -> None:
    """An answer that the validator refuses, or chokes on, goes to the next target."""

    def validate(answer: str) -> bool:
        if answer == "odd":
            raise ValueError(answer)
        return answer != "junk"

    for bad, error in (("junk", "AnswerRejected"), ("odd", "ValueError")):
        script = repeating(primary=[bad], fallback=["hello"])
        policy = FallbackPolicy([Target(P), Target(F)], FallbackConfig(validate=validate))
        run = policy.start()
        assert policy.call(script.ask, run=run) == "hello"
        first = run.record.attempts[0]
        assert (first.kind, first.error) == ("malformed_response", error)


def test_ctrl_c_in_a_validator_goes_out_and_closes_the_record() -> None:
    """An interrupt while the answer is looked at is no rejection of the answer."""

    def validate(_: str) -> bool:
        raise KeyboardInterrupt

    policy = FallbackPolicy([Target(P), Target(F)], FallbackConfig(validate=validate))
    run = policy.start()
    script = repeating(primary=["hello"], fallback=["no"])
    with pytest.raises(KeyboardInterrupt):
        policy.call(script.ask, run=run)
    assert (run.record.outcome, script.asked) == ("cancelled", [P])


def test_a_validator_that_returns_none_accepts() -> None:
    """Only False or raising says no, so that a validator may simply raise."""
    policy = FallbackPolicy([Target(P)], FallbackConfig(validate=lambda _: None))
    assert policy.call(repeating(primary=["hello"]).ask) == "hello"


def test_options_of_one_call_leave_the_policy_alone() -> None:
    """An override holds for its call only, and is validated like the rest."""
    policy = FallbackPolicy([Target(P), Target(F)], FallbackConfig(wait=0))
    script = repeating(primary=[ERROR_503], fallback=["hello"])
    with pytest.raises(StatusError):
        policy.call(script.ask, fallback_on={"timeout"}, agent="deriver")
    assert policy.call(script.ask) == "hello"
    assert policy.agent == "unknown"


def test_the_terms_of_an_attempt_are_handed_to_ask() -> None:
    """`ask` sees its target, its number, whether it is a fallback, and the time it has."""
    policy = FallbackPolicy([Target(P), Target(F)], FallbackConfig(timeout=7, connect_timeout=2))
    script = repeating(primary=[ERROR_503], fallback=["hello"])
    policy.call(script.ask)
    first, second = (request.attempt for request in script.requests)
    assert (first.position, first.is_fallback, first.number) == (0, False, 1)
    assert (second.position, second.is_fallback, second.number) == (1, True, 2)
    assert (second.timeout, second.connect_timeout) == (7, 2)
    assert first.call_id == second.call_id
