"""What a validator is handed: a message on every path that has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage

from honcho_fallback import FallbackConfig, StreamInterrupted
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.agents import agent, calls, run
from tests.helpers.chat_models import Joke, alive, chat

if TYPE_CHECKING:
    from collections.abc import Callable

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

JOKE = calls("Joke", 1, setup="Why?")


async def invoke(model: Any, config: Any = None) -> Any:
    return await model.ainvoke("hi", config)


async def stream(model: Any) -> Any:
    return [chunk async for chunk in model.astream("hi")]


PATHS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "agent": lambda one, two, no: run("ainvoke", agent(one, FallbackMiddleware(two, validate=no))),
    "agent over a model": lambda one, two, no: run(
        "ainvoke", agent(FallbackChatModel(one, two, validate=no))
    ),
    "bound": lambda one, two, no: invoke(
        FallbackChatModel(one, two, validate=no).bind_tools([Joke])
    ),
    "call": lambda one, two, no: invoke(
        FallbackChatModel(one, two),
        {"configurable": {"fallback_config": FallbackConfig(validate=no)}},
    ),
    "invoke": lambda one, two, no: invoke(FallbackChatModel(one, two, validate=no)),
    "raw": lambda one, two, no: invoke(
        FallbackChatModel(one, two, validate=no).with_structured_output(Joke, include_raw=True)
    ),
    "raw, by the call": lambda one, two, no: invoke(
        FallbackChatModel(one, two).with_structured_output(Joke, include_raw=True),
        {"configurable": {"fallback_config": FallbackConfig(validate=no)}},
    ),
    "stream": lambda one, two, no: stream(FallbackChatModel(one, two, validate=no)),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_a_validator_is_handed_a_message(path: str, is_async: bool) -> None:
    """In whatever form the answer is handed out; where it refuses one, the next is asked."""
    looked_at: list[Any] = []

    def validate(message: Any) -> bool:
        looked_at.append(message)
        return bool(message.tool_calls or message.content == "from backup")

    async def validate_async(message: Any) -> bool:
        return validate(message)

    is_raw = path.startswith("raw")
    says = JOKE if is_raw else "no"
    good = JOKE if is_raw or path == "bound" else "from backup"
    primary, backup = chat("primary", says), chat("backup", good)
    answer = PATHS[path](primary, backup, validate_async if is_async else validate)
    if path == "stream":  # its words are out
        with pytest.raises(StreamInterrupted):
            await answer
    else:
        await answer
    assert {isinstance(one, AIMessage) for one in looked_at} == {True}
    assert len(backup.asked) == (not is_raw and path != "stream")


def test_what_a_parser_made_is_all_there_is() -> None:
    """An object in a schema has no message any more; ``include_raw`` keeps it."""
    looked_at: list[Any] = []
    model = FallbackChatModel(chat("primary", JOKE), alive(), validate=looked_at.append)
    assert model.with_structured_output(Joke).invoke("hi") == Joke(setup="Why?")
    model.with_structured_output(Joke, include_raw=True).invoke("hi")
    assert looked_at[0] == Joke(setup="Why?")
    assert isinstance(looked_at[1], AIMessage)


def test_validate_sees_the_message_that_a_stream_adds_up_to() -> None:
    """The same kind of object as of ``invoke``, so that one validator serves both."""
    seen: list[str] = []

    def validate(message: Any) -> bool:
        seen.append(message.text)
        return "bad" not in message.text

    def model(partial: Any) -> FallbackChatModel:
        backup = chat("backup", ["go", "od"])
        return FallbackChatModel(
            chat("primary", ["b", "ad"]), backup, validate=validate, partial=partial
        )

    assert model("final").invoke("hi").text == "good"
    with pytest.raises(StreamInterrupted):
        list(model("final").stream("hi"))
    chunks = list(model("replace").stream("hi"))
    assert "".join(chunk.text for chunk in chunks).endswith("good")
    assert seen == ["bad", "good", "bad", "bad", "good"]
