"""Where Honcho itself reads the settings otherwise: what it refuses, ignores, and sends elsewhere.

As its settings module and its registry of clients were seen to do (main, 2026-08-20).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback_honcho._model_settings import ModelSettings
from honcho_fallback_honcho._notices import Effect, Notice, merged
from honcho_fallback_honcho._slots import DEFAULT_TRANSPORT, SLOTS, TRANSPORTS, host_of, key_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback_honcho._policies import Reading
    from honcho_fallback_honcho._settings import Settings

# Honcho's transports, and where their SDKs look for an address that Honcho does not give them.
_SDKS = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
_OURS = ("LLM_DEFAULT_TIMEOUT", "LLM_LMSTUDIO_", "LLM_NOUS_", "LLM_OPENAI_COMPATIBLE_")
_WE_READ_IT = "load_policies() and load_chat_models() read it"


class _Node(NamedTuple):
    env: str
    settings: ModelSettings
    transport: str | None
    is_empty_model: bool


def differences(reading: Reading) -> tuple[Notice, ...]:
    """Say where Honcho does something else than our loaders with the same settings."""
    settings, notices = reading.settings, []
    for name in reading.names:
        is_ours = name.startswith(_OURS) and name.lower() in type(settings).model_fields
        if is_ours and settings.variable(name) != "":
            notices.append(Notice(name, "Honcho has no such setting", _WE_READ_IT, effect="hint"))
    for agent, env in SLOTS.items():
        for node in _nodes(env, settings.model_of(agent), settings):
            found = [*_refused(node), *_ignored(node, settings)]
            notices += [notice._replace(agents=(agent,)) for notice in found]
    return merged(notices)


def _nodes(env: str, primary: ModelSettings, settings: Settings) -> Iterator[_Node]:
    is_empty = settings.variable(f"{env}__MODEL") == ""
    yield _Node(env, primary, primary.transport or DEFAULT_TRANSPORT, is_empty)
    env, fallback = f"{env}__FALLBACK", primary.fallback or ModelSettings()
    is_empty = settings.variable(f"{env}__MODEL") == ""
    if is_empty or not fallback.is_empty:
        prefix = (fallback.model or "").partition("/")[0]
        named = fallback.transport or (prefix if prefix in TRANSPORTS else None)
        yield _Node(env, fallback, named, is_empty)


def _refused(node: _Node) -> Iterator[Notice]:
    env, transport, is_fallback = node.env, node.transport, node.env.endswith("__FALLBACK")
    if node.is_empty_model and node.settings.is_empty and is_fallback:
        why, fix = "the model is empty", f"set it, or remove {env}__MODEL"
        yield Notice(f"{env}__MODEL", f"Honcho does not start: {why}", fix, effect="stops")
    elif transport and transport not in _SDKS:
        why = f"it knows no {transport}, load_policies() does"
        fix = "openai, with OVERRIDES__BASE_URL and OVERRIDES__API_KEY, is any server of its kind"
        yield Notice(f"{env}__TRANSPORT", f"Honcho does not start: {why}", fix, effect="stops")
    elif node.is_empty_model and not is_fallback:
        yield Notice(f"{env}__MODEL", "empty, each request fails", "set it")
    if node.settings.fallback is not None and is_fallback:
        name, problem = f"{env}__FALLBACK", "one too many for Honcho"
        yield Notice(name, problem, _WE_READ_IT, effect="hint")


def _ignored(node: _Node, settings: Settings) -> Iterator[Notice]:
    env, model, transport = node.env, node.settings, node.transport
    if transport not in _SDKS:
        return
    own, shared, sdk = model.overrides, settings.url(transport), _SDKS[transport]
    if own.api_key or (own.api_key_env and settings.variable(own.api_key_env)):
        shared = None  # it is the address of the client with the shared key
    configured, from_sdk = own.base_url or shared, settings.variable(sdk)
    host = host_of(configured or from_sdk or TRANSPORTS[transport].base_url or "")
    to: Effect = "elsewhere"
    if model.base_url:
        problem = f"Honcho ignores it and sends the data to {host}"
        fix = f"the name is {env}__OVERRIDES__BASE_URL"
        yield Notice(f"{env}__BASE_URL", problem, fix, effect=to)
    if model.api_key:
        problem = f"Honcho ignores it and sends {key_name(transport)} to {host}"
        fix = f"the name is {env}__OVERRIDES__API_KEY"
        yield Notice(f"{env}__API_KEY", problem, fix, effect=to)
    if from_sdk and not configured:
        problem = f"none of Honcho's settings, yet it sends the data to {host}"
        fix = f"unset it, or set LLM_{transport.upper()}_BASE_URL"
        yield Notice(sdk, problem, fix, effect=to)
