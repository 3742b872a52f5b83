"""What the chat models use of LangChain without a promise is there, in the installed release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI

from tests.honcho.unpromised import probe

if TYPE_CHECKING:
    import pytest


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
