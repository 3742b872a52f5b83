"""``@policy.wrap``: a function of one attempt, which its callers call as if it asked one model."""

from __future__ import annotations

import asyncio
import inspect
import socket
from typing import TYPE_CHECKING, Any

import openai
import pytest

from honcho_fallback import FallbackConfigError, FallbackExhausted, FallbackPolicy, Target
from honcho_fallback.providers import without_retries
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback import Attempt
    from tests.helpers.provider import ProviderServer

MESSAGES: Any = [{"role": "user", "content": "hello"}]
KINDS = ("function", "coroutine", "generator", "async generator")
DOWN = StatusError(503)


def policy_of(*clients: object) -> FallbackPolicy:
    return FallbackPolicy(
        [Target("m", name=f"m{n}", client=client) for n, client in enumerate(clients)]
    )


def wrapped(policy: FallbackPolicy, kind: str) -> Any:
    """Wrap a function of each kind that asks the attempt's client, an OpenAI SDK's."""

    @policy.wrap
    def ask(attempt: Attempt, prompt: str) -> str:
        answer = attempt.target.client.chat.completions.create(model="m", messages=MESSAGES)
        return f"{prompt}: {answer.choices[0].message.content}"

    @policy.wrap
    async def aask(attempt: Attempt, prompt: str) -> str:
        answer = await attempt.target.client.chat.completions.create(model="m", messages=MESSAGES)
        return f"{prompt}: {answer.choices[0].message.content}"

    @policy.wrap
    def stream(attempt: Attempt, prompt: str) -> Iterator[str]:
        client = attempt.target.client
        for chunk in client.chat.completions.create(model="m", messages=MESSAGES, stream=True):
            yield chunk.choices[0].delta.content or "" if chunk.choices else ""

    @policy.wrap
    async def astream(attempt: Attempt, prompt: str) -> AsyncIterator[str]:
        client = attempt.target.client
        chunks = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        async for chunk in chunks:
            yield chunk.choices[0].delta.content or "" if chunk.choices else ""

    return dict(zip(KINDS, (ask, aask, stream, astream), strict=True))[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_port_that_nobody_listens_on_costs_one_attempt(
    providers: ProviderServer, kind: str
) -> None:
    """Of each kind: the next target answers, the caller sees its answer or its chunks."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
    sdk: Any = openai.AsyncOpenAI if "async" in kind or kind == "coroutine" else openai.OpenAI
    alive = providers["backup"].url
    clients = [without_retries(sdk(base_url=url, api_key="k")) for url in (dead, alive)]
    asks = wrapped(policy_of(*clients), kind)

    async def in_task() -> str:
        if kind == "coroutine":
            answer = await asks(prompt="Hi")
        else:
            answer = "".join([chunk async for chunk in asks("Hi")])
        for client in clients:
            await client.close()
        return str(answer)

    if sdk is openai.AsyncOpenAI:
        answer = asyncio.run(in_task())
    else:
        answer = asks(prompt="Hi") if kind == "function" else "".join(asks("Hi"))
        for client in clients:
            client.close()
    greeting = "Hi: " if kind in {"function", "coroutine"} else ""
    assert answer == f"{greeting}hello from backup"
    assert len(providers["backup"].requests) == 1


def test_name_documentation_and_signature_are_the_callers() -> None:
    """What FastAPI, Typer and tool decorators read of a function has no attempt in it."""
    policy = policy_of("a")

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
    policy = policy_of("a")

    class Summariser:
        greeting = "hello"

        @policy.wrap
        def ask(attempt: Attempt, self: Summariser, name: str) -> str:  # noqa: N805 # see above
            return f"{self.greeting} {name}, {attempt.number}"

    assert Summariser().ask("Ada") == "hello Ada, 1"


def test_each_call_begins_on_the_primary_and_raises_what_the_verb_raises() -> None:
    """A function may be called again and again, also by several callers at once."""
    policy = policy_of("a", "b")
    asked: list[str] = []

    @policy.wrap
    def ask(attempt: Attempt, *, alive: bool) -> str:
        asked.append(attempt.target.name)
        if attempt.is_fallback and alive:
            return "hello"
        raise DOWN

    assert [ask(alive=True), ask(alive=True)] == ["hello", "hello"]
    assert asked == ["m0", "m1", "m0", "m1"]
    with pytest.raises(FallbackExhausted):
        ask(alive=False)


def test_a_stream_belongs_to_the_turn_that_it_was_asked_for_in() -> None:
    """Whoever reads a wrapped generator later, or elsewhere, reads the turn's stream."""
    policy = FallbackPolicy([Target("a"), Target("b")], reset="turn")
    asked: list[str] = []

    @policy.wrap
    def chunks(attempt: Attempt) -> Iterator[str]:
        asked.append(attempt.target.name)
        if not attempt.is_fallback:
            raise DOWN
        yield "hello"

    turn = policy.turn()
    with turn:
        assert "".join(chunks()) == "hello"
        reading = chunks()
    assert [*reading] == ["hello"]
    assert asked == ["a", "b", "b"]


def test_a_function_without_a_parameter_for_the_attempt_is_refused() -> None:
    """The mistake is said where the function is written, not when it is first called."""
    policy = policy_of("a")

    def ask(*, prompt: str) -> str:
        return prompt

    with pytest.raises(FallbackConfigError, match=r"ask has no parameter for the attempt"):
        policy.wrap(ask)  # type: ignore[arg-type] # the mistake
    with pytest.raises(FallbackConfigError, match=r"got a str; write it as def ask\(attempt"):
        policy.wrap("ask")  # type: ignore[arg-type] # the mistake
    assert policy.wrap(lambda *everything: len(everything))(1, 2) == 3
