"""What the Agents SDK has and other frameworks have not."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import create_autospec

import agents
import pytest
from agents.retry import retry_policies

from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackExhausted
from honcho_fallback_openai_agents import FallbackModel, FallbackProvider
from tests.agents import frameworks
from tests.agents.frameworks import FRAMEWORKS, LIMA, City, client_of, thinking
from tests.helpers import wire
from tests.helpers.observers import ContentListener
from tests.helpers.provider import Reply
from tests.helpers.strict import ResponsesRules

if TYPE_CHECKING:
    from tests.helpers.observers import Listener
    from tests.helpers.provider import Provider, ProviderServer, SeenRequest

SDK = FRAMEWORKS["openai-agents"]
chain_of = partial(frameworks.chain_of, SDK)


def handing_over(request: SeenRequest) -> Reply:
    """Hand over to the expert behind some reasoning; the expert says a word."""
    if "call_1" in json.dumps(request.body["input"]):
        return Reply(text="Warm.")
    return thinking(
        "handoff", wire.response_call("fc_handoff", "call_1", "transfer_to_expert", {})
    )


@pytest.mark.parametrize("kept", [False, True], ids=["items", "previous response"])
@pytest.mark.parametrize("is_stream", [False, True], ids=["answer", "stream"])
@pytest.mark.parametrize("order", ["same", "reverse"])
async def test_a_handoff_to_another_chain_knows_who_wrote_what(
    primary: Provider, fallback: Provider, order: str, *, is_stream: bool, kept: bool
) -> None:
    """Agents of one run may have a chain each over the same accounts, in any order.

    A response is continued where it is kept: its id means nothing to anybody else.
    """
    if not kept:  # rules know no call of a response that is
        primary.rules, fallback.rules = ResponsesRules(), ResponsesRules()
    primary.fail(503, times=1)
    primary.standing = fallback.standing = handing_over
    others = (primary, fallback) if order == "same" else (fallback, primary)
    expert = agents.Agent("expert", model=chain_of(*others, api="responses"))
    model = chain_of(primary, fallback, api="responses")
    triage = agents.Agent("triage", model=model, handoffs=[expert])
    result: Any
    if is_stream:
        result = agents.Runner.run_streamed(triage, "hi", auto_previous_response_id=kept)
        async for _ in result.stream_events():
            pass
    else:
        result = await agents.Runner.run(triage, "hi", auto_previous_response_id=kept)
    assert result.final_output == "Warm."
    assert primary.refused + fallback.refused == []
    assert ("previous_response_id" in fallback.bodies[-1]) is kept
    # What is kept is asked for where it is; what is sent goes to the expert's own primary.
    assert len(primary.requests) == (2 if others[0] is primary and not kept else 1)


async def test_a_session_knows_who_wrote_what(primary: Provider, fallback: Provider) -> None:
    """One answer of another account leaves the session's next run to the primary."""
    primary.rules, fallback.rules = ResponsesRules(), ResponsesRules()
    primary.fail(503, times=1)
    fallback.reply(thinking("session", wire.response_text("hello", "msg_session")))
    outputs: list[str] = []
    with closing(agents.SQLiteSession("a")) as session:
        for _ in range(2):  # as in a program that makes its agents for each request
            agent = agents.Agent("a", model=chain_of(primary, fallback, api="responses"))
            result = await agents.Runner.run(agent, "hi", session=session)
            outputs.append(result.final_output)
    assert outputs == ["hello", f"hello from {primary.name}"]
    assert primary.refused == []


async def test_what_the_sdk_cannot_write_for_a_model_goes_to_the_next(
    providers: ProviderServer, listener: Listener
) -> None:
    """Chat completions take no file by its address; where nobody can, the SDK says so."""
    primary, middle, last = (providers.new(name) for name in ("primary", "middle", "last"))
    primary.fail(503)
    content: Any = [{"type": "input_file", "file_url": "https://files.example/report.pdf"}]
    question: Any = [{"role": "user", "content": content}]
    models = SDK.model(primary, api="responses"), SDK.model(middle)
    able = FallbackModel(*models, SDK.model(last, api="responses"), observers=[listener])
    result = await agents.Runner.run(agents.Agent("a", model=able), question)
    assert result.final_output == f"hello from {last.name}"
    assert listener.kinds == ["overloaded", "unsupported", None]
    with pytest.raises(agents.UserError, match="input_file"):
        await agents.Runner.run(agents.Agent("a", model=chain_of(middle, last)), question)
    assert not middle.requests


def call_with(**fields: Any) -> wire.Json:
    """Make an answer with a call of which some fields are not as they should be."""
    return wire.chat_answer(None, {**wire.chat_call("call_1", "thermometer", LIMA), **fields})


UNREADABLE: dict[str, tuple[str, Any]] = {
    "an id that is null": ("chat", call_with(id=None)),
    "arguments that are an object": ("chat", call_with(function={"name": "f", "arguments": {}})),
    "a call without a name": ("chat", call_with(function={"arguments": "{}"})),
    "counts that are a text": ("chat", {**wire.chat_answer("hi"), "usage": "none"}),
    "another document": ("responses", {"detail": "upstream unavailable"}),
    "a page": ("responses", "<html>upstream unavailable</html>"),
    "a list": ("responses", []),
    "no output": ("responses", {**wire.responses_answer(), "output": None}),
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_what_the_sdk_cannot_read_is_no_answer(
    primary: Provider, fallback: Provider, listener: Listener, case: str
) -> None:
    """Whatever its own code raises after a 200, the next model answers."""
    api, body = UNREADABLE[case]
    primary.standing = Reply(body=body)
    answer = await SDK.run(chain_of(primary, fallback, api=api, observers=[listener]))
    assert (answer, listener.kinds[0]) == (f"hello from {fallback.name}", "malformed_response")


async def test_what_a_stream_cost_is_known_to_who_hears_of_content(
    primary: Provider, fallback: Provider
) -> None:
    """Elsewhere than at OpenAI's own address the SDK asks for it where a run's settings do."""
    heard = ContentListener()
    agent = agents.Agent("a", model=chain_of(primary, fallback, observers=[heard]))
    assert [one async for one in agents.Runner.run_streamed(agent, "hi").stream_events()]
    assert (heard.record.usage or {})["total_tokens"] == 19


async def test_the_key_of_the_primarys_cache_stays_there(
    primary: Provider, fallback: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Runner makes one where a model may take it, as at OpenAI's own address."""
    takes = "_supports_default_prompt_cache_key"
    monkeypatch.setattr(agents.OpenAIChatCompletionsModel, takes, lambda _: True)
    primary.fail(503)
    await SDK.run(chain_of(primary, fallback, elsewhere="localhost"))
    assert ["prompt_cache_key" in one.bodies[0] for one in (primary, fallback)] == [True, False]


async def test_the_runner_does_not_ask_the_chain_again(
    primary: Provider, fallback: Provider
) -> None:
    """Though its settings say that it may, twice, whatever the error."""
    primary.fail(500)
    fallback.fail(500)
    chain = chain_of(primary, fallback, attempts_per_target=1)
    retry = agents.ModelRetrySettings(max_retries=2, policy=retry_policies.http_status([500]))
    agent = agents.Agent("a", model=chain, model_settings=agents.ModelSettings(retry=retry))
    with pytest.raises(FallbackExhausted):
        await agents.Runner.run(agent, "hi")
    assert [len(one.requests) for one in (primary, fallback)] == [1, 1]


async def test_structured_output_and_handoffs_pass_through(
    primary: Provider, fallback: Provider
) -> None:
    """The fallback is asked for the same schema, and its call hands over."""
    primary.fail(503)
    handoff = wire.chat_answer("", wire.chat_call("call_1", "transfer_to_expert", {}))
    fallback.reply(Reply(body=handoff), Reply(text='{"city": "Lima"}'))
    chain = chain_of(primary, fallback)
    expert = agents.Agent("expert", model=chain, output_type=City)
    triage = agents.Agent("triage", model=chain, handoffs=[expert])
    result = await agents.Runner.run(triage, "hi")
    assert result.final_output == City(city="Lima")
    assert result.last_agent is expert
    assert "json_schema" in json.dumps(fallback.bodies[-1])


async def test_a_failed_attempt_has_a_span_and_no_usage(
    primary: Provider, fallback: Provider
) -> None:
    """Each attempt has the SDK's own span; the usage of a run is that of its answers."""
    primary.fail(503)
    alone = await agents.Runner.run(agents.Agent("a", model=SDK.model(fallback)), "hi")
    processor = create_autospec(agents.TracingProcessor, instance=True)
    agents.set_trace_processors([processor])
    agents.set_tracing_disabled(False)
    agent = agents.Agent("a", model=chain_of(primary, fallback))
    result = await agents.Runner.run(agent, "hi")
    ended = [call.args[0].span_data.type for call in processor.on_span_end.call_args_list]
    assert ended.count("generation") == 2
    usage, expected = result.context_wrapper.usage, alone.context_wrapper.usage
    assert (usage.requests, usage.total_tokens) == (expected.requests, expected.total_tokens)
    assert usage.total_tokens > 0


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_refusal_is_the_runners_answer(
    api: str, primary: Provider, fallback: Provider, listener: Listener
) -> None:
    """Its handler of refusals is asked as for a model alone, and the record says what it was.

    With the kind in `fallback_on` the next model is asked, and a refusal of all is an error.
    """
    said = {"type": "refusal", "refusal": "no"}
    item = wire.response_text("") | {"content": [said]}
    body = wire.chat_answer(None, refusal="no") if api == "chat" else wire.responses_answer(item)
    primary.standing = Reply(body=body)

    async def run(**options: Any) -> Any:
        chain = chain_of(primary, fallback, api=api, observers=[listener], **options)
        handlers: Any = {"model_refusal": lambda _: "handled"}
        agent = agents.Agent("a", model=chain)
        return (await agents.Runner.run(agent, "hi", error_handlers=handlers)).final_output

    assert await run() == "handled"
    assert (fallback.requests, listener.kinds) == ([], ["refusal"])
    leaving = FallbackConfig().fallback_on | {"refusal"}
    assert await run(fallback_on=leaving) == f"hello from {fallback.name}"
    fallback.standing = primary.standing
    with pytest.raises(FallbackExhausted):
        await run(fallback_on=leaving)


class Closing(agents.OpenAIChatCompletionsModel):
    """Note that it was closed, also on the class: a chain asks copies."""

    closed: bool = False

    async def close(self) -> None:
        type(self).closed = True


async def test_a_provider_gives_every_name_the_fallbacks(providers: ProviderServer) -> None:
    """Also the default; each keeps what it learned, and closing it gives connections back.

    Its options are those of each chain, also how it streams; a wrong one is refused at once.
    """
    with pytest.raises(FallbackConfigError, match="did you mean timeout"):
        FallbackProvider("backup", timout=3)  # type: ignore[call-arg] # the mistake
    names = create_autospec(agents.ModelProvider, instance=True)
    names.get_model = lambda name: Closing("m", client_of(providers[name or "default"]))
    chains = FallbackProvider("backup", provider=names, agent="named", partial="replace")
    config = agents.RunConfig(model_provider=chains)
    for name in ("first", "second", None):
        primary: Provider = providers[name or "default"]
        primary.fail(503)
        result = await agents.Runner.run(agents.Agent("a", model=name), "hi", run_config=config)
        assert result.final_output == "hello from backup"
        assert chains.get_model(name) is chains.get_model(name)
    providers["third"].standing = Reply(events=[wire.chat_word("dead ")], cut=True)
    third: Any = chains.get_model("third")
    assert await SDK.stream(third) == "hello from backup"
    assert third.policy.agent == "named"
    await chains.aclose()
    names.aclose.assert_awaited_once_with()
    assert Closing.closed
