"""What is used of LangChain that it does not promise, looked for in the installed release."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from inspect import getattr_static, signature
from typing import TYPE_CHECKING, Any, Final

from honcho_fallback_langchain._sdk import INTEGRATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

# Where it is; the parameters that a function is passed; what happens on a release without it.
_USED: Final[tuple[tuple[str, Sequence[str], str], ...]] = (
    (
        "langchain_core.language_models:BaseChatModel._get_ls_params",
        ("self", "stop"),
        "a target is called by its class alone: cooldowns and traces take two models for one",
    ),
    (
        "langchain_core.language_models:BaseChatModel._add_version",
        ("self", "pkg", "version"),
        "a FallbackChatModel cannot be made",
    ),
    (
        "langchain_core.language_models:BaseChatModel._resolve_model_profile",
        ("self",),
        "an agent knows no profile of a FallbackChatModel",
    ),
    (
        "langchain_core.language_models:BaseChatModel._serialized",
        (),
        "each later attempt of an agent computes again what a trace says of its model",
    ),
    (
        "langchain_core.runnables:RunnableParallel.steps__",
        (),
        "the model in a structured output with include_raw has no name",
    ),
    (
        "langchain_core.runnables.config:var_child_runnable_config",
        (),
        "the adapter cannot be imported",
    ),
    (
        "langchain_core.runnables.config:set_config_context",
        ("config",),
        "FallbackMiddleware cannot be imported",
    ),
    (
        "langchain_core.runnables.utils:coro_with_context",
        ("coro", "context"),
        "FallbackMiddleware cannot be imported",
    ),
    (
        "langchain_core.callbacks.manager:handle_event",
        ("handlers", "event_name", "ignore_condition_name"),
        "what an attempt holds back of its tokens is not shown",
    ),
    (
        "langchain_core.callbacks.manager:ahandle_event",
        ("handlers", "event_name", "ignore_condition_name"),
        "what an attempt holds back of its tokens is not shown",
    ),
    (
        "langgraph.runtime:ExecutionInfo.run_id",
        (),
        "records of an agent's calls do not name its run",
    ),
)
_RETRIES: Final = "its SDK retries by itself, and gives up when its own time is over"


def probe() -> list[str]:
    """Return what the installed releases lack, each with what happens without it.

    What is not installed lacks nothing.
    """
    missing = [
        f"{place}: {then}"
        for place, parameters, then in _USED
        if find_spec(place.partition(".")[0]) is not None and not is_there(place, parameters)
    ]
    for (module, name), integration in INTEGRATIONS.items():
        if module.startswith("langchain_") and find_spec(module) is not None:
            model = f"{module}:{name.removeprefix('Base')}"
            fields = [f"{model}.{one}" for one in (*integration.sync_clients, "max_retries")]
            missing += [f"{field}: {_RETRIES}" for field in fields if not is_there(field, ())]
    return missing


def is_there(place: str, parameters: Sequence[str]) -> bool:
    """Tell whether a module has a name, and its function these parameters first."""
    module, _, path = place.partition(":")
    try:
        attribute: Any = reduce(_attribute, path.split("."), import_module(module))
    except (AttributeError, ImportError):
        return False
    return not parameters or [*signature(attribute).parameters][: len(parameters)] == [*parameters]


def _attribute(owner: Any, name: str) -> Any:
    if name in getattr(owner, "__dataclass_fields__", {}) or name in getattr(
        owner, "model_fields", {}
    ):
        return None  # a field, which its class does not have
    return getattr_static(owner, name)
