"""Streams that hold nothing, fail at their end, or are cut: in both frameworks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, MagicMock, create_autospec

import agents
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, PartStartEvent
from pydantic_ai.models.fallback import FallbackModel as OwnFallbackModel

from honcho_fallback import StreamInterrupted
from tests.agents.frameworks import FRAMEWORKS, LIMA, City, Streamed, chain_of
from tests.helpers import wire
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from tests.helpers.observers import Listener
    from tests.helpers.provider import Provider, ProviderServer, SeenRequest

SDK = FRAMEWORKS["openai-agents"]
DONE = "data: [DONE]"
INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def chat_call_pieces(name: str, *pieces: str) -> list[str]:
    """Write the events of a tool call whose arguments come in pieces."""
    function: dict[str, Any] = {"name": name, "arguments": ""}
    calls = [{"index": 0, "id": "lost", "type": "function", "function": function}]
    calls += [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    return [wire.event(wire.part(role="assistant", tool_calls=[call])) for call in calls]


def response_end(*items: wire.Json, kind: str = "completed", **fields: Any) -> str:
    """Write the event that ends a response."""
    answer = {**wire.responses_answer(*items), **fields}
    return wire.named_event(f"response.{kind}", response=answer, sequence_number=99)


# Streams without a word, and who answers: the primary's '' is an answer, silence is none.
SILENT: dict[str, tuple[str, list[str], bool]] = {
    "an empty text": ("chat", [wire.chat_word(""), wire.event(wire.part("stop")), DONE], True),
    "no output": ("responses", wire.responses_events(wire.responses_answer()), True),
    "no event": ("chat", [], False),
    "the end alone": ("chat", [DONE], False),
    "no event of a response": ("responses", [], False),
}


@pytest.mark.parametrize("case", SILENT)
async def test_a_stream_without_content_is_an_answer_or_none(
    primary: Provider, fallback: Provider, listener: Listener, case: str
) -> None:
    """The Agents SDK takes an empty answer for '', so that is what comes; its record is whole."""
    api, events, is_answer = SILENT[case]
    primary.standing = Reply(events=events)
    options: Any = {"api": api, "elsewhere": "localhost", "observers": [listener]}
    text = await SDK.stream(chain_of(SDK, primary, fallback, **options))
    assert text == ("" if is_answer else f"hello from {fallback.name}")
    assert len(fallback.requests) == (not is_answer)
    assert listener.records[0].outcome == "success"


async def test_a_failure_at_the_end_of_a_stream_is_the_providers(
    primary: Provider, fallback: Provider, listener: Listener
) -> None:
    """The Agents SDK's Runner raises at its event; the record says who failed."""
    item = wire.response_text("good")
    events = wire.responses_events(wire.responses_answer(item))
    primary.standing = Reply(
        events=[*events[:-1], response_end(item, kind="incomplete", **INCOMPLETE)]
    )
    chain = chain_of(SDK, primary, fallback, api="responses", observers=[listener])
    with pytest.raises(StreamInterrupted) as raised:
        await SDK.stream(chain)
    assert isinstance(raised.value.__cause__, agents.ModelBehaviorError)
    assert listener.records[0].outcome == "interrupted"


@pytest.mark.parametrize("partial", ["final", "replace"])
async def test_a_connection_lost_after_the_whole_answer_costs_nothing(
    primary: Provider, fallback: Provider, partial: str
) -> None:
    """The Responses API has no last word, so the Agents SDK reads on after the answer's end."""
    events = wire.responses_events(wire.responses_answer(wire.response_text("good")))
    primary.standing = Reply(events=events, cut=True)
    chain = chain_of(SDK, primary, fallback, api="responses", partial=partial)
    assert await SDK.stream(chain) == "good"
    assert not fallback.requests


async def test_a_stream_that_is_left_is_closed() -> None:
    """Whatever the class of its events: an SDK's client hands on what is no generator."""
    model = create_autospec(agents.Model, instance=True)
    stream = MagicMock(["__aiter__", "close"], close=AsyncMock())
    model.stream_response.return_value = stream
    stream.__aiter__.return_value = [{"type": "response.output_text.delta", "delta": "good"}] * 2
    request: list[Any] = [None, "hi", agents.ModelSettings(), [], None, []]
    events = SDK.chain(model).stream_response(*request, agents.ModelTracing.DISABLED)
    await anext(events)
    await events.aclose()
    stream.close.assert_awaited_once_with()


# The events of a model that breaks off, and its API; no id of hex digits can hold "lost".
CUT: dict[str, tuple[str, list[str]]] = {
    "text": ("chat", [wire.chat_word("lost "), wire.chat_word("text")]),
    "response": (
        "responses",
        wire.responses_events(wire.responses_answer(wire.response_text("lost text")))[:-1],
    ),
    "half a call": ("chat", chat_call_pieces("thermometer", '{"ci', 'ty": "De')),
    "a call": (
        "responses",
        wire.responses_events(
            wire.responses_answer(
                wire.response_call("fc_1", "lost", "thermometer", {"city": "Lost"})
            )
        )[:-1],
    ),
}


class Thermometer:
    """Be a tool that notes whom it was asked for."""

    def __init__(self) -> None:
        self.cities: list[str] = []

    def thermometer(self, city: str) -> str:
        self.cities.append(city)
        return f"{city}: 21"


async def read_pydantic(chain: Any, tool: Callable[..., Any]) -> Streamed:
    """Read Pydantic AI's events as its page says."""
    shown: dict[int, str] = {}

    async def read(_: Any, events: AsyncIterable[Any]) -> None:
        async for event in events:
            if isinstance(event, PartStartEvent):
                if event.index == 0:  # of the next step, or anew
                    shown.clear()
                shown[event.index] = getattr(event.part, "content", "")
            elif event.event_kind == "part_delta":
                shown[event.index] += getattr(event.delta, "content_delta", "")

    agent = Agent(chain, tools=[tool])
    result = await agent.run("hi", event_stream_handler=read)
    usage = result.usage
    messages = json.loads(result.all_messages_json())
    for message in messages:
        message.pop("failed_attempts", None)
    text, cost = "".join(shown.values()), (usage.requests, usage.input_tokens)
    return Streamed(text, result.output, messages, cost, None)


READERS: dict[str, Callable[..., Any]] = {
    "openai-agents": SDK.read,
    "pydantic-ai": read_pydantic,
}


def measuring(request: SeenRequest) -> Reply:
    """Call the tool, then say what it measured."""
    if "Lima: 21" in json.dumps(request.body):
        return Reply(text="Warm.")
    return Reply(body=wire.chat_answer("", wire.chat_call("call_1", "thermometer", LIMA)))


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("case", CUT)
@pytest.mark.parametrize("answer", ["text", "call"])
async def test_a_cut_stream_is_replaced_by_the_next_models(
    primary: Provider, fallback: Provider, listener: Listener, name: str, case: str, answer: str
) -> None:
    """With ``partial="replace"``: text, history, usage and tool calls are the answering model's.

    The reader can tell where an answer begins anew, and what it shows is that answer.
    """
    framework, (api, events) = FRAMEWORKS[name], CUT[case]
    primary.standing = Reply(events=events, cut=True)
    fallback.standing = Reply(text="Warm.") if answer == "text" else measuring
    models = framework.model(primary, api=api), framework.model(fallback, host="localhost")
    chain = framework.chain(*models, partial="replace", observers=[listener])
    tool, alone = Thermometer(), Thermometer()
    read = await READERS[name](chain, tool.thermometer)
    expected = await READERS[name](framework.model(fallback), alone.thermometer)
    assert (read.text, read.said) == ("Warm.", "Warm.")
    assert tool.cities == alone.cities == (["Lima"] if answer == "call" else [])
    assert "lost" not in json.dumps(read.history).lower()
    assert len(read.history) == len(expected.history)
    assert read.cost == expected.cost
    assert read.cost[0] == len(primary.requests)
    for record in listener.records:
        assert record.outcome == "success"
        assert [one.kind for one in record.attempts] == ["connection", None]


@pytest.mark.parametrize("case", ["response", "a call"])
async def test_an_answer_without_items_takes_none_of_a_dead_one(
    primary: Provider, fallback: Provider, case: str
) -> None:
    """Where an answer names no items the Agents SDK's Runner takes all that were done."""
    api, events = CUT[case]
    primary.standing = Reply(events=events, cut=True)
    options: Any = {"api": api, "elsewhere": "localhost", "partial": "replace"}
    items = wire.responses_events(wire.responses_answer(wire.response_text("alive")))[:-1]
    for answer, said in ((items, "alive"), (items[:1], "")):
        fallback.standing = Reply(events=[*answer, response_end()])
        tool = Thermometer()
        chain = chain_of(SDK, primary, fallback, **options)
        read = await SDK.read(chain, tool.thermometer)
        assert (read.said, tool.cities) == (said, [])


async def test_outputs_are_replaced_in_run_stream(primary: Provider, fallback: Provider) -> None:
    """Pydantic AI's snapshots are of the last part 0, also of a structured output."""
    framework = FRAMEWORKS["pydantic-ai"]
    primary.standing = Reply(events=chat_call_pieces("final_result", '{"city": "De'), cut=True)
    call = wire.chat_call("call_1", "final_result", LIMA)
    fallback.standing = Reply(body=wire.chat_answer("", call))
    options: Any = {"elsewhere": "localhost", "partial": "replace"}
    chain = chain_of(framework, primary, fallback, **options)
    async with Agent(chain, output_type=City).run_stream("hi") as result:
        outputs = [output async for output in result.stream_output(debounce_by=None)]
    assert outputs[-1] == City(city="Lima")
    answer = result.all_messages()[1]
    assert isinstance(answer, ModelResponse)
    assert [part.part_kind for part in answer.parts] == ["tool-call"]
    assert len(answer.failed_attempts or ()) == 1


async def test_another_chain_hears_of_every_event(providers: ProviderServer) -> None:
    """Pydantic AI's own chain looks at the first event of ours, and hands it on."""
    framework, seen = FRAMEWORKS["pydantic-ai"], list[list[str]]()
    model = framework.model(providers.new("one"))
    for either in (OwnFallbackModel(model), OwnFallbackModel(framework.chain(model))):
        events: list[str] = []

        async def read(_: Any, stream: AsyncIterable[Any], into: list[str] = events) -> None:
            into += [event.event_kind async for event in stream]

        await Agent(either).run("hi", event_stream_handler=read)
        seen.append(events)
    assert seen[0] == seen[1]
    assert seen[0][0] == "part_start"
