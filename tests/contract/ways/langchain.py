"""LangChain's chat models in the three forms of a chain: a model, a runnable, an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
from langchain_core.messages import AIMessageChunk
from langchain_core.prompts import ChatPromptTemplate

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.contract.ways.way import REJECTED, Place, Way
from tests.helpers.agents import agent, last, run, stream
from tests.helpers.chat_models import claude, gpt
from tests.helpers.chat_runs import SILENT_VERBS, VERBS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import FallbackConfig

FOUR = ("invoke", "ainvoke", "stream", "astream")


def _model(place: Place, form: str) -> Any:
    name = place.model.replace("gpt", "claude") if form == "anthropic" else place.model
    return (claude if form == "anthropic" else gpt)(
        model=name,
        base_url=place.url,
        api_key=place.secret,
        timeout=place.timeout,
        top_p=0.9,
        tags=[*place.labels],
    )


def _config(metadata: Any) -> Any:
    return None if metadata is None else {"metadata": metadata}


class ChatModel(Way):
    """A FallbackChatModel, asked by every method that a chat model has."""

    name = "chat model"
    verbs: tuple[str, ...] = (*VERBS, *SILENT_VERBS)
    few: tuple[str, ...] = FOUR

    def chain(self, places: list[Place], config: FallbackConfig, observers: Iterable[Any]) -> Any:
        models = [_model(place, self.form) for place in places]
        return FallbackChatModel(*models, fallback_config=config, observers=observers)

    async def ask(self, chain: Any, verb: str, question: str, metadata: Any) -> str:
        said: str = await (VERBS | SILENT_VERBS)[verb](chain, question, _config(metadata))
        return said


class ChatModelOfAnthropic(ChatModel):
    name, form = "chat model of Anthropic", "anthropic"
    verbs, few = FOUR, ("ainvoke", "stream")
    raises = Way.raises | {REJECTED: anthropic.BadRequestError}


class Chain(ChatModel):
    name = "runnable"
    verbs, few = (*VERBS,), ("ainvoke", "stream")

    def chain(self, places: list[Place], config: FallbackConfig, observers: Iterable[Any]) -> Any:
        prompt = ChatPromptTemplate.from_template("{word}")
        chains = [prompt | _model(place, self.form) for place in places]
        return FallbackRunnable(*chains, fallback_config=config, observers=observers)

    async def ask(self, chain: Any, verb: str, question: str, metadata: Any) -> str:
        """Ask it with what its prompt wants."""
        said: str = await VERBS[verb](chain, {"word": question}, _config(metadata))
        return said


class Agent(Way):
    name = "agent"
    verbs, few = FOUR, ("invoke", "astream")

    def chain(self, places: list[Place], config: FallbackConfig, observers: Iterable[Any]) -> Any:
        primary, *fallbacks = [_model(place, self.form) for place in places]
        return agent(
            primary, FallbackMiddleware(*fallbacks, fallback_config=config, observers=observers)
        )

    async def ask(self, chain: Any, verb: str, question: str, metadata: Any) -> str:
        config = _config(metadata)
        if "stream" not in verb:
            return str(last(await run(verb, chain, question, config)).text)
        way = "ainvoke" if verb == "astream" else "invoke"
        parts = await stream(way, chain, "messages", config, question)
        return "".join(one.text for one, _ in parts if isinstance(one, AIMessageChunk))


WAYS: list[Way] = [ChatModel(), ChatModelOfAnthropic(), Chain(), Agent()]
