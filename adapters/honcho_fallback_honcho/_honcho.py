"""What Honcho itself makes of the settings: whether it starts, whom it asks where, with which key.

As its settings module and its registry of clients were seen to do (main, 2026-08-20).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, get_args

from honcho_fallback import ApiKey
from honcho_fallback_honcho._chain import PlannedTarget, identity_of, make_target
from honcho_fallback_honcho._endpoint import Endpoint
from honcho_fallback_honcho._keys import NO_KEY, is_placeholder
from honcho_fallback_honcho._model_settings import ModelSettings, read_parameters
from honcho_fallback_honcho._notices import Effect, Notice, merged
from honcho_fallback_honcho._slots import (
    DEFAULT_MODEL,
    DEFAULT_TRANSPORT,
    SLOTS,
    TRANSPORTS,
    is_loopback,
    key_name,
    same_origin,
)

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
_NAMES = ("TRANSPORT", "MODEL")
_OURS = ("LLM_DEFAULT_TIMEOUT", "LLM_LMSTUDIO_", "LLM_NOUS_", "LLM_OPENAI_COMPATIBLE_", "NOUS_")


def read_as_honcho(reading: Reading) -> Reading:
    """Return the chains as Honcho reads them, none if it does not start, and what is wrong."""
    settings, wrong = reading.settings, [one for one in reading.notices if one.effect != "ours"]
    for name in reading.names:
        is_ours = name.startswith(_OURS) and name.lower() in type(settings).model_fields
        if is_ours and settings.variable(name) != "":
            fix = "load_policies() and load_chat_models() read it"
            wrong.append(Notice(name, "Honcho has no such setting", fix, effect="hint"))
    chains: dict[str, tuple[PlannedTarget, ...]] = {}
    for agent, env in SLOTS.items():
        chain: list[PlannedTarget] = []
        primary = settings.model_of(agent)
        for given, name in ((primary, env), (primary.fallback, f"{env}__FALLBACK")):
            empty = [key for key in _NAMES if settings.variable(f"{name}__{key}") == ""]
            if given is None and not empty:
                continue
            node = given or ModelSettings()
            transport, model = _named(node, empty, is_fallback=node is not primary)
            notices = list(_stops(name, node, empty, transport, model))
            if transport in _SDKS and model is not None:
                chain.append(_planned(name, node, (transport, model), settings, notices))
            if len(chain) == 2 and identity_of(chain[0]) == identity_of(chain[1]):
                problem = "the same model with the same key, address and parameters as the primary"
                notices.append(Notice(name, problem, "name another", effect="fails"))
            if chain and node is not primary and node.fallback is not None:
                fix = "load_policies() reads it"
                notices.append(
                    Notice(f"{name}__FALLBACK", "one too many for Honcho", fix, effect="hint")
                )
            wrong += [notice._replace(agents=(agent,)) for notice in notices]
        chains[agent] = tuple(chain)
    wrong.sort(key=lambda one: get_args(Effect).index(one.effect))
    starts = not any(one.effect == "stops" for one in wrong)
    return reading._replace(chains=chains if starts else {}, notices=merged(wrong))


def _named(
    node: ModelSettings, empty: list[str], *, is_fallback: bool
) -> tuple[str | None, str | None]:
    """Return transport and model; an empty model is one to Honcho: it asks for it."""
    transport, model = node.transport, "" if "MODEL" in empty else node.model
    if not is_fallback:
        return transport or DEFAULT_TRANSPORT, DEFAULT_MODEL if model is None else model
    prefix, slash, rest = (model or "").partition("/")
    if transport is None and slash and prefix in _SDKS:
        return prefix, rest
    return transport, model


def _stops(
    env: str, node: ModelSettings, empty: list[str], transport: str | None, model: str | None
) -> Iterator[Notice]:
    others = sorted({*map(str.upper, node.model_fields_set), *empty})
    rest = ", ".join(f"{env}__{key}" for key in others)
    rules: list[tuple[object, str, str, str]] = [
        (transport is None, "TRANSPORT", "missing", f"set it, or remove {rest}"),
        (model is None, "MODEL", "missing", f"set it, or remove {rest}"),
        (
            transport and transport not in _SDKS,
            "TRANSPORT",
            f"it knows no {transport}, load_policies() does",
            "openai, with OVERRIDES__BASE_URL and OVERRIDES__API_KEY, is any server of its kind",
        ),
    ]
    for applies, key, why, fix in rules:
        if applies:
            yield Notice(f"{env}__{key}", f"Honcho does not start: {why}", fix, effect="stops")


def _planned(
    env: str,
    node: ModelSettings,
    named: tuple[str, str],
    settings: Settings,
    notices: list[Notice],
) -> PlannedTarget:
    (transport, model), where, home = named, node.overrides, TRANSPORTS[named[0]].base_url or ""
    shared = settings.key(transport)
    own = None if where.api_key is None else where.api_key.get_secret_value()
    own_name, url_name = f"{env}__OVERRIDES__API_KEY", f"{env}__OVERRIDES__BASE_URL"
    if own is None and where.api_key_env:
        own = settings.variable(where.api_key_env)
    places = {
        url_name: where.base_url,
        f"LLM_{transport.upper()}_BASE_URL": settings.url(transport),
        _SDKS[transport]: settings.variable(_SDKS[transport]),
    }
    if own is not None:
        del places[f"LLM_{transport.upper()}_BASE_URL"]  # it is the other client's
    place, url = next(((at, url) for at, url in places.items() if url), ("", home))
    key = own or (shared.get_secret_value() if shared else "")
    endpoint = Endpoint(transport, url)
    is_own = own or (place == url_name and not key)
    key_is, host = own_name if is_own else key_name(transport), endpoint.host
    works = key and (not is_placeholder(key) or is_loopback(url))
    does, with_key = (
        f"Honcho ignores it and {f'sends {what} to' if works else 'has no key for'} {host}"
        for what in ("the data", key_name(transport))
    )
    to: Effect = "elsewhere" if works else "fails"
    prefix = "" if node.transport or url != home else model.partition("/")[0]
    at_home = any(map(partial(same_origin, url), filter(None, (home, settings.url(transport)))))
    env_name = where.api_key_env and not settings.variable(where.api_key_env)
    rules: list[tuple[object, Effect, str, str, str]] = [
        (node.base_url, to, f"{env}__BASE_URL", does, f"the name is {url_name}"),
        (node.api_key, to, f"{env}__API_KEY", with_key, f"the name is {own_name}"),
        (
            prefix in TRANSPORTS and not env.endswith("__FALLBACK"),
            "elsewhere",
            f"{env}__MODEL",
            f"without TRANSPORT Honcho sends the data to {host}",
            f"set {env}__TRANSPORT, and MODEL without {prefix}/",
        ),
        (
            place == _SDKS[transport],
            "elsewhere",
            place,
            f"none of Honcho's settings, yet it sends the data to {host}",
            f"unset it, or set LLM_{transport.upper()}_BASE_URL",
        ),
        (not model.strip(), "fails", f"{env}__MODEL", "empty, each request fails", "set it"),
        (
            env_name,
            "fails",
            f"{env}__OVERRIDES__API_KEY_ENV",
            "it names a variable that is not set",
            "set that variable, or put the key into OVERRIDES__API_KEY",
        ),
        (
            not works,
            "fails",
            key_is,
            f"{'a placeholder' if key else 'not set'}, so there is no key for {host}",
            "set it",
        ),
        (
            works and not own and place == url_name and not at_home,
            "hint",
            own_name,
            f"not set: Honcho sends {key_name(transport)} to {host}, load_policies() no key",
            f"set it to the key for {host}",
        ),
    ]
    notices += [
        Notice(name, does, fix, (), effect)
        for applies, effect, name, does, fix in rules
        if applies
    ]
    target = make_target(
        model or "(empty)", endpoint, ApiKey(key or NO_KEY), read_parameters(node)
    )
    return PlannedTarget(target, endpoint, "set" if works else "missing")
