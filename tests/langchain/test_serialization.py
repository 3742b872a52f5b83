"""What is written of a chain, and what comes back: dumps, pickles, copies, graphs and schemas."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.load import dumpd, dumps, load
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableBinding, RunnableLambda, RunnableSequence
from langchain_openai import ChatOpenAI

from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import alive, candidate, dead, failing_over, with_fallbacks

# load() is in beta.
pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
    # Single calls outside of turns are meant to stand alone here.
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
]

SECRETS = {"OPENAI_API_KEY": "sk-openai-secret", "ANTHROPIC_API_KEY": "sk-anthropic-secret"}
NAMESPACES = ["honcho_fallback_langchain", "langchain", "langchain_core", "langchain_openai"]
ALLOWED: list[Any] = [
    ChatAnthropic,
    ChatOpenAI,
    ChatPromptTemplate,
    FallbackChatModel,
    FallbackRunnable,
    RunnableBinding,
    RunnableSequence,
    StrOutputParser,
]


def models() -> tuple[Any, Any]:
    given: list[dict[str, Any]] = [
        {"api_key": secret, "base_url": "http://127.0.0.1:1"} for secret in SECRETS.values()
    ]
    gpt = ChatOpenAI(model="gpt-5.5", **given[0])
    return gpt, ChatAnthropic(model="claude-sonnet-5", **given[1])


def options() -> dict[str, Any]:
    return {
        "agent": "deriver",
        "reset": "turn",
        "max_attempts": 2,
        "fallback_on": {"timeout", "rate_limit", "overloaded", "connection", "quota"},
        "timeout": None,
        "sdk_retries": "keep",
        "validate": bool,
        "observers": [],
    }


def chat_model() -> FallbackChatModel:
    return FallbackChatModel(*models(), **options())


def chain() -> FallbackRunnable[Any, Any]:
    first, second = (model | StrOutputParser() for model in models())
    made = with_fallbacks(first, [second], **options())
    assert isinstance(made, FallbackRunnable)
    return made


def loaded(written: Any) -> Any:
    return load(
        written,
        allowed_objects=ALLOWED,
        valid_namespaces=[*NAMESPACES, "langchain_anthropic"],
        secrets_map=SECRETS,
    )


@pytest.mark.parametrize("make", [chat_model, chain])
def test_a_dump_is_the_same_each_time_and_tells_no_secret(make: Any) -> None:
    """It is part of the keys of caches, and of traces."""
    written = dumps(make())
    assert written == dumps(make())
    assert json.loads(written)["type"] == "constructor"
    assert "secret" not in written.replace('"type": "secret"', "")
    assert '"OPENAI_API_KEY"' in written


@pytest.mark.parametrize("make", [chat_model, chain])
def test_a_dump_has_a_public_id_and_the_plain_options(make: Any) -> None:
    """The id is where it is imported from; functions and observers cannot be written."""
    made = make()
    written: Any = dumpd(made)
    assert written["id"] == ["honcho_fallback_langchain", type(made).__name__]
    told = {name: value for name, value in written["kwargs"].items() if name in options()}
    assert told == {
        "agent": "deriver",
        "reset": "turn",
        "max_attempts": 2,
        "fallback_on": ["connection", "overloaded", "quota", "rate_limit", "timeout"],
        "timeout": None,
        "sdk_retries": "keep",
    }
    assert len(written["kwargs"]["candidates"]) == 2


@pytest.mark.parametrize("make", [chat_model, chain])
def test_what_is_loaded_is_what_was_written(make: Any) -> None:
    """With the classes allowed by name; secrets come from where the loader says."""
    made = make()
    again = loaded(dumpd(made))
    assert type(again) is type(made)
    assert dumps(again) == dumps(made)
    assert again.policy.targets == made.policy.targets
    assert (again.policy.agent, again.policy.config.reset) == ("deriver", "turn")
    assert again.policy.config.fallback_on == made.policy.config.fallback_on


def test_what_was_bound_is_loaded_too() -> None:
    """A bound form is written as the RunnableBinding that it is to everybody else."""
    written: Any = dumpd(chat_model().bind(stop=["x"]))
    assert written["id"][-1] == "RunnableBinding"
    again = loaded(written)
    assert again.kwargs == {"stop": ["x"]}
    assert type(again.bound) is FallbackChatModel


def test_a_dump_follows_the_candidates() -> None:
    """LangChain keeps it on the object; a copy with other candidates has its own."""
    model = chat_model()
    before = model._serialized
    bound: Any = model.bind_tools([])
    assert bound.bound._serialized != before
    assert model._serialized is before
    assert model.with_fallback_config(agent="other")._serialized["kwargs"]["agent"] == "other"


def text(message: Any) -> str:
    return str(message.text)


def runnable() -> FallbackRunnable[Any, Any]:
    """A chain whose parts can all be pickled."""
    return FallbackRunnable(dead() | RunnableLambda(text), alive() | RunnableLambda(text))


COPIES: dict[str, Any] = {
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),  # noqa: S301 # our own
    "deepcopy": copy.deepcopy,
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
    answer = copied.invoke("hi")
    assert getattr(answer, "text", answer) == "from backup"
    assert (copied.policy.agent, copied.policy.config.reset) == ("a", "turn")
    assert copied.options.plain() == made.options.plain()


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
@pytest.mark.parametrize("make", [failing_over, runnable])
def test_a_deep_copy_asks_candidates_of_its_own(make: Any, way: str) -> None:
    """Nothing of the copy reaches the original's candidates, and turns are the copy's."""
    made = make().with_fallback_config(reset="turn")
    copied = COPIES[way](made)

    def asked(one: Any) -> int:
        first = candidate(one, 0)
        first = getattr(first, "first", first)
        return len(first.asked)

    copied.invoke("hi")
    assert (asked(made), asked(copied)) == (0, 1)
    with copied.turn() as turn:
        copied.invoke("hi")
    assert turn.position == 1


def test_a_models_schemas_are_those_of_a_chat_model() -> None:
    """It takes what any chat model takes, and answers in messages."""
    model = failing_over()
    for schema in ("get_input_jsonschema", "get_output_jsonschema"):
        ours, plain = getattr(model, schema)(), getattr(alive(), schema)()
        assert {**ours, "title": ""} == {**plain, "title": ""}


def test_nothing_secret_in_a_repr() -> None:
    """Keys stay out of logs."""
    for made in (chat_model(), chain()):
        assert "secret" not in repr(made)
        assert "secret" not in str(made.policy)


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
