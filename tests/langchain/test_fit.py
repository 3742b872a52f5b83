"""Fit before dispatch: who cannot take a request is passed over before it is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, Runnable, RunnableLambda

from honcho_fallback import Cooldown, FallbackConfig, FallbackConfigError, FallbackExhausted
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import (
    FallbackChatModel,
    FallbackMiddleware,
    FallbackRunnable,
    with_fallback_config,
)
from honcho_fallback_langchain import _fit as fit
from tests.helpers.agents import agent, last
from tests.helpers.agents import run as run_agent
from tests.helpers.chat_models import (
    Joke,
    ScriptedChat,
    claude,
    dead,
    gpt,
    look_up,
    model_at,
    serve,
)
from tests.helpers.chat_runs import SILENT_VERBS, VERBS, Runs
from tests.helpers.observers import Listener
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
]
PIXEL = "iVBORw0KGgo="
SENTENCE = "It rains in Oslo. "


class InHouse(ScriptedChat):
    """Belong to one provider, so that nothing has to be translated for another."""

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_provider": "in-house", "ls_model_name": self.model}


def saying(model: str, profile: dict[str, Any] | None = None) -> ScriptedChat:
    """Make a model that always answers, and says what it takes."""
    limits: Any = profile
    return InHouse(model=model, script=[["from ", model]], profile=limits)


def media(kind: str, mime_type: str, **where: Any) -> dict[str, Any]:
    return {"type": kind, "mime_type": mime_type, **(where or {"base64": PIXEL})}


IMAGE = media("image", "image/png")
PDF = media("file", "application/pdf")
OPENAI_IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
SOURCE = {"type": "base64", "media_type": "application/pdf", "data": PIXEL}
ANTHROPIC_PDF = {"type": "document", "source": SOURCE}


def human(*blocks: Any) -> list[Any]:
    return [HumanMessage(content=["Look: ", *blocks])]


def from_tool(*blocks: Any) -> list[Any]:
    call: dict[str, Any] = {"name": "look_up", "args": {}, "id": "c1"}
    answer = ToolMessage(content=[*blocks], tool_call_id="c1")
    return [HumanMessage("hi"), AIMessage("", tool_calls=[call]), answer]


NEEDS = {
    "image_inputs": (human(IMAGE), "it takes no images"),
    "image_inputs of OpenAI": (human(OPENAI_IMAGE), "it takes no images"),
    "image_url_inputs": (
        human(media("image", "image/png", url="https://x.test/a.png")),
        "it takes no images by address",
    ),
    "image_tool_message": (from_tool(IMAGE), "it takes no images from tools"),
    "audio_inputs": (human(media("audio", "audio/wav")), "it takes no audio"),
    "video_inputs": (human(media("video", "video/mp4")), "it takes no video"),
    "pdf_inputs": (human(PDF), "it takes no PDFs"),
    "pdf_inputs of Anthropic": (human(ANTHROPIC_PDF), "it takes no PDFs"),
    "pdf_tool_message": (from_tool(PDF), "it takes no PDFs from tools"),
}


def text_of_tokens(tokens: int) -> str:
    """Make a text that is so long by LangChain's count, with what a message adds to it."""
    return "x" * (4 * (tokens - 3) - len("user"))


@pytest.mark.parametrize("case", NEEDS)
@pytest.mark.parametrize("says", [False, True, None])
def test_what_a_profile_denies_is_not_asked_of_it(case: str, says: bool | None) -> None:
    """Only an explicit False passes a candidate over, with the reason in the record."""
    messages, reason = NEEDS[case]
    key = case.partition(" ")[0]
    profile = {} if says is None else {key: says}
    observer, primary = Listener(), saying("primary", profile)
    answer = FallbackChatModel(primary, saying("backup"), observers=[observer]).invoke(messages)
    if says is False:
        assert answer.text == "from backup"
        assert not primary.asked
        assert observer.record.untried == (("in-house/primary", reason),)
        assert answer.response_metadata["fallback"]["is_fallback"]
    else:
        assert answer.text == "from primary"


@pytest.mark.parametrize("verb", [*VERBS, *SILENT_VERBS])
async def test_every_verb_judges_first(verb: str) -> None:
    """However a chain is asked, no request goes to who is passed over."""
    primary = saying("primary", {"max_input_tokens": 100})
    model = FallbackChatModel(primary, saying("backup"))
    assert await {**VERBS, **SILENT_VERBS}[verb](model, "x" * 1000) == "from backup"
    assert not primary.asked


@pytest.mark.parametrize("beyond", [False, True])
def test_a_window_counts_with_a_margin(beyond: bool) -> None:
    """An input a quarter beyond the window is still asked for; one token more is not."""
    observer = Listener()
    primary = saying("primary", {"max_input_tokens": 8000})
    text = text_of_tokens(10_000 + beyond)
    assert count_tokens_approximately([HumanMessage(text)]) == 10_000 + beyond
    answer = FallbackChatModel(primary, saying("backup"), observers=[observer]).invoke(text)
    assert answer.text == ("from backup" if beyond else "from primary")
    if beyond:
        reason = "about 10,001 tokens do not fit its window of 8,000"
        assert observer.record.untried == (("in-house/primary", reason),)


@pytest.mark.parametrize("where", ["calls", "tools", "PDF"])
def test_what_counts_as_input(where: str) -> None:
    """Arguments of calls and schemas of tools count; the bytes of a file do not."""
    primary = saying("primary", {"max_input_tokens": 2000})
    model: Any = FallbackChatModel(primary, saying("backup"))
    messages: list[Any] = [HumanMessage("hi")]
    if where == "calls":
        call = {"name": "write", "args": {"text": SENTENCE * 1000}, "id": "c1"}
        messages += [AIMessage("", tool_calls=[call]), ToolMessage("done", tool_call_id="c1")]
    elif where == "tools":
        tools = [
            look_up.model_copy(update={"name": f"t{n}", "description": "y" * 3000})
            for n in range(4)
        ]
        model = model.bind_tools(tools)
    else:
        messages = human(media("file", "application/pdf", base64="JVBERi0x" * 5000))
    expected = "from primary" if where == "PDF" else "from backup"
    assert model.invoke(messages).text == expected


def test_no_tokens_are_counted_where_a_look_at_the_length_will_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that everybody can take is not counted."""
    counts: list[int] = []

    def count(messages: Any, **options: Any) -> int:
        counts.append(count_tokens_approximately(messages, **options))
        return counts[-1]

    monkeypatch.setattr(fit, "count_tokens_approximately", count)
    primary = saying("primary", {"max_input_tokens": 8000, "tool_calling": True})
    model = FallbackChatModel(primary, saying("backup")).bind_tools([look_up])
    history = [HumanMessage(SENTENCE), AIMessage(SENTENCE)] * 50
    assert model.invoke(history).text == "from primary"
    assert not counts
    assert model.invoke("x" * 8000 * 8).text == "from backup"
    assert counts


@pytest.mark.parametrize("kind", ["bound", "given", "a provider's own", "none"])
def test_tools_for_who_calls_none(kind: str) -> None:
    """Functions need `tool_calling`, bound or given; a provider's own search does not."""
    primary = saying("primary", {"tool_calling": False})
    model: Any = FallbackChatModel(primary, saying("backup"))
    kwargs: dict[str, Any] = {}
    if kind == "bound":
        model = model.bind_tools([look_up])
    elif kind == "given":
        kwargs = {"tools": [look_up]}
    elif kind == "a provider's own":
        kwargs = {"tools": [{"google_search": {}}]}
    expected = "from backup" if kind in {"bound", "given"} else "from primary"
    assert model.invoke("hi", **kwargs).text == expected


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
@pytest.mark.parametrize("include_raw", [False, True])
async def test_structured_output_of_its_own(
    providers: ProviderServer, method: str, include_raw: bool
) -> None:
    """Who has no native structured output is passed over for it, and asked for a tool call."""
    primary, backup = serve(providers, "openai"), serve(providers, "openai", '{"setup": "Why?"}')
    profile = {"structured_output": False, "tool_calling": method == "json_schema"}
    chain = FallbackChatModel(model_at(primary, profile=profile), model_at(backup))
    structured = chain.with_structured_output(Joke, method=method, include_raw=include_raw)
    if method == "function_calling":
        with pytest.raises(FallbackConfigError, match="it calls no tools"):
            FallbackChatModel(model_at(primary, profile=profile)).with_structured_output(
                Joke, method=method
            ).invoke("hi")
    else:
        answer: Any = structured.invoke("hi")
        assert (answer["parsed"] if include_raw else answer) == Joke(setup="Why?")
        assert await structured.ainvoke([HumanMessage("hi")])
        assert len(backup.requests) == 2
    assert not primary.requests


@pytest.mark.parametrize("verb", ["invoke", "ainvoke", "stream", "astream"])
async def test_a_real_client_sends_nothing(providers: ProviderServer, verb: str) -> None:
    """With real SDKs no request reaches the provider that cannot take it."""
    small, large = serve(providers, "openai", "small"), serve(providers, "anthropic", "large")
    primary = model_at(small, profile={"max_input_tokens": 1000})
    assert (
        await VERBS[verb](FallbackChatModel(primary, model_at(large)), SENTENCE * 400) == "large"
    )
    assert (len(small.requests), len(large.requests)) == (0, 1)


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_an_agents_model_is_passed_over(providers: ProviderServer, verb: str) -> None:
    """In an agent the system's message, the history and the tools are judged together."""
    small, large = serve(providers, "openai", "small"), serve(providers, "anthropic", "large")
    observer = Listener()
    primary = model_at(small, profile={"max_input_tokens": 1000})
    middleware = FallbackMiddleware(model_at(large), observers=[observer])
    made = agent(primary, middleware, system_prompt=SENTENCE * 400)
    assert last(await run_agent(verb, made)).text == "large"
    assert not small.requests
    ((_, reason),) = observer.record.untried
    assert "do not fit its window of 1,000" in reason


def test_an_agents_tools() -> None:
    """An agent's tools are asked of nobody who calls none, and each run says so."""
    primary = saying("primary", {"tool_calling": False})
    assert last(
        agent(primary, FallbackMiddleware(saying("backup"))).invoke({"messages": "hi"})
    ).text == ("from backup")
    with pytest.raises(
        FallbackConfigError, match=r"in-house/primary: it calls no tools; in-house"
    ):
        agent(primary, FallbackMiddleware(primary)).invoke({"messages": "hi"})


FORMATS = {
    "provider": (ProviderStrategy(Joke), {"structured_output": False}),
    "tool": (ToolStrategy(Joke), {"tool_calling": False}),
    "auto": (AutoStrategy(Joke), {"structured_output": False, "tool_calling": False}),
    "raw": (Joke, {"structured_output": False, "tool_calling": False}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_an_agents_response_format(providers: ProviderServer, name: str) -> None:
    """What an agent's response format needs counts like tools and structured output."""
    response_format, profile = FORMATS[name]
    small, large = serve(providers, "openai"), serve(providers, "openai", '{"setup": "Why?"}')
    backup = model_at(large, profile={"structured_output": True})
    made = agent(
        model_at(small, profile=profile),
        FallbackMiddleware(backup, max_attempts=1),
        tools=[],
        response_format=response_format,
    )
    if name == "tool":
        large.standing = Reply(status=500)
        with pytest.raises(FallbackExhausted):
            made.invoke({"messages": "hi"})
    else:
        assert made.invoke({"messages": "hi"})["structured_response"] == Joke(setup="Why?")
    assert (len(small.requests), len(large.requests)) == (0, 1)


@pytest.mark.parametrize("verb", [*VERBS, *SILENT_VERBS])
async def test_too_large_for_everybody(verb: str) -> None:
    """LangChain's own error comes out at once: its run ends with it, and no call was begun."""
    runs, observer = Runs(), Listener()
    models = [saying(name, {"max_input_tokens": 100}) for name in ("a", "b")]
    chain = FallbackChatModel(*models, observers=[observer])
    with pytest.raises(
        ContextOverflowError, match="window of 100; in-house/b: about 25"
    ) as caught:
        await {**VERBS, **SILENT_VERBS}[verb](chain, "x" * 1000, {"callbacks": [runs]})
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)  # one verb ends its run in a task
    assert 'fit="ask anyway"' in str(caught.value)
    assert [run.error for run in runs.roots] == [caught.value]
    assert (models[0].asked, models[1].asked, runs.children(runs.roots[0])) == ([], [], [])
    assert not observer.starts
    assert not observer.records


async def test_nobody_can_take_it() -> None:
    """Other reasons are a FallbackConfigError that lists each candidate with its own."""
    models = [
        saying("small", {"max_input_tokens": 10}),
        saying("blind", {"image_inputs": False}),
    ]
    expected = "small: about .* window of 10; in-house/blind: it takes no images"
    with pytest.raises(FallbackConfigError, match=expected):
        await FallbackChatModel(*models).ainvoke(human("x" * 1000, IMAGE))


@pytest.mark.parametrize("where", ["chain", "agent"])
def test_ask_anyway_leaves_it_to_the_provider(where: str) -> None:
    """`fit="ask anyway"` asks whoever is first, whatever its profile says."""
    primary = saying("primary", {"max_input_tokens": 10, "tool_calling": False})
    if where == "chain":
        chain = FallbackChatModel(primary, saying("backup"), fit="ask anyway")
        assert chain.invoke("x" * 1000).text == "from primary"
        assert FallbackChatModel(primary, fit="ask anyway").generate([human("x" * 1000)])
    else:
        made = agent(primary, FallbackMiddleware(saying("backup"), fit="ask anyway"))
        assert last(made.invoke({"messages": "x" * 1000})).text == "from primary"


def test_a_chain_that_is_a_candidate_can_do_what_one_of_its_own_can() -> None:
    """A nested chain is judged by its most capable candidate, and says why none is left."""
    small = saying("small", {"max_input_tokens": 100, "image_inputs": True})
    blind = saying("blind", {"max_input_tokens": 9000, "image_inputs": False})
    inner, long = FallbackChatModel(small, blind), "x" * 1000
    observer = Listener()
    outer = FallbackChatModel(inner, saying("backup"), observers=[observer])
    assert outer.policy.targets[0].context_window == 9000
    assert outer.invoke(long).text == "from blind"
    assert outer.invoke(human(IMAGE)).text == "from small"
    assert outer.bind_tools([look_up]).invoke(long).text == "from blind"
    observer.starts.clear()
    observer.records.clear()
    assert outer.invoke(human(long, IMAGE)).text == "from backup"
    ((_, reason),) = observer.record.untried
    assert reason.startswith("none of its candidates can take it (in-house/small: about 2")
    assert reason.endswith("; in-house/blind: it takes no images)")
    willing = FallbackChatModel(small, blind, fit="ask anyway")
    assert (
        FallbackChatModel(willing, saying("backup")).invoke(human(long, IMAGE)).text
        == "from small"
    )


@pytest.mark.parametrize("how", ["call", "binding", "config", "bound config", "own config"])
def test_another_model_is_not_judged_by_this_ones_profile(how: str) -> None:
    """Where a call, a binding or a config names another model, nothing is known of it."""
    primary = saying("primary", {"max_input_tokens": 10})
    options: dict[str, Any] = {}
    given: Any = primary
    if how == "call":
        options = {"model": "larger"}
    elif how == "binding":
        given = primary.bind(model="larger")
    else:
        given = primary.configurable_fields(model=ConfigurableField(id="which"))
        config: Any = {"configurable": {"which": "larger"}}
        if how == "config":
            options = {"config": config}
        else:
            given = given.bind(stop=["."]) if how == "bound config" else given
            given = given.with_config(config)
    chain = FallbackChatModel(given, saying("backup"))
    assert chain.invoke("x" * 1000, **options).text.startswith("from primary")
    if how in {"call", "config"}:
        assert chain.invoke("x" * 1000).text == "from backup"
        small = FallbackChatModel(dead(), primary)
        with pytest.raises(StatusError):
            small.with_fallback_config(on_exhausted="last").invoke("x" * 1000, model="larger")


@pytest.mark.parametrize(
    "setting", [{"truncation": "auto"}, {"context_management": [{"type": "compaction"}]}]
)
def test_a_provider_that_shortens_the_input_is_asked(setting: dict[str, Any]) -> None:
    """Where the provider truncates, its window is no limit."""
    small = gpt(profile={"max_input_tokens": 10}, **setting)
    assert fit.require_fit(
        FallbackChatModel(gpt(profile={"max_input_tokens": 10}), saying("backup")).policy,
        fit.Question([HumanMessage("x" * 1000)]),
        {},
        models=True,
    )
    policy = FallbackChatModel(small, saying("backup")).policy
    question = fit.Question([HumanMessage("x" * 1000)])
    assert fit.require_fit(policy, question, {}, models=True) is None


def _first_words(text: str) -> str:
    return text[:3]


def _text(answer: Any) -> str:
    return str(answer.text)


def _function(_: Any) -> str:
    return "a function"


def test_a_runnable_is_judged_by_the_model_that_takes_its_input() -> None:
    """A prompt or a function before the model makes another input of it, which nobody knows."""
    small = saying("small", {"max_input_tokens": 10, "image_inputs": False})
    long = "x" * 1000
    trimming: Runnable[Any, Any] = RunnableLambda(_first_words) | small
    assert FallbackRunnable(trimming, saying("backup")).invoke(long).text == "from small"
    prompt = ChatPromptTemplate.from_messages([("user", "{question}")])
    asked = FallbackRunnable(prompt | small, prompt | saying("backup")).invoke({"question": long})
    assert asked.text == "from small"
    parsed = FallbackRunnable(
        small.with_retry() | RunnableLambda(_text), RunnableLambda[Any, str](_function)
    )
    assert parsed.invoke(long) == "a function"
    assert parsed.invoke(human(IMAGE)) == "a function"
    chain = prompt | with_fallback_config(small, [saying("backup")])
    assert chain.invoke({"question": long}).text == "from backup"


UNREADABLE: dict[str, tuple[Any, dict[str, Any]]] = {
    "an odd block": (human({"type": "odd"}), {}),
    "a tool": ("hi", {"tools": [{"name": "odd", "schema": object()}]}),
    "an answer's image": ([HumanMessage("hi"), AIMessage([IMAGE])], {}),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_judged_is_asked(what: str) -> None:
    """What LangChain cannot read or count passes nobody over; nor do the parts of answers."""
    messages, kwargs = UNREADABLE[what]
    primary = saying("primary", {"image_inputs": False, "max_input_tokens": 50})
    assert (
        FallbackChatModel(primary, saying("backup")).invoke(messages, **kwargs).text
        == "from primary"
    )


def test_a_file_that_another_provider_keeps(providers: ProviderServer) -> None:
    """Who cannot be sent a block of another provider's is passed over, the primary's never is."""
    observer = Listener()
    kept = {"type": "file", "file": {"file_id": "file-1"}}
    same = model_at(serve(providers, "openai", "hello"))
    chain = FallbackChatModel(gpt(), claude(), same, observers=[observer])
    assert chain.invoke(human(kept)).text == "hello"
    assert observer.kinds == ["connection", None]
    reason = "a block of type 'file' names a file that another provider keeps"
    assert observer.record.untried == (("anthropic/claude-sonnet-5", reason),)
    # Nothing is translated for a runnable, so nothing is known of what its model would be sent.
    with pytest.raises(FallbackExhausted) as caught:
        FallbackRunnable(gpt(), claude()).invoke(human(kept))
    assert {one.position for one in caught.value.record.attempts} == {0, 1}


def test_a_block_that_langchain_cannot_read_needs_nothing() -> None:
    """What is not well formed is the provider's to refuse."""
    messages = human({"type": "image", "source_type": "base64"})
    assert fit.Question(messages).needs == set()


def test_any_input_of_a_chat_model_is_judged() -> None:
    """Tuples are judged like messages, and what is no input stays the candidates' to refuse."""
    observer = Listener()
    small = saying("small", {"max_input_tokens": 10})
    chain = FallbackChatModel(small, saying("backup"), observers=[observer])
    assert chain.invoke([("user", "x" * 1000)]).text == "from backup"
    wrong: Any = [object()]
    with pytest.raises(NotImplementedError, match="Unsupported message type") as caught:
        chain.invoke(wrong)
    assert [one.outcome for one in observer.records] == ["success", "rejected"]
    with pytest.raises(NotImplementedError) as anyway:
        chain.with_fallback_config(fit="ask anyway").invoke(wrong)
    assert str(caught.value) == str(anyway.value)


def test_with_cooldowns_turns_and_a_config_of_the_call() -> None:
    """Those who are left behave as a chain of their own: in a cooldown, a turn, a config."""
    blind = saying("blind", {"image_inputs": False})
    seeing = InHouse(model="seeing", script=[[StatusError(503)], ["seen"]])
    chain = FallbackChatModel(blind, seeing, cooldown=Cooldown(), wait=0, max_attempts=2)
    assert chain.invoke(human(IMAGE)).text == "seen"
    assert chain.invoke("hi").text == "from blind"

    turning = FallbackChatModel(dead("first"), saying("second"), blind, reset="turn")
    with turning.turn() as turn:
        assert turning.invoke(human(IMAGE)).text == "from second"
        assert turn.position == 1
    own: Any = {"configurable": {"fallback_config": FallbackConfig(must_not_degrade=True)}}
    with pytest.raises(FallbackConfigError, match=r"\(in-house/blind: it takes no images\)"):
        FallbackChatModel(blind, saying("backup")).invoke(human(IMAGE), own)
