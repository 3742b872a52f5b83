"""Every parameter of a candidate is kept, and the chain promises what all of them can do."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda, RunnableSequence

from honcho_fallback import FallbackConfigError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from honcho_fallback_langchain._candidates import chat_model_of
from tests.helpers.chat_models import Joke, alive, asked_of, claude, gpt, look_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.language_models import BaseChatModel

CHANGES: dict[str, Any] = {
    "bind_tools": lambda model: model.bind_tools([look_up]),
    "with_structured_output": lambda model: model.with_structured_output(Joke),
    "bind": lambda model: model.bind(stop=["x"]),
    "with_config": lambda model: model.with_config(tags=["t"]),
    "with_fallback_config": lambda model: model.with_fallback_config(reset="turn"),
    "in a chain": lambda model: RunnableLambda(str) | model,
}

# What `without_sdk_retries` changes on purpose; test_sdk_retries.py says how.
RETRIES = {"max_retries", "client", "async_client", "root_client", "root_async_client"}


def models_in(part: Any) -> Iterator[BaseChatModel]:
    """Find the candidates' models, as they are asked, whatever was made of them."""
    if isinstance(part, FallbackChatModel | FallbackRunnable):
        for one in asked_of(part):
            yield from models_in(one)
    elif isinstance(part, RunnableSequence):
        for step in part.steps:
            yield from models_in(step)
    elif (model := chat_model_of(part)) is not None:
        if isinstance(model, FallbackChatModel):
            yield from models_in(model)
        else:
            yield model


GIVEN: dict[str, Any] = {
    "temperature": 0.5,
    "max_tokens": 77,
    "timeout": 9.0,
    "metadata": {"a": 1},
    "tags": ["t"],
    "name": "named",
    "stop": ["x"],
    "default_headers": {"x-team": "a"},
    "model_kwargs": {"user": "u"},
    "disable_streaming": "tool_calling",
    "stream_usage": True,
    "top_p": 0.3,
    "verbose": False,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("retries", ["off", "keep"])
def test_no_field_of_a_candidate_is_lost(change: str, retries: Any) -> None:
    """Every field of the SDK classes, private ones included, whatever is made of the model."""
    given = [gpt(**GIVEN, seed=4, reasoning_effort="low"), claude(**GIVEN, top_k=4)]
    wrapped = FallbackChatModel(*given, sdk_retries=retries)

    found = list(models_in(CHANGES[change](wrapped)))

    assert [type(one) for one in found] == [type(one) for one in given]
    for one, original in zip(found, given, strict=True):
        differing = {
            name
            for name in type(original).model_fields
            if getattr(one, name) is not getattr(original, name)
            and getattr(one, name) != getattr(original, name)
        }
        assert differing <= (RETRIES if retries == "off" else set())
        assert one.__pydantic_private__ == original.__pydantic_private__


@pytest.mark.parametrize("name", ["cache", "disable_streaming", "output_version", "rate_limiter"])
def test_a_chain_has_no_field_that_is_a_candidates_business(name: str) -> None:
    """It is refused with where it belongs: nobody would look at it there."""
    given: Any = {name: None}
    with pytest.raises(FallbackConfigError, match=f"{name}: .*; give it to each candidate"):
        FallbackChatModel(alive("a"), alive("b"), **given)


def test_a_subclass_may_have_fields() -> None:
    """Its constructor takes them beside the options."""

    class Ours(FallbackChatModel):
        tenant: str = ""

    made = Ours(alive("a"), tenant="t", agent="a")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # a class of a test writes no constructor
    assert (made.tenant, made.policy.agent) == ("t", "a")


def test_profile_is_what_all_can_do() -> None:
    """All for an ability, the smallest for a size; what one does not tell is not promised."""
    able = {"tool_calling": True, "structured_output": True, "max_input_tokens": 2000, "name": "a"}
    less = {"tool_calling": True, "structured_output": False, "max_input_tokens": 1000, "name": ""}
    first, second = alive("a", profile=able), alive("b", profile=less)
    joined = {"tool_calling": True, "structured_output": False, "max_input_tokens": 1000}
    assert FallbackChatModel(first.bind(seed=1), second).profile == joined
    given: Any = {"tool_calling": False}
    assert FallbackChatModel(first, second, profile=given).profile == given
    assert FallbackChatModel(first, alive("c")).profile is None


def test_tokens_are_counted_as_the_primary_counts() -> None:
    """A count needs no provider; a wrapper's own tokenizer would be nobody's."""

    class Counts(type(alive())):  # type: ignore[misc] # a fake with a tokenizer
        def get_token_ids(self, text: str) -> list[int]:
            return [1] * len(text)

        def get_num_tokens_from_messages(self, messages: Any, tools: Any = None) -> int:
            return 40 + len(messages)

    model = FallbackChatModel(Counts(model="a").bind(seed=1), alive())
    assert model.get_num_tokens("four") == 4
    assert model.get_num_tokens_from_messages([AIMessage(content="x")]) == 41


def test_what_else_the_primary_has_can_be_read() -> None:
    """Its fields, as with_fallbacks shows them; what it lacks is missing here, too.

    create_agent asks a model for a schema by its name: it is told where a fallback takes one, too.
    """
    model: Any = FallbackChatModel(gpt(max_tokens=7), claude())
    theirs: Any = gpt(max_tokens=7).with_fallbacks([claude()])
    assert model.max_tokens == theirs.max_tokens == 7
    assert copy(model).root_client is model.candidates[0].root_client
    for name in ("no_such_field", "_private"):
        with pytest.raises(AttributeError, match=name):
            getattr(model, name)
    able, unable = ({"structured_output": one} for one in (True, False))
    both: Any = FallbackChatModel(gpt(profile=able), claude(profile=able))
    one: Any = FallbackChatModel(gpt(profile=able), claude(profile=unable))
    assert both.model_name == both.candidates[0].model_name
    for name in ("model", "model_id", "model_name"):
        with pytest.raises(AttributeError, match=rf"candidates\[0\].{name}"):
            getattr(one, name)
