"""The environment, ``.env`` and ``config.toml`` as one checked tree, on pydantic-settings."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, cast

from pydantic import Field, SecretStr, ValidationError, create_model

from honcho_fallback import FallbackConfigError
from honcho_fallback_honcho._extras import import_extra
from honcho_fallback_honcho._model_settings import Address, Count, Level, ModelSettings, Seconds
from honcho_fallback_honcho._oauth import OAuthCredential
from honcho_fallback_honcho._slots import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_NOUS_PORTAL,
    DEFAULT_NOUS_STATE,
    DEFAULT_TIMEOUT,
    LEVELS,
    NOUS_PORTAL,
    NOUS_STATE,
    NOUS_TOKEN,
    SLOTS,
    TRANSPORTS,
    Slot,
    is_address,
    key_name,
    url_name,
)

_LEVELS_KEY = "dialectic_levels"


@dataclass(frozen=True, slots=True)
class Sources:
    """Hold what was read; no value is shown.

    Args:
        environ: The environment variables that are set, by their upper-case names.
        toml: ``config.toml`` as a tree, its keys in lower case on the first two levels.
        tree: Both together, checked.
        nous: The Nous portal's OAuth, if a token or a state file of it is named.
    """

    environ: Mapping[str, str] = field(repr=False)
    toml: Mapping[str, Any] = field(repr=False)
    tree: Any = field(repr=False)
    nous: OAuthCredential | None = None

    def model_of(self, slot: Slot) -> ModelSettings:
        """Return the model settings of an agent's slot."""
        if slot.toml[:2] == ("dialectic", "levels"):
            levels: dict[str, Level] = self.tree.dialectic_levels
            level = levels.get(slot.toml[2])
            return ModelSettings() if level is None else level.agent_model
        model: ModelSettings = getattr(self.tree, slot.env.lower())
        return model

    def key(self, transport: str) -> SecretStr | None:
        """Return a transport's default key."""
        key: SecretStr | None = getattr(self.tree, key_name(transport).lower())
        return key

    def url(self, transport: str) -> str | None:
        """Return a transport's configured address, or None."""
        url: str | None = getattr(self.tree, url_name(transport).lower())
        return url

    @property
    def timeout(self) -> float:
        """Return LLM_DEFAULT_TIMEOUT."""
        return float(self.tree.llm_default_timeout)

    @property
    def max_tokens(self) -> int:
        """Return LLM_DEFAULT_MAX_TOKENS."""
        return int(self.tree.llm_default_max_tokens)


def read_sources(
    environ: Mapping[str, str] | None,
    toml: str | os.PathLike[str] | Mapping[str, Any] | None,
    env_file: str | os.PathLike[str] | None,
) -> Sources:
    """Read and check everything: ``.env`` wins over the environment, and that over the file."""
    settings = import_extra("pydantic_settings")
    if not isinstance(environ, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance] # untyped callers
        problem = f"got a {type(environ).__name__}"
        raise FallbackConfigError.about("source", problem, "pass a dict, or env_file=the path")
    environ = dict(os.environ if environ is None else environ)
    if env_file is not None:
        environ |= _dotenv(env_file)
    # In order of their names, so that a nested name comes after the JSON value that it refines.
    named = {name.upper(): environ[name] for name in sorted(environ, key=str.upper)}
    known = {name: value for name, value in named.items() if value.strip()}
    from_file = _file(toml)
    problems = ""
    try:
        tree = _settings_class(settings, known, _flat(from_file))()
    except ValidationError as error:
        problems = "\n".join(
            _message(detail, known) for detail in error.errors(include_input=False)
        )
    except settings.SettingsError as error:
        name = _unparsed_name(str(error))
        problems = f"{name} (or a name below it): not JSON; pass JSON or use the nested names"
    else:
        return Sources(known, from_file, tree, _nous(known))
    # Raised outside of the except block: the error that was caught refers to the values.
    raise FallbackConfigError(problems)


def _dotenv(path: str | os.PathLike[str]) -> dict[str, str]:
    dotenv = import_extra("dotenv")  # comes with pydantic-settings
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        problem = f"{os.fspath(path)} cannot be read"
        raise FallbackConfigError.about("env_file", problem, "check the path") from None
    values: dict[str, str | None] = dotenv.dotenv_values(stream=StringIO(text))
    return {name: value for name, value in values.items() if value is not None}


def _nous(environ: Mapping[str, str]) -> OAuthCredential | None:
    token, state = environ.get(NOUS_TOKEN), environ.get(NOUS_STATE)
    if token is None and state is None:
        return None
    portal = environ.get(NOUS_PORTAL, DEFAULT_NOUS_PORTAL)
    if not is_address(portal) or "@" in portal:
        fix = f"pass one such as {DEFAULT_NOUS_PORTAL}"
        raise FallbackConfigError.about(NOUS_PORTAL, "it is no address, or one with a user", fix)
    # A refresh token is good for one use: its successor has to outlive the process.
    return OAuthCredential.nous(token, state or DEFAULT_NOUS_STATE, portal=portal)


def _settings_class(settings: Any, environ: Mapping[str, str], file: Mapping[str, Any]) -> Any:
    def sources(settings_cls: Any, **_: Any) -> tuple[Any, ...]:
        source = settings.EnvSettingsSource(settings_cls)
        source.env_vars = {name.lower(): value for name, value in environ.items()}
        return source, settings.InitSettingsSource(settings_cls, dict(file))

    class HonchoSettings(settings.BaseSettings):  # type: ignore[misc] # imported on demand
        model_config = settings.SettingsConfigDict(
            env_nested_delimiter="__", extra="ignore", hide_input_in_errors=True
        )

        @classmethod
        def settings_customise_sources(cls, settings_cls: Any, **others: Any) -> Any:
            return sources(settings_cls, **others)

    fields: dict[str, Any] = {_LEVELS_KEY: (dict[str, Level], Field(default_factory=dict))}
    for slot in SLOTS:
        if "__" not in slot.env:
            fields[slot.env.lower()] = (ModelSettings, Field(default_factory=ModelSettings))
    for transport in TRANSPORTS:
        fields[key_name(transport).lower()] = (SecretStr | None, None)
        fields[url_name(transport).lower()] = (Address, None)
    fields["llm_default_timeout"] = (Seconds, DEFAULT_TIMEOUT)
    fields["llm_default_max_tokens"] = (Count, DEFAULT_MAX_TOKENS)
    return create_model("HonchoSettings", __base__=HonchoSettings, **fields)


def _file(toml: str | os.PathLike[str] | Mapping[str, Any] | None) -> dict[str, Any]:
    if toml is None:
        return {}
    if isinstance(toml, Mapping):
        tree: Mapping[str, Any] = toml
    else:
        try:
            tree = tomllib.loads(Path(toml).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            # A parser's message can quote the line, and with it a key.
            why = "cannot be read" if isinstance(error, OSError) else "is not TOML"
            raise FallbackConfigError.about("toml", f"{toml} {why}", "check the path") from None
    return {
        str(name).lower(): (
            {str(key).lower(): value for key, value in table.items()}
            if isinstance(table, Mapping)
            else table
        )
        for name, table in tree.items()
    }


def _flat(file: Mapping[str, Any]) -> dict[str, Any]:
    # Honcho's table [deriver.model_config] is the variable DERIVER_MODEL_CONFIG.
    return {
        f"{section}_{key}": value
        for section, table in file.items()
        if isinstance(table, Mapping)
        for key, value in cast("Mapping[str, Any]", table).items()
        if value != ""
    }


def _message(detail: Any, environ: Mapping[str, str]) -> str:
    message = str(detail["msg"]).removeprefix("Value error, ")
    name = "__".join(map(str, detail["loc"])).upper()
    where = name if name in environ else f"{name} (or the same key in config.toml or in JSON)"
    return f"{where}: {message}"


def _unparsed_name(message: str) -> str:
    # 'error parsing value for field "dialectic_levels" from source "EnvSettingsSource"'
    quoted = message.split('"')
    return quoted[1].upper() if len(quoted) > 1 else "a value"


def check_levels(sources: Sources) -> None:
    """Refuse dialectic levels that Honcho does not have."""
    unknown = [name for name in sources.tree.dialectic_levels if name not in LEVELS]
    if unknown:
        raise FallbackConfigError.about(
            f"DIALECTIC_LEVELS__{unknown[0]}",
            "there is no such level",
            f"choose from {', '.join(LEVELS)}",
        )
