"""A policy from Honcho's own objects: read by attribute, in both of their shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    classify,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import policy_from
from tests.helpers.own_rules import of_program


class CachePolicy(BaseModel):
    mode: Literal["none", "prefix", "gemini_cached_content"] = "none"
    ttl_seconds: int | None = None
    key_version: str = "v1"


class Overrides(BaseModel):
    """What a configured model has beside its parameters."""

    api_key: str | None = None
    api_key_env: str | None = None
    base_url: str | None = None
    provider_params: dict[str, Any] = {}


class Configured(BaseModel):
    """The shape of the settings."""

    model: str
    transport: str
    fallback: Configured | None = None
    temperature: float | None = None
    thinking_effort: str | None = None
    stop_sequences: list[str] | None = None
    cache_policy: CachePolicy | None = None
    overrides: Overrides = Overrides()


@dataclass
class Runtime:
    """The shape that a call gets: keys and addresses stand in it."""

    model: str
    transport: str
    fallback: Runtime | None = None
    api_key: str | None = None
    base_url: str | None = None
    temperature: float | None = None
    provider_params: dict[str, Any] = field(default_factory=dict)


def pair(**options: Any) -> Runtime:
    return Runtime("gpt", "openai", Runtime("claude", "anthropic"), **options)


def requests(policy: FallbackPolicy, *errors: Exception | None, **options: Any) -> list[str]:
    """Return who is asked, where the first answers in order are these errors."""
    left, order = [*errors], list[str]()

    def ask(attempt: Any) -> str:
        order.append(attempt.target.model)
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return "hello"

    policy.call(ask, **options)
    return order


def test_each_target_carries_the_object_that_it_was_made_of() -> None:
    """HON-009, HON-016: who executes a call gets the object complete; nothing is inherited."""
    config = pair(temperature=0.5, api_key="own", base_url="https://u:pw@llm.example/v1")
    primary, fallback = policy_from(config, agent="deriver").targets
    assert (primary.client, fallback.client) == (config, config.fallback)
    assert primary.params == {"temperature": 0.5}
    assert fallback.params == {}
    assert (primary.endpoint, fallback.endpoint) == ("https://llm.example", None)
    assert primary.credential is not None
    assert primary.credential.get() == "own"
    # Its key and its address are Honcho's registry's to know.
    assert fallback.credential is None
    assert "pw" not in repr(primary)


def test_the_settings_shape_is_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOM-001, HOM-008, HOM-009: overrides, a key by the name of its variable, both of them."""
    monkeypatch.setenv("SPARE_KEY", "from-the-variable")
    spare = Configured(
        model="claude",
        transport="anthropic",
        thinking_effort="low",
        stop_sequences=["a"],
        cache_policy=CachePolicy(mode="prefix"),
        overrides=Overrides(api_key_env="SPARE_KEY", provider_params={"timeout": 600}),
    )
    config = Configured(
        model="gpt", transport="openai", fallback=spare, cache_policy=CachePolicy()
    )
    policy = policy_from(config)
    primary, fallback = policy.targets
    assert primary.params == {}
    assert fallback.params == {
        "thinking_effort": "low",
        "stop_sequences": ["a"],
        "cache_policy": {"mode": "prefix", "ttl_seconds": None, "key_version": "v1"},
        "provider_params": {"timeout": 600},
    }
    assert fallback.credential is not None
    assert fallback.credential.get() == "from-the-variable"
    assert policy.config.timeout == 600
    monkeypatch.delenv("SPARE_KEY")
    assert policy_from(config).targets[1].credential is None


@pytest.mark.parametrize(
    ("options", "errors", "order"),
    [
        ({}, (), ["gpt"]),
        ({}, (StatusError(503),), ["gpt", "claude"]),
        ({}, (StatusError(503), TimeoutError()), ["gpt", "claude", "claude"]),
        ({"retry_attempts": 1}, (), ["gpt"]),
        ({"enable_retry": False}, (), ["gpt"]),
    ],
)
def test_attempts_are_those_of_the_call(
    options: dict[str, Any], errors: tuple[Exception, ...], order: list[str]
) -> None:
    """HON-001 to HON-003, HON-046: the first attempt is always the primary's, even if alone."""
    config = FallbackConfig.honcho(wait=0)
    assert requests(policy_from(pair(), config=config, **options), *errors) == order


@pytest.mark.parametrize("options", [{"enable_retry": False}, {"retry_attempts": 1}])
def test_without_retries_one_request_is_made(options: dict[str, Any]) -> None:
    """HON-045: enable_retry=False is a single call, whose own error comes out."""
    order: list[str] = []

    def ask(attempt: Any) -> str:
        order.append(attempt.target.model)
        raise StatusError(503)

    with pytest.raises(StatusError, match="503"):
        policy_from(pair(), **options).call(ask)
    assert order == ["gpt"]


class LLMError(Exception):
    """Honcho's, of a response that Gemini blocked."""


class StructuredOutputError(ValueError):
    """Honcho's, of an answer that is no JSON object."""


class Facts(BaseModel):
    """What a deriver's answer is read into."""

    facts: list[str]


class ModelConfig(BaseModel):
    """Honcho's own, made anew for the fallback in each attempt."""

    model: str


def invalid(model: type[BaseModel], text: str) -> Exception:
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(text)
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        StructuredOutputError("Unsupported payload: list"),
        LLMError("blocked (finish_reason=SAFETY)"),
        invalid(Facts, "I cannot do that: context length exceeded"),
        invalid(Facts, '{"facts": "invalid api key"}'),
        TypeError("'NoneType' object is not subscriptable"),
        IndexError("list index out of range"),
    ],
)
@pytest.mark.parametrize("config", [None, FallbackConfig.honcho(), FallbackConfig()])
def test_junk_switches(error: Exception, config: FallbackConfig | None) -> None:
    """What Honcho raises for an answer that it cannot use engages the fallback, as it is meant to.

    What the answer says is not read as an error's words.
    """
    policy = policy_from(pair(), config=config)
    run = policy.start()
    assert requests(policy, error, run=run) == ["gpt", "claude"]
    assert run.record.attempts[0].kind == "malformed_response"


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (invalid(ModelConfig, "{}"), {}),
        (invalid(Facts, "{}"), {"config": FallbackConfig(rules=of_program(ValidationError))}),
        (
            invalid(Facts, "{}"),
            {"config": FallbackConfig(rules={"error": "ValidationError", "kind": "local"})},
        ),
    ],
)
def test_the_programs_own_validation_stays_local(error: Exception, options: Any) -> None:
    """A settings object that is wrong would be wrong for the fallback, too; options come first."""
    with pytest.raises(ValidationError):
        requests(policy_from(pair(), **options), error)
    assert classify(error).kind == "local"


def test_other_options_are_kept() -> None:
    """A config of one's own takes the place of the preset, and its own timeout stays."""
    config = FallbackConfig(fallback_on={"invalid_request"}, timeout=7)
    policy = policy_from(pair(provider_params={"timeout": 9}), config=config, retry_attempts=4)
    assert policy.config.timeout == 7
    assert requests(policy, StatusError(400)) == ["gpt", "claude"]


@pytest.mark.parametrize("key", [None, "own"])
def test_policies_made_for_each_call_share_a_cooldown(key: str | None) -> None:
    """HRC-042: equal objects are one target, although each call makes its policy anew."""
    config = FallbackConfig.honcho(cooldown=Cooldown(after=1, base=60))
    down = [StatusError(503)]
    assert requests(policy_from(pair(api_key=key), config=config), *down) == ["gpt", "claude"]
    assert requests(policy_from(pair(api_key=key), config=config)) == ["claude"]
    assert requests(policy_from(pair(api_key="another"), config=config)) == ["gpt"]
    elsewhere = pair(api_key=key, base_url="https://llm.example/v1")
    assert requests(policy_from(elsewhere, config=config)) == ["gpt"]


def test_the_same_model_elsewhere_has_a_name_of_its_own() -> None:
    """HRC-014: two accounts of one model are a chain."""
    spare = Runtime("gpt", "openai", None, "second", "https://llm.example/v1")
    names = [target.name for target in policy_from(Runtime("gpt", "openai", spare)).targets]
    assert names == ["openai/gpt", "openai/gpt@llm.example"]


@pytest.mark.parametrize("own", [{"temperature": 0.2}, {"provider_params": {"extra_body": {}}}])
def test_the_same_model_with_other_parameters_is_a_fallback(own: dict[str, Any]) -> None:
    """Honcho asks it, too: with other parameters it may answer where it did not."""
    policy = policy_from(Runtime("gpt", "openai", Runtime("gpt", "openai", **own)))
    record = policy.start()
    assert requests(policy, StatusError(503), run=record) == ["gpt", "gpt"]
    assert [one.target for one in record.record.attempts] == ["openai/gpt", "openai/gpt#2"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "model_config: got None; pass Honcho's ModelConfig"),
        (Runtime("gpt", "OpenAI"), "transport 'OpenAI' and model 'gpt'; name a model and one of"),
        (object(), "model_config: a object with transport None and model None"),
        (Runtime("gpt", "openai", api_key="a b"), "the key of gpt: .*a sign no key has"),
    ],
)
def test_what_is_no_model_is_refused(config: Any, message: str) -> None:
    """Bad input is named at once, and no key is shown."""
    with pytest.raises(FallbackConfigError, match=message) as caught:
        policy_from(config)
    assert "a b" not in str(caught.value)
