"""The ways in with what a user declares, and the frameworks' own means beside them.

Each is one of `tests/contract/ways`, made anew for a scenario: a streamed answer, read to its end
as that framework's users read one.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import litellm
import openai
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from pydantic_ai.models.fallback import FallbackModel as PydanticAIFallbackModel

from benchmarks.faults.scenarios import CLIENT_TIMEOUT, FALLBACK_MODEL, PRIMARY_MODEL, Answer
from honcho_fallback import FallbackConfig
from tests.contract.ways.agent_sdks import OfFramework
from tests.contract.ways.core import Core
from tests.contract.ways.langchain import Agent, ChatModel, OfLangChain, show
from tests.contract.ways.litellm import GROUP, OfRouter
from tests.contract.ways.way import Page, Place
from tests.helpers.idle_loop import IdleLoop, transport_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tests.contract.ways.way import Way as AnyWay

RETRIES = 2  # of LiteLLM's Router, as many as an SDK's, where a framework leaves retries to it
QUESTION = "Say twelve words"

Ask: TypeAlias = "Callable[[], Awaitable[Answer]]"
# Of the primary's address, the fallback's, and what is declared.
Build: TypeAlias = "Callable[[str, str, Profile], Ask]"


@dataclass(frozen=True, slots=True)
class Profile:
    """Say what a user of this package declares.

    Args:
        name: For the table.
        config: Makes the options, each time with a memory of their own.
        partial: What becomes of what was shown of a broken answer.
    """

    name: str
    config: Callable[[], FallbackConfig]
    partial: Any = "final"


PROFILES = (
    Profile("nothing declared", FallbackConfig),
    Profile("resilient()", FallbackConfig.resilient),
    Profile('nothing declared, partial="replace"', FallbackConfig, "replace"),
    Profile('resilient(), partial="replace"', FallbackConfig.resilient, "replace"),
    Profile('resilient(), partial="continue"', FallbackConfig.resilient, "continue"),
)


@dataclass(frozen=True, slots=True)
class Way:
    """Describe one way in, and how a chain of it is asked.

    Args:
        name: For the table.
        kind: Makes it.
        own: The framework's own means, by the name of the control; empty without any.
        takes: What ``partial`` may be there.
        verb: How it is asked.
    """

    name: str
    kind: Callable[[], AnyWay]
    own: str = ""
    takes: tuple[str, ...] = ("final",)
    verb: str = "astream"

    @property
    def profiles(self) -> tuple[Profile, ...]:
        return tuple(one for one in PROFILES if one.partial in self.takes)

    def build(self, primary: str, fallback: str, profile: Profile) -> Ask:
        way = self.kind()
        way.partial = profile.partial
        chain = way.over(*models(way, primary, fallback), config=profile.config())
        return asks(way, chain, self.verb)


def models(way: AnyWay, primary: str, fallback: str) -> list[Any]:
    """Make the models of both, the second of which can go on with an answer.

    LangChain's are told to say what a stream has cost.
    """
    fields = {"stream_usage": True} if isinstance(way, OfLangChain) else {}
    both = ((primary, PRIMARY_MODEL, False), (fallback, FALLBACK_MODEL, True))
    # LiteLLM shares cooldowns between Routers by a deployment's name.
    at: Any = [SimpleNamespace(url=f"{url}/v1", name=uuid.uuid4().hex) for url, _, _ in both]
    return [
        way.model(Place(one, model, "none", timeout=CLIENT_TIMEOUT, prefill=prefill), **fields)
        for one, (_, model, prefill) in zip(at, both, strict=True)
    ]


def asks(way: AnyWay, chain: Any, verb: str = "astream") -> Ask:
    async def read() -> Answer:
        page = await way.read(chain, verb, QUESTION)
        return Answer(page.text, page.model, page.has_usage)

    return read


def control(way: AnyWay, make: Callable[..., Any], verb: str = "astream") -> Build:
    """Build what somebody makes of both models without this package."""

    def build(primary: str, fallback: str, _: Profile) -> Ask:
        return asks(way, make(*models(way, primary, fallback)), verb)

    return build


class CoreInAThread(Core):
    """``policy.stream`` over ``OpenAI``, in a thread; its sockets are the loop's, for the time."""

    def model(self, place: Place, **fields: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, IdleLoop)
        http = openai.DefaultHttpxClient(transport=transport_of(loop))
        return super().model(place, http_client=http, **fields)

    async def read(self, chain: Any, verb: str, question: str, metadata: Any = None) -> Page:
        page = Page()
        await asyncio.to_thread(lambda: self.show(page, self.answer(chain, verb, question)))
        return page


PROMPT = ChatPromptTemplate.from_messages([("user", "{question}")])


def parsed(model: Any) -> Any:
    return PROMPT | model | StrOutputParser()


class BeforeAParser(ChatModel):
    """``prompt | model | parser``: its texts, or its events, which name the attempt of each."""

    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        return parsed(super().over(*models, config=config, observers=observers))

    async def read(self, chain: Any, verb: str, question: Any, metadata: Any = None) -> Page:
        page, usage = Page(), UsageMetadataCallbackHandler()
        asked = {"question": question}
        if self.partial == "replace":
            async for event in chain.astream_events(asked):
                if event["event"] == "on_chat_model_stream":
                    show(page, event["data"]["chunk"], event["metadata"]["fallback_attempt"])
            return page
        async for text in chain.astream(asked, {"callbacks": [usage]}):
            page.show(text)
        page.model = next(iter(usage.usage_metadata), None)
        page.has_usage = bool(usage.usage_metadata)
        return page


class AgentOnModel(Agent):
    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        given: Any = {"config": config, "observers": observers}
        chain = ChatModel()
        chain.partial = self.partial
        return create_agent(chain.over(*models, **given), [])


class PrintedAgent(Agent):
    by_id = False


agents_sdk = partial(OfFramework, "openai-agents", "chat")
pydantic_ai = partial(OfFramework, "pydantic-ai", "chat")


def agent_with_theirs(first: Any, second: Any) -> Any:
    return create_agent(first, [], middleware=[ModelFallbackMiddleware(second)])


def router_with_fallbacks(first: Any, second: Any) -> litellm.Router:
    lists: Any = [{GROUP: ["backup"]}]
    return litellm.Router(
        [first, {**second, "model_name": "backup"}],
        num_retries=RETRIES,
        fallbacks=lists,
        context_window_fallbacks=lists,
    )


ALONE = "Agents SDK, one model"  # which has no fallback
PRINTED = "LangChain agent, `ModelFallbackMiddleware`, tokens printed as they come"

TWO, THREE = ("final", "replace"), ("final", "replace", "continue")
OWN_OF_A_MODEL, OWN_OF_AN_AGENT = (
    "LangChain, `with_fallbacks`",
    "LangChain agent, `ModelFallbackMiddleware`",
)
OWN_OF_A_CHAIN = f"{OWN_OF_A_MODEL} before a parser"
WAYS = {
    way.name: way
    for way in (
        Way("openai SDK, `policy.astream`", Core, takes=THREE),
        Way("openai SDK, `policy.stream`", CoreInAThread, takes=THREE, verb="stream"),
        Way("LangChain, `FallbackChatModel`", ChatModel, OWN_OF_A_MODEL, TWO),
        Way("LangChain, `FallbackChatModel` before a parser", BeforeAParser, OWN_OF_A_CHAIN, TWO),
        Way("LangChain agent, `FallbackMiddleware`", Agent, OWN_OF_AN_AGENT, TWO),
        Way("LangChain agent, `FallbackChatModel`", AgentOnModel, OWN_OF_AN_AGENT, TWO),
        Way("LiteLLM, `FallbackRoutingStrategy`", OfRouter, "LiteLLM Router, `fallbacks`"),
        Way("Agents SDK, `FallbackModel`", agents_sdk, ALONE, verb="stream"),
        Way(
            "Pydantic AI, `FallbackModel`",
            pydantic_ai,
            "Pydantic AI, its own `FallbackModel`",
            verb="stream",
        ),
    )
}
CONTROLS: dict[str, Build] = {
    OWN_OF_A_MODEL: control(ChatModel(), lambda first, second: first.with_fallbacks([second])),
    OWN_OF_A_CHAIN: control(
        BeforeAParser(), lambda first, second: parsed(first.with_fallbacks([second]))
    ),
    OWN_OF_AN_AGENT: control(Agent(), agent_with_theirs),
    PRINTED: control(PrintedAgent(), agent_with_theirs),
    "LiteLLM Router, `fallbacks`": control(OfRouter(), router_with_fallbacks),
    # The Agents SDK has no fallback of its own.
    ALONE: control(agents_sdk(), lambda first, _: first.client, "stream"),
    "Pydantic AI, its own `FallbackModel`": control(
        pydantic_ai(),
        lambda first, second: PydanticAIFallbackModel(first.client, second.client),
        "stream",
    ),
}
