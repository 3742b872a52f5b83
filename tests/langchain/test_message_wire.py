"""Histories on the wire: whose an answer is; loops of tools stand in test_thinking.py.

Each provider here refuses what the real one refuses (`tests.helpers.strict`), so a history that it
would answer with a 400 fails the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_openai import ChatOpenAI

from honcho_fallback import Target
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel
from honcho_fallback_langchain._message_history import Reader, for_provider
from tests.helpers.chat_models import NOWHERE, ScriptedChat, claude, gpt
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ResponsesRules
from tests.helpers.wire import message_answer, response_text, responses_answer, text_block

if TYPE_CHECKING:
    from langchain_core.language_models import LangSmithParams

    from tests.helpers.provider import ProviderServer
    from tests.helpers.wire import Json


def test_an_id_of_a_response_is_no_other_accounts(providers: ProviderServer) -> None:
    """The primary is not asked to go on from what a fallback's account keeps."""
    servers = [providers.new("openai", rules=ResponsesRules()) for _ in range(2)]
    servers[0].reply(Reply(status=503))
    for number, server in enumerate(servers):
        body = responses_answer(response_text(f"Said by {number}.", f"msg_{number}"))
        server.standing = Reply(body={**body, "id": f"resp_{number}"})
    fields: Json = {"use_responses_api": True, "use_previous_response_id": True}
    model = FallbackChatModel(*(gpt(base_url=one.url, **fields) for one in servers))
    history: list[BaseMessage] = [HumanMessage("One.")]
    for said in ("Said by 1.", "Said by 0.", "Said by 0."):
        history += [model.invoke(history), HumanMessage("More.")]
        assert history[-2].text == said
    bodies = servers[0].bodies
    assert [one.get("previous_response_id") for one in bodies] == [None, None, "resp_0"]
    assert servers[0].refused == []


class InHouse(ScriptedChat):
    """A class that does not say whom it asks: LangChain's tracing names it after itself."""


def test_two_models_of_a_class_without_a_name_are_not_one_provider() -> None:
    """What a request says to the one host, and what that host has signed, stays with it."""
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
    answer = AIMessage([signed, {"type": "text", "text": "Hello."}])
    first = InHouse(model="a", script=[[StatusError(503)]])
    second = InHouse(model="b", script=[["Bye."]])
    model = FallbackChatModel(first, second)
    headers = {"authorization": "of the first"}
    model.invoke([HumanMessage("One."), answer, HumanMessage("Two.")], extra_headers=headers)
    assert first.asked[-1].kwargs["extra_headers"] == headers
    assert "extra_headers" not in second.asked[-1].kwargs
    assert "signed" not in str(second.asked[-1].messages)


# Whose an answer of the history is, where providers share an integration or a class.


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
CLOUD = "http://127.0.0.1:2"


class Cloud(ChatOpenAI):
    """Another provider's model, built on langchain-openai as several are."""

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return super()._get_ls_params(stop=stop, **kwargs) | {"ls_provider": "cloud"}


class Mantle(ChatAnthropic):
    """Anthropic's model at another provider."""

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return super()._get_ls_params(stop=stop, **kwargs) | {"ls_provider": "amazon_bedrock"}


def cloud(**fields: Any) -> Cloud:
    return Cloud(**{"model": "m", "api_key": "k", "base_url": CLOUD, **fields})


def answer(writer: str = "openai", target: str | None = None) -> AIMessage:
    """Return what a model said; its chain, if there was one, notes which target that was."""
    described = {"fallback": {"attempts": [{"target": target}]}} if target else {}
    metadata = {"model_provider": writer, **described}
    return AIMessage([REASONING, {"type": "text", "text": "Hi."}], response_metadata=metadata)


def kept(message: AIMessage, position: int, *candidates: Any) -> bool:
    """Tell whether a candidate of a chain gets an answer whole."""
    chain = FallbackChatModel(*candidates).policy.targets
    (sent,) = for_provider([message], Reader.of(chain[position], chain))
    assert sent is message or sent.content == "Hi."
    return sent is message


@pytest.mark.parametrize("form", ["messages", "responses"])
def test_thoughts_go_back_to_a_primary_of_another_name(
    providers: ProviderServer, form: str
) -> None:
    """Who serves Anthropic's models, or speaks OpenAI's protocol, reads what it wrote itself."""
    if form == "messages":
        provider = providers.new("anthropic", rules=AnthropicRules())
        thought: Json = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
        provider.reply(Reply(body=message_answer(thought, text_block("Hi."))))
        given: Json = {"model": "claude-sonnet-5", "api_key": "k", "max_tokens": 9}
        model = FallbackChatModel(Mantle(base_url=provider.url, **given), gpt())
    else:
        provider = providers.new("openai", rules=ResponsesRules())
        provider.reply(Reply(body=responses_answer(REASONING, response_text("Hi.", "msg_1"))))
        given = {"use_responses_api": True, "output_version": "responses/v1"}
        model = FallbackChatModel(cloud(base_url=provider.url, **given), claude())
    model.invoke([HumanMessage("Q."), model.invoke("Q."), HumanMessage("And?")])
    assert provider.refused == []
    body = str(provider.bodies[-1])
    assert ("'signature': 'signed'" if form == "messages" else "encrypted_content") in body


TWO = gpt(model="a"), gpt(model="b")
PLACES = gpt(model="a", base_url=NOWHERE), gpt(model="b", base_url=CLOUD)
CLOUDY = gpt(model="a"), cloud(model="b")
SERVED = claude(model="a"), Mantle(model="b", api_key="k", base_url=CLOUD), gpt()
OF_OPENAI, ELSEWHERE = answer(target="openai/a"), answer(target="openai/elsewhere")
# An answer, the candidates of a chain, and which of them gets it whole.
WHOSE: dict[str, tuple[AIMessage, tuple[Any, ...], list[bool]]] = {
    "accounts share a format, its note says openai": (OF_OPENAI, CLOUDY, [True, False]),
    "its note says cloud": (answer(target="cloud/b"), CLOUDY, [False, True]),
    "no note, so it is the primary's": (answer(), CLOUDY, [True, False]),
    "no note, whoever is the primary": (answer(), CLOUDY[::-1], [True, False]),
    "one provider at two addresses is two accounts": (OF_OPENAI, PLACES, [True, False]),
    "at one address it is one": (OF_OPENAI, TWO, [True, True]),
    # Agents with chains of their own share a thread, and a model of a thread is renamed.
    "another chain's is its provider's": (ELSEWHERE, (claude(), *CLOUDY), [False, True, False]),
    "it is nobody's where two accounts may have made it": (ELSEWHERE, PLACES, [False, False]),
    "it is both's at one address": (ELSEWHERE, TWO, [True, True]),
    "signatures hold where the model is served": (
        answer("anthropic", "anthropic/a"),
        SERVED,
        [True, True, False],
    ),
}


@pytest.mark.parametrize("case", WHOSE)
def test_an_answer_goes_whole_to_whose_it_is(case: str) -> None:
    """The chain's note says which target wrote it; what only an account can read stays there."""
    message, chain, expected = WHOSE[case]
    assert [kept(message, at, *chain) for at in range(len(chain))] == expected


def test_an_id_that_is_too_long_is_its_own_accounts() -> None:
    """A server of OpenAI's protocol reads its own ids back, and the others would refuse them."""
    chain = FallbackChatModel(gpt(model="a"), cloud(model="b")).policy.targets
    message = answer(target="cloud/b")
    message.tool_calls = [tool_call(name="f", args={}, id="x" * 70)]
    lengths = []
    for target in chain:
        (sent,) = for_provider([message], Reader.of(target, chain))
        assert isinstance(sent, AIMessage)
        lengths.append(len(sent.tool_calls[0]["id"] or ""))
    assert lengths == [32, 70]


def test_a_primary_that_no_table_knows_keeps_its_own_blocks() -> None:
    """What an unknown primary sends unmarked is its own, whoever else writes such blocks."""
    primary = Target("m", "house")
    history: list[BaseMessage] = [AIMessage([{"type": "thinking", "thinking": "t"}, "Hi."])]
    assert for_provider(history, Reader.of(primary, [primary])) is history
    (sent,) = for_provider(history, Reader.of(Target("n", "shed"), [primary]))
    assert sent.content == "Hi."
