"""LangChain's chat models in the three forms of a chain: a model, a runnable, an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
from langchain_core.messages import AIMessageChunk
from langchain_core.prompts import ChatPromptTemplate

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.contract.ways.way import REJECTED, Page, Place, Way
from tests.helpers.agents import agent, last, run, stream
from tests.helpers.chat_models import claude, gpt
from tests.helpers.chat_runs import SILENT_VERBS, VERBS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import FallbackConfig

FOUR = ("invoke", "ainvoke", "stream", "astream")


def _config(metadata: Any) -> Any:
    return None if metadata is None else {"metadata": metadata}


def show(page: Page, chunk: Any, of: object = None) -> None:
    page.model = chunk.response_metadata.get("model_name") or page.model
    page.has_usage = page.has_usage or bool(chunk.usage_metadata)
    if chunk.text:
        page.show(chunk.text, of)


class OfLangChain(Way):
    def model(self, place: Place, **fields: Any) -> Any:
        is_claude = self.form == "anthropic"
        name = place.model.replace("gpt", "claude") if is_claude else place.model
        return (claude if is_claude else gpt)(
            model=name,
            base_url=place.url,
            api_key=place.secret,
            timeout=place.timeout,
            top_p=0.9,
            tags=[*place.labels],
            **fields,
        )


class ChatModel(OfLangChain):
    """A FallbackChatModel, asked by every method that a chat model has."""

    name = "chat model"
    verbs: tuple[str, ...] = (*VERBS, *SILENT_VERBS)
    few: tuple[str, ...] = FOUR

    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        given: Any = {"fallback_config": config, "observers": observers}
        return FallbackChatModel(*models, partial=self.partial, **given)

    async def read(self, chain: Any, verb: str, question: Any, metadata: Any = None) -> Page:
        page, config = Page(), _config(metadata)
        if verb != "astream":
            page.show(await (VERBS | SILENT_VERBS)[verb](chain, question, config))
            return page
        async for chunk in chain.astream(question, config):
            if chunk.response_metadata.get("fallback", {}).get("replaces"):
                page.text = ""
            show(page, chunk)
        return page


class ChatModelOfAnthropic(ChatModel):
    name, form = "chat model of Anthropic", "anthropic"
    verbs, few = FOUR, ("ainvoke", "stream")
    raises = Way.raises | {REJECTED: anthropic.BadRequestError}


class Chain(ChatModel):
    name = "runnable"
    verbs, few = (*VERBS,), ("ainvoke", "stream")

    def model(self, place: Place, **fields: Any) -> Any:
        return ChatPromptTemplate.from_template("{word}") | super().model(place, **fields)

    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        return FallbackRunnable(*models, fallback_config=config, observers=observers)

    async def read(self, chain: Any, verb: str, question: Any, metadata: Any = None) -> Page:
        """Ask it with what its prompt wants."""
        return await super().read(chain, verb, {"word": question}, metadata)


class Agent(OfLangChain):
    name = "agent"
    verbs, few = FOUR, ("invoke", "astream")
    by_id = True  # whether its reader sees by the messages' ids what is void

    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        given: Any = {"fallback_config": config, "observers": observers}
        return agent(models[0], FallbackMiddleware(*models[1:], partial=self.partial, **given))

    async def read(self, chain: Any, verb: str, question: str, metadata: Any = None) -> Page:
        page, config = Page(), _config(metadata)
        if "stream" not in verb:
            page.show(str(last(await run(verb, chain, question, config)).text))
            return page
        way = "ainvoke" if verb == "astream" else "invoke"
        for chunk, _ in await stream(way, chain, "messages", config, question):
            if isinstance(chunk, AIMessageChunk):
                show(page, chunk, chunk.id if self.by_id else None)
        return page


WAYS: list[Way] = [ChatModel(), ChatModelOfAnthropic(), Chain(), Agent()]
