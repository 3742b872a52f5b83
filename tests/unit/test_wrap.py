"""``@policy.wrap``: a function of one attempt, which its callers call as if it asked one model."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import pair, repeating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback import Attempt

DOWN = StatusError(503)


def test_what_is_wrapped_is_called_as_if_it_asked_one_model() -> None:
    """Of each kind: the next target answers, the caller sees its answer or its chunks."""
    script = repeating(primary=[DOWN], fallback=["hello"])
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
    policy, script = pair(reset="turn"), repeating(primary=[DOWN], fallback=["hello"])

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
