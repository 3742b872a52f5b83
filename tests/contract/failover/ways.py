"""The ways in: what a caller of each framework writes, and the framework's own means beside it.

A way builds what a user builds, once for a scenario, and returns the function that makes one call
of it: a streamed answer, read to its end as that framework's users read one.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import agents
import litellm
import openai
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.fallback import FallbackModel as PydanticAIFallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import honcho_fallback_openai_agents
import honcho_fallback_pydantic_ai
from benchmarks.faults.scenarios import CLIENT_TIMEOUT, FALLBACK_MODEL, PRIMARY_MODEL, Answer
from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.idle_loop import IdleLoop, transport_of
from tests.helpers.litellm_runs import deployment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from honcho_fallback import Attempt

KEY = "none"
RETRIES = 2  # of an SDK, where a framework leaves retries to it
QUESTION = "Say twelve words"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
STREAMED: Any = {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}

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

    @property
    def replaces(self) -> bool:
        """Tell whether it may be taken back."""
        return bool(self.partial == "replace")


PROFILES = (
    *(
        Profile(name, make, partial)
        for partial, suffix in (("final", ""), ("replace", ', partial="replace"'))
        for name, make in (
            (f"nothing declared{suffix}", FallbackConfig),
            (f"resilient(){suffix}", FallbackConfig.resilient),
        )
    ),
    Profile('resilient(), partial="continue"', FallbackConfig.resilient, "continue"),
)


@dataclass(frozen=True, slots=True)
class Way:
    """Describe one way in.

    Args:
        name: For the table.
        build: Makes the function that asks, of the addresses of both and a profile.
        own: The framework's own means, by the name of the control; empty without any.
        takes: What ``partial`` may be there.
    """

    name: str
    build: Build
    own: str = ""
    takes: tuple[str, ...] = ("final",)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        return tuple(one for one in PROFILES if one.partial in self.takes)


@dataclass(slots=True)
class Page:
    """Show what is said, as an application does: another answer takes the place of the first."""

    text: str = ""
    of: object = None
    model: str | None = None
    has_usage: bool = False

    def show(self, text: str, of: object = None) -> None:
        """Add a text of the answer that is known by this, or begin with it anew."""
        if of != self.of:
            self.text, self.of = "", of
        self.text += text

    def answer(self) -> Answer:
        return Answer(self.text, self.model, self.has_usage)


# The providers' SDK, behind the core.


def _show_chunk(page: Page, chunk: Any, *, by_id: bool = True) -> None:
    """Read a chunk of OpenAI's or LiteLLM's; the chunks of one answer share an id."""
    page.model = chunk.model or page.model
    page.has_usage = page.has_usage or bool(getattr(chunk, "usage", None))
    for choice in chunk.choices:
        if choice.delta.content:
            page.show(choice.delta.content, of=chunk.id if by_id else None)


def _timeout(attempt: Attempt) -> float:
    """Return the client's own patience, or what is left of the policy's where that is less."""
    return min(attempt.timeout or CLIENT_TIMEOUT, CLIENT_TIMEOUT)


def _client(kind: Any, url: str, retries: int = 0, **options: Any) -> Any:
    given = {"api_key": KEY, "timeout": CLIENT_TIMEOUT, "max_retries": retries}
    return kind(base_url=f"{url}/v1", **given, **options)


def _policy(
    kind: Any, primary: str, fallback: str, profile: Profile, **options: Any
) -> FallbackPolicy:
    first, second = (_client(kind, url, **options) for url in (primary, fallback))
    targets = [
        Target(PRIMARY_MODEL, provider="openai", client=first),
        Target(FALLBACK_MODEL, provider="openai", client=second, prefill=True),
    ]
    return FallbackPolicy(targets, profile.config())


def _ask(attempt: Attempt) -> Any:
    """Ask for a stream: with the beginning of the answer, where there is one."""
    request = {**STREAMED, "model": attempt.target.model, "timeout": _timeout(attempt)}
    if attempt.partial:
        begun = {"role": "assistant", "content": attempt.partial}
        request["messages"] = [*MESSAGES, begun]
    return attempt.target.client.chat.completions.create(**request)


def core_async(primary: str, fallback: str, profile: Profile) -> Ask:
    policy = _policy(openai.AsyncOpenAI, primary, fallback, profile)

    async def read() -> Answer:
        page = Page()
        async for chunk in policy.astream(_ask, partial=profile.partial):
            _show_chunk(page, chunk, by_id=profile.replaces)
        return page.answer()

    return read


def core_sync(primary: str, fallback: str, profile: Profile) -> Ask:
    """``policy.stream`` over ``OpenAI``, in a thread; its sockets are the loop's, for the time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, IdleLoop)
    http = openai.DefaultHttpxClient(transport=transport_of(loop))
    policy = _policy(openai.OpenAI, primary, fallback, profile, http_client=http)

    def read() -> Answer:
        page = Page()
        for chunk in policy.stream(_ask, partial=profile.partial):
            _show_chunk(page, chunk, by_id=profile.replaces)
        return page.answer()

    return lambda: asyncio.to_thread(read)


# LangChain.


def _chat(url: str, model: str, **options: Any) -> ChatOpenAI:
    more: dict[str, Any] = {"timeout": CLIENT_TIMEOUT, "stream_usage": True, **options}
    return ChatOpenAI(model=model, base_url=f"{url}/v1", api_key=lambda: KEY, **more)


def _chats(primary: str, fallback: str, **options: Any) -> tuple[ChatOpenAI, ChatOpenAI]:
    return _chat(primary, PRIMARY_MODEL, **options), _chat(fallback, FALLBACK_MODEL, **options)


def _show_message(page: Page, chunk: Any, of: object = None) -> None:
    page.model = chunk.response_metadata.get("model_name") or page.model
    page.has_usage = page.has_usage or bool(chunk.usage_metadata)
    if chunk.text:
        page.show(chunk.text, of)


def _read_model(model: Any) -> Ask:
    async def read() -> Answer:
        page = Page()
        async for chunk in model.astream(QUESTION):
            if chunk.response_metadata.get("fallback", {}).get("replaces"):
                page.text = ""
            _show_message(page, chunk)
        return page.answer()

    return read


def chat_model(primary: str, fallback: str, profile: Profile) -> Ask:
    config = profile.config()
    both = _chats(primary, fallback)
    return _read_model(FallbackChatModel(*both, fallback_config=config, partial=profile.partial))


def with_fallbacks(primary: str, fallback: str, _: Profile) -> Ask:
    first, second = _chats(primary, fallback, max_retries=RETRIES)
    return _read_model(first.with_fallbacks([second]))


PROMPT = ChatPromptTemplate.from_messages([("user", "{question}")])


def _read_events(chain: Any) -> Ask:
    """Read a chain's tokens from its events, which name the attempt that each is of."""

    async def read() -> Answer:
        page = Page()
        async for event in chain.astream_events({"question": QUESTION}):
            if event["event"] == "on_chat_model_stream":
                attempt = event["metadata"]["fallback_attempt"]
                _show_message(page, event["data"]["chunk"], attempt)
        return page.answer()

    return read


def _read_chain(chain: Any) -> Ask:
    async def read() -> Answer:
        page, usage = Page(), UsageMetadataCallbackHandler()
        async for text in chain.astream({"question": QUESTION}, {"callbacks": [usage]}):
            page.show(text)
        page.model = next(iter(usage.usage_metadata), None)
        page.has_usage = bool(usage.usage_metadata)
        return page.answer()

    return read


def chain(primary: str, fallback: str, profile: Profile) -> Ask:
    """``prompt | model | parser`` over a FallbackChatModel: its texts, or its events."""
    both = _chats(primary, fallback)
    model = FallbackChatModel(*both, fallback_config=profile.config(), partial=profile.partial)
    read = _read_events if profile.replaces else _read_chain
    return read(PROMPT | model | StrOutputParser())


def chain_with_fallbacks(primary: str, fallback: str, _: Profile) -> Ask:
    first, second = _chats(primary, fallback, max_retries=RETRIES)
    return _read_chain(PROMPT | first.with_fallbacks([second]) | StrOutputParser())


def _read_agent(agent: Any, *, by_id: bool = True) -> Ask:
    async def read() -> Answer:
        page = Page()
        question = {"messages": MESSAGES}
        async for chunk, _ in agent.astream(question, stream_mode="messages"):
            if isinstance(chunk, AIMessageChunk):
                _show_message(page, chunk, chunk.id if by_id else None)
        return page.answer()

    return read


def agent(primary: str, fallback: str, profile: Profile) -> Ask:
    first, second = _chats(primary, fallback)
    middleware = FallbackMiddleware(
        second, fallback_config=profile.config(), partial=profile.partial
    )
    return _read_agent(create_agent(first, [], middleware=[middleware]))


def agent_on_model(primary: str, fallback: str, profile: Profile) -> Ask:
    both = _chats(primary, fallback)
    options: Any = {"fallback_config": profile.config(), "partial": profile.partial}
    return _read_agent(create_agent(FallbackChatModel(*both, **options), []))


def agent_with_theirs(primary: str, fallback: str, _: Profile, *, by_id: bool = True) -> Ask:
    first, second = _chats(primary, fallback, max_retries=RETRIES)
    theirs = create_agent(first, [], middleware=[ModelFallbackMiddleware(second)])
    return _read_agent(theirs, by_id=by_id)


# LiteLLM.


def _deployment(group: str, url: str, model: str, rank: int) -> dict[str, Any]:
    # LiteLLM shares cooldowns between Routers by this id.
    return deployment(group, f"openai/{model}", f"{url}/v1", rank, uuid.uuid4().hex)


def _read_router(router: litellm.Router) -> Ask:
    async def read() -> Answer:
        page = Page()
        stream: Any = await router.acompletion(model="chat", **STREAMED)
        async for chunk in stream:
            _show_chunk(page, chunk)
        return page.answer()

    return read


def router(primary: str, fallback: str, profile: Profile) -> Ask:
    deployments = [
        _deployment("chat", primary, PRIMARY_MODEL, 0),
        _deployment("chat", fallback, FALLBACK_MODEL, 1),
    ]
    made = litellm.Router(deployments, timeout=CLIENT_TIMEOUT)
    # What LiteLLM loads late is loaded once for all Routers.
    FallbackRoutingStrategy(profile.config()).register(made, warm=False)
    return _read_router(made)


def router_with_fallbacks(primary: str, fallback: str, _: Profile) -> Ask:
    deployments = [
        _deployment("chat", primary, PRIMARY_MODEL, 0),
        _deployment("backup", fallback, FALLBACK_MODEL, 0),
    ]
    lists: Any = [{"chat": ["backup"]}]
    return _read_router(
        litellm.Router(
            deployments,
            timeout=CLIENT_TIMEOUT,
            num_retries=RETRIES,
            fallbacks=lists,
            context_window_fallbacks=lists,
        )
    )


# The Agents SDK.


def _sdk_model(url: str, model: str) -> agents.Model:
    return agents.OpenAIChatCompletionsModel(model, _client(openai.AsyncOpenAI, url, RETRIES))


def _read_run(model: agents.Model) -> Ask:
    settings = agents.ModelSettings(include_usage=True)
    one = agents.Agent("one", model=model, model_settings=settings)

    async def read() -> Answer:
        page = Page()
        run = agents.Runner.run_streamed(one, QUESTION)
        async for event in run.stream_events():
            if event.type != "raw_response_event":
                continue
            if event.data.type == "response.output_text.delta":
                page.show(event.data.delta)
            elif event.data.type == "response.completed":
                page.model = event.data.response.model
        page.has_usage = run.context_wrapper.usage.total_tokens > 0
        return page.answer()

    return read


def agents_sdk(primary: str, fallback: str, profile: Profile) -> Ask:
    both = _sdk_model(primary, PRIMARY_MODEL), _sdk_model(fallback, FALLBACK_MODEL)
    return _read_run(honcho_fallback_openai_agents.FallbackModel(*both, config=profile.config()))


def agents_sdk_alone(primary: str, _fallback: str, _: Profile) -> Ask:
    """One model; the Agents SDK has no fallback of its own."""
    return _read_run(_sdk_model(primary, PRIMARY_MODEL))


# Pydantic AI.


def _pydantic_model(url: str, model: str) -> OpenAIChatModel:
    client = _client(openai.AsyncOpenAI, url, RETRIES)
    return OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))


def _read_agent_run(model: Any) -> Ask:
    one = Agent(model)

    async def read() -> Answer:
        page = Page()
        async with one.run_stream(QUESTION) as result:
            async for text in result.stream_text(delta=True):
                page.show(text)
            page.model = result.response.model_name
            page.has_usage = result.response.usage.has_values()
        return page.answer()

    return read


def pydantic_ai(primary: str, fallback: str, profile: Profile) -> Ask:
    both = _pydantic_model(primary, PRIMARY_MODEL), _pydantic_model(fallback, FALLBACK_MODEL)
    return _read_agent_run(
        honcho_fallback_pydantic_ai.FallbackModel(*both, config=profile.config())
    )


def pydantic_ai_with_theirs(primary: str, fallback: str, _: Profile) -> Ask:
    both = _pydantic_model(primary, PRIMARY_MODEL), _pydantic_model(fallback, FALLBACK_MODEL)
    return _read_agent_run(PydanticAIFallbackModel(*both))


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
        Way("openai SDK, `policy.astream`", core_async, takes=THREE),
        Way("openai SDK, `policy.stream`", core_sync, takes=THREE),
        Way("LangChain, `FallbackChatModel`", chat_model, OWN_OF_A_MODEL, TWO),
        Way("LangChain, `FallbackChatModel` before a parser", chain, OWN_OF_A_CHAIN, TWO),
        Way("LangChain agent, `FallbackMiddleware`", agent, OWN_OF_AN_AGENT, TWO),
        Way("LangChain agent, `FallbackChatModel`", agent_on_model, OWN_OF_AN_AGENT, TWO),
        Way("LiteLLM, `FallbackRoutingStrategy`", router, "LiteLLM Router, `fallbacks`"),
        Way("Agents SDK, `FallbackModel`", agents_sdk, ALONE),
        Way("Pydantic AI, `FallbackModel`", pydantic_ai, "Pydantic AI, its own `FallbackModel`"),
    )
}
CONTROLS: dict[str, Build] = {
    OWN_OF_A_MODEL: with_fallbacks,
    OWN_OF_A_CHAIN: chain_with_fallbacks,
    OWN_OF_AN_AGENT: agent_with_theirs,
    PRINTED: partial(agent_with_theirs, by_id=False),
    "LiteLLM Router, `fallbacks`": router_with_fallbacks,
    ALONE: agents_sdk_alone,
    "Pydantic AI, its own `FallbackModel`": pydantic_ai_with_theirs,
}
