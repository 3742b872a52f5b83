"""Which key goes to which host: a key is sent only to the host that it belongs to.

Honcho sends a transport's default key to whatever ``OVERRIDES__BASE_URL`` names, and notices a
missing key when the fallback is needed. Here the default key goes to the transport's own host and
to the one configured with it, and a missing key is reported when the settings are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from honcho_fallback import ApiKey, CredentialError, FallbackConfigError
from honcho_fallback_honcho._notices import Effect, Notice
from honcho_fallback_honcho._slots import TRANSPORTS, host_of, is_loopback, key_name, origin_of

if TYPE_CHECKING:
    from honcho_fallback import Credential
    from honcho_fallback_honcho._model_settings import ModelSettings
    from honcho_fallback_honcho._settings import Settings

NO_KEY = "not-needed"  # the SDKs insist on one, local servers on none


class MissingKey(ApiKey):
    """Stand for a key that is not there: to a policy that is a failed authentication."""

    __slots__ = ("_advice",)

    def __init__(self, advice: str) -> None:
        super().__init__("")
        self._advice = advice

    def get(self) -> NoReturn:
        """Refuse; no request is sent."""
        raise CredentialError(self._advice)


def state_of(credential: Credential | None) -> str:
    """Say of a target's key whether it is set, refreshed, not needed or missing."""
    if isinstance(credential, MissingKey):
        return "missing"
    if type(credential) is not ApiKey:  # a program's own kind may give another key each time
        return "refreshed"
    return "not needed" if credential.get() == NO_KEY else "set"


def find_key(
    settings: ModelSettings, transport: str, env: str, defaults: Settings, notices: list[Notice]
) -> tuple[str | None, Credential]:
    """Find a target's address, and the key that belongs to it; note what is wrong.

    There is no address where only the user knows it, and has not said it.
    """
    own_key = _own_key(settings, env, defaults, notices)
    home, shared_url = TRANSPORTS[transport], defaults.url(transport)
    if own_key is not None and home.needs_key and home.base_url is not None:
        shared_url = None  # a target's own key does not belong to the host of all the others
    base_url = settings.overrides.base_url or settings.base_url or shared_url or home.base_url
    if base_url is None:
        return None, ApiKey(NO_KEY)
    if own_key is not None:
        return base_url, api_key(own_key, env)
    homes = filter(None, (home.base_url, defaults.url(transport)))
    is_home = origin_of(base_url) in map(origin_of, homes)
    default, credential = defaults.key(transport), defaults.credential(transport)
    if is_home and credential is not None:
        return base_url, credential
    if is_home and default is not None and not _is_placeholder(default.get_secret_value()):
        return base_url, api_key(default.get_secret_value(), key_name(transport))
    is_local = transport == "openai_compatible" and is_loopback(base_url)
    if is_local or not home.needs_key:
        return base_url, ApiKey(NO_KEY)
    name = key_name(transport) if is_home else f"{env}__OVERRIDES__API_KEY"
    state = "a placeholder" if is_home and default is not None else "not set"
    problem, fix = f"{state}, so there is no key for {host_of(base_url)}", "set it"
    if is_home and transport == "nous":
        fix += ", or pass credentials={'nous': ...} that mints one"
    effect: Effect = "fails"
    if default is not None and not is_home:
        problem += f"; Honcho sends {key_name(transport)} there, load_policies() does not"
        fix, effect = "set it to the key that was given for that host", "hint"
    notices.append(Notice(name, problem, fix, effect=effect))
    return base_url, MissingKey(str(notices[-1]))


def _is_placeholder(key: str) -> bool:
    """Tell whether a key is one of those that templates and manuals have in a key's place."""
    return key.startswith(("your-", "your_", "<")) or key.endswith("...")


def api_key(key: str, name: str) -> ApiKey:
    """Return a key fit for a header; a transport's own complaint about another would show it."""
    key = key.strip()
    if not key or not key.isascii() or any(not sign.isprintable() or sign == " " for sign in key):
        problem = "the key is empty or holds a sign no key has"
        raise FallbackConfigError.about(name, problem, "copy it again")
    return ApiKey(key)


def _own_key(
    settings: ModelSettings, env: str, defaults: Settings, notices: list[Notice]
) -> str | None:
    overrides = settings.overrides
    if overrides.api_key is not None:
        return overrides.api_key.get_secret_value()
    if overrides.api_key_env is not None:
        named = defaults.variable(overrides.api_key_env)
        if named:
            return named
        problem = "it names a variable that is not set"
        fix = "set that variable, or put the key into OVERRIDES__API_KEY"
        name = f"{env}__OVERRIDES__API_KEY_ENV"
        notices.append(Notice(name, problem, fix))
    return None if settings.api_key is None else settings.api_key.get_secret_value()
