"""What the chat models use of LangChain without a promise is there, in the installed release."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI

from tests.langchain.unpromised import is_there

if TYPE_CHECKING:
    import pytest


# Where it is; the parameters that it is passed; what happens on a release without it.
_USED: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    (
        "langchain_core.language_models:BaseChatModel._get_ls_params",
        ("self", "stop"),
        "records and traces call servers of OpenAI's wire openai, and a repr has no model",
    ),
    (
        "langchain_core.language_models:BaseChatModel._convert_input",
        ("self", "model_input"),
        "STRUCTURED_OUTPUT_MODE=json_object fails each call",
    ),
    (
        "langchain_openai.chat_models.base:BaseChatOpenAI",
        (),
        "no model of OpenAI's wire can be made",
    ),
    (
        "langchain_anthropic:ChatAnthropic._get_request_payload",
        ("self", "input_"),
        "a switch to Anthropic in a tool loop is refused where it has to think",
    ),
    (
        "langchain_google_genai:ChatGoogleGenerativeAI._prepare_request",
        ("self", "messages"),
        "Gemini is asked without a key where it is missing, and max_tokens of a call is unknown",
    ),
)


def probe() -> list[str]:
    """Return what the installed releases lack, each with what happens without it.

    What is not installed lacks nothing.
    """
    return [
        f"{place}: {then}"
        for place, parameters, then in _USED
        if find_spec(place.partition(":")[0].partition(".")[0]) is not None
        and not is_there(place, parameters)
    ]


def test_the_installed_release_has_what_is_used() -> None:
    """Where this fails, the list says what no longer works and what a user sees."""
    assert probe() == []


def test_what_a_release_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sentence that says what happens then: a name that is gone, and other parameters."""

    def renamed(_: Any, request: Any) -> None:
        raise AssertionError(request)

    monkeypatch.setattr(ChatGoogleGenerativeAI, "_prepare_request", renamed)
    monkeypatch.delattr(ChatAnthropic, "_get_request_payload")
    payload, prepared = probe()
    assert payload.startswith("langchain_anthropic:ChatAnthropic._get_request_payload: a switch")
    assert prepared.startswith("langchain_google_genai:ChatGoogleGenerativeAI._prepare_request: ")
