"""Every parameter of a candidate is kept, and the chain promises what all of them can do."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from honcho_fallback_langchain import FallbackChatModel
from tests.helpers.chat_models import alive, claude, gpt

# What `without_sdk_retries` changes on purpose; test_sdk_retries.py says how.


def test_profile_is_what_all_can_do() -> None:
    """All for an ability, the smallest for a size; what one does not tell is not promised."""
    first = alive("a")
    first.profile = {"tool_calling": True, "structured_output": True, "max_input_tokens": 2000}
    second = alive("b")
    second.profile = {"tool_calling": True, "structured_output": False, "max_input_tokens": 1000}

    joined = FallbackChatModel(first.bind(seed=1), second).profile

    assert joined == {
        "tool_calling": True,
        "structured_output": False,
        "max_input_tokens": 1000,
    }
    second.profile = {"tool_calling": True, "name": "b"}
    first.profile = {**first.profile, "name": "a"}
    assert FallbackChatModel(first, second).profile == {"tool_calling": True}
    assert FallbackChatModel(first, second, profile={"tool_calling": False}).profile == {
        "tool_calling": False
    }
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
    """Its fields, as with_fallbacks shows them; what it lacks is missing here, too."""
    model: Any = FallbackChatModel(gpt(max_tokens=7), claude())
    theirs: Any = gpt(max_tokens=7).with_fallbacks([claude()])
    assert model.max_tokens == theirs.max_tokens == 7
    assert copy(model).root_client is model.candidates[0].root_client
    with pytest.raises(AttributeError, match="no_such_field"):
        _ = model.no_such_field
    with pytest.raises(AttributeError, match="_private"):
        _ = model._private  # the chain's own


def test_a_name_is_told_where_every_candidate_can_do_what_it_promises() -> None:
    """create_agent asks a model for a schema by its name: a fallback has to take it, too."""
    able, unable = ({"structured_output": one} for one in (True, False))
    both: Any = FallbackChatModel(gpt(profile=able), claude(profile=able))
    one: Any = FallbackChatModel(gpt(profile=able), claude(profile=unable))
    assert both.model_name == both.candidates[0].model_name
    for name in ("model", "model_id", "model_name"):
        with pytest.raises(AttributeError, match=rf"candidates\[0\].{name}"):
            getattr(one, name)
