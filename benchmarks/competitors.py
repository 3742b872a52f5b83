"""Who is compared over sockets: each asks a primary and, when that fails, a fallback.

The same clients as in a program, with their defaults where the row says so. A family loads its
own framework and no other.
"""

# pydantic-ai and Haystack are installed in the peers' environment only, and LiteLLM's and
# LangChain's objects have whatever shape they have.
# pyright: reportMissingImports=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportPrivateImportUsage=false
# ruff: noqa: PLC0415 # see above

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfig, FallbackPolicy, Target

if TYPE_CHECKING:
    from honcho_fallback import Attempt

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PROMPT = "hi"
KEY = "not-a-key"


@dataclass(frozen=True, slots=True)
class Place:
    """Say where the two providers are.

    Args:
        url: Of the server that plays both.
        timeout: Seconds for one attempt at the primary, or None for the default.
    """

    url: str
    timeout: float | None = None

    @property
    def primary(self) -> str:
        return f"{self.url}/primary/v1"

    @property
    def backup(self) -> str:
        return f"{self.url}/backup/v1"

    @property
    def limit(self) -> dict[str, Any]:
        """Return the timeout as a keyword, where there is one."""
        return {} if self.timeout is None else {"timeout": self.timeout}


@dataclass(frozen=True, slots=True)
class Client:
    """Hold what is asked again and again.

    Args:
        ask: Makes one call; returns an awaitable unless ``is_sync``.
        is_sync: Whether the call blocks; no event loop runs meanwhile.
        forget: Forgets what a peer remembers across calls.
    """

    ask: Callable[[], Any]
    is_sync: bool = False
    forget: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Competitor:
    """Name one row.

    Args:
        name: As it is shown.
        make: Builds its client for a place.
        is_ours: Whether this package is in it.
        is_cold: Whether its first call is measured in fresh processes, too.
        peer: The row that it has to be as fast as, where that is the contract.
    """

    name: str
    make: Callable[[Place], Client]
    is_ours: bool = False
    is_cold: bool = False
    peer: str | None = None


def core() -> Iterator[Competitor]:
    """The openai SDK by itself and with this package's policy."""
    import openai

    def clients(place: Place, kind: Any, limit: dict[str, Any], **options: Any) -> tuple[Any, Any]:
        primary = kind(base_url=place.primary, api_key=KEY, **limit, **options)
        return primary, kind(base_url=place.backup, api_key=KEY, **options)

    def ask(attempt: Attempt) -> Any:
        return attempt.target.client.chat.completions.create(
            model=attempt.target.model, messages=MESSAGES, timeout=attempt.timeout
        )

    def policy(place: Place, kind: Any) -> FallbackPolicy:
        primary, backup = clients(place, kind, {}, max_retries=0)
        chain = [
            Target("gpt-5.5", provider="one", client=primary),
            Target("gpt-5.5", provider="two", client=backup),
        ]
        return FallbackPolicy(chain, FallbackConfig(**place.limit))

    def acall(place: Place) -> Client:
        ready = policy(place, openai.AsyncOpenAI)
        return Client(lambda: ready.acall(ask))

    def call(place: Place) -> Client:
        ready = policy(place, openai.OpenAI)
        return Client(lambda: ready.call(ask), is_sync=True)

    def to_anthropic(place: Place) -> Client:
        import anthropic

        primary, _ = clients(place, openai.AsyncOpenAI, {}, max_retries=0)
        base_url = place.backup.removesuffix("/v1")
        backup = anthropic.AsyncAnthropic(base_url=base_url, api_key=KEY, max_retries=0)
        chain = [
            Target("gpt-5.5", provider="openai", client=primary),
            Target("claude-sonnet-5", provider="anthropic", client=backup),
        ]
        ready = FallbackPolicy(chain, FallbackConfig(**place.limit))

        def ask_either(attempt: Attempt) -> Any:
            if attempt.is_fallback:
                return attempt.target.client.messages.create(
                    model=attempt.target.model,
                    messages=MESSAGES,
                    max_tokens=100,
                    timeout=attempt.timeout,
                )
            return ask(attempt)

        return Client(lambda: ready.acall(ask_either))

    def plain(place: Place, **options: Any) -> Client:
        primary, backup = clients(place, openai.AsyncOpenAI, place.limit, **options)

        async def ask_both() -> object:
            try:
                return await primary.chat.completions.create(model="gpt-5.5", messages=MESSAGES)
            except openai.OpenAIError:
                return await backup.chat.completions.create(model="gpt-5.5", messages=MESSAGES)

        return Client(ask_both)

    yield Competitor("openai SDK, `policy.acall`", acall, is_ours=True, is_cold=True)
    yield Competitor("openai SDK, `policy.call`", call, is_ours=True)
    name = "openai SDK to anthropic SDK, `policy.acall`"
    yield Competitor(name, to_anthropic, is_ours=True, is_cold=True)
    yield Competitor("openai SDK, defaults, `try`/`except`", plain)
    never = partial(plain, max_retries=0)
    yield Competitor("openai SDK, max_retries=0, `try`/`except`", never, is_cold=True)


def langchain() -> Iterator[Competitor]:
    """LangChain's chat models with this package's fallbacks and with LangChain's own."""
    os.environ["LANGSMITH_TRACING"] = "false"
    from langchain_core.output_parsers import StrOutputParser
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    from honcho_fallback_langchain import FallbackChatModel, with_fallback_config

    key = SecretStr(KEY)

    def models(place: Place, **options: Any) -> tuple[Any, Any]:
        primary = ChatOpenAI(
            model="gpt-5.5", base_url=place.primary, api_key=key, **place.limit, **options
        )
        return primary, ChatOpenAI(model="gpt-5.5", base_url=place.backup, api_key=key, **options)

    def ainvoke(place: Place) -> Client:
        model: Any = FallbackChatModel(*models(place))
        return Client(lambda: model.ainvoke(PROMPT))

    def invoke(place: Place) -> Client:
        model: Any = FallbackChatModel(*models(place))
        return Client(lambda: model.invoke(PROMPT), is_sync=True)

    def to_anthropic(place: Place) -> Client:
        from langchain_anthropic import ChatAnthropic

        url = place.backup.removesuffix("/v1")
        backup: Any = ChatAnthropic(model_name="claude-sonnet-5", base_url=url, api_key=key)
        model: Any = FallbackChatModel(models(place)[0], backup)
        return Client(lambda: model.ainvoke(PROMPT))

    def chains(place: Place) -> Client:
        primary, backup = models(place)
        parser = StrOutputParser()
        chain: Any = with_fallback_config(primary | parser, [backup | parser])
        return Client(lambda: chain.ainvoke(PROMPT))

    def theirs(place: Place, **options: Any) -> Client:
        primary, backup = models(place, **options)
        chain = primary.with_fallbacks([backup])
        return Client(lambda: chain.ainvoke(PROMPT))

    yield Competitor("LangChain, `FallbackChatModel.ainvoke`", ainvoke, is_ours=True, is_cold=True)
    yield Competitor("LangChain, `FallbackChatModel.invoke`", invoke, is_ours=True)
    name = "LangChain, ChatOpenAI to ChatAnthropic, `ainvoke`"
    yield Competitor(name, to_anthropic, is_ours=True, is_cold=True)
    yield Competitor("LangChain, `with_fallback_config` of two chains", chains, is_ours=True)
    yield Competitor("LangChain `with_fallbacks`, defaults", theirs)
    never = partial(theirs, max_retries=0)
    yield Competitor("LangChain `with_fallbacks`, max_retries=0", never, is_cold=True)


def litellm() -> Iterator[Competitor]:
    """LiteLLM's Router with this package's strategy and with LiteLLM's own fallbacks."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    from litellm import Router

    from honcho_fallback_litellm import FallbackRoutingStrategy

    litellm.suppress_debug_info = True

    def models(place: Place, group: str, other: str) -> list[Any]:
        backup_url = place.backup if other.startswith("openai") else place.backup[:-3]
        params: Any = (
            {"model": "openai/gpt-4o-mini", "api_base": place.primary, **place.limit},
            {"model": other, "api_base": backup_url},
        )
        # LiteLLM shares cooldowns between Routers by this id.
        return [
            {
                "model_name": name,
                "litellm_params": {**params[rank], "api_key": KEY},
                "model_info": {"id": uuid.uuid4().hex, "fallback_rank": rank},
            }
            for rank, name in enumerate(("group", group))
        ]

    def client(router: Router, *, is_sync: bool = False) -> Client:
        def forget() -> None:
            router.cooldown_cache.in_memory_cache.flush_cache()
            router.cache.flush_cache()

        method: Any = router.completion if is_sync else router.acompletion
        return Client(lambda: method(model="group", messages=MESSAGES), is_sync, forget)

    def ours(place: Place, *, is_sync: bool = False, other: str = "openai/gpt-4o-mini") -> Client:
        router = Router(model_list=models(place, "group", other))
        FallbackRoutingStrategy().register(router)
        return client(router, is_sync=is_sync)

    def theirs(place: Place, other: str = "openai/gpt-4o-mini", **options: Any) -> Client:
        fallbacks = [{"group": ["backup"]}]
        listed = models(place, "backup", other)
        return client(Router(model_list=listed, fallbacks=fallbacks, **options))

    never, crossed = (
        "LiteLLM Router `fallbacks`, num_retries=0",
        "anthropic/claude-3-5-haiku-latest",
    )
    for name, make, peer in (
        ("`acompletion`", ours, never),
        ("`completion`", partial(ours, is_sync=True), never),
        ("openai to anthropic", partial(ours, other=crossed), f"{never}, openai to anthropic"),
    ):
        row = f"LiteLLM, `FallbackRoutingStrategy`, {name}"
        yield Competitor(row, make, is_ours=True, is_cold=True, peer=peer)
    yield Competitor("LiteLLM Router `fallbacks`, defaults", theirs)
    yield Competitor(never, partial(theirs, num_retries=0), is_cold=True)
    make = partial(theirs, other=crossed, num_retries=0)
    yield Competitor(f"{never}, openai to anthropic", make, is_cold=True)


def pydantic_ai() -> Iterator[Competitor]:
    """pydantic-ai's FallbackModel, called directly."""
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def model(url: str, settings: dict[str, Any]) -> Any:
        provider = OpenAIProvider(base_url=url, api_key=KEY)
        return OpenAIChatModel("gpt-5.5", provider=provider, settings=settings or None)

    def make(place: Place, **options: Any) -> Client:
        primary = model(place.primary, {**place.limit, **options})
        both = FallbackModel(primary, model(place.backup, options))
        return Client(lambda: model_request(both, [ModelRequest.user_text_prompt(PROMPT)]))

    yield Competitor("pydantic-ai `FallbackModel`, defaults", make)
    never = partial(make, max_retries=0)
    yield Competitor("pydantic-ai `FallbackModel`, max_retries=0", never, is_cold=True)


def haystack() -> Iterator[Competitor]:
    """Haystack's FallbackChatGenerator."""
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    from haystack.components.generators.chat import FallbackChatGenerator, OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.utils import Secret

    def generator(url: str, **options: Any) -> Any:
        key = Secret.from_token(KEY)
        return OpenAIChatGenerator(api_key=key, model="gpt-5.5", api_base_url=url, **options)

    def make(place: Place, **options: Any) -> Client:
        primary = generator(place.primary, **place.limit, **options)
        both = FallbackChatGenerator([primary, generator(place.backup, **options)])
        return Client(lambda: both.run_async([ChatMessage.from_user(PROMPT)]))

    yield Competitor("Haystack `FallbackChatGenerator`, defaults", make)
    never = partial(make, max_retries=0)
    yield Competitor("Haystack `FallbackChatGenerator`, max_retries=0", never, is_cold=True)


FAMILIES: dict[str, Callable[[], Iterable[Competitor]]] = {
    "core": core,
    "langchain": langchain,
    "litellm": litellm,
    "pydantic-ai": pydantic_ai,
    "haystack": haystack,
}
