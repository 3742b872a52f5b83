"""Where Honcho itself reads the settings otherwise: what it ignores, and sends elsewhere.

As its settings module and its registry of clients were seen to do (main, 2026-08-20).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback_honcho._notices import Effect, Notice, merged
from honcho_fallback_honcho._slots import DEFAULT_TRANSPORT, SLOTS, TRANSPORTS, host_of, key_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback_honcho._loaders import Reading
    from honcho_fallback_honcho._model_settings import ModelSettings
    from honcho_fallback_honcho._settings import Settings

# Honcho's transports, and where their SDKs look for an address that Honcho does not give them.
_SDKS = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
_OURS = ("LLM_DEFAULT_TIMEOUT", "LLM_LMSTUDIO_", "LLM_NOUS_", "LLM_OPENAI_COMPATIBLE_")
_WE_READ_IT = "load_policies() and load_chat_models() read it"


def differences(reading: Reading) -> tuple[Notice, ...]:
    """Say what Honcho ignores of what our loaders read, and where it sends data instead."""
    settings, notices = reading.settings, []
    for name in reading.names:
        is_ours = name.startswith(_OURS) and name.lower() in type(settings).model_fields
        if is_ours and settings.variable(name) != "":
            notices.append(Notice(name, "Honcho has no such setting", _WE_READ_IT, effect="hint"))
    for agent, env in SLOTS.items():
        for node, model, transport in _nodes(env, settings.model_of(agent)):
            found = _ignored(node, model, transport, settings)
            notices += [notice._replace(agents=(agent,)) for notice in found]
    return merged(notices)


def _nodes(env: str, primary: ModelSettings) -> Iterator[tuple[str, ModelSettings, str | None]]:
    """Yield the two models that Honcho asks for an agent, and over which transport."""
    yield env, primary, primary.transport or DEFAULT_TRANSPORT
    fallback = primary.fallback
    if fallback is not None and not fallback.is_empty:
        prefix = (fallback.model or "").partition("/")[0]
        named = prefix if prefix in TRANSPORTS else None
        yield f"{env}__FALLBACK", fallback, fallback.transport or named


def _ignored(
    env: str, model: ModelSettings, transport: str | None, settings: Settings
) -> Iterator[Notice]:
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
    if model.fallback is not None and env.endswith("__FALLBACK"):
        yield Notice(f"{env}__FALLBACK", "one too many for Honcho", _WE_READ_IT, effect="hint")
    if from_sdk and not configured:
        problem = f"none of Honcho's settings, yet it sends the data to {host}"
        fix = f"unset it, or set LLM_{transport.upper()}_BASE_URL"
        yield Notice(sdk, problem, fix, effect=to)
