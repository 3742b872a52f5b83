"""What `with_fallbacks` promises: the same here, or on purpose not.

Also copies of a chain, by a pickle or in this process, and what a chain shows of itself.
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.language_models import FakeListLLM
from langchain_core.load import dumps
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.config import ensure_config

from honcho_fallback import ApiKey, FallbackConfigError
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.canaries import KEY, canaries_in
from tests.helpers.chat_models import (
    Joke,
    ScriptedChat,
    alive,
    candidate,
    chat,
    claude,
    dead,
    failing_over,
    gpt,
    with_fallbacks,
)
from tests.helpers.chat_runs import VERBS, Runs, text_of
from tests.helpers.pairwise import in_pairs

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")


def ours(primary: Any, fallbacks: list[Any], **options: Any) -> Any:
    options = {"exceptions_to_handle": (Exception,), "on_exhausted": "last", **options}
    return with_fallbacks(primary, fallbacks, **options)


def broken_llm() -> FakeListLLM:
    return FakeListLLM(responses=["never"], i=1)  # an IndexError on every call


def prompted(llm: Any) -> Any:
    return PromptTemplate.from_template("what is {thing}") | llm


CHAINS: dict[str, Any] = {
    "language models": ours(broken_llm(), [broken_llm(), FakeListLLM(responses=["yes"])]),
    "inside a chain": RunnableLambda(lambda thing: {"thing": thing})
    | ours(prompted(broken_llm()), [prompted(FakeListLLM(responses=["yes"]))]),
    "chat models": ours(chat("nothing to say"), [alive("backup", "yes")]) | StrOutputParser(),
    "a function at the end": ours(
        RunnableLambda(lambda thing: {"thing": thing}) | prompted(broken_llm()),
        [RunnableLambda(lambda _: "yes")],
    ),
}


@in_pairs(case=CHAINS, verb=sorted(VERBS.keys() - {"astream_events v2"}))
async def test_the_next_answers(verb: str, case: str) -> None:
    """Language models, chat models and chains, alone and inside a chain, by every verb."""
    assert await VERBS[verb](CHAINS[case], "x") == "yes"


async def test_only_the_classes_given_are_handled() -> None:
    """LangChain's name for a rule: another class comes out at once, and nobody else is asked."""
    handled = {"exceptions_to_handle": (KeyError, ConnectionError)}
    backup = alive()
    assert ours(chat("a", KeyError("k")), [backup], **handled).invoke("hi").text == "from backup"
    for verb in ("invoke", "ainvoke", "stream", "astream"):
        with pytest.raises(ValueError, match="a bug"):
            await VERBS[verb](ours(chat("a", ValueError("a bug")), [backup], **handled), "hi")
    assert len(backup.asked) == 1
    for wrong in (int, ["ValueError"], (object(),)):
        with pytest.raises(FallbackConfigError, match="pass exception classes"):
            FallbackMiddleware(alive(), exceptions_to_handle=wrong)  # type: ignore[arg-type] # what is refused


def test_exceptions_to_handle_stands_until_it_is_given_anew() -> None:
    """Rules of the user's leave it, another tuple replaces it, an empty one takes it away."""
    model = ours(alive("a"), [alive()], exceptions_to_handle=(KeyError,))

    def named(**options: Any) -> list[Any]:
        return [rule.error for rule in ruled.with_fallback_config(**options).policy.config.rules]

    (rule,) = model.policy.config.rules
    assert (rule.error, rule.kind, rule.default) == ((KeyError,), "server_error", True)
    ruled = model.with_fallback_config(rules={"kind": "quota", "code": "TEAM_BUDGET"})
    assert named() == named(deadline=5) == [(), (KeyError,)]
    assert named(exceptions_to_handle=(LookupError,)) == [(), (LookupError,)]
    assert named(exceptions_to_handle=()) == [()]


class Asking(Runnable[Any, Any]):
    """Do what a tool inside of a model does: ask for the config without having been handed one."""

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 # LangChain's name
        inner: Any = RunnableLambda(lambda _: ensure_config()["tags"]).with_config(run_name="tool")
        return ",".join(sorted(inner.invoke(input)))


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"astream_events v2"}))
async def test_a_candidate_is_asked_with_its_config_around_it(verb: str) -> None:
    """What it calls without a config is its child in the trace, with the call's tags.

    Neither between two chunks nor after the call is it around the reader.
    """
    runs, chain = Runs(), ours(Asking(), [Asking()])
    config: Any = {"tags": ["t"], "callbacks": [runs]}
    assert "t" in await VERBS[verb](chain, "x", config)
    (tool,) = runs.children(runs.check())
    assert (tool.name, tool.tags) == ("tool", ["t"])
    assert ensure_config()["tags"] == []
    for _ in chain.stream("x", config) if verb == "stream" else ():
        assert ensure_config()["tags"] == []
    async for _ in chain.astream("x", config):
        assert ensure_config()["tags"] == []


# On purpose not the same.


def test_each_item_of_a_batch_goes_its_own_way() -> None:
    """LangChain asks no item's fallback before every primary has ended; here each goes alone."""
    backup_asked = Event()

    def primary(asked: str) -> str:
        if asked == "failing":
            raise StatusError(503)
        assert backup_asked.wait(30)
        return "slow"

    def backup(_asked: str) -> str:
        backup_asked.set()
        return "fallback"

    pair = RunnableLambda(primary), RunnableLambda(backup)
    assert FallbackRunnable(*pair).batch(["failing", "slow"]) == ["fallback", "slow"]


class Unannotated(ScriptedChat):
    """Bind tools without saying what comes back, as custom models do."""

    def bind_tools(self, tools, **kwargs):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN003, ANN201 # the point
        return super().bind_tools(tools, **kwargs)


def test_a_method_without_annotations_keeps_the_fallback() -> None:
    """Tools bound to a custom model's with_fallbacks leave its primary alone; not here."""
    down = Unannotated(model="primary", script=[[StatusError(503)]])
    assert FallbackChatModel(down, alive()).bind_tools([Joke]).invoke("hi").text == "from backup"


def test_a_model_named_per_call_is_the_primarys() -> None:
    """With LangChain's the backup is asked for the primary's model; here only the primary is."""
    model = failing_over()
    for named in ("model", "model_name"):
        model.invoke("hi", None, temperature=0.5, **{named: "gpt-5.5"})
        assert candidate(model, 0).asked[-1].kwargs[named] == "gpt-5.5"
        assert named not in candidate(model, 1).asked[-1].kwargs
        assert candidate(model, 1).asked[-1].kwargs["temperature"] == 0.5


# Copies of a chain, and what it shows of itself.


def runnable() -> FallbackRunnable[Any, Any]:
    """A chain whose parts can all be pickled."""
    return FallbackRunnable(dead() | RunnableLambda(text_of), alive() | RunnableLambda(text_of))


COPIES: dict[str, Any] = {
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),  # noqa: S301 # our own
    "deepcopy": copy.deepcopy,
    "deep model_copy": lambda made: made.model_copy(deep=True),
    "copy": copy.copy,
    "model_copy": lambda made: made.model_copy(),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("make", [failing_over, runnable])
def test_a_copy_answers_as_the_original(make: Any, way: str) -> None:
    """With its options, as far as the candidates can be copied."""
    made = make().with_fallback_config(agent="a", reset="turn")
    made.invoke("hi")  # whatever is computed on first use is there
    copied = COPIES[way](made)
    with copied.turn() as turn:
        answer = copied.invoke("hi")
    assert turn.position == 1
    assert getattr(answer, "text", answer) == "from backup"
    assert (copied.policy.agent, copied.policy.config.reset) == ("a", "turn")


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "deep model_copy"])
def test_a_chain_is_copied_where_its_candidates_are(way: str) -> None:
    """Anthropic's are; OpenAI's hold a client with a lock, and a reference is all there is."""
    made = FallbackChatModel(claude(), claude(), agent="a")
    copied = COPIES[way](made)
    assert copied.candidates[0] is not made.candidates[0]
    assert [one.name for one in copied.policy.targets] == [one.name for one in made.policy.targets]
    assert copied.policy.agent == "a"
    with pytest.raises(TypeError, match="RLock"):
        COPIES[way](FallbackChatModel(gpt(), claude()))


def test_a_chains_schemas_are_its_primarys() -> None:
    """It takes what the primary takes, and gives what it gives."""
    prompt = ChatPromptTemplate.from_template("{topic}")
    made = FallbackRunnable(prompt | alive() | StrOutputParser(), prompt | alive())
    for name in ("get_input_jsonschema", "get_output_jsonschema"):
        assert getattr(made, name)() == getattr(made.candidates[0], name)()


def test_the_version_stands_in_the_metadata() -> None:
    """As integrations do it; traces show with what a run was made."""
    assert "honcho-fallback" in (failing_over().metadata or {})["lc_versions"]


def test_importing_the_adapter_imports_no_provider_and_no_agents() -> None:
    """Whoever has but a chain does not wait for LangGraph."""
    script = (
        "import sys, honcho_fallback_langchain;"
        "print([n for n in ('langchain', 'langgraph', 'openai', 'anthropic') if n in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"


# What a model says of itself has no key, no header and no login in it.


class Token(ApiKey):
    """A credential of somebody's own, which shows what it holds."""

    def __repr__(self) -> str:
        return f"Token({self.get()!r})"


def models() -> list[Any]:
    headers = {"Authorization": f"Bearer {KEY}", "x-team": KEY}
    openai = gpt(
        api_key=KEY,
        base_url=f"https://me:{KEY}@127.0.0.1:9/v1?api_key={KEY}",
        default_headers=headers,
        model_kwargs={"user": KEY},
    )
    return [openai, claude(api_key=KEY, default_headers=headers)]


def shown_of(one: Any) -> list[Any]:
    """Return an object and what is made of it, or holds it."""
    return [
        one, one.bind(extra_headers={"x-key": KEY}), one.with_config(metadata={"key": KEY}),
        one.with_fallback_config(max_attempts=1), one.policy, one.policy.targets, one.chain,
        one.options, one.policy.start(), one | RunnableLambda(str),
    ]  # fmt: skip


@pytest.mark.parametrize("derive", ["", "bind_tools", "with_structured_output"])
def test_a_chat_model_shows_the_names_of_its_candidates(derive: str) -> None:
    """Also what was derived from it, and whatever its candidates show of themselves.

    What tracers write of a chain has no key, either.
    """
    model: Any = FallbackChatModel(*models(), credentials=[Token(KEY), ApiKey(KEY)])
    if derive:
        tool = {"title": "f", "description": "x", "type": "object", "properties": {}}
        model = getattr(model, derive)([tool] if derive == "bind_tools" else tool)
        model = getattr(model, "bound", model)
    for one in shown_of(model):
        assert canaries_in([repr(one), str(one), f"{one}"]) == []
    assert canaries_in(dumps(FallbackChatModel(*models()) | StrOutputParser())) == []
    for name in ("openai/gpt-5.5", "anthropic/claude-sonnet-5"):
        assert name in repr(model)


def test_a_chain_and_a_middleware_do_not_show_what_is_in_them() -> None:
    """Models inside a sequence are there, too."""
    chains = [RunnableLambda(str) | model for model in models()]
    runnable: Any = FallbackRunnable(*chains)
    for one in (*shown_of(runnable), FallbackMiddleware(*models())):
        assert canaries_in([repr(one), str(one)]) == []
    assert canaries_in(dumps(FallbackRunnable(*models()))) == []
