"""What a chain has not itself is its primary's, and an agent reads no promise into it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from langchain.agents import factory
from langchain_core.load import dumpd
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from pydantic import BaseModel, PrivateAttr

from honcho_fallback import FallbackConfigError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from honcho_fallback_langchain._chat_model import _NATIVE_BY_NAME
from tests.helpers.agents import agent
from tests.helpers.chat_models import ScriptedChat, alive, candidate, chat, claude, dead, gpt

NATIVE: Any = {"structured_output": True, "tool_calling": True}


class Skilled(ScriptedChat):
    """Have what an integration has of its own."""

    region: str = "eu"
    _secret: str = PrivateAttr(default="hush")

    def describe_region(self, *, loud: bool = False) -> str:
        """Tell where it runs."""
        return self.region.upper() if loud else self.region

    async def adescribe_region(self) -> str:
        return self.region

    def with_seed(self, seed):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 # without an annotation, on purpose
        """Return a binding."""
        return self.bind(seed=seed)

    def in_words(self) -> Any:
        """Return a chain that is no chat model."""
        return self | (lambda message: message.text)


def skilled(model: str, *entries: Any, **fields: Any) -> Skilled:
    return Skilled(model=model, script=[[entry] for entry in entries], **fields)


async def test_attributes_and_methods_are_the_primarys() -> None:
    """Fields, clients and an integration's own methods, through what is bound, too."""
    primary = gpt(seed=4)
    model: Any = FallbackChatModel(primary.bind(stop=["x"]), claude())
    assert (model.model_name, model.seed) == ("gpt-5.5", 4)
    assert model.client is primary.client
    assert model.bind(stop=["x"]).root_client is primary.root_client

    own: Any = FallbackChatModel(skilled("primary", "hi", region="us"), alive())
    assert own.region == "us"
    assert own.describe_region(loud=True) == "US"
    assert await own.adescribe_region() == "us"
    assert own.describe_region.__doc__ == "Tell where it runs."


@pytest.mark.parametrize("name", ["bar", "_secret", "__wrapped__", "__html__", "_repr_html_"])
def test_what_is_missing_or_private_is_nobodys(name: str) -> None:
    """Nor is it looked for in a fallback; libraries probe for such names."""
    own = FallbackChatModel(skilled("primary", "hi"), gpt())
    assert not hasattr(own, name)
    assert not hasattr(own, "root_client")


def test_copies_do_not_look_for_what_they_have_not_yet() -> None:
    """Pickling, copying and an empty instance end, and what they make delegates."""
    model = FallbackChatModel(skilled("primary", "hi"), alive())
    pickled: Any = pickle.loads(pickle.dumps(model))  # noqa: S301 # our own
    copies: list[Any] = [pickled, copy.copy(model), copy.deepcopy(model), model.model_copy()]
    assert [made.region for made in copies] == ["eu"] * 4
    with pytest.raises(AttributeError):
        _ = FallbackChatModel.__new__(FallbackChatModel).region  # type: ignore[attr-defined]
    assert "region" not in dumpd(model)["kwargs"]


def test_a_method_that_changes_the_model_keeps_the_fallbacks() -> None:
    """There one without an annotation loses them; here what comes back decides."""
    primary = skilled("primary", OSError())
    primary.script[0][0] = dead().script[0][0]
    theirs = primary.with_fallbacks([skilled("backup", "there")])
    with pytest.raises(type(primary.script[0][0])):
        theirs.with_seed(3).invoke("hi")

    own: Any = FallbackChatModel(primary, skilled("backup", "from backup"))
    seeded = own.with_seed(3)
    assert isinstance(seeded, FallbackChatModel)
    assert seeded.invoke("hi").text == "from backup"
    assert [one.asked[-1].kwargs["seed"] for one in own.candidates] == [3, 3]
    words = own.in_words()
    assert isinstance(words, FallbackRunnable)
    assert words.invoke("hi") == "from backup"
    assert words.policy.turn().owner is own.policy.turn().owner


def test_a_fallback_without_the_method_is_named() -> None:
    """Nobody loses a fallback in silence."""
    own: Any = FallbackChatModel(skilled("primary", "hi"), alive())
    with pytest.raises(FallbackConfigError, match=r"candidates\[1\]: .*with_seed"):
        own.with_seed(3)


def test_a_chain_inside_of_a_chain_is_taken_for_no_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its primary's `max_retries` are not its own; nobody is warned of them."""
    outer: Any = FallbackChatModel(FallbackChatModel(gpt(max_retries=5), claude()), claude())
    assert outer.max_retries == 5
    assert caplog.records == []


class Schema(BaseModel):
    """What an agent answers."""

    sky: str


def native_chosen(model: Any) -> bool:
    """Run an agent with tools and a response format; tell whether it asked for native output."""
    agent(model, response_format=Schema).invoke({"messages": [("user", "hi")]})
    return "tool_choice" not in candidate(model, 0).bindings[-1]


def answering(model: str, profile: Any = NATIVE) -> ScriptedChat:
    """Make a model that answers in the schema, whichever way it is asked."""
    text = '{"sky": "grey"}'
    call = tool_call_chunk(name="Schema", args=text, id="call_1", index=0)
    by_tool = AIMessageChunk(content="", tool_call_chunks=[call])
    made = chat(model, profile=profile)
    made.script.append([lambda: by_tool if "tool_choice" in made.bindings[-1] else text])
    return made


@pytest.mark.parametrize(
    ("primary", "fallback", "beside_tools"),
    [
        (answering("gemini-2.5-flash"), answering("claude-sonnet-5"), False),
        (answering("claude-sonnet-5"), answering("gemini-2.5-flash"), False),
        (answering("gpt-5.5"), answering("gemini-2.5-flash"), False),
        (answering("gemini-3-pro"), answering("gemini-3-flash"), True),
        (answering("gpt-5.5"), answering("claude-sonnet-5"), True),
        (answering("gpt-5.5", None), answering("local", None), False),
        (answering("gpt-5.5"), answering("gpt-4", {"structured_output": False}), False),
    ],
)
def test_an_agent_asks_for_native_output_where_every_candidate_takes_it(
    primary: Any, fallback: Any, *, beside_tools: bool
) -> None:
    """A Gemini before the third takes none beside tools, wherever it stands in the chain."""
    assert native_chosen(FallbackChatModel(primary, fallback)) is beside_tools


def test_a_name_that_would_mislead_an_agent_says_where_to_read_it() -> None:
    """And stands there where nothing can go wrong: alone, or where all keep the promise."""
    misleading: Any = FallbackChatModel(gpt(), alive())
    with pytest.raises(AttributeError, match=r"model\.candidates\[0\]"):
        _ = misleading.model_name
    assert FallbackChatModel(gpt()).model_name == "gpt-5.5"  # type: ignore[attr-defined]
    plain: Any = FallbackChatModel(alive("a"), gpt())
    assert plain.model == "a"


def test_every_name_that_an_agent_goes_by_is_known() -> None:
    """LangChain's own list of names; a new kind of name in it is noticed here."""
    patterns = factory.FALLBACK_MODELS_WITH_STRUCTURED_OUTPUT
    assert [one for one in patterns if not _NATIVE_BY_NAME.search(one)] == []
