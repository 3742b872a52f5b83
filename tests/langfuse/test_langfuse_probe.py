"""What the adapter uses of the SDK without a promise is there, in the installed release."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback_langfuse._generation import SCOPE, TRACE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

# By what a user sees on a release that lacks it: where it is, and whether it is what is used.
USED: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "the application's client is not found: pass client=..., or nothing is sent": (
        "langfuse._client.resource_manager",
        "LangfuseResourceManager",
        lambda manager: isinstance(manager._instances, dict),
    ),
    "a call of a LangChain run lies under the current span instead of under that run": (
        "langfuse.langchain",
        "CallbackHandler",
        lambda handler: "_runs" in handler.__init__.__code__.co_names,
    ),
    "each call gives its trace the agent's name, also inside the application's own trace": (
        "langfuse._client.constants",
        "LANGFUSE_TRACER_NAME",
        lambda name: name == SCOPE,
    ),
    "a trace whose root is a web server's span has no name": (
        "langfuse._client.attributes",
        "LangfuseOtelSpanAttributes",
        lambda names: names.TRACE_NAME == TRACE_NAME,
    ),
}


@pytest.mark.parametrize("without_it", USED)
def test_the_installed_release_has_what_is_used(without_it: str) -> None:
    """Where this fails, its id says what a user sees."""
    pytest.importorskip("langchain")  # langfuse.langchain needs it
    module, name, is_there = USED[without_it]
    assert is_there(getattr(import_module(module), name))
