"""Answers without an answer: the next model is asked; a mistake of the program stays its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from honcho_fallback import AnswerRejected, StreamInterrupted
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.chat_models import alive, model_at, serve
from tests.helpers.chat_runs import Runs
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel
    from langchain_core.outputs import ChatResult
    from langchain_core.runnables import Runnable

    from tests.helpers.provider import ProviderServer, SeenRequest

_HEAD = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
_ANTHROPIC = {"id": "1", "type": "message", "role": "assistant", "model": "m", "usage": None}
WITHOUT = {
    "no choices": {**_HEAD, "choices": []},
    "null for choices": {**_HEAD, "choices": None},
    "no message": {**_HEAD, "choices": [{"index": 0, "message": None}]},
    "no object": '"hello"',
    "no content": {**_ANTHROPIC, "content": None},
}


def empty(providers: ProviderServer, what: str) -> BaseChatModel:
    """Make a real model whose provider answers with status 200 and nothing that can be read."""
    provider = providers.new("anthropic" if what == "no content" else "openai")

    def answer(request: SeenRequest) -> Reply:
        return Reply(events=[]) if request.body.get("stream") else Reply(body=WITHOUT[what])

    provider.standing = answer
    return model_at(provider)


async def ask(model: Runnable[Any, Any], verb: str, *asked: Any) -> Any:
    """Ask by a verb, and return the answer or the last chunk."""
    if verb == "invoke":
        return model.invoke(*asked)
    if verb == "ainvoke":
        return await model.ainvoke(*asked)
    if verb == "stream":
        return [chunk for chunk in model.stream(*asked) if chunk][-1]
    if verb == "generate":
        return model.generate([asked[0]]).generations[0][0].message  # type: ignore[attr-defined] # a chat model's
    if verb == "agenerate":
        return (await model.agenerate([asked[0]])).generations[0][0].message  # type: ignore[attr-defined] # likewise
    return [chunk async for chunk in model.astream(*asked) if chunk][-1]


def first_failure(answer: Any) -> Any:
    return answer.response_metadata["fallback"]["attempts"][0]


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("what", WITHOUT)
@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_an_answer_without_one_is_malformed(
    providers: ProviderServer, verb: str, what: str, *, heard: bool
) -> None:
    """However it is asked and whether or not a handler listens, the next model answers."""
    model = FallbackChatModel(empty(providers, what), alive())
    config = {"callbacks": [Runs()]} if heard else {}
    answer = await ask(model, verb, "hi", config)
    assert first_failure(answer)["kind"] == "malformed_response"
    assert first_failure(answer)["error"] == "AnswerRejected"


@pytest.mark.parametrize("what", WITHOUT)
@pytest.mark.parametrize("verb", ["generate", "agenerate"])
async def test_the_same_in_a_run_of_langchains(
    providers: ProviderServer, verb: str, what: str
) -> None:
    """`generate` opens its own run and asks candidates without one."""
    model = FallbackChatModel(empty(providers, what), alive())
    answer = await ask(model, verb, [HumanMessage("hi")])
    assert first_failure(answer)["kind"] == "malformed_response"


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_a_chain_says_it_as_well(providers: ProviderServer, verb: str) -> None:
    """A whole chain switches, too, whatever stands around its model."""
    first = empty(providers, "no choices") | StrOutputParser()
    chain = FallbackRunnable(first, alive("backup", "words") | StrOutputParser())
    assert await ask(chain, verb, "hi") == "words"


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_an_agent_says_it_as_well(providers: ProviderServer, verb: str) -> None:
    """The middleware asks the next model."""
    primary = empty(providers, "null for choices")
    agent = create_agent(primary, middleware=[FallbackMiddleware(alive())])
    answer = (await ask(agent, verb, {"messages": [HumanMessage("hi")]}))["messages"][-1]
    assert first_failure(answer)["kind"] == "malformed_response"


def test_the_error_says_what_was_wrong(providers: ProviderServer) -> None:
    """Without a fallback the package's own error is the cause."""
    model = FallbackChatModel(empty(providers, "null for choices"), on_exhausted="last")
    model = model.with_fallback_config(attempts_per_target=1)
    with pytest.raises(AnswerRejected, match=r"could not be read \(TypeError\)") as raised:
        model.invoke("hi")
    assert isinstance(raised.value.__cause__, TypeError)


class _OddMessage(BaseMessage):
    type: str = "odd"


class _OwnAnswer(dict[str, Any]):
    def get(self, *_given: Any) -> Any:
        raise IndexError("my own")


class _Careless(ChatOpenAI):
    """Read answers with code of one's own, and wrongly."""

    def _create_chat_result(
        self, response: Any, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        return super()._create_chat_result(_OwnAnswer(), generation_info)


class _CarelessHandler(BaseCallbackHandler):
    raise_error = True

    def on_llm_end(self, *_given: Any, **_kwargs: Any) -> None:
        raise IndexError("my own")

    def on_llm_new_token(self, *_given: Any, **_kwargs: Any) -> None:
        raise IndexError("my own")


def _first_of_none(_said: Any) -> Any:
    return list[Any]()[0]


def _by_responses(model: BaseChatModel) -> Runnable[Any, Any]:
    return model.model_copy(update={"use_responses_api": True})


def _with_careless_handler(model: BaseChatModel) -> Runnable[Any, Any]:
    return model.with_config(callbacks=[_CarelessHandler()])


LOCAL: dict[str, tuple[Callable[[BaseChatModel], Runnable[Any, Any]], Any, type[Exception]]] = {
    "a parser": (lambda model: model | RunnableLambda(_first_of_none), "hi", IndexError),
    "before the model": (lambda model: RunnableLambda(_first_of_none) | model, "hi", IndexError),
    "an input that is none": (lambda model: model, 3, ValueError),
    "a message that nobody knows": (lambda model: model, [_OddMessage(content="hi")], TypeError),
    "a callback": (
        lambda model: model.with_config(callbacks=[_CarelessHandler()]),
        "hi",
        IndexError,
    ),
}


@pytest.mark.parametrize("where", LOCAL)
@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_a_mistake_of_the_program_stays_its_own(
    providers: ProviderServer, verb: str, where: str
) -> None:
    """The same errors raised by the user's own code, or for it, ask nobody else."""
    make, asked, kind = LOCAL[where]
    primary, backup = serve(providers, "openai", "a"), serve(providers, "openai", "b")
    chain = FallbackRunnable(make(model_at(primary)), make(model_at(backup)))
    with pytest.raises((kind, StreamInterrupted)) as raised:
        await ask(chain, verb, asked)
    error = raised.value
    cause = error.__cause__ if isinstance(error, StreamInterrupted) else error  # a word was out
    assert isinstance(cause, kind)
    assert len(backup.requests) == 0


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_a_class_of_ones_own_reads_by_itself(providers: ProviderServer, verb: str) -> None:
    """What was raised in a user's subclass of an integration is no provider's failure."""
    primary, backup = serve(providers, "openai", "a"), serve(providers, "openai", "b")
    own = _Careless(model="m", api_key=SecretStr("k"), base_url=primary.url)
    with pytest.raises(IndexError, match="my own"):
        await ask(FallbackChatModel(own, model_at(backup)), verb, "hi")
    assert len(backup.requests) == 0
