"""One table of scenarios, driven over call, acall, stream and astream; and what wraps them."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from typing import TYPE_CHECKING, Any

import httpx
import httpx2
import openai
import pytest

from honcho_fallback import (
    Cooldown,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Target,
)
from honcho_fallback.testing import StatusError
from tests.helpers.broken_server import WAYS
from tests.helpers.scenarios import ERROR_429, ERROR_503, SCENARIOS, F, G, P, Scenario
from tests.helpers.scripted import DRIVERS, asked_by, pair, repeating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback import Attempt, Failure


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario, driver: str) -> None:
    """Every driver asks the same targets in the same order and ends the same way."""
    script = repeating(**scenario.replies)
    config = FallbackConfig(**{"wait": 0, **scenario.config})
    policy = FallbackPolicy([Target(name) for name in scenario.replies], config)
    run = policy.start()
    if scenario.error is None:
        assert DRIVERS[driver](policy, script, run) == scenario.answer
        assert run.record.answered_by == scenario.order[-1]
    else:
        with pytest.raises(scenario.error):
            DRIVERS[driver](policy, script, run)
        assert run.record.answered_by is None
    record = run.record
    assert script.asked == scenario.order
    assert [attempt.target for attempt in record.attempts] == scenario.order
    assert record.outcome == scenario.outcome
    assert record.is_fallback == (record.answered_by in {F, G})
    attempts = [request.attempt for request in script.requests]
    assert [attempt.number for attempt in attempts] == list(range(1, len(script.asked) + 1))
    assert [attempt.wait for attempt in attempts] == scenario.waits


def test_exhaustion_carries_every_error_the_record_and_the_last_cause() -> None:
    """HON-043, HON-004: callers can catch the providers' own types, and see the attempts."""
    with pytest.raises(FallbackExhausted) as caught:
        pair().call(repeating(primary=[ERROR_429], fallback=[ERROR_503]).ask)
    error = caught.value
    assert error.exceptions == (ERROR_429, ERROR_503, ERROR_503)
    assert error.__cause__ is ERROR_503
    kinds = [attempt.kind for attempt in error.attempts]
    assert kinds == ["rate_limit", "overloaded", "overloaded"]
    assert error.split(lambda member: member is ERROR_429)[0].record is error.record  # type: ignore[union-attr] # it has such a member


def test_the_traceback_of_an_exhaustion_can_be_read() -> None:
    """Two SDKs that found nobody: who failed is on a page, and every cause is still there."""

    def ask(attempt: Attempt) -> Any:
        return client.chat.completions.create(model=attempt.target.model, messages=[])

    with (
        WAYS["port closed"]() as gone,
        openai.OpenAI(base_url=gone.url, api_key="x", max_retries=0) as client,
        pytest.raises(FallbackExhausted) as caught,
    ):
        FallbackPolicy([Target(P), Target(F)], max_attempts=2).call(ask)
    error = caught.value
    shown = "".join(traceback.format_exception(error))
    assert len(shown.splitlines()) < 60, shown
    for member in error.exceptions:
        assert isinstance(member, openai.APIConnectionError)
        assert isinstance(member.__cause__, httpx.ConnectError | httpx2.ConnectError)
        assert member.__cause__.__cause__ is not None
        assert member.__traceback__ is not None


@pytest.mark.parametrize("verb", ["call", "acall"])
def test_what_the_caller_was_handling_keeps_its_traceback(verb: str) -> None:
    """Who asks a model about an error can still log that error when nobody has answered."""

    def ask(_: Attempt) -> str:
        try:
            raise OSError("reset")
        except OSError:
            raise StatusError(503)  # noqa: B904 # as SDKs do that name no cause

    async def aask(attempt: Attempt) -> str:
        return ask(attempt)

    try:
        raise KeyError("missing")
    except KeyError as error:
        with pytest.raises(FallbackExhausted) as caught:
            asked_by(verb, pair(), ask if verb == "call" else aask)
        has_frames = error.__traceback__ is not None
    assert has_frames
    for member in caught.value.exceptions:
        assert member.__context__ is not None
        assert member.__context__.__traceback__ is None  # frames of the call's own
        assert isinstance(member.__context__.__context__, KeyError)


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


@pytest.mark.parametrize("ask", [lambda: "hello", lambda _, __: "hello", None])
@pytest.mark.parametrize("verb", ["call", "acall", "stream", "astream"])
def test_an_ask_that_takes_no_attempt_is_told_what_it_is_called_with(verb: str, ask: Any) -> None:
    """A note beside Python's TypeError; one that is raised inside of ask has none."""

    def broken(_: Attempt) -> str:
        raise TypeError

    policy = pair()
    for function, is_told in ((ask, True), (broken, False)):
        with pytest.raises(TypeError) as caught:
            asked_by(verb, policy, function)
        assert ("def ask(attempt)" in caught.value.__notes__[-1]) is is_told


def test_a_larger_prompt_is_not_sent_where_the_window_is_known_to_be_no_larger() -> None:
    """A context overflow skips those alone, and says so; unknown is no reason to lose a call."""
    overflow = StatusError(400, code="context_length_exceeded")
    chain = [
        Target(P, context_window=100),
        Target(F, context_window=100),
        Target("unknown"),
        Target(G, context_window=200),
    ]
    script = repeating(primary=[overflow], unknown=[overflow], third=["hello"])
    policy = FallbackPolicy(chain)
    run = policy.start()
    assert policy.call(script.ask, run=run) == "hello"
    assert script.asked == [P, "unknown", G]
    assert run.record.untried == ((F, "its context window is not larger"),)


def test_a_model_that_lacks_something_is_left_for_the_next_and_rests_nobody() -> None:
    """Where all lack it, the first error comes out: it is about the model that was asked for."""
    lacks, lacks_too = StatusError(400), StatusError(400)

    def refine(failure: Failure, _: BaseException) -> Failure:
        kinds = {400: FailureKind.UNSUPPORTED}
        return failure._replace(kind=kinds.get(failure.status or 0, failure.kind))

    policy = pair(cooldown=Cooldown(after=1), refine=refine)
    assert policy.call(repeating(primary=[lacks], fallback=["hello"]).ask) == "hello"
    assert policy.start().attempt.position == 0
    with pytest.raises(StatusError) as caught:
        policy.call(repeating(primary=[lacks], fallback=[lacks_too]).ask)
    assert caught.value is lacks
    dead = StatusError(401)  # a failure of another kind is no matter of the request
    with pytest.raises(FallbackExhausted) as exhausted:
        policy.call(repeating(primary=[dead], fallback=[lacks]).ask)
    assert exhausted.value.exceptions == (dead, lacks)


def test_options_of_one_call_leave_the_policy_alone() -> None:
    """An override holds for its call only, and is validated like the rest."""
    policy, script = pair(), repeating(primary=[ERROR_503], fallback=["hello"])
    with pytest.raises(StatusError):
        policy.call(script.ask, fallback_on={"timeout"}, agent="deriver")
    assert policy.call(script.ask) == "hello"
    assert policy.agent == "unknown"


def test_the_terms_of_an_attempt_are_handed_to_ask() -> None:
    """`ask` sees its target, its number, whether it is a fallback, and the time it has."""
    script = repeating(primary=[ERROR_503], fallback=["hello"])
    pair(timeout=7, connect_timeout=2).call(script.ask)
    first, second = (request.attempt for request in script.requests)
    assert (first.position, first.is_fallback, first.number) == (0, False, 1)
    assert (second.position, second.is_fallback, second.number) == (1, True, 2)
    assert (second.timeout, second.connect_timeout) == (7, 2)
    assert first.call_id == second.call_id


# `@policy.wrap`: a function of one attempt, called as if it asked one model.


def test_what_is_wrapped_is_called_as_if_it_asked_one_model() -> None:
    """Of each kind: the next target answers, the caller sees its answer or its chunks."""
    script = repeating(primary=[ERROR_503], fallback=["hello"])
    policy = pair()

    @policy.wrap
    def ask(attempt: Attempt, prompt: str) -> str:
        return f"{prompt}: {script.ask(attempt)}"

    @policy.wrap
    async def aask(attempt: Attempt, prompt: str) -> str:
        return f"{prompt}: {await script.aask(attempt)}"

    @policy.wrap
    def stream(attempt: Attempt, prompt: str) -> Iterator[str]:
        for chunk in script.stream(attempt):
            yield f"{prompt}: {chunk}"

    @policy.wrap
    async def astream(attempt: Attempt, prompt: str) -> AsyncIterator[str]:
        async for chunk in script.astream(attempt):
            yield f"{prompt}: {chunk}"

    async def in_task() -> list[str]:
        return [await aask(prompt="Hi"), *[chunk async for chunk in astream("Hi")]]

    assert [ask("Hi"), *stream("Hi"), *asyncio.run(in_task())] == ["Hi: hello"] * 4
    assert script.asked == ["primary", "fallback"] * 4


def test_name_documentation_and_signature_are_the_callers() -> None:
    """What FastAPI, Typer and tool decorators read of a function has no attempt in it."""
    policy = pair()

    @policy.wrap
    async def summarise(attempt: Attempt, text: str, *, words: int = 9) -> str:
        """Summarise a text."""
        return f"{text} {words} {attempt.number}"

    assert (summarise.__name__, summarise.__doc__) == ("summarise", "Summarise a text.")
    assert inspect.iscoroutinefunction(summarise)
    assert str(inspect.signature(summarise)) == "(text: 'str', *, words: 'int' = 9) -> 'str'"
    assert summarise.__annotations__ == {"text": "str", "words": "int", "return": "str"}
    assert asyncio.run(summarise("x", words=3)) == "x 3 1"


def test_a_method_gets_its_object_after_the_attempt() -> None:
    """A wrapped method is bound like any other; the attempt comes first."""
    policy = pair()

    class Summariser:
        greeting = "hello"

        @policy.wrap
        def ask(attempt: Attempt, self: Summariser, name: str) -> str:  # noqa: N805 # see above
            return f"{self.greeting} {name}, {attempt.number}"

    assert Summariser().ask("Ada") == "hello Ada, 1"


def test_a_stream_belongs_to_the_turn_that_it_was_asked_for_in() -> None:
    """Whoever reads a wrapped generator later, or elsewhere, reads the turn's stream."""
    policy, script = pair(reset="turn"), repeating(primary=[ERROR_503], fallback=["hello"])

    @policy.wrap
    def chunks(attempt: Attempt) -> Iterator[str]:
        yield from script.stream(attempt)

    with policy.turn():
        assert [*chunks()] == ["hello"]
        reading = chunks()
    assert [*reading] == ["hello"]
    assert script.asked == ["primary", "fallback", "fallback"]


def test_a_function_without_a_parameter_for_the_attempt_is_refused() -> None:
    """The mistake is said where the function is written, not when it is first called."""
    policy = pair()

    def ask(*, prompt: str) -> str:
        return prompt

    with pytest.raises(FallbackConfigError, match=r"ask has no parameter for the attempt"):
        policy.wrap(ask)  # type: ignore[arg-type] # the mistake
    with pytest.raises(FallbackConfigError, match=r"got a str; write it as def ask\(attempt"):
        policy.wrap("ask")  # type: ignore[arg-type] # the mistake
    assert policy.wrap(lambda *everything: len(everything))(1, 2) == 3
