"""What the adapter uses of the SDK without a promise is there, in the installed release."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from langfuse._client.resource_manager import LangfuseResourceManager

from honcho_fallback_langfuse._generation import SCOPE, TRACE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.langfuse_server import Memory


_CLIENT = "langfuse._client"

# What is used; whether a release has it; what happens on one that lacks it.
_USED: dict[str, tuple[Callable[[], bool], str]] = {
    "LangfuseResourceManager._instances": (
        lambda: isinstance(
            _named(f"{_CLIENT}.resource_manager", "LangfuseResourceManager")._instances,
            dict,
        ),
        "the application's client is not found: pass client=..., or nothing is sent",
    ),
    "langfuse.langchain.CallbackHandler._runs": (
        lambda: (
            "_runs" in _named("langfuse.langchain", "CallbackHandler").__init__.__code__.co_names
        ),
        "a call of a LangChain run lies under the current span instead of under that run",
    ),
    f"the tracer's name {SCOPE}": (
        lambda: _named(f"{_CLIENT}.constants", "LANGFUSE_TRACER_NAME") == SCOPE,
        "each call gives its trace the agent's name, also inside the application's own trace",
    ),
    f"the attribute {TRACE_NAME}": (
        lambda: (
            _named(f"{_CLIENT}.attributes", "LangfuseOtelSpanAttributes").TRACE_NAME == TRACE_NAME
        ),
        "a trace whose root is a web server's span has no name",
    ),
}


def probe() -> list[str]:
    """Return what the installed release lacks, each with what happens without it."""
    return [f"{what}: {then}" for what, (is_there, then) in _USED.items() if not _holds(is_there)]


def _holds(is_there: Callable[[], bool]) -> bool:
    try:
        return is_there()
    except (AttributeError, ImportError):
        return False


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def test_the_installed_release_has_what_is_used() -> None:
    """Where this fails, the list says what no longer works and what a user sees."""
    pytest.importorskip("langchain")  # langfuse.langchain needs it
    assert probe() == []


def test_what_a_release_lacks_is_named(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sentence that says what happens then."""
    monkeypatch.delattr(LangfuseResourceManager, "_instances")
    (first, *_) = probe()
    assert first.startswith("LangfuseResourceManager._instances: the application's client is not")
