"""How the streams of LangChain's integrations end, and what becomes of one that does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage

from honcho_fallback import FallbackPolicy, Target, check_response, classify, read_answer
from tests.helpers import wire
from tests.helpers.chat_models import claude, gemini, gpt, groq, look_up, mistral
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt
    from tests.helpers.provider import ProviderServer


def responses(**fields: Any) -> Any:
    return gpt(use_responses_api=True, **fields)


def responses_in_v1(**fields: Any) -> Any:
    return responses(output_version="v1", **fields)


# Who is asked, the form that it speaks, and in which event it says how its stream ended.
MODELS: dict[str, tuple[Callable[..., Any], wire.Form, str]] = {
    "openai": (gpt, wire.CHAT, '"finish_reason": "stop"'),
    "responses": (responses, wire.RESPONSES, "response.completed"),
    "responses in v1": (responses_in_v1, wire.RESPONSES, "response.completed"),
    "anthropic": (claude, wire.MESSAGES, "message_delta"),
    "gemini": (gemini, wire.GEMINI, '"finishReason"'),
    "groq": (groq, wire.CHAT, '"finish_reason": "stop"'),
    "mistral": (mistral, wire.CHAT, '"finish_reason": "stop"'),
}
Json = dict[str, Any]


def events_of(form: wire.Form) -> list[str]:
    return form.events(form.answer("hello you", "m", True), {}, None)


def cut(events: list[str], end: str) -> list[str]:
    """Leave out the event that says how the stream ended, and what follows."""
    last = next(place for place, event in enumerate(events) if end in event)
    return events[:last]


def serving(providers: ProviderServer, make: Callable[..., Any], events: list[str]) -> Any:
    provider = providers.new("streams")
    provider.standing = Reply(events=events)
    retries = {"max_retries": 1} if make is gemini else {}  # the first request counts
    return make(base_url=provider.url, **retries)


async def read(model: Any, way: str) -> list[Any]:
    """Read a model's chunks: over its public verbs, or as the integration yields them."""
    if way == "stream":
        return list(model.stream("hi"))
    if way == "astream":
        return [chunk async for chunk in model.astream("hi")]
    return list(model._stream([HumanMessage("hi")]))


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("way", ["stream", "astream", "yielded"])
@pytest.mark.parametrize("name", MODELS)
async def test_a_whole_stream_passes_and_one_without_its_end_does_not(
    providers: ProviderServer, name: str, way: str
) -> None:
    """Each integration says in its chunks who it is and how the stream ended, or did not."""
    make, form, end = MODELS[name]
    events = events_of(form)
    whole = await read(serving(providers, make, events), way)
    assert check_response(whole) is None
    assert read_answer(whole).finish_reason
    broken = check_response(await read(serving(providers, make, cut(events, end)), way))
    assert broken is not None
    assert (broken.kind, broken.switchable) == ("malformed_response", True)


CALL: Json = wire.chat_call("c1", "look_up", {"city": "Oslo"})


@pytest.mark.parametrize(
    ("make", "form", "answer"),
    [
        (gpt, wire.CHAT, wire.chat_answer(None, CALL)),
        (groq, wire.CHAT, wire.chat_answer(None, CALL)),
        (mistral, wire.CHAT, wire.chat_answer(None, CALL)),
        (claude, wire.MESSAGES, wire.message_answer(wire.tool_use("c1", "look_up", {}))),
        (gemini, wire.GEMINI, wire.gemini_answer(wire.function_call("look_up", {}))),
    ],
    ids=["openai", "groq", "mistral", "anthropic", "gemini"],
)
def test_a_whole_tool_call_passes(
    providers: ProviderServer, make: Callable[..., Any], form: wire.Form, answer: Json
) -> None:
    """A stream that ends with a call has an end, too."""
    model = serving(providers, make, form.events(answer, {}, None))
    chunks = list(model.bind_tools([look_up]).stream("hi"))
    assert any(chunk.tool_call_chunks for chunk in chunks)
    assert check_response(chunks) is None


ERROR = f"data: {json.dumps({'error': {'message': 'busy', 'code': 503}})}"


@pytest.mark.parametrize("make", [gpt, responses, claude, groq, mistral])
@pytest.mark.parametrize(
    "events", [[], ["data: [DONE]"], [ERROR[6:]]], ids=["none", "done", "json"]
)
def test_a_stream_without_an_event_switches(
    providers: ProviderServer, make: Callable[..., Any], events: list[str]
) -> None:
    """An error document or nothing under HTTP 200 is no answer, whoever finds out."""
    model = serving(providers, make, events)
    with pytest.raises(ValueError, match="No generation chunks") as caught:
        list(model.stream("hi"))
    assert classify(caught.value).kind == "malformed_response"
    backup = serving(providers, gpt, events_of(wire.CHAT))
    clients = [model, backup]

    def ask(attempt: Attempt) -> Any:
        return clients[attempt.position].stream("hi")

    policy = FallbackPolicy([Target("primary"), Target("backup")], max_attempts=2)
    assert "".join(chunk.text for chunk in policy.stream(ask)) == "hello you"


def test_mistrals_error_event_is_no_end(providers: ProviderServer) -> None:
    """The integration passes an error event over: what is left is a stream without its end."""
    form = wire.CHAT
    error = form.error("busy", "server_error")
    events = form.events(form.answer("hello you", "m", True), {}, error)
    broken = check_response(list(serving(providers, mistral, events).stream("hi")))
    assert broken is not None
    assert broken.kind == "malformed_response"
