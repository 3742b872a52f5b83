"""Who lacks a required label is asked by no way in, whatever a call chooses for itself.

Two providers on loopback: one at home with the label, one abroad without. Each call looks for a
way out of the boundary: while home is down, by another label of its own, by a model, an address or
a key in the request, by somebody else who is picked, asked as well or asked in between. Whatever
comes of it, abroad hears nothing, and at home nobody is asked for another model.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import agents
import litellm
import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import honcho_fallback_openai_agents
import honcho_fallback_pydantic_ai
from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.providers import without_retries
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.chat_models import gpt, with_fallbacks
from tests.helpers.litellm_runs import THEIRS, litellm_left_clean, run_async
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer

pytestmark = [
    pytest.mark.timeout(240),
    *(pytest.mark.filterwarnings(warning) for warning in THEIRS),
]

EU: Any = {"require": {"eu"}}
MESSAGES: Any = [{"role": "user", "content": "secret"}]
SAID: Any = {"messages": [("user", "secret")]}


class Site:
    """Hold both providers, and what every way in makes of them."""

    def __init__(self, providers: ProviderServer) -> None:
        self.home, self.abroad = providers.new("home"), providers.new("abroad")
        self.url, self.away = self.home.url, self.abroad.url
        with suppress(AttributeError):
            agents.set_tracing_disabled(True)

    def down(self) -> Site:
        self.home.standing = Reply(status=503)
        return self

    @property
    def leaks(self) -> int:
        """Count the requests that reached somebody else than the labelled model."""
        others = [one for one in self.home.requests if one.body["model"] != "home"]
        return len(self.abroad.requests) + len(others)

    # The core.

    def targets(self, **labels: Any) -> list[Target]:
        return [
            Target(
                name,
                labels=labels.get(name, {"eu"} if name == "home" else frozenset()),
                client=without_retries(openai.OpenAI(api_key="k", base_url=url)),
            )
            for name, url in (("home", self.url), ("abroad", self.away))
        ]

    def call(self, *labels: str, **options: Any) -> Any:
        """Ask as a user of the SDK does; the labels are those of the other."""

        def ask(attempt: Any) -> Any:
            create = attempt.target.client.chat.completions.create
            return create(model=attempt.target.model, messages=MESSAGES)

        return FallbackPolicy(self.targets(abroad={*labels}), **EU).call(ask, **options)

    # LangChain.

    def eu(self, **fields: Any) -> Any:
        return gpt(model="home", base_url=self.url, tags=["eu"], **fields)

    def us(self, *tags: str) -> Any:
        return gpt(model="abroad", base_url=self.away, tags=[*tags])

    def model(self, *others: Any, first: Any = None) -> Any:
        return FallbackChatModel(first or self.eu(), *others, **EU)

    def alternatives(self) -> Any:
        """Make the chat model with the tag, in whose place a run may pick the other."""
        return self.eu().configurable_alternatives(
            ConfigurableField("llm"), default_key="eu", us=self.us()
        )

    def movable(self) -> Any:
        """Make the chat model with the tag, which a run may send to another address."""
        return self.eu().configurable_fields(openai_api_base=ConfigurableField("base"))

    def chain(self, second: Any, first: Any = None, **config: Any) -> Any:
        """Ask a chain within the boundary, behind one that is labelled."""
        both = PROMPT | (first or self.eu()), PROMPT | second
        return with_fallbacks(both[0], [both[1]], **EU).invoke(TEXT, configurable(**config))

    def agent(
        self, *inside: Any, outside: Any = (), fallback: Any = None, config: Any = None
    ) -> Any:
        fallbacks = FallbackMiddleware(fallback or self.us(), **EU)
        agent = create_agent(self.eu(), [], middleware=[*outside, fallbacks, *inside])
        return agent.invoke(SAID, config)

    # LiteLLM.

    def deployment(
        self, name: str, rank: int | None = None, group: str = "free", **more: Any
    ) -> Any:
        """Describe one of both to a Router."""
        url = self.url if name.startswith("home") else self.away
        model = name.partition("-")[0]
        params = {"model": f"openai/{model}", "api_base": url, "api_key": "k", **more}
        info = {"id": name, **({} if rank is None else {"fallback_rank": rank})}
        return {"model_name": group, "litellm_params": params, "model_info": info}

    def router(self, *more: Any, config: Any = None, **options: Any) -> Any:
        """Make a Router whose ranked group is a chain within the boundary."""
        models = [
            self.deployment("home", 0, "chat", tags=["eu"]),
            self.deployment("abroad", 1, "chat"),
            *more,
        ]
        router = litellm.Router(model_list=models, num_retries=0, **options)
        FallbackRoutingStrategy(config or FallbackConfig(**EU)).register(router, warm=False)
        return router

    def complete(self, router: Any = None, **request: Any) -> Any:
        """Ask it in a task and in a thread."""
        router = router or self.router()
        given = {"model": "chat", "messages": MESSAGES, **request}
        with suppress(Exception):
            run_async(router.acompletion(**given))
        return router.completion(**given)

    # The agents' frameworks.

    def sdk_model(self, name: str) -> Any:
        url = self.url if name == "home" else self.away
        client = openai.AsyncOpenAI(api_key="k", base_url=url)
        return agents.OpenAIChatCompletionsModel(name, client)

    def runner(self, **settings: Any) -> Any:
        home = Target("home", labels={"eu"}, client=self.sdk_model("home"))
        chain = honcho_fallback_openai_agents.FallbackModel(home, self.sdk_model("abroad"), **EU)
        config = agents.RunConfig(model_settings=agents.ModelSettings(**settings))
        return run_async(agents.Runner.run(agents.Agent("a", model=chain), "x", run_config=config))

    def named(self, name: str) -> Any:
        """Run an agent whose run names another model, which the FallbackProvider resolves."""
        site = self

        class Names(agents.ModelProvider):
            def get_model(self, model_name: str | None) -> Any:
                return site.sdk_model(model_name or "home")

        home = Target("home", labels={"eu"}, client=self.sdk_model("home"))
        models = honcho_fallback_openai_agents.FallbackProvider(home, provider=Names(), **EU)
        config = agents.RunConfig(model=name, model_provider=models)
        return run_async(agents.Runner.run(agents.Agent("a"), "x", run_config=config))

    def pydantic(self, **settings: Any) -> Any:
        def model(name: str, url: str) -> Any:
            return OpenAIChatModel(name, provider=OpenAIProvider(base_url=url, api_key="k"))

        home = Target("home", labels={"eu"}, client=model("home", self.url))
        other = model("abroad", self.away)
        chain = honcho_fallback_pydantic_ai.FallbackModel(home, other, **EU)
        return run_async(PydanticAgent(chain).run("x", model_settings=settings or None))  # type: ignore[arg-type] # any settings


class Swap(AgentMiddleware[Any, Any, Any]):
    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes = changes

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(**self.changes))


class Selects(AgentMiddleware[Any, Any, Any]):
    """Ask a model of its own beside the agent's, as LangChain's own selector of tools does."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.model.invoke(request.messages)
        return handler(request)


def configurable(**choices: Any) -> Any:
    return {"configurable": choices}


ZDR = FallbackConfig(require={"zdr"})
PROMPT = ChatPromptTemplate.from_template("{text}")
TEXT = {"text": "secret"}
GATEWAY = {"x-portkey-provider": "abroad"}


CELLS: dict[str, dict[str, Callable[[Site], Any]]] = {
    "the core": {
        "down": lambda site: site.down().call(),
        "another label": lambda site: site.call("zdr", require={"zdr"}),
        "no label": lambda site: site.call("zdr", require=set()),
    },
    "LangChain, chat models": {
        "down": lambda site: site.down().model(site.us()).invoke("x"),
        "another label": lambda site: site.model(site.us("zdr")).invoke(
            "x", configurable(fallback_config=ZDR)
        ),
        "model": lambda site: site.model(site.us()).invoke("x", model="us"),
        "bound model": lambda site: site.model(site.us()).bind(model="us").invoke("x"),
        "candidate's model": lambda site: site.model(
            site.eu(), first=site.eu().bind(model="us")
        ).invoke("x"),
        "model in the body": lambda site: site.model().invoke("x", extra_body={"model": "us"}),
        "headers": lambda site: site.model().invoke("x", extra_headers=GATEWAY),
        "address": lambda site: site.model(first=site.movable()).invoke(
            "x", configurable(base=site.away)
        ),
        "bound address": lambda site: (
            site.model(first=site.movable())
            .with_config(configurable={"base": site.away})
            .invoke("x")
        ),
        "picked": lambda site: site.model(first=site.alternatives()).invoke(
            "x", configurable(llm="us")
        ),
        "picked, streamed": lambda site: list(
            site.model(first=site.alternatives().with_config(tags=["eu"])).stream(
                "x", configurable(llm="us")
            )
        ),
        "picked before": lambda site: site.model(
            site.eu(), first=site.alternatives().with_config(configurable={"llm": "us"})
        ).invoke("x"),
        "a chain in it": lambda site: (
            site.down().model(FallbackChatModel(site.us(), site.eu())).invoke("x")
        ),
    },
    "LangChain, chains": {
        "down": lambda site: site.down().chain(site.us()),
        "another label": lambda site: site.chain(site.us("zdr"), fallback_config=ZDR),
        "model": lambda site: site.down().chain(site.eu().bind(model="us")),
        "address": lambda site: site.chain(site.us(), site.movable(), base=site.away),
        "picked": lambda site: site.chain(site.us(), site.alternatives(), llm="us"),
        "two in a row": lambda site: site.down().chain(site.eu() | StrOutputParser() | site.us()),
        "two beside": lambda site: site.down().chain({"a": site.eu(), "b": site.us()}),
        "LangChain's own": lambda site: site.down().chain(site.eu().with_fallbacks([site.us()])),
        "a function": lambda site: site.down().chain(
            site.eu() | (lambda _: site.us().invoke("x"))
        ),
    },
    "LangChain, agents": {
        "down": lambda site: site.down().agent(),
        "another label": lambda site: site.agent(
            fallback=site.us("zdr"), config=configurable(fallback_config=ZDR)
        ),
        "model": lambda site: site.agent(Swap(model_settings={"model": "us"})),
        "model, before": lambda site: site.agent(outside=[Swap(model_settings={"model": "us"})]),
        "headers": lambda site: site.agent(Swap(model_settings={"extra_headers": GATEWAY})),
        "picked": lambda site: site.agent(outside=[Swap(model=site.us())]),
        "inside": lambda site: site.agent(Swap(model=site.us())),
        "inside, tagged": lambda site: site.agent(Swap(model=site.us()), config={"tags": ["eu"]}),
        "asked as well": lambda site: site.agent(Selects(site.us())),
        "LangChain's own": lambda site: site.down().agent(ModelFallbackMiddleware(site.us())),
    },
    "LiteLLM": {
        "down": lambda site: site.down().complete(),
        "another label": lambda site: site.complete(metadata={"require": ["zdr"]}),
        "no label": lambda site: site.complete(litellm_metadata={"require": []}),
        "model": lambda site: site.complete(model="abroad"),
        "a label for the call alone": lambda site: site.complete(
            site.router(config=FallbackConfig()), model="abroad", metadata={"require": ["eu"]}
        ),
        "model in the body": lambda site: site.complete(extra_body={"model": "us"}),
        "one deployment": lambda site: site.complete(model="openai/us", specific_deployment=True),
        "address": lambda site: site.complete(api_base=site.away),
        "headers": lambda site: site.complete(extra_headers=GATEWAY),
        "an unranked group": lambda site: site.complete(
            site.router(site.deployment("abroad-2")), model="free"
        ),
        "a ranked group": lambda site: site.complete(
            site.router(site.deployment("abroad-2", 0)), model="free"
        ),
        "excluded": lambda site: site.complete(_excluded_deployment_ids=["home"]),
        "several": lambda site: site.complete(
            site.router(
                site.deployment("abroad-2"),
                site.deployment("abroad-3"),
                site.deployment("home-2", tags=["eu"]),
            ),
            model="free",
        ),
        "the Router's fallbacks": lambda site: site.down().complete(
            site.router(site.deployment("abroad-2"), fallbacks=[{"chat": ["free"]}])
        ),
        "its default fallbacks": lambda site: site.down().complete(
            site.router(site.deployment("abroad-2"), default_fallbacks=["free"])
        ),
        "a call's fallbacks": lambda site: site.down().complete(
            site.router(site.deployment("abroad-2")),
            fallbacks=["free", {"model": "chat", "api_base": site.away}],
        ),
    },
    "OpenAI Agents SDK": {
        "down": lambda site: site.down().runner(),
        "model in the body": lambda site: site.runner(extra_body={"model": "us"}),
        "model": lambda site: site.runner(extra_args={"model": "us"}),
        "headers": lambda site: site.runner(extra_headers=GATEWAY),
        "provider": lambda site: site.runner(extra_body={"provider": {"order": ["abroad"]}}),
        "picked": lambda site: site.named("abroad"),
    },
    "Pydantic AI": {
        "down": lambda site: site.down().pydantic(),
        "model in the body": lambda site: site.pydantic(extra_body={"model": "us"}),
        "models": lambda site: site.pydantic(openrouter_models=["us"]),
        "headers": lambda site: site.pydantic(extra_headers=GATEWAY),
    },
}
EACH = [
    pytest.param(ask, id=f"{way}: {out}") for way, row in CELLS.items() for out, ask in row.items()
]


@pytest.mark.parametrize("ask", EACH)
def test_nobody_without_the_label_is_asked(
    providers: ProviderServer, ask: Callable[[Site], Any]
) -> None:
    """No request leaves for whoever lacks the label; a refusal names the label or the option."""
    site, error = Site(providers), None
    with litellm_left_clean():
        try:
            ask(site)
        except Exception as raised:  # noqa: BLE001 # whatever comes, abroad hears nothing
            error = raised
    assert site.leaks == 0
    if isinstance(error, FallbackConfigError) or (error and not site.home.requests):
        assert "require" in str(error) or "label" in str(error)
