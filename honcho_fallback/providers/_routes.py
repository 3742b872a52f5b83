"""What of a request can go to no other provider, and what takes it elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from honcho_fallback.providers._provider import takers

if TYPE_CHECKING:
    from honcho_fallback import Target

_KEPT_BY_SERVER = (
    "previous_response_id",
    "conversation",
    "container",
    "cached_content",
    "cachedContent",
    "prompt",
)
_FILES = ("file_id", "file_uri", "fileUri")
# Tools that the caller's own program describes and runs, by the type that they say they have.
_OWN_TOOLS = frozenset({None, "custom", "function"})
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_GOOGLES_OWN = frozenset({"function_declarations", "functionDeclarations"})


def bound_to(request: Mapping[str, Any]) -> str | None:
    """Say what of a request binds it to its provider, or None where it can go to another.

    What a server keeps (earlier responses, conversations, files, caches, stored prompts) and tools
    that it runs itself are not there for anybody else: pass the reason for every target of another
    provider or account, as in ``policy.call(ask, unfit={1: reason} if reason else None)``.

    Args:
        request: The keyword arguments for an SDK's method, of OpenAI, Anthropic or Google; left
            as they are.
    """
    config = request.get("config") or {}
    config = config if isinstance(config, Mapping) else vars(config)
    for name in _KEPT_BY_SERVER:
        value = request.get(name) or config.get(name)
        if value and (name != "prompt" or isinstance(value, Mapping)):
            return f"{name} names what its provider keeps"
    for tool in (*(request.get("tools") or ()), *(config.get("tools") or ())):
        hosted = _hosted(tool)
        if hosted is not None:
            return f"its provider runs the tool {hosted}"
    history = [request.get(name) for name in ("messages", "input", "contents")]
    file = _file_in(history)
    return None if file is None else f"{file} names what its provider keeps"


def place_of(target: Target) -> str:
    """Name the address and the account of a target.

    What a server keeps for a target is there for others at its place, and so are settings with
    its key; a target whose address is not known is a place of its own.

    Args:
        target: The target.
    """
    return target.keys.get("credential") or target.endpoint or target.identity


def route_in(settings: Mapping[Any, Any], model: str = "") -> str | None:
    """Name the setting of a request that chooses by itself who answers, or None.

    A target's labels are true of whom it describes. A request that names another model, address or
    account may reach anybody: where labels are required, pass the target as ``unfit``.

    Args:
        settings: The request's own, headers included, beside what the target was made with; left
            as they are.
        model: The target's, which a request may name.
    """
    routes = takers("routes").keys()
    for name, value in settings.items():
        if value is None or value == model:
            continue
        words = [word.lower() for word in _WORD.findall(str(name))]
        if not routes.isdisjoint((*words, "_".join(words))):
            return str(name)
        if words[:1] == ["extra"] or words[-1:] == ["headers"]:
            # What is no mapping cannot be looked into.
            inside = route_in(value, model) if isinstance(value, Mapping) else "its content"
            if inside is not None:
                return f"{name}: {inside}"
    return None


def _hosted(tool: Any) -> str | None:
    """Name a tool that the provider runs, or made its model for."""
    if not isinstance(tool, Mapping):
        fields = getattr(tool, "model_dump", None)
        if fields is None:
            return None  # a function of the caller's
        tool = fields(exclude_none=True)
    kind = tool.get("type")
    if kind is not None:
        return None if kind in _OWN_TOOLS else str(kind)
    others = [name for name in tool if name not in _GOOGLES_OWN]
    described = {"name", "function", "input_schema"} & tool.keys()
    return str(others[0]) if others and not described else None


def _file_in(value: Any) -> str | None:
    """Find the name of a file, or of an item, that a server keeps."""
    if isinstance(value, list | tuple):
        return next((name for name in map(_file_in, value) if name is not None), None)
    if not isinstance(value, Mapping):
        return None
    if value.get("type") == "item_reference":
        return "item_reference"
    for name in _FILES:
        # Google takes any address where it takes a file of its own.
        if value.get(name) and (name == "file_id" or "generativelanguage" in str(value[name])):
            return name
    return next((name for name in map(_file_in, value.values()) if name is not None), None)
