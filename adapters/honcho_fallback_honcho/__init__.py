"""Honcho's settings over the fallback policy: policies and chat models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from honcho_fallback_honcho._chat_models import load_chat_models
    from honcho_fallback_honcho._loaders import LoadOptions, load_policies
    from honcho_fallback_honcho._policy_from import policy_from
    from honcho_fallback_honcho._slots import Endpoint
    from honcho_fallback_honcho._tool_history import portable_history

__all__ = [
    "Endpoint",
    "LoadOptions",
    "load_chat_models",
    "load_policies",
    "policy_from",
    "portable_history",
]

# Who takes a policy from Honcho's own objects needs no settings library, and who has but policies
# no LangChain.
_HOMES = {
    "Endpoint": "_slots",
    "LoadOptions": "_loaders",
    "load_chat_models": "_chat_models",
    "load_policies": "_loaders",
    "policy_from": "_policy_from",
    "portable_history": "_tool_history",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return [*__all__]
