"""What is used of LangChain that it does not promise, looked for in the installed release."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

_MODELS = "langchain_core.language_models.chat_models"

# Where a name is; the parameters that are passed to it; what happens on a release that lacks it.
_USED: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("langchain_core.runnables.config", "var_child_runnable_config"): (
        (),
        "the adapter cannot be imported: a tool inside of a model would not find its config",
    ),
    ("langchain_core.tracers._streaming", "_StreamingCallbackHandler"): (
        (),
        "the adapter cannot be imported: tokens of a failed attempt would reach readers",
    ),
    ("langchain_core.tracers._streaming", "_V2StreamingCallbackHandler"): (
        (),
        "as above, for the second version of its events",
    ),
    ("langchain_core.runnables.base", "RunnableParallel.steps__"): (
        (),
        "a model in a map of one, as in include_raw, has the map's name and no window",
    ),
    (_MODELS, "BaseChatModel._get_ls_params"): (
        ("stop",),
        "a candidate has its class's name, and two of one class count as two providers",
    ),
    (_MODELS, "BaseChatModel._convert_input"): (
        ("model_input",),
        "a prompt is handed to candidates as it is, without translation for a fallback",
    ),
    (_MODELS, "BaseChatModel._resolve_model_profile"): (
        (),
        "a FallbackChatModel has no profile, and an agent takes the cautious way",
    ),
    (_MODELS, "BaseChatModel._add_version"): (
        ("pkg", "version"),
        "a FallbackChatModel cannot be made",
    ),
    (_MODELS, "BaseChatModel._serialized"): (
        (),
        "a FallbackMiddleware cannot be made",
    ),
}


def probe() -> list[str]:
    """Return what the installed release lacks, each with what happens without it."""
    return [
        f"{name}: {then}"
        for (module, name), (parameters, then) in _USED.items()
        if not _has(module, name, parameters)
    ]


def _has(module: str, name: str, parameters: tuple[str, ...]) -> bool:
    try:
        found: Any = import_module(module)
        *outer, last = name.split(".")
        for part in outer:
            found = getattr(found, part)
        fields = getattr(found, "model_fields", {})
        found = fields[last] if last in fields else getattr(found, last)
    except (AttributeError, ImportError):
        return False
    return not parameters or {*parameters} <= inspect.signature(found).parameters.keys()
