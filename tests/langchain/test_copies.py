"""Copies of a chain, by a pickle or in this process, and what a chain shows of itself."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
from langchain_core.load import dumps
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from honcho_fallback import ApiKey
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.canaries import KEY, canaries_in
from tests.helpers.chat_models import alive, claude, dead, failing_over, gpt

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")


def text(message: Any) -> str:
    return str(message.text)


def runnable() -> FallbackRunnable[Any, Any]:
    """A chain whose parts can all be pickled."""
    return FallbackRunnable(dead() | RunnableLambda(text), alive() | RunnableLambda(text))


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


class Token:
    """A credential of somebody's own, which shows what it holds."""

    def __repr__(self) -> str:
        return f"Token({KEY!r})"

    def get(self) -> str:
        return KEY

    def refresh(self) -> None:
        """Nothing to do."""


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
    model: Any = FallbackChatModel(*models(), credentials=[Token(), ApiKey(KEY)])
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
