"""What the adapter uses of the SDK without a promise is there, in the installed release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from langfuse._client.resource_manager import LangfuseResourceManager

from tests.langfuse.unpromised import probe

if TYPE_CHECKING:
    from tests.helpers.langfuse_memory import Memory


def test_the_installed_release_has_what_is_used() -> None:
    """Where this fails, the list says what no longer works and what a user sees."""
    pytest.importorskip("langchain")  # langfuse.langchain needs it
    assert probe() == []


def test_what_a_release_lacks_is_named(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sentence that says what happens then."""
    monkeypatch.delattr(LangfuseResourceManager, "_instances")
    (first, *_) = probe()
    assert first.startswith("LangfuseResourceManager._instances: the application's client is not")
