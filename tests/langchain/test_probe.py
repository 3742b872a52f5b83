"""What the adapter uses of LangChain without a promise is there, in the installed release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel

from tests.langchain.unpromised import probe

if TYPE_CHECKING:
    import pytest


def test_the_installed_release_has_what_is_used() -> None:
    """Where this fails, the list says what no longer works and what a user sees."""
    assert probe() == []


def test_what_a_release_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sentence that says what happens then: a name that is gone, and other parameters."""

    def renamed(_: Any, package: str) -> None:
        raise AssertionError(package)

    monkeypatch.setattr(BaseChatModel, "_add_version", renamed)
    monkeypatch.delattr(BaseChatModel, "_resolve_model_profile")
    version, profile = probe()
    assert version.endswith("_add_version: a FallbackChatModel cannot be made")
    assert profile.endswith(": an agent knows no profile of a FallbackChatModel")
