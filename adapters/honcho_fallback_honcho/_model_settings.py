"""One agent's model as Honcho configures it; values are checked, never shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

from honcho_fallback_honcho._slots import TRANSPORTS, is_address

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("pass a number of seconds")  # noqa: TRY004 # pydantic's protocol
    return value


def _known_transport(value: object) -> object:
    if value is not None and value not in TRANSPORTS:
        raise ValueError(f"pass one of {', '.join(TRANSPORTS)}, in lower case")
    return value


def _address(value: str | None) -> str | None:
    if value is not None and not is_address(value):
        raise ValueError("pass an address such as https://llm.example/v1, a user as a header")
    return value


Address = Annotated[str | None, AfterValidator(_address)]
Seconds = Annotated[float, BeforeValidator(_no_bool), Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_no_bool), Field(gt=0)]


class Section(BaseModel):
    """Read a table whose keys come in any case and whose empty strings mean nothing."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _lower_keys_without_empty_values(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        table: Mapping[Any, Any] = raw
        return {str(key).lower(): value for key, value in table.items() if value != ""}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Name the keys that nothing reads."""
        return tuple(self.model_extra or ())


class CachePolicy(Section):
    """Say how prompts are cached (``CACHE_POLICY__*``)."""

    mode: Literal["none", "prefix", "gemini_cached_content"] = "none"
    ttl_seconds: Count | None = None
    key_version: str = "v1"


class ProviderParams(Section):
    """Pass things on to the SDK as they are (``OVERRIDES__PROVIDER_PARAMS__*``)."""

    timeout: Seconds | None = None
    extra_body: dict[str, Any] | None = Field(default=None, repr=False)
    extra_headers: dict[str, Any] | None = Field(default=None, repr=False)
    extra_query: dict[str, Any] | None = Field(default=None, repr=False)


class Overrides(Section):
    """Say where a target is, and with which key (``OVERRIDES__*``)."""

    api_key: SecretStr | None = None
    api_key_env: str | None = None
    base_url: Address = Field(default=None, repr=False)
    provider_params: ProviderParams = Field(default_factory=ProviderParams)


class ModelSettings(Section):
    """Describe one model, complete in itself: nothing is inherited from the primary."""

    transport: Annotated[str | None, BeforeValidator(_known_transport)] = None
    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    thinking_effort: Effort | None = Field(
        default=None, validation_alias=AliasChoices("thinking_effort", "reasoning_effort")
    )
    thinking_budget_tokens: Annotated[int, Field(ge=0)] | None = None
    structured_output_mode: Literal["json_schema", "json_object"] | None = None
    max_output_tokens: Count | None = None
    stop_sequences: list[str] | None = None
    cache_policy: CachePolicy | None = None
    overrides: Overrides = Field(default_factory=Overrides)
    # The flat form of Honcho's pull request 692; Honcho itself ignores it.
    api_key: SecretStr | None = None
    base_url: Address = Field(default=None, repr=False)
    fallback: ModelSettings | None = None

    @property
    def is_empty(self) -> bool:
        return not self.model_fields_set and not self.unknown


class Level(Section):
    """Hold one dialectic level; only its model is read here."""

    agent_model: ModelSettings = Field(alias="model_config", default_factory=ModelSettings)


# The attributes of Honcho's ModelConfig, of its fallback and of ConfiguredModelSettings alike.
_ABOUT_THE_TARGET = {"transport", "model", "overrides", "api_key", "base_url", "fallback"}
PARAMETERS = tuple(name for name in ModelSettings.model_fields if name not in _ABOUT_THE_TARGET)


def read_parameters(settings: Any) -> dict[str, Any]:
    """Read the parameters that are set, from our settings or from one of Honcho's own objects."""
    values = {name: getattr(settings, name, None) for name in PARAMETERS}
    policy = values["cache_policy"]
    if policy is not None:
        kept = {name: getattr(policy, name, None) for name in CachePolicy.model_fields}
        values["cache_policy"] = None if policy.mode == "none" else kept
    return {name: value for name, value in values.items() if value is not None}
