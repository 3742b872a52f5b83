"""What the adapter uses of LangChain without a promise is there, in the installed release."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from inspect import getattr_static, signature
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel

from honcho_fallback_langchain._sdk import INTEGRATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

# What is used, a function with the parameters that it is passed; what happens without it.
USED: Final = {
    "langchain_core.language_models:BaseChatModel._get_ls_params(self, stop)": (
        "a target is called by its class alone: cooldowns and traces take two models for one"
    ),
    "langchain_core.language_models:BaseChatModel._add_version(self, pkg, version)": (
        "a FallbackChatModel cannot be made"
    ),
    "langchain_core.language_models:BaseChatModel._resolve_model_profile(self)": (
        "an agent knows no profile of a FallbackChatModel"
    ),
    "langchain_core.language_models:BaseChatModel._serialized": (
        "each later attempt of an agent computes again what a trace says of its model"
    ),
    "langchain_core.runnables:RunnableParallel.steps__": (
        "the model in a structured output with include_raw has no name"
    ),
    "langchain_core.runnables.config:var_child_runnable_config": "the adapter cannot be imported",
    "langchain_core.runnables.config:set_config_context(config)": (
        "FallbackMiddleware cannot be imported"
    ),
    "langchain_core.runnables.utils:coro_with_context(coro, context)": (
        "FallbackMiddleware cannot be imported"
    ),
    **dict.fromkeys(
        (
            f"langchain_core.callbacks.manager:{name}(handlers, event_name, ignore_condition_name)"
            for name in ("handle_event", "ahandle_event")
        ),
        "what an attempt holds back of its tokens is not shown",
    ),
    "langgraph.runtime:ExecutionInfo.run_id": "records of an agent's calls do not name its run",
}
RETRIES: Final = "its SDK retries by itself, and gives up when its own time is over"


def lacking(used: Mapping[str, str]) -> list[str]:
    """Return what the installed releases lack, each with what happens without it.

    What is not installed lacks nothing.
    """
    missing: list[str] = []
    for one, then in used.items():
        place, _, parameters = one.removesuffix(")").partition("(")
        is_installed = find_spec(place.partition(".")[0]) is not None
        if is_installed and not is_there(place, parameters.split(", ") if parameters else ()):
            missing.append(f"{place}: {then}")
    return missing


def of_integrations() -> dict[str, str]:
    """Name the fields that keep each integration's SDK from retrying."""
    return {
        f"{module}:{name.removeprefix('Base')}.{field}": RETRIES
        for (module, name), integration in INTEGRATIONS.items()
        if module.startswith("langchain_")
        for field in (*integration.sync_clients, "max_retries")
    }


def is_there(place: str, parameters: Sequence[str]) -> bool:
    """Tell whether a module has a name, and its function these parameters first."""
    module, _, path = place.partition(":")
    try:
        attribute: Any = reduce(_attribute, path.split("."), import_module(module))
    except (AttributeError, ImportError):
        return False
    return not parameters or [*signature(attribute).parameters][: len(parameters)] == [*parameters]


def _attribute(owner: Any, name: str) -> Any:
    fields = {**getattr(owner, "__dataclass_fields__", {}), **getattr(owner, "model_fields", {})}
    # A field is none of its class's attributes.
    return None if name in fields else getattr_static(owner, name)


def test_the_installed_release_has_what_is_used() -> None:
    """Where this fails, the list says what no longer works and what a user sees."""
    assert lacking(USED | of_integrations()) == []


def test_what_a_release_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sentence that says what happens then: a name that is gone, and other parameters."""

    def renamed(_: Any, package: str) -> None:
        raise AssertionError(package)

    monkeypatch.setattr(BaseChatModel, "_add_version", renamed)
    monkeypatch.delattr(BaseChatModel, "_resolve_model_profile")
    version, profile = lacking(USED)
    assert version.endswith("_add_version: a FallbackChatModel cannot be made")
    assert profile.endswith(": an agent knows no profile of a FallbackChatModel")
