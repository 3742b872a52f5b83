"""Copies of a chain, by a pickle or in this process, and what a chain shows of itself."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.load import dumps
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import alive, dead, failing_over

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

SECRETS = ("sk-openai-secret", "sk-anthropic-secret")


def models() -> tuple[Any, Any]:
    given: list[dict[str, Any]] = [
        {"api_key": secret, "base_url": "http://127.0.0.1:1"} for secret in SECRETS
    ]
    gpt = ChatOpenAI(model="gpt-5.5", **given[0])
    return gpt, ChatAnthropic(model="claude-sonnet-5", **given[1])


def chat_model() -> FallbackChatModel:
    return FallbackChatModel(*models())


def chain() -> FallbackRunnable[Any, Any]:
    return FallbackRunnable(*(model | StrOutputParser() for model in models()))


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
    made = FallbackChatModel(models()[1], models()[1], agent="a")
    copied = COPIES[way](made)
    assert copied.candidates[0] is not made.candidates[0]
    assert [one.name for one in copied.policy.targets] == [one.name for one in made.policy.targets]
    assert copied.policy.agent == "a"
    with pytest.raises(TypeError, match="RLock"):
        COPIES[way](chat_model())


def test_a_chains_schemas_are_its_primarys() -> None:
    """It takes what the primary takes, and gives what it gives."""
    prompt = ChatPromptTemplate.from_template("{topic}")
    made = FallbackRunnable(prompt | alive() | StrOutputParser(), prompt | alive())
    for name in ("get_input_jsonschema", "get_output_jsonschema"):
        assert getattr(made, name)() == getattr(made.candidates[0], name)()


@pytest.mark.parametrize("make", [chat_model, chain])
def test_nothing_secret_is_shown(make: Any) -> None:
    """Keys stay out of logs, and of what tracers write of a chain."""
    made = make()
    for shown in (repr(made), str(made.policy), dumps(made), dumps(made | StrOutputParser())):
        assert "secret" not in shown


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
