"""Which key goes to which host: a key is sent only to the host that it belongs to.

Honcho sends a transport's default key to whatever ``OVERRIDES__BASE_URL`` names, and notices a
missing key when the fallback is needed. Here the default key goes to the transport's own host and
to the one configured with it, and a missing key is reported when the settings are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback.settings._endpoint import Endpoint
from honcho_fallback.settings._notices import Kind, Notice
from honcho_fallback.settings._slots import (
    TRANSPORTS,
    host_of,
    key_name,
    same_origin,
    url_name,
)

if TYPE_CHECKING:
    from honcho_fallback.settings._models import ModelSettings
    from honcho_fallback.settings._sources import Sources


class Credential(NamedTuple):
    """Hold where a target is, and its key.

    Args:
        base_url: Its address, or None where there is none.
        key: Its key, or None.
        notices: What is wrong.
    """

    base_url: str | None
    key: str | None
    notices: tuple[Notice, ...]

    def __repr__(self) -> str:
        return "<Credential>"


def find_credential(
    settings: ModelSettings, transport: str, env: str, sources: Sources
) -> Credential:
    """Find a target's address, and the key that belongs to it."""
    notices: list[Notice] = []
    own_key = _own_key(settings, env, sources, notices)
    base_url = _address(settings, transport, env, sources, notices, has_key=own_key is not None)
    if base_url is None:
        return Credential(None, None, tuple(notices))
    key = own_key
    default = sources.key(transport)
    if key is None and default is not None:
        if _is_host_of(base_url, transport, sources):
            key = default.get_secret_value()
        else:
            notices.append(_withheld_key(transport, env, base_url))
            return Credential(base_url, None, tuple(notices))
    if key is None and Endpoint(transport, base_url).needs_key:
        notices.append(_missing_key(transport, env, base_url, sources))
    return Credential(base_url, key, tuple(notices))


def _own_key(
    settings: ModelSettings, env: str, sources: Sources, notices: list[Notice]
) -> str | None:
    overrides = settings.overrides
    if overrides.api_key is not None:
        return overrides.api_key.get_secret_value()
    if overrides.api_key_env is not None:
        named = sources.environ.get(overrides.api_key_env.upper())
        if named is not None:
            return named
        problem = "it names a variable that is not set"
        fix = "set that variable, or put the key into OVERRIDES__API_KEY"
        name = f"{env}__OVERRIDES__API_KEY_ENV"
        notices.append(Notice("key", name, problem, fix, breaks_fallback=True))
    return None if settings.api_key is None else settings.api_key.get_secret_value()


def _address(  # noqa: PLR0913 # one fact each, called in one place
    settings: ModelSettings,
    transport: str,
    env: str,
    sources: Sources,
    notices: list[Notice],
    *,
    has_key: bool,
) -> str | None:
    own = settings.overrides.base_url or settings.base_url
    if own:
        return own
    default, configured = TRANSPORTS[transport].base_url, sources.url(transport)
    if not configured:
        return default
    # A target's own key does not belong to the host that all the others use.
    if has_key and default and TRANSPORTS[transport].needs_key:
        if not same_origin(default, configured):
            problem = f"asked at {host_of(default)}, {url_name(transport)} is not for its own key"
            fix = f"set {env}__OVERRIDES__BASE_URL too, if the key is for another host"
            notices.append(Notice("note", env, problem, fix))
        return default
    return configured


def _is_host_of(base_url: str, transport: str, sources: Sources) -> bool:
    hosts = (TRANSPORTS[transport].base_url, sources.url(transport))
    return any(host is not None and same_origin(base_url, host) for host in hosts)


def _withheld_key(transport: str, env: str, base_url: str) -> Notice:
    needs_key = Endpoint(transport, base_url).needs_key
    problem = f"{key_name(transport)} is not sent to {host_of(base_url)}"
    problem += ", which has no key then" if needs_key else ""
    fix = f"set {env}__OVERRIDES__API_KEY to the key that was given for that host"
    kind: Kind = "key" if needs_key else "note"
    return Notice(kind, f"{env}__OVERRIDES__BASE_URL", problem, fix, breaks_fallback=needs_key)


def _missing_key(transport: str, env: str, base_url: str, sources: Sources) -> Notice:
    if _is_host_of(base_url, transport, sources):
        problem = f"not set, so there is no key for {host_of(base_url)}"
        return Notice("key", key_name(transport), problem, "set it", breaks_fallback=True)
    problem = f"not set, so there is no key for {host_of(base_url)}"
    return Notice("key", f"{env}__OVERRIDES__API_KEY", problem, "set it", breaks_fallback=True)
