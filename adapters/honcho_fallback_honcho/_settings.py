"""The environment, ``.env`` and ``config.toml`` as one checked tree, on pydantic-settings."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, PrivateAttr, SecretStr, ValidationError

from honcho_fallback import Credential, FallbackConfigError
from honcho_fallback_honcho._extras import import_extra
from honcho_fallback_honcho._model_settings import Address, Count, Level, ModelSettings, Seconds
from honcho_fallback_honcho._slots import DEFAULT_TIMEOUT, SLOTS, TRANSPORTS, key_name

if find_spec("pydantic_settings") is None:
    import_extra("pydantic_settings")

from dotenv import dotenv_values
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

Toml = str | os.PathLike[str] | Mapping[str, Any] | None


class Settings(BaseSettings):
    """Hold what Honcho's settings module reads for its agents; no value is shown."""

    model_config = SettingsConfigDict(
        env_nested_delimiter="__", extra="ignore", hide_input_in_errors=True
    )

    deriver_model_config: ModelSettings = Field(default_factory=ModelSettings)
    dialectic_levels: dict[Literal["minimal", "low", "medium", "high", "max"], Level] = Field(
        default_factory=dict
    )
    summary_model_config: ModelSettings = Field(default_factory=ModelSettings)
    dream_deduction_model_config: ModelSettings = Field(default_factory=ModelSettings)
    dream_induction_model_config: ModelSettings = Field(default_factory=ModelSettings)

    llm_openai_api_key: SecretStr | None = None
    llm_openai_base_url: Address = None
    llm_anthropic_api_key: SecretStr | None = None
    llm_anthropic_base_url: Address = None
    llm_gemini_api_key: SecretStr | None = None
    llm_gemini_base_url: Address = None
    llm_lmstudio_api_key: SecretStr | None = None
    llm_lmstudio_base_url: Address = None
    llm_nous_api_key: SecretStr | None = None
    llm_nous_base_url: Address = None
    llm_openai_compatible_api_key: SecretStr | None = None
    llm_openai_compatible_base_url: Address = None
    llm_default_timeout: Seconds = DEFAULT_TIMEOUT
    llm_default_max_tokens: Count = 2500

    _environ: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _credentials: Mapping[str, Credential] = PrivateAttr(default_factory=dict)

    @staticmethod
    def read(
        environ: Mapping[str, str], file: Mapping[str, Any], credentials: Mapping[str, Credential]
    ) -> Settings:
        """Read variables and the values of a file, which they win over."""

        class FromThese(Settings):  # sources belong to a class
            @classmethod
            def settings_customise_sources(cls, settings_cls: Any, **_: Any) -> Any:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride] # called by name
                variables = EnvSettingsSource(settings_cls)
                variables.env_vars = {name.lower(): one for name, one in environ.items() if one}
                table = {name: value for name, value in file.items() if value != ""}
                return variables, InitSettingsSource(settings_cls, table)

            def model_post_init(self, _: Any, /) -> None:
                self._environ, self._credentials = environ, credentials

        return FromThese()

    def __repr_args__(self) -> Any:
        return []

    def model_of(self, agent: str) -> ModelSettings:
        section, _, level = agent.partition(".")
        if section == "dialectic":
            return cast("dict[str, Level]", self.dialectic_levels).get(level, Level()).agent_model
        return cast("ModelSettings", getattr(self, SLOTS[agent].lower()))

    def variable(self, name: str) -> str | None:
        """Return what a variable of the environment or of ``.env`` holds, be it empty."""
        return self._environ.get(name.upper())

    def credential(self, transport: str) -> Credential | None:
        """Return what a program passed in place of a transport's default key."""
        return self._credentials.get(transport)

    def key(self, transport: str) -> SecretStr | None:
        return cast("SecretStr | None", getattr(self, key_name(transport).lower()))

    def url(self, transport: str) -> str | None:
        return cast("str | None", getattr(self, f"llm_{transport}_base_url"))


def read_environ(
    source: Mapping[str, str] | None, env_file: str | os.PathLike[str] | None
) -> dict[str, str]:
    """Return the variables by their upper-case names; ``.env`` wins."""
    if not isinstance(source, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance] # untyped callers
        problem = f"got a {type(source).__name__}"
        raise FallbackConfigError.about("source", problem, "pass a dict, or env_file=the path")
    environ = dict(os.environ if source is None else source)
    if env_file is not None:
        environ |= _dotenv(env_file)
    # In order of their names, so that a nested name comes after the JSON value that it refines.
    named = {name.upper(): environ[name] for name in sorted(environ, key=str.upper)}
    return {name: value if value and value.strip() else "" for name, value in named.items()}


def read_file(toml: Toml) -> dict[str, Any]:
    """Return a ``config.toml`` by lower-case variables: a key of a table is ``table_key``."""
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
    # Honcho's table [deriver.model_config] is the variable DERIVER_MODEL_CONFIG.
    return {
        f"{name}_{key}".lower(): value
        for name, table in tree.items()
        if isinstance(table, Mapping)
        for key, value in table.items()
    }


def checked(
    environ: Mapping[str, str], file: Mapping[str, Any], credentials: Mapping[str, Credential]
) -> Settings:
    """Return the settings, or refuse them by the names of what is wrong."""
    for transport in credentials.keys() - {*TRANSPORTS}:
        raise FallbackConfigError.unknown(transport, TRANSPORTS, "transport of a credential")
    try:
        return Settings.read(environ, file, credentials)
    except ValidationError as error:
        details = error.errors(include_input=False, include_context=False)
        problems = "\n".join(_explained(detail, environ) for detail in details)
    except SettingsError as error:
        # 'error parsing value for field "dialectic_levels" from source "EnvSettingsSource"'
        name = str(error).split('"')[1].upper()
        problems = f"{name} (or a name below it): not JSON; pass JSON or use the nested names"
    # Raised outside of the except block: the error that was caught refers to the values.
    raise FallbackConfigError(problems)


def _explained(detail: Any, environ: Mapping[str, str]) -> str:
    message = str(detail["msg"]).removeprefix("Value error, ")
    name = "__".join(str(part) for part in detail["loc"] if part != "[key]").upper()
    where = name if name in environ else f"{name} (or the same key in config.toml or in JSON)"
    return f"{where}: {message}"


def _dotenv(path: str | os.PathLike[str]) -> dict[str, str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        problem = f"{os.fspath(path)} cannot be read"
        raise FallbackConfigError.about("env_file", problem, "check the path") from None
    values = dotenv_values(stream=StringIO(text))
    return {name: value for name, value in values.items() if value is not None}
