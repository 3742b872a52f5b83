"""Which key goes to which host: a key is sent only to the host that it belongs to.

Honcho sends a transport's default key to whatever ``OVERRIDES__BASE_URL`` names, and notices a
missing key when the fallback is needed. Here the default key goes to the transport's own host and
to the one configured with it, and a missing key is reported when the settings are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from honcho_fallback import ApiKey, CredentialError, FallbackConfigError
from honcho_fallback_honcho._notices import Kind, Notice
from honcho_fallback_honcho._slots import (
    TRANSPORTS,
    host_of,
    is_loopback,
    key_name,
    same_origin,
    url_name,
)

if TYPE_CHECKING:
    from honcho_fallback import Credential
    from honcho_fallback_honcho._model_settings import ModelSettings
    from honcho_fallback_honcho._sources import Sources

KeyState = Literal["set", "OAuth", "not needed", "missing"]

NO_KEY = "not-needed"  # the SDKs insist on one, local servers on none


class Key(NamedTuple):
    """Hold where a target is, and what it is asked with.

    Args:
        base_url: Its address, or None where there is none.
        credential: What ``ask`` takes the key from; one that is missing raises there.
        state: What is known of the key.
        notices: What is wrong.
    """

    base_url: str | None
    credential: Credential
    state: KeyState
    notices: tuple[Notice, ...]

    def __repr__(self) -> str:
        return f"<Key {self.state}>"


class MissingKey(ApiKey):
    """Stand for a key that is not there: to a policy that is a failed authentication.

    Args:
        advice: What is missing, and what to do.
    """

    __slots__ = ("_advice",)

    def __init__(self, advice: str) -> None:
        super().__init__("")
        self._advice = advice

    def get(self) -> NoReturn:
        """Refuse; no request is sent."""
        raise CredentialError(self._advice)


def find_key(settings: ModelSettings, transport: str, env: str, sources: Sources) -> Key:
    """Find a target's address, and the key that belongs to it."""
    notices: list[Notice] = []
    own_key = _own_key(settings, env, sources, notices)
    base_url = settings.overrides.base_url or settings.base_url
    if base_url is None:
        base_url, note = _default_address(transport, env, sources, has_key=own_key is not None)
        notices += note
    if base_url is None:
        return Key(None, ApiKey(NO_KEY), "not needed", tuple(notices))
    if own_key is not None:
        return Key(base_url, api_key(own_key, env), "set", tuple(notices))
    is_local = transport == "openai_compatible" and is_loopback(base_url)
    needs_key = TRANSPORTS[transport].needs_key and not is_local
    is_home = _is_host_of(base_url, transport, sources)
    default = sources.key(transport)
    if is_home and transport == "nous" and sources.nous is not None:
        return Key(base_url, sources.nous, "OAuth", tuple(notices))
    if is_home and default is not None:
        key = api_key(default.get_secret_value(), key_name(transport))
        return Key(base_url, key, "set", tuple(notices))
    if default is not None:
        notices.append(_withheld_key(transport, env, base_url, needs_key=needs_key))
    elif needs_key:
        name = key_name(transport) if is_home else f"{env}__OVERRIDES__API_KEY"
        problem = f"not set, so there is no key for {host_of(base_url)}"
        notices.append(Notice("key", name, problem, "set it", breaks_fallback=True))
    if not needs_key:
        return Key(base_url, ApiKey(NO_KEY), "not needed", tuple(notices))
    return Key(base_url, MissingKey(str(notices[-1])), "missing", tuple(notices))


def api_key(key: str, name: str) -> ApiKey:
    """Return a key fit for a header; a transport's own complaint about another would show it."""
    key = key.strip()
    if not key or not key.isascii() or any(not sign.isprintable() or sign == " " for sign in key):
        problem = "the key is empty or holds a sign no key has"
        raise FallbackConfigError.about(name, problem, "copy it again")
    return ApiKey(key)


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


def _default_address(
    transport: str, env: str, sources: Sources, *, has_key: bool
) -> tuple[str | None, list[Notice]]:
    default, configured = TRANSPORTS[transport].base_url, sources.url(transport)
    if not configured:
        return default, []
    # A target's own key does not belong to the host that all the others use.
    if not (has_key and default and TRANSPORTS[transport].needs_key):
        return configured, []
    if same_origin(default, configured):
        return default, []
    problem = f"asked at {host_of(default)}, {url_name(transport)} is not for its own key"
    fix = f"set {env}__OVERRIDES__BASE_URL too, if the key is for another host"
    return default, [Notice("note", env, problem, fix)]


def _is_host_of(base_url: str, transport: str, sources: Sources) -> bool:
    hosts = (TRANSPORTS[transport].base_url, sources.url(transport))
    return any(host is not None and same_origin(base_url, host) for host in hosts)


def _withheld_key(transport: str, env: str, base_url: str, *, needs_key: bool) -> Notice:
    problem = f"{key_name(transport)} is not sent to {host_of(base_url)}"
    problem += ", which has no key then" if needs_key else ""
    fix = f"set {env}__OVERRIDES__API_KEY to the key that was given for that host"
    kind: Kind = "key" if needs_key else "note"
    return Notice(kind, f"{env}__OVERRIDES__BASE_URL", problem, fix, breaks_fallback=needs_key)
