"""What Pydantic AI has and other frameworks have not."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    InstrumentationSettings,
    ModelRetry,
    NativeOutput,
    RunContext,
    UsageLimitExceeded,
    UsageLimits,
)
from pydantic_ai.capabilities import Instrumentation, NativeTool
from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    TextPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

from honcho_fallback import Cooldown
from honcho_fallback_pydantic_ai import FallbackModel
from tests.agents import frameworks
from tests.agents.frameworks import FRAMEWORKS, LIMA, City, thermometer, thinking
from tests.helpers import wire
from tests.helpers.otlp import Traces
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.helpers.observers import Listener
    from tests.helpers.provider import Provider, ProviderServer

SDK = FRAMEWORKS["pydantic-ai"]
chain_of = partial(frameworks.chain_of, SDK)


def claude(provider: Provider) -> AnthropicModel:
    """Build a model of another provider."""
    place = AnthropicProvider(api_key="key", base_url=provider.url)
    return AnthropicModel("claude-sonnet-5", provider=place)


@pytest.mark.parametrize("is_native", [False, True], ids=["tool", "native"])
async def test_each_model_is_asked_as_its_profile_says(
    primary: Provider, fallback: Provider, *, is_native: bool
) -> None:
    """OpenAI and Anthropic get the same output schema, each in its own words.

    An agent that is entered keeps their connections open, and closes them.
    """
    primary.fail(503)
    call = wire.tool_use("toolu_1", "final_result", LIMA)
    block = wire.text_block('{"city": "Lima"}') if is_native else call
    fallback.standing = Reply(body=wire.message_answer(block))
    first = SDK.model(primary)
    output: Any = NativeOutput(City) if is_native else City
    async with Agent(FallbackModel(first, claude(fallback)), output_type=output) as agent:
        assert (await agent.run("hi")).output == City(city="Lima")
        assert not first.client.is_closed()
    assert first.client.is_closed()
    assert "city" in json.dumps(primary.bodies[0])
    assert "city" in json.dumps(fallback.bodies[0])
    assert fallback.requests[0].path.endswith("/messages")


@pytest.mark.parametrize("outcome", ["error", "rejected"])
async def test_a_response_says_who_failed_before_it(
    primary: Provider, fallback: Provider, outcome: str
) -> None:
    """In Pydantic AI's own field; what ``validate`` refuses was billed, and is counted."""
    if outcome == "error":
        primary.fail(503)

    def validate(answer: Any) -> bool:  # a response, or the text of a stream
        return primary.name not in str(answer)

    chain = chain_of(primary, fallback, validate=validate)
    result = await Agent(chain).run("hi")
    response = result.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    assert response.failed_attempts
    (attempt,) = response.failed_attempts
    said = (attempt.provider_name, attempt.model_name, attempt.outcome)
    assert said == ("openai", "gpt-4o", outcome)
    billed = 2 if outcome == "rejected" else 1
    assert result.usage.input_tokens == billed * response.usage.input_tokens
    if outcome == "error":  # what a stream has shown cannot be refused
        async with Agent(chain).run_stream("hi") as streamed:
            await streamed.get_output()
        assert len(streamed.response.failed_attempts or ()) == 1


async def test_the_span_of_a_request_names_who_answered(
    primary: Provider, fallback: Provider
) -> None:
    """Pydantic AI's own instrumentation, as with its own chain: who failed has a span in it."""
    primary.fail(503)
    traces = Traces()
    instrumentation = Instrumentation(InstrumentationSettings(tracer_provider=traces.provider))
    chain = FallbackModel(SDK.model(primary), claude(fallback))
    await Agent(chain, capabilities=[instrumentation]).run("hi")
    failed, chat, _ = traces.received()
    assert chat.attributes["gen_ai.request.model"] == "claude-sonnet-5"
    assert (failed.parent_id, failed.status) == (chat.span_id, "error")


async def test_what_the_program_wants_switches_nothing(
    primary: Provider, fallback: Provider
) -> None:
    """A retry of the model, a limit of usage, an error of the program: each its own way."""
    chain = chain_of(primary, fallback)
    picky = Agent(chain, retries={"output": 1})

    @picky.output_validator
    def refuse(context: RunContext[object], output: str) -> str:
        raise ModelRetry("again")

    with pytest.raises(UnexpectedModelBehavior):
        await picky.run("hi")
    assert len(primary.requests) == 2

    with pytest.raises(UsageLimitExceeded):
        await Agent(chain).run("hi", usage_limits=UsageLimits(total_tokens_limit=1))

    # That of an agent in a model, which speaks of usage as an empty account does, is none either.
    for error in (KeyError("name"), UsageLimitExceeded("Exceeded the total_tokens_limit of 1")):

        def broken(
            _: list[ModelMessage], __: AgentInfo, error: Exception = error
        ) -> ModelResponse:
            raise error

        with pytest.raises(type(error)):
            await Agent(FallbackModel(FunctionModel(broken), SDK.model(fallback))).run("hi")
    with pytest.raises(UserError):
        await Agent(chain).run("hi", model_settings={"tool_choice": ["nobody"]})
    assert not fallback.requests


SOUND = BinaryContent(data=b"x", media_type="audio/wav")
NEEDS: dict[str, tuple[Any, dict[str, Any], type[Exception]]] = {
    "a schema": ("hi", {"output_type": NativeOutput(City)}, UserError),
    "a search": ("hi", {"capabilities": [NativeTool(WebSearchTool())]}, UserError),
    "a sound": (["hi", SOUND], {}, NotImplementedError),
}


def understood(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Refuse what a program's own model cannot do."""
    raise NotImplementedError(len(messages))


@pytest.mark.parametrize("needs", NEEDS)
async def test_what_cannot_be_written_for_a_model_goes_to_the_next(
    providers: ProviderServer, listener: Listener, needs: str
) -> None:
    """Not every model takes a schema or sound, or has a tool; where none does, the error says so.

    A model of the program's own that lacks something is a mistake.
    """
    primary, middle, last = (providers.new(name) for name in ("primary", "middle", "last"))
    primary.fail(503)
    last.standing = Reply(text='{"city": "Lima"}')
    place = OpenAIProvider(base_url=middle.url, api_key="key")
    plain = OpenAIChatModel("m", provider=place, profile={"supports_json_schema_output": False})
    question, options, error = NEEDS[needs]
    unable, api = (claude(middle), "chat") if needs == "a sound" else (plain, "responses")
    models = SDK.model(primary, api=api), unable, SDK.model(last, api=api)
    result = await Agent(FallbackModel(*models, observers=[listener]), **options).run(question)
    assert "Lima" in str(result.output)
    assert listener.kinds == ["overloaded", "unsupported", None]
    with pytest.raises(error, match="support"):
        await Agent(FallbackModel(unable), **options).run(question)
    assert not middle.requests
    with pytest.raises(NotImplementedError):
        await Agent(FallbackModel(FunctionModel(understood), models[2])).run("hi")
    assert len(last.requests) == 1


async def test_two_keys_of_one_address_are_two_accounts(providers: ProviderServer) -> None:
    """What one made stays with it, also in a history that was stored."""
    place = providers.new("place")
    place.reply(Reply(status=503), thinking("two"), Reply(text="rain"), Reply(text="snow"))
    named: Any = {"api": "responses", "name": "gpt-5.5"}
    first, second = (SDK.model(place, **named, key=key) for key in ("first", "second"))
    chain = FallbackModel(first, second)
    result = await Agent(chain, tools=[thermometer]).run("hi")
    stored = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
    assert "of two" not in json.dumps(place.bodies[2])
    await Agent(FallbackModel(second), tools=[thermometer]).run("so?", message_history=stored)
    assert "of two" in json.dumps(place.bodies[3])


async def test_a_model_that_thinks_unasked_keeps_its_thoughts(
    primary: Provider, fallback: Provider
) -> None:
    """Newer ones of Anthropic's do so without a setting: one goes on with what it thought."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "of the primary"}
    call = wire.tool_use("toolu_1", "thermometer", LIMA)
    primary.reply(Reply(body=wire.message_answer(thought, call, stop="tool_use")))
    chain = FallbackModel(claude(primary), claude(fallback))
    assert await SDK.run(chain, thermometer) == f"hello from {primary.name}"
    assert "of the primary" in json.dumps(primary.bodies[1])


async def test_a_history_of_pydantic_ais_own_belongs_to_its_address(
    providers: ProviderServer,
) -> None:
    """No chain has noted whose account made it: ids and thoughts go to the same address only."""
    there, here = providers.new("there"), providers.new("here")
    there.reply(thinking("there"), Reply(text="rain"))
    models = [SDK.model(place, api="responses", name="gpt-5.5") for place in (there, here)]
    result = await Agent(models[0], tools=[thermometer]).run("hi")
    history = result.all_messages()
    for place, model in zip((there, here), models, strict=True):
        await Agent(FallbackModel(model), tools=[thermometer]).run("so?", message_history=history)
        sent = json.dumps(place.bodies[-1])
        assert "call_there" in sent
        assert [one in sent for one in ("of there", "rs_there", "fc_there")] == [
            place is there
        ] * 3


async def test_a_conversation_is_a_session(
    primary: Provider, fallback: Provider, providers: ProviderServer
) -> None:
    """A history brings its conversation's id with it; one that is given another is another."""
    primary.fail(503, times=1)
    agent = Agent(chain_of(primary, fallback, reset="session"))
    history = (await agent.run("hi")).all_messages()
    await agent.run("and?", message_history=history)
    await agent.run("and?", message_history=history, conversation_id="another")
    await agent.run("hi")
    first, second = primary.name, fallback.name
    assert providers.order == [first, second, second, first, first]


@pytest.mark.parametrize("partial", ["final", "replace"])
async def test_a_cancelled_stream_is_no_failure(
    primary: Provider, fallback: Provider, listener: Listener, partial: Any
) -> None:
    """Whoever cancels while it is read gets what came: nobody else is asked, and nobody rests."""
    primary.reply(Reply(hang=True, events=[wire.chat_word("one "), wire.chat_word("two ")]))
    options: Any = {"observers": [listener], "partial": partial, "cooldown": Cooldown(after=1)}
    chain = chain_of(primary, fallback, **options)
    words: list[str] = []
    async with Agent(chain).run_stream("hi") as result:
        async for word in result.stream_text(delta=True, debounce_by=None):
            words.append(word)
            if word == "two ":
                await result.cancel()
        assert result.response.state == "interrupted"
    assert words == ["one ", "two "]
    assert listener.records[0].outcome == "cancelled"
    assert (await Agent(chain).run("hi")).output == f"hello from {primary.name}"
    assert not fallback.requests


async def test_auto_sends_others_the_whole_history(primary: Provider, fallback: Provider) -> None:
    """So Pydantic AI finds out by itself what is kept, and who has it."""
    primary.fail(503)
    chain = chain_of(primary, fallback, api="responses")
    answer = await SDK.run(chain, settings={"openai_previous_response_id": "auto"})
    assert answer == f"hello from {fallback.name}"


async def test_a_suspended_response_goes_on_where_it_is(
    primary: Provider, listener: Listener
) -> None:
    """Its job runs at one provider; nobody else can say how it ended."""

    def job(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        last = messages[-1]
        going_on = isinstance(last, ModelResponse) and last.state == "suspended"
        return ModelResponse([TextPart("done")], state="complete" if going_on else "suspended")

    primary.fail(503)
    models = SDK.model(primary), FunctionModel(job, model_name="job")
    chain = FallbackModel(*models, observers=[listener])
    result = await Agent(chain).run("hi")
    assert "done" in result.output
    first, second = listener.records
    assert [one.model for one in first.attempts] == ["gpt-4o", "job"]
    assert [one.model for one in second.attempts] == ["job"]


async def test_a_stream_that_is_left_is_no_failure(
    providers: ProviderServer, listener: Listener
) -> None:
    """By ``cancel``, and by leaving the block."""
    chain = chain_of(providers.new("one"), observers=[listener])
    request: list[ModelMessage] = [ModelRequest.user_text_prompt("hi")]
    async with chain.request_stream(request, None, ModelRequestParameters()) as stream:
        await anext(aiter(stream))
        await stream.cancel()
        assert [event async for event in stream] == []
        assert stream.get().state == "interrupted"
    async with chain.request_stream(request, None, ModelRequestParameters()) as stream:
        await anext(aiter(stream))
    assert [record.outcome for record in listener.records] == ["abandoned", "abandoned"]


async def test_models_without_an_address_are_two_places() -> None:
    """What was meant for the primary, such as a key in a header, is not handed to the other."""
    settings: list[Any] = []

    def ask(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        settings.append(info.model_settings)
        if len(settings) == 1:
            raise ConnectionError("dead")
        return ModelResponse([TextPart("hello")])

    models = (FunctionModel(ask, model_name=name) for name in ("dead", "alive"))
    await Agent(FallbackModel(*models), model_settings={"extra_body": "theirs"}).run("hi")
    assert ["extra_body" in (one or {}) for one in settings] == [True, False]


async def test_an_empty_stream_switches(listener: Listener) -> None:
    """A content filter that leaves nothing to show is judged before anything is shown."""

    def saying(word: str, name: str) -> FunctionModel:
        async def say(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
            yield word

        return FunctionModel(stream_function=say, model_name=name)

    models = saying("", "silent"), saying("hello", "speaks")
    chain = FallbackModel(*models, observers=[listener], validate=lambda text: text == "hello")
    async with Agent(chain).run_stream("hi") as result:
        assert await result.get_output() == "hello"
        assert result.usage.output_tokens
    (record,) = listener.records
    assert [one.model for one in record.attempts] == ["silent", "speaks"]
    assert record.usage is not None
    assert record.usage["output_tokens"] == result.usage.output_tokens


async def test_the_sdks_own_retries_stay_where_they_are_asked_for(
    primary: Provider,
    fallback: Provider,
) -> None:
    """``max_retries`` in the settings is the user's word."""
    primary.fail(500, times=1, headers={"retry-after-ms": "1"})
    chain = chain_of(primary, fallback)
    answer = await SDK.run(chain, settings={"max_retries": 1})
    assert answer == f"hello from {primary.name}"


def gemini(provider: Provider) -> GoogleModel:
    place = GoogleProvider(api_key="key", base_url=provider.url)
    return GoogleModel("gemini-3-pro", provider=place)


OTHER = {"candidates": [{"finishReason": "OTHER", "index": 0}], "responseId": "r"}
BEGUN = [wire.event(wire.part(role="assistant")), "data: [DONE]"]
SILENT: dict[str, tuple[Any, Any, Reply]] = {
    "gemini, answer": (gemini, SDK.run, Reply(body=OTHER)),
    "gemini, stream": (gemini, SDK.stream, Reply(events=[wire.event(OTHER)])),
    "openai, stream": (SDK.model, SDK.stream, Reply(events=BEGUN)),
}


@pytest.mark.parametrize("case", SILENT)
async def test_a_model_that_says_nothing_has_not_answered(
    primary: Provider, fallback: Provider, case: str
) -> None:
    """Pydantic AI takes it for one that ended well, and would ask the same model once more."""
    model, ask, primary.standing = SILENT[case]
    output = await ask(FallbackModel(model(primary), SDK.model(fallback)))
    assert output == f"hello from {fallback.name}"
    assert len(primary.requests) == 1


async def test_tokens_are_counted_by_who_would_be_asked(providers: ProviderServer) -> None:
    """Anthropic counts; a chain that begins with it does, too."""
    counter = providers.new("counter")
    counter.standing = Reply(body={"input_tokens": 7})
    chain = FallbackModel(claude(counter), SDK.model(providers.new("other")))
    feedback = RetryFeedbackPart("again, shorter", retry=RetryInfo(cause="model_retry"))
    history: list[ModelMessage] = [
        ModelRequest.user_text_prompt("hi"),
        ModelResponse([TextPart("a long answer")]),
        ModelRequest([feedback]),  # each model writes such a part in its own words
    ]
    usage = await chain.count_tokens(history, None, ModelRequestParameters())
    assert usage.input_tokens == 7
    assert "count_tokens" in counter.requests[0].path
    assert "again, shorter" in json.dumps(counter.requests[0].body)
