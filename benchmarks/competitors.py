"""Who is compared over sockets: each asks a primary and, when that fails, a fallback.

The same clients as in a program, with their defaults where the row says so. A family loads its
own framework and no other. A competitor is made for the URL of a server that plays both providers
and, where the primary hangs, with a timeout for the attempt at it.
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
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfig, FallbackPolicy, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from honcho_fallback import Attempt

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PROMPT = "hi"
KEY = "not-a-key"
PROVIDERS = ("primary", "backup")


WARM = frozenset({"failover"})
COLD = WARM | {"cold"}
OUTAGE = frozenset({"outage"})


@dataclass(frozen=True, slots=True)
class Client:
    """Hold what is asked again and again."""

    ask: Callable[[], Any]  # makes one call; returns an awaitable unless ``is_sync``
    is_sync: bool = False
    forget: Callable[[], object] = lambda: None  # forgets what a peer remembers across calls


@dataclass(frozen=True, slots=True)
class Competitor:
    """Name one row."""

    name: str
    make: Callable[..., Client]  # of a URL, and perhaps ``timeout=`` for the primary
    is_ours: bool = False
    parts: frozenset[str] = WARM  # where it is measured
    peer: str | None = None  # the row that it stands beside
    # The contract: to be no slower than that row, in place of a time.
    follows_peer: bool = False


def ask_sdk(attempt: Attempt) -> Any:
    target = attempt.target
    question = {"model": target.model, "messages": MESSAGES, "timeout": attempt.timeout}
    if target.provider == "anthropic":
        return target.client.messages.create(max_tokens=100, **question)
    return target.client.chat.completions.create(**question)


def sdk(kind: Any, url: str, name: str, **options: Any) -> Any:
    return kind(base_url=f"{url}/{name}/v1", api_key=KEY, **options)


def policy(primary: Any, backup: Any, provider: str, config: FallbackConfig) -> FallbackPolicy:
    targets = [
        Target("gpt-5.5", provider="openai", client=primary),
        Target("gpt-5.5", provider=provider, client=backup),
    ]
    return FallbackPolicy(targets, config)


def core() -> Iterator[Competitor]:
    """The openai SDK by itself and with this package's policy."""
    import openai

    def ours(url: str, kind: Any = openai.AsyncOpenAI, **limit: Any) -> Client:
        primary, backup = (sdk(kind, url, name, max_retries=0) for name in PROVIDERS)
        ready = policy(primary, backup, "other", FallbackConfig(**limit))
        if kind is openai.OpenAI:
            return Client(lambda: ready.call(ask_sdk), is_sync=True)
        return Client(lambda: ready.acall(ask_sdk))

    def to_anthropic(url: str, **limit: Any) -> Client:
        import anthropic

        primary = sdk(openai.AsyncOpenAI, url, "primary", max_retries=0)
        backup = anthropic.AsyncAnthropic(base_url=f"{url}/backup", api_key=KEY, max_retries=0)
        ready = policy(primary, backup, "anthropic", FallbackConfig(**limit))
        return Client(lambda: ready.acall(ask_sdk))

    def plain(url: str, timeout: Any = openai.NOT_GIVEN, **options: Any) -> Client:
        primary = sdk(openai.AsyncOpenAI, url, "primary", timeout=timeout, **options)
        backup = sdk(openai.AsyncOpenAI, url, "backup", **options)

        async def ask_both() -> object:
            try:
                return await primary.chat.completions.create(model="gpt-5.5", messages=MESSAGES)
            except openai.OpenAIError:
                return await backup.chat.completions.create(model="gpt-5.5", messages=MESSAGES)

        return Client(ask_both)

    never = partial(plain, max_retries=0)
    peer = "openai SDK, max_retries=0, `try`/`except`"
    row, parts = "openai SDK, `policy.acall`", COLD | OUTAGE
    yield Competitor(row, ours, is_ours=True, parts=parts, peer=peer)
    yield Competitor(peer, never, parts=COLD)
    yield Competitor("openai SDK, `policy.call`", partial(ours, kind=openai.OpenAI), is_ours=True)
    row = "openai SDK to anthropic SDK, `policy.acall`"
    yield Competitor(row, to_anthropic, is_ours=True, parts=COLD)
    yield Competitor("openai SDK, defaults, `try`/`except`", plain)


def in_outages() -> Iterator[Competitor]:
    """What remembers, or waits, from call to call: around the openai SDK."""
    import openai
    import tenacity

    def clients(url: str) -> list[Any]:
        return [sdk(openai.AsyncOpenAI, url, name, max_retries=0) for name in PROVIDERS]

    def remembering(url: str) -> Client:
        primary, backup = clients(url)
        ready = list[FallbackPolicy]()

        def forget() -> None:
            ready[:] = [
                policy(primary, backup, "other", FallbackConfig.resilient(reset="iteration"))
            ]

        return Client(lambda: ready[0].acall(ask_sdk), forget=forget)

    def retrying(url: str, *, switches: bool) -> Client:
        models = clients(url)

        async def ask() -> object:
            # As OpenAI's cookbook waits, with half of its attempts.
            async for attempt in tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(3),
                wait=tenacity.wait_random_exponential(max=60),
                reraise=True,
            ):
                with attempt:
                    client = models[switches and attempt.retry_state.attempt_number > 1]
                    return await client.chat.completions.create(model="gpt-5.5", messages=MESSAGES)
            raise AssertionError

        return Client(ask)

    row = "openai SDK, `policy.acall`, resilient()"
    yield Competitor(row, remembering, is_ours=True, parts=OUTAGE)
    one, two = (partial(retrying, switches=switches) for switches in (False, True))
    yield Competitor("tenacity, three attempts at one model", one, parts=OUTAGE)
    yield Competitor("tenacity, another model from the second attempt", two, parts=OUTAGE)


def langchain() -> Iterator[Competitor]:
    """LangChain's chat models with this package's fallbacks and with LangChain's own."""
    os.environ["LANGSMITH_TRACING"] = "false"
    from langchain_core.output_parsers import StrOutputParser
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable

    key = SecretStr(KEY)

    def chat(url: str, name: str, **options: Any) -> Any:
        return ChatOpenAI(model="gpt-5.5", base_url=f"{url}/{name}/v1", api_key=key, **options)

    def client(runnable: Any) -> Client:
        return Client(lambda: runnable.ainvoke(PROMPT))

    def ours(url: str, **limit: Any) -> Client:
        return client(FallbackChatModel(chat(url, "primary", **limit), chat(url, "backup")))

    def sync(url: str, **limit: Any) -> Client:
        model = FallbackChatModel(chat(url, "primary", **limit), chat(url, "backup"))
        return Client(lambda: model.invoke(PROMPT), is_sync=True)

    def to_anthropic(url: str, **limit: Any) -> Client:
        from langchain_anthropic import ChatAnthropic

        options: dict[str, Any] = {"model": "claude-sonnet-5", "base_url": f"{url}/backup"}
        backup = ChatAnthropic(api_key=key, **options)
        return client(FallbackChatModel(chat(url, "primary", **limit), backup))

    def chains(url: str, **limit: Any) -> Client:
        parser = StrOutputParser()
        backups = [chat(url, "backup") | parser]
        return client(FallbackRunnable(chat(url, "primary", **limit) | parser, *backups))

    def theirs(url: str, max_retries: int | None = None, **limit: Any) -> Client:
        backup = chat(url, "backup", max_retries=max_retries)
        primary = chat(url, "primary", max_retries=max_retries, **limit)
        return client(primary.with_fallbacks([backup]))

    never = partial(theirs, max_retries=0)
    peer = "LangChain `with_fallbacks`, max_retries=0"
    row, parts = "LangChain, `FallbackChatModel.ainvoke`", COLD | OUTAGE
    yield Competitor(row, ours, is_ours=True, parts=parts, peer=peer)
    yield Competitor(peer, never, parts=COLD)
    yield Competitor("LangChain, `FallbackChatModel.invoke`", sync, is_ours=True)
    row = "LangChain, ChatOpenAI to ChatAnthropic, `ainvoke`"
    yield Competitor(row, to_anthropic, is_ours=True, parts=COLD)
    row = "LangChain, `FallbackRunnable` of two chains"
    yield Competitor(row, chains, is_ours=True, peer=peer)
    yield Competitor("LangChain `with_fallbacks`, defaults", theirs, parts=WARM | OUTAGE)


def litellm() -> Iterator[Competitor]:
    """LiteLLM's Router with this package's strategy and with LiteLLM's own fallbacks."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    from litellm import Router

    from honcho_fallback_litellm import FallbackRoutingStrategy

    litellm.suppress_debug_info = True

    def router(url: str, group: str, model: str, limit: Any, **options: Any) -> Router:
        version = "/v1" if model.startswith("openai") else ""
        primary = {"model": "openai/gpt-4o-mini", "api_base": f"{url}/primary/v1", **limit}
        places = (
            ("group", primary),
            (group, {"model": model, "api_base": f"{url}/backup{version}"}),
        )
        models = [
            {
                "model_name": name,
                "litellm_params": {**params, "api_key": KEY},
                # LiteLLM shares cooldowns between Routers by this id.
                "model_info": {"id": uuid.uuid4().hex, "fallback_rank": rank},
            }
            for rank, (name, params) in enumerate(places)
        ]
        return Router(model_list=models, **options)

    def client(router: Router, *, is_sync: bool = False) -> Client:
        def forget() -> None:
            caches: Any = router  # of types that are not written down
            caches.cooldown_cache.in_memory_cache.flush_cache()
            caches.cache.flush_cache()

        method: Any = router.completion if is_sync else router.acompletion
        return Client(lambda: method(model="group", messages=MESSAGES), is_sync, forget)

    def ours(url: str, model: str, *, is_sync: bool = False, **limit: Any) -> Client:
        made = router(url, "group", model, limit)
        FallbackRoutingStrategy().register(made)
        return client(made, is_sync=is_sync)

    def theirs(
        url: str,
        model: str,
        timeout: float | None = None,
        *,
        is_sync: bool = False,
        **options: Any,
    ) -> Client:
        limit = {"timeout": timeout} if timeout else {}
        fallbacks = [{"group": ["backup"]}]
        made = router(url, "backup", model, limit, fallbacks=fallbacks, **options)
        return client(made, is_sync=is_sync)

    row, peer = "LiteLLM, `FallbackRoutingStrategy`", "LiteLLM Router `fallbacks`, num_retries=0"
    same: dict[str, Any] = {"model": "openai/gpt-4o-mini"}
    other: dict[str, Any] = {"model": "anthropic/claude-3-5-haiku-latest"}
    never: dict[str, Any] = {"num_retries": 0}
    for suffix, options, outages in (
        ("`acompletion`", same, OUTAGE),
        ("`completion`", {**same, "is_sync": True}, frozenset[str]()),
        ("openai to anthropic", other, frozenset[str]()),
    ):
        beside = f"{peer}, {suffix}"
        yield Competitor(
            f"{row}, {suffix}",
            partial(ours, **options),
            is_ours=True,
            parts=COLD | outages,
            peer=beside,
            follows_peer=True,
        )
        yield Competitor(beside, partial(theirs, **options, **never), parts=COLD)
    defaults = "LiteLLM Router `fallbacks`, defaults"
    yield Competitor(defaults, partial(theirs, **same), parts=WARM | OUTAGE)


def pydantic_ai() -> Iterator[Competitor]:
    """pydantic-ai's FallbackModel, called directly."""
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def model(url: str, name: str, settings: Any) -> Any:
        provider = OpenAIProvider(base_url=f"{url}/{name}/v1", api_key=KEY)
        return OpenAIChatModel("gpt-5.5", provider=provider, settings=settings or None)

    def make(url: str, retries: Any = None, **limit: Any) -> Client:
        primary = model(url, "primary", {**limit, **(retries or {})})
        both = FallbackModel(primary, model(url, "backup", retries))
        return Client(lambda: model_request(both, [ModelRequest.user_text_prompt(PROMPT)]))

    yield Competitor("pydantic-ai `FallbackModel`, defaults", make)
    never = partial(make, retries={"max_retries": 0})
    yield Competitor("pydantic-ai `FallbackModel`, max_retries=0", never, parts=COLD)


def haystack() -> Iterator[Competitor]:
    """Haystack's FallbackChatGenerator."""
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    from haystack.components.generators.chat import FallbackChatGenerator, OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.utils import Secret

    def generator(url: str, name: str, **options: Any) -> Any:
        where = {"model": "gpt-5.5", "api_base_url": f"{url}/{name}/v1"}
        return OpenAIChatGenerator(api_key=Secret.from_token(KEY), **where, **options)

    def make(url: str, retries: Any = None, **limit: Any) -> Client:
        options = retries or {}
        primary = generator(url, "primary", **limit, **options)
        both = FallbackChatGenerator([primary, generator(url, "backup", **options)])
        return Client(lambda: both.run_async([ChatMessage.from_user(PROMPT)]))

    yield Competitor("Haystack `FallbackChatGenerator`, defaults", make)
    never = partial(make, retries={"max_retries": 0})
    yield Competitor("Haystack `FallbackChatGenerator`, max_retries=0", never, parts=COLD)


FAMILIES: dict[str, Callable[[], Iterable[Competitor]]] = {
    "core": core,
    "langchain": langchain,
    "litellm": litellm,
    "pydantic-ai": pydantic_ai,
    "haystack": haystack,
}
