"""Who is asked, and what of a request's settings, tools and blocks may go there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables.base import RunnableBindingBase

from honcho_fallback_langchain._provider_tables import (
    FAMILIES,
    HEADER_SETTINGS,
    HEADERS,
    KNOWN,
    MARKED_INSIDE,
    MARKERS,
    SETTINGS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def family_of(provider: str) -> str:
    """Return the name under which the tables know a provider: one for each message format."""
    name = provider.lower()
    return FAMILIES.get(name, name)


def provider_of(model: Any) -> str | None:
    """Name the provider that a chat model asks, as LangChain's traces name it."""
    while isinstance(model, RunnableBindingBase):
        model = model.bound  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # Runnable[Any, Any]
    if not isinstance(model, BaseChatModel):
        return None
    # Public in all but name: LangChain asks integrations to override it.
    return model._get_ls_params().get("ls_provider")  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def settings_for(provider: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return per-call settings as a candidate of another provider may get them.

    A setting that only some providers know stays with them (`SETTINGS`), headers alike
    (`HEADERS`); what belongs to an account goes to nobody else. Other settings travel: tools,
    temperature, stop words, response formats, whatever is not in the tables.
    """
    family = family_of(provider)
    family_settings = {
        name: value
        for name, value in settings.items()
        if name not in SETTINGS or family in SETTINGS[name]
    }
    for name in HEADER_SETTINGS & family_settings.keys():
        family_settings[name] = _headers_for(family, family_settings[name])
        if not family_settings[name]:
            del family_settings[name]
    tools = family_settings.get("tools")
    if is_list(tools):
        family_settings["tools"] = tools_for(provider, tools)
    return family_settings


def tools_for(provider: str, tools: list[Any]) -> list[Any]:
    """Return tools without other providers' cache markers: the same list where there are none."""
    markers = markers_unknown_to(family_of(provider))
    cleaned = [_tool_without(tool, markers) for tool in tools]
    same = all(new is old for new, old in zip(cleaned, tools, strict=True))
    return tools if same else cleaned


def markers_unknown_to(family: str) -> frozenset[str]:
    """Name the markers that a provider refuses; none for a provider that is not known here."""
    if family not in KNOWN:
        return frozenset()
    return frozenset(name for name, families in MARKERS.items() if family not in families)


def without_markers(block: dict[str, Any], markers: frozenset[str]) -> dict[str, Any]:
    """Return a block or tool without markers, the same object where it has none."""
    cleaned = block
    if not markers.isdisjoint(block):
        cleaned = {name: value for name, value in block.items() if name not in markers}
    for name in MARKED_INSIDE & cleaned.keys():
        inside = _inside_without(cleaned[name], markers)
        if inside is not cleaned[name]:
            cleaned = {**cleaned, name: inside}
    return cleaned


def _inside_without(inside: Any, markers: frozenset[str]) -> Any:
    if is_block(inside):
        return without_markers(inside, markers)
    if not is_list(inside):
        return inside
    cleaned = [_inside_without(block, markers) for block in inside]
    return cleaned if any(a is not b for a, b in zip(cleaned, inside, strict=True)) else inside


def is_block(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tell a content block or a tool's description from text."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Tell a list of blocks from text."""
    return isinstance(value, list)


def _tool_without(tool: Any, markers: frozenset[str]) -> Any:
    if is_block(tool):
        return without_markers(tool, markers)
    extras = getattr(tool, "extras", None)
    cleaned = _inside_without(extras, markers)
    return tool if cleaned is extras else tool.model_copy(update={"extras": cleaned or None})


def _headers_for(family: str, headers: Any) -> Any:
    if not hasattr(headers, "items"):
        return headers
    return {
        name: value
        for name, value in headers.items()
        if all(
            family in families
            for start, families in HEADERS.items()
            if str(name).lower().startswith(start)
        )
    }
