"""Who lacks a required label is asked by no way in, whatever a call chooses for itself.

Two providers on loopback: one at home with the label, one abroad without. A cell is one way in and
one way out of the boundary; whatever comes of the call, abroad hears nothing, and at home nobody
is asked for another model.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import agents
import litellm
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, wrap_model_call
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableParallel
from pydantic_ai import Agent as PydanticAgent

from benchmarks.report import table
from honcho_fallback import FallbackConfig, FallbackConfigError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from honcho_fallback_litellm import FallbackRoutingStrategy
from honcho_fallback_openai_agents import FallbackProvider
from tests.contract.ways.agent_sdks import OfFramework
from tests.contract.ways.core import Core
from tests.contract.ways.way import Place
from tests.helpers.chat_models import gpt, with_fallbacks
from tests.helpers.litellm_runs import THEIRS, deployment, litellm_left_clean, run_async
from tests.helpers.pages import assert_shown
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer

pytestmark = [
    pytest.mark.timeout(240),
    *(pytest.mark.filterwarnings(warning) for warning in THEIRS),
]

CORE = Core()
EU: Any = {"require": {"eu"}, "wait": 0}
MESSAGES: Any = [{"role": "user", "content": "secret"}]
SAID: Any = {"messages": [("user", "secret")]}
WAYS_OUT = {
    "next": "the primary is down",
    "call": "the call requires another label",
    "model": "the request names a model",
    "address": "the request names an address, a provider, a key",
    "picked": "somebody else is picked per call",
    "several": "several models in one",
    "inside": "somebody in between asks another",
}


class Site:
    """Hold both providers, and what every way in makes of them."""

    def __init__(self, providers: ProviderServer) -> None:
        self.home, self.abroad = providers.new("home"), providers.new("abroad")
        self.url, self.away = self.home.url, self.abroad.url
        with suppress(AttributeError):
            agents.set_tracing_disabled(True)

    @property
    def leaks(self) -> int:
        """Count the requests that reached somebody else than the labelled model."""
        others = [one for one in self.home.requests if one.body["model"] != "home"]
        return len(self.abroad.requests) + len(others)

    def places(self, *abroad: str) -> list[Place]:
        """Say where both are, the one with the label first."""
        home = Place(self.home, "home", labels=frozenset({"eu"}))
        return [home, Place(self.abroad, "abroad", labels=frozenset(abroad))]

    def core(self, *abroad: str, **options: Any) -> Any:
        chain = CORE.chain(self.places(*abroad), FallbackConfig(**EU), ())
        return CORE.answer(chain, "call", "secret", **options)

    # LangChain.

    def eu(self, **fields: Any) -> Any:
        return gpt(model="home", base_url=self.url, tags=["eu"], **fields)

    def us(self, *tags: str) -> Any:
        return gpt(model="abroad", base_url=self.away, tags=[*tags])

    def chat(self, *models: Any) -> Any:
        """Make a chain of chat models within the boundary: of these, or of both."""
        return FallbackChatModel(*(models or (self.eu(), self.us())), **EU)

    def chain(self, primary: Any = None, fallback: Any = None) -> Any:
        """Make a chain of chains within the boundary."""
        return with_fallbacks(PROMPT | (primary or self.eu()), [PROMPT | fallback], **EU)

    def agent(self, *inside: Any, outside: Any = (), fallback: Any = None) -> Any:
        fallbacks = FallbackMiddleware(fallback or self.us(), **EU)
        return create_agent(self.eu(), [], middleware=[*outside, fallbacks, *inside])

    # LiteLLM.

    def deployment(self, name: str, rank: int | None, group: str = "chat", **more: Any) -> Any:
        """Describe one of both to a Router."""
        url = self.url if name.startswith("home") else self.away
        return deployment(group, f"openai/{name.partition('-')[0]}", url, rank, name, **more)

    def router(self, *more: Any, config: Any = None, **options: Any) -> Any:
        """Make a Router whose ranked group is a chain within the boundary."""
        models = [self.deployment("home", 0, tags=["eu"]), self.deployment("abroad", 1), *more]
        router = litellm.Router(model_list=models, num_retries=0, **options)
        FallbackRoutingStrategy(config or FallbackConfig(**EU)).register(router, warm=False)
        return router

    def complete(self, *more: Any, router: Any = None, **request: Any) -> Any:
        """Ask a Router with these deployments more in a task and in a thread."""
        router = router or self.router(*more)
        given = {"model": "chat", "messages": MESSAGES, **request}
        with suppress(Exception):
            run_async(router.acompletion(**given))
        return router.completion(**given)

    def free(self) -> Any:
        """Describe a deployment that stands in no chain."""
        return self.deployment("abroad-2", None, "free")

    def listed(self, **lists: Any) -> Any:
        """Ask a Router whose own lists name the group of no chain."""
        return self.complete(router=self.router(self.free(), **lists))

    # The agents' frameworks.

    def runner(self, **settings: Any) -> Any:
        """Run an agent of the Agents SDK, its settings those of the run."""
        chain = OfFramework("openai-agents", "chat").chain(self.places(), FallbackConfig(**EU), ())
        config = agents.RunConfig(model_settings=agents.ModelSettings(**settings))
        return run_async(agents.Runner.run(agents.Agent("a", model=chain), "x", run_config=config))

    def named(self, name: str) -> Any:
        """Run an agent whose run names another model, which the FallbackProvider resolves."""
        home, abroad = map(OfFramework("openai-agents", "chat").model, self.places())

        class Names(agents.ModelProvider):
            def get_model(self, model_name: str | None) -> Any:
                return abroad.client if model_name else home.client

        models = FallbackProvider(home, provider=Names(), **EU)
        config = agents.RunConfig(model=name, model_provider=models)
        return run_async(agents.Runner.run(agents.Agent("a"), "x", run_config=config))

    def pydantic(self, **settings: Any) -> Any:
        """Run an agent of Pydantic AI, its settings those of the run."""
        way = OfFramework("pydantic-ai", "chat")
        agent = PydanticAgent(way.chain(self.places(), FallbackConfig(**EU), ()))
        given: Any = settings or None
        return run_async(agent.run("x", model_settings=given))


def swap(**changes: Any) -> Any:
    """Change each request for a model."""

    def swaps(request: Any, handler: Any) -> Any:
        return handler(request.override(**changes))

    return wrap_model_call(swaps)


def selects(model: Any) -> Any:
    """Ask a model beside the agent's, as LangChain's own selector of tools does."""

    def asks_both(request: Any, handler: Any) -> Any:
        model.invoke(request.messages)
        return handler(request)

    return wrap_model_call(asks_both)


def configurable(**choices: Any) -> Any:
    return {"configurable": choices}


ZDR = configurable(fallback_config=FallbackConfig(require={"zdr"}))
US = configurable(llm="us")
PROMPT = ChatPromptTemplate.from_template("{text}")
TEXT = {"text": "secret"}
GATEWAY = {"x-portkey-provider": "abroad"}


def alternatives(site: Site) -> Any:
    return site.eu().configurable_alternatives(
        ConfigurableField("llm"), default_key="eu", us=site.us()
    )


def address(site: Site) -> Any:
    return site.eu().configurable_fields(openai_api_base=ConfigurableField("base"))


def down(ask: Callable[[Site], Any]) -> Callable[[Site], Any]:
    """Ask while the provider with the label fails."""

    def asked(site: Site) -> Any:
        site.home.standing = Reply(status=503)
        return ask(site)

    return asked


def behind(model: Callable[[Site], Any]) -> Callable[[Site], Any]:
    """Ask a chain of a model behind a labelled one that is down."""
    return down(lambda site: site.chain(fallback=model(site) | StrOutputParser()).invoke(TEXT))


CELLS: dict[str, dict[str, list[Callable[[Site], Any]]]] = {
    "the core": {
        "next": [down(Site.core)],
        "call": [
            lambda site: site.core("zdr", require={"zdr"}),
            lambda site: site.core("zdr", require=set()),
        ],
    },
    "LangChain, chat models": {
        "next": [down(lambda site: site.chat().invoke("x"))],
        "call": [lambda site: site.chat(site.eu(), site.us("zdr")).invoke("x", ZDR)],
        "model": [
            lambda site: site.chat().invoke("x", model="us"),
            lambda site: site.chat().bind(model="us").invoke("x"),
            lambda site: site.chat(site.eu().bind(model="us"), site.eu()).invoke("x"),
            lambda site: site.chat(site.eu()).invoke("x", extra_body={"model": "us"}),
        ],
        "address": [
            lambda site: site.chat(site.eu()).invoke("x", extra_headers=GATEWAY),
            lambda site: site.chat(address(site)).invoke("x", configurable(base=site.away)),
            lambda site: (
                site.chat(address(site)).with_config(configurable={"base": site.away}).invoke("x")
            ),
        ],
        "picked": [
            lambda site: site.chat(alternatives(site)).invoke("x", US),
            lambda site: list(
                site.chat(alternatives(site).with_config(tags=["eu"])).stream("x", US)
            ),
            lambda site: site.chat(alternatives(site).with_config(US), site.eu()).invoke("x"),
        ],
        "several": [
            down(
                lambda site: site.chat(site.eu(), FallbackChatModel(site.us(), site.eu())).invoke(
                    "x"
                )
            )
        ],
    },
    "LangChain, chains": {
        "next": [behind(lambda site: site.us())],
        "call": [lambda site: site.chain(fallback=site.us("zdr")).invoke(TEXT, ZDR)],
        "model": [behind(lambda site: site.eu().bind(model="us"))],
        "address": [
            lambda site: site.chain(address(site), site.us()).invoke(
                TEXT, configurable(base=site.away)
            )
        ],
        "picked": [lambda site: site.chain(alternatives(site), site.us()).invoke(TEXT, US)],
        "several": [
            behind(lambda site: site.eu() | StrOutputParser() | site.us()),
            behind(lambda site: RunnableParallel(a=site.eu(), b=site.us())),
            behind(lambda site: site.eu().with_fallbacks([site.us()])),
            behind(lambda site: site.eu() | (lambda _: site.us().invoke("x"))),
        ],
    },
    "LangChain, agents": {
        "next": [down(lambda site: site.agent().invoke(SAID))],
        "call": [lambda site: site.agent(fallback=site.us("zdr")).invoke(SAID, ZDR)],
        "model": [
            lambda site: site.agent(swap(model_settings={"model": "us"})).invoke(SAID),
            lambda site: site.agent(outside=[swap(model_settings={"model": "us"})]).invoke(SAID),
        ],
        "address": [
            lambda site: site.agent(swap(model_settings={"extra_headers": GATEWAY})).invoke(SAID)
        ],
        "picked": [lambda site: site.agent(outside=[swap(model=site.us())]).invoke(SAID)],
        "inside": [
            lambda site: site.agent(swap(model=site.us())).invoke(SAID),
            lambda site: site.agent(swap(model=site.us())).invoke(SAID, {"tags": ["eu"]}),
            lambda site: site.agent(selects(site.us())).invoke(SAID),
            down(lambda site: site.agent(ModelFallbackMiddleware(site.us())).invoke(SAID)),
        ],
    },
    "LiteLLM": {
        "next": [down(lambda site: site.complete())],
        "call": [
            lambda site: site.complete(metadata={"require": ["zdr"]}),
            lambda site: site.complete(litellm_metadata={"require": []}),
        ],
        "model": [
            lambda site: site.complete(model="abroad"),
            lambda site: site.complete(
                router=site.router(config=FallbackConfig()),
                model="abroad",
                metadata={"require": ["eu"]},
            ),
            lambda site: site.complete(extra_body={"model": "us"}),
            lambda site: site.complete(model="openai/us", specific_deployment=True),
        ],
        "address": [
            lambda site: site.complete(api_base=site.away),
            lambda site: site.complete(extra_headers=GATEWAY),
        ],
        "picked": [
            lambda site: site.complete(site.free(), model="free"),
            lambda site: site.complete(site.deployment("abroad-2", 0, "other"), model="other"),
            lambda site: site.complete(_excluded_deployment_ids=["home"]),
        ],
        "several": [
            lambda site: site.complete(
                site.free(),
                site.deployment("abroad-3", None, "free"),
                site.deployment("home-2", None, "free", tags=["eu"]),
                model="free",
            )
        ],
        "inside": [
            down(lambda site: site.listed(fallbacks=[{"chat": ["free"]}])),
            down(lambda site: site.listed(default_fallbacks=["free"])),
            down(
                lambda site: site.complete(
                    site.free(), fallbacks=["free", {"model": "chat", "api_base": site.away}]
                )
            ),
        ],
    },
    "OpenAI Agents SDK": {
        "next": [down(lambda site: site.runner())],
        "model": [
            lambda site: site.runner(extra_body={"model": "us"}),
            lambda site: site.runner(extra_args={"model": "us"}),
        ],
        "address": [
            lambda site: site.runner(extra_headers=GATEWAY),
            lambda site: site.runner(extra_body={"provider": {"order": ["abroad"]}}),
        ],
        "picked": [lambda site: site.named("abroad")],
    },
    "Pydantic AI": {
        "next": [down(lambda site: site.pydantic())],
        "model": [
            lambda site: site.pydantic(extra_body={"model": "us"}),
            lambda site: site.pydantic(openrouter_models=["us"]),
        ],
        "address": [lambda site: site.pydantic(extra_headers=GATEWAY)],
    },
}
EACH = [(way, out) for way, row in CELLS.items() for out in row]


@cache
def ends_of(providers: ProviderServer, way: str, out: str) -> list[str]:
    """Ask in every manner of a cell, once for all tests, and say what came of it."""
    with litellm_left_clean():
        return [outcome(providers, ask) for ask in CELLS[way].get(out, ())]


def outcome(providers: ProviderServer, ask: Callable[[Site], Any]) -> str:
    """Ask within the boundary, and say what came of it; abroad nobody was asked."""
    site, end, said = Site(providers), "answered at home", "label"
    try:
        ask(site)
    except Exception as error:  # noqa: BLE001 # whatever comes, abroad hears nothing
        is_refused = isinstance(error, FallbackConfigError) or not site.home.requests
        end = "refused" if is_refused else "home's error"
        said = str(error)
    assert site.leaks == 0
    assert end != "refused" or "require" in said or "label" in said
    return end


@pytest.mark.parametrize(("way", "out"), EACH)
def test_nobody_without_the_label_is_asked(providers: ProviderServer, way: str, out: str) -> None:
    """No request leaves for whoever lacks the label; a refusal names the label or the option."""
    assert ends_of(providers, way, out)


def test_the_page_shows_this_matrix(providers: ProviderServer) -> None:
    """`docs/outages.md` has what came out here; `WRITE_TABLES=1` writes it anew."""
    rows: list[list[str]] = []
    for way in CELLS:
        ends = [" or ".join(dict.fromkeys(ends_of(providers, way, out))) for out in WAYS_OUT]
        rows.append([way, *(f"0, {end}" if end else "-" for end in ends)])
    assert_shown("outages.md", "labels", table(["way in", *WAYS_OUT.values()], rows))
