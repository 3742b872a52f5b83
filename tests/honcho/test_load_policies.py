"""Honcho's own names, row by row as its settings module was seen to read them.

What Honcho would ignore, and where a key does not go, is said once, with what to do.
"""

from __future__ import annotations

import json
import logging
import os
import traceback
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from honcho_fallback import CredentialError, FallbackConfig, FallbackConfigError, FallbackPolicy
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import Endpoint, load_policies
from honcho_fallback_honcho._doctor import examine, rehearse
from honcho_fallback_honcho._loaders import read_settings
from honcho_fallback_honcho._model_settings import ModelSettings
from honcho_fallback_honcho._settings import Settings, checked
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# ruff: noqa: E501 # one row of a table is one line


KEYS = {
    "LLM_OPENAI_API_KEY": "openai-key",
    "LLM_ANTHROPIC_API_KEY": "anthropic-key",
    "LLM_GEMINI_API_KEY": "gemini-key",
}
SLOTS = {
    "deriver": "DERIVER_MODEL_CONFIG",
    "dialectic.minimal": "DIALECTIC_LEVELS__minimal__MODEL_CONFIG",
    "dialectic.low": "DIALECTIC_LEVELS__low__MODEL_CONFIG",
    "dialectic.medium": "DIALECTIC_LEVELS__medium__MODEL_CONFIG",
    "dialectic.high": "DIALECTIC_LEVELS__high__MODEL_CONFIG",
    "dialectic.max": "DIALECTIC_LEVELS__max__MODEL_CONFIG",
    "summary": "SUMMARY_MODEL_CONFIG",
    "dream.deduction": "DREAM_DEDUCTION_MODEL_CONFIG",
    "dream.induction": "DREAM_INDUCTION_MODEL_CONFIG",
}


PRIMARY = "openai/gpt-5.4-mini"
F = "DERIVER_MODEL_CONFIG__FALLBACK"


def loaded(toml: Any = None, **environ: str) -> dict[str, FallbackPolicy]:
    """Load with all default keys present, so that nothing else is wrong."""
    return load_policies({**KEYS, **environ}, toml=toml)


def chain(policy: FallbackPolicy) -> list[str]:
    return [target.name for target in policy.targets]


def key(policy: FallbackPolicy, position: int = 1) -> Any:
    credential = policy.targets[position].credential
    assert credential is not None
    return credential.get()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_nine_agents_on_honchos_default_without_any_configuration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """HOM-011, D.2 row 1: without FALLBACK names each agent has Honcho's default and no more."""
    policies = loaded()
    assert list(policies) == list(SLOTS)
    assert [chain(policy) for policy in policies.values()] == [[PRIMARY]] * 9
    assert [policy.agent for policy in policies.values()] == list(SLOTS)
    assert not warned(caplog)


@pytest.mark.parametrize("agent", SLOTS)
def test_each_slot_has_a_fallback_of_its_own(agent: str, caplog: pytest.LogCaptureFixture) -> None:
    """D.2: each slot's names give that agent, and no other, its fallback."""
    policies = loaded(**{f"{SLOTS[agent]}__FALLBACK__MODEL": "anthropic/claude-haiku-4-5"})
    assert chain(policies.pop(agent)) == [PRIMARY, "anthropic/claude-haiku-4-5"]
    assert {len(policy.targets) for policy in policies.values()} == {1}
    assert not warned(caplog)


PARTIAL = "the fallback is ignored"
AT_HOST = {"MODEL": "m", "API_KEY": "own-key", "BASE_URL": "https://llm.example/v1"}
# What Honcho main does with it, and what is done here.
RESULTS: list[tuple[dict[str, str], list[str], str]] = [
    ({"TRANSPORT": "anthropic"}, [], PARTIAL),
    ({"MODEL": "claude-haiku-4-5"}, [], PARTIAL),
    ({"MODEL": "anthropic/x"}, ["anthropic/x"], ""),
    ({"TRANSPORT": "openai", "MODEL": "q/w"}, ["openai/q/w"], ""),
    ({"TRANSPORT": "", "MODEL": " "}, [], ""),
    ({"": ""}, [], ""),
    ({"": "{}"}, [], ""),
    ({"": '{"transport":"","model":""}'}, [], ""),
    ({"": '{"transport":"gemini","model":"m"}'}, ["gemini/m"], ""),
    ({"TRANSPORT": "lmstudio", "MODEL": "q"}, ["lmstudio/q"], ""),
    ({"MODEL": "nous/hermes-4", "LLM_NOUS_API_KEY": "k"}, ["nous/hermes-4"], ""),
    ({**AT_HOST, "TRANSPORT": "openai"}, ["openai/m"], ""),
    ({**AT_HOST, "TRANSPORT": "openai_compatible"}, ["openai_compatible/m"], ""),
    ({"MODEL": "anthropic/x", "FALLBACK__MODEL": "gemini/y", "FALLBACK__FALLBACK__MODEL": "lmstudio/z"}, ["anthropic/x", "gemini/y", "lmstudio/z"], ""),
]  # fmt: skip


def below(suffixes: Mapping[str, str]) -> dict[str, str]:
    """Return a fallback's variables with these suffixes, its own without one; LLM_ names stay."""
    return {
        name if name.startswith("LLM_") else f"{F}__{name}".removesuffix("__"): value
        for name, value in suffixes.items()
    }


@pytest.mark.parametrize(("suffixes", "fallbacks", "warning"), RESULTS)
def test_results_table(
    suffixes: dict[str, str],
    fallbacks: list[str],
    warning: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D.2, G-24: what Honcho refuses at start-up is a warning or has a meaning here."""
    environ = below(suffixes)
    assert chain(loaded(**environ)["deriver"]) == [PRIMARY, *fallbacks]
    assert [warning in line for line in warned(caplog)] == ([True] if warning else [])
    if warning:
        with pytest.raises(FallbackConfigError, match=warning):
            load_policies({**KEYS, **environ}, strict=True)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({f"{F}__TRANSPORT": "OpenAI", f"{F}__MODEL": "m"}, f"{F}__TRANSPORT: pass one of openai"),
        ({"DIALECTIC_LEVELS__ultra__MODEL_CONFIG__MODEL": "m"}, "DIALECTIC_LEVELS__ULTRA .*: Input should be 'minimal', 'low'"),
        ({f"{F}__MODEL": "openai/m", f"{F}__OVERRIDES__PROVIDER_PARAMS__TIMEOUT": "-1"}, f"{F}__OVERRIDES__PROVIDER_PARAMS__TIMEOUT: Input should be greater than 0"),
        ({F: '{"overrides": {"provider_params": {"timeout": true}}}'}, f"{F}__OVERRIDES__PROVIDER_PARAMS__TIMEOUT.*pass a number of seconds"),
        ({f"{F}__MODEL": "openai/m", f"{F}__OVERRIDES__PROVIDER_PARAMS__TIMEOUT": "inf"}, "finite number"),
        ({f"{F}__STOP_SEQUENCES": "a,b"}, f"{F}__STOP_SEQUENCES: Input should be a valid list"),
        ({f"{F}__THINKING_EFFORT": "huge"}, f"{F}__THINKING_EFFORT: Input should be 'none'"),
        ({F: "anthropic/x"}, f"{F}: Input should be a valid dictionary"),
        ({"DIALECTIC_LEVELS": "max"}, "DIALECTIC_LEVELS.*not JSON"),
        ({"LLM_DEFAULT_TIMEOUT": "0"}, "LLM_DEFAULT_TIMEOUT: Input should be greater than 0"),
        ({"LLM_DEFAULT_MAX_TOKENS": "none"}, "LLM_DEFAULT_MAX_TOKENS: Input should be a valid"),
        ({"DERIVER_MODEL_CONFIG__TRANSPORT": "openai_compatible"}, "OVERRIDES__BASE_URL: missing, and openai_compatible has no address of its own"),
        ({f"{F}__MODEL": "openai/m", f"{F}__OVERRIDES__BASE_URL": "localhost:1234"}, f"{F}__OVERRIDES__BASE_URL: pass an address such as"),
        ({"LLM_OPENAI_BASE_URL": "https://"}, "LLM_OPENAI_BASE_URL: pass an address such as"),
        ({"LLM_OPENAI_BASE_URL": "https://u:pw@p.example"}, "a user as a header"),
        ({"DERIVER_MODEL_CONFIG__OVERRIDES__API_KEY": "a b"}, "a sign no key has"),
    ],
)  # fmt: skip
def test_what_no_target_could_use_is_refused(environ: dict[str, str], message: str) -> None:
    """HOM-003 to HOM-008: a bad value is refused at load, by the name of its variable."""
    with pytest.raises(FallbackConfigError, match=message):
        loaded(**environ)


def params(transport: str, **suffixes: str) -> dict[str, Any]:
    """Return what a fallback with these suffixes sends."""
    named = below({"MODEL": f"{transport}/m", **suffixes})
    return dict(loaded(**named)["deriver"].targets[1].params)


def test_every_suffix_has_its_effect() -> None:
    """D.2: each suffix is a parameter of the target under Honcho's name, for any client."""
    suffixes = {
        "TEMPERATURE": "0.3", "TOP_P": "0.5", "TOP_K": "5", "FREQUENCY_PENALTY": "1", "PRESENCE_PENALTY": "1", "SEED": "7",
        "REASONING_EFFORT": "low", "THINKING_BUDGET_TOKENS": "2000", "STRUCTURED_OUTPUT_MODE": "json_schema",
        "STOP_SEQUENCES": '["a","b"]', "CACHE_POLICY__MODE": "prefix", "CACHE_POLICY__TTL_SECONDS": "3600",
    }  # fmt: skip
    assert params("anthropic", **suffixes) == {
        "temperature": 0.3, "top_p": 0.5, "top_k": 5, "frequency_penalty": 1.0, "presence_penalty": 1.0, "seed": 7,
        "thinking_effort": "low", "thinking_budget_tokens": 2000, "structured_output_mode": "json_schema",
        "max_output_tokens": 4500, "stop_sequences": ["a", "b"],
        "cache_policy": {"mode": "prefix", "ttl_seconds": 3600, "key_version": "v1"},
    }  # fmt: skip
    assert params("openai", MAX_OUTPUT_TOKENS="50") == {"max_output_tokens": 50}
    # HON-009: nothing but the bound of the answer is added to what was configured.
    assert params("gemini", CACHE_POLICY__MODE="none") == {"max_output_tokens": 2500}


def test_nothing_is_inherited_from_the_primary() -> None:
    """HON-009: a fallback has its own parameters, key and address, and the defaults otherwise.

    HOM-008: what is passed on to the SDK may hold a key, so it stands where nothing is shown.
    """
    given: dict[str, Any] = {
        "extra_body": {"A": 1},
        "extra_headers": {"X-B": "2"},
        "extra_query": {"c": "3"},
    }
    environ = {
        "DERIVER_MODEL_CONFIG__TEMPERATURE": "0.9",
        "DERIVER_MODEL_CONFIG__OVERRIDES__API_KEY": "own-key",
        "DERIVER_MODEL_CONFIG__OVERRIDES__BASE_URL": "https://llm.example/v1",
        "DERIVER_MODEL_CONFIG__OVERRIDES__PROVIDER_PARAMS": json.dumps({"timeout": 7.5, **given}),
        f"{F}__MODEL": "openai/m",
    }
    primary, fallback = (policy := loaded(**environ)["deriver"]).targets
    assert primary.params == {"temperature": 0.9, "max_output_tokens": 2500}
    assert primary.client == Endpoint("openai", "https://llm.example/v1", 7.5, **given)
    assert repr(primary.client) == "<Endpoint openai at llm.example>"
    assert fallback.params == {"max_output_tokens": 2500}
    assert fallback.client == Endpoint("openai", "https://api.openai.com/v1")
    assert [key(policy, position) for position in (0, 1)] == ["own-key", "openai-key"]


def test_the_shorthand_is_for_fallbacks() -> None:
    """HOM-010, HOM-012: Honcho merges its default transport first: a primary keeps its slash."""
    target = loaded(DERIVER_MODEL_CONFIG__MODEL="anthropic/claude-x")["deriver"].targets[0]
    assert (target.provider, target.model) == ("openai", "anthropic/claude-x")


def test_names_come_in_any_case_and_nested_ones_refine_json() -> None:
    """D.2: names are case-insensitive, and a nested name overrides the JSON above it."""
    first = {F.lower(): '{"model": "anthropic/x", "TOP_K": 3}', f"{F}__model": "gemini/y"}
    for environ in (first, dict(reversed(first.items()))):
        fallback = loaded(**environ)["deriver"].targets[1]
        assert (fallback.name, fallback.params["top_k"]) == ("gemini/y", 3)


def test_json_at_any_level() -> None:
    """D.2: every table may be given as JSON, the agent's own and all levels at once included."""
    model = {"model": "gpt-5.5", "fallback": {"model": "anthropic/x"}}
    environ = {
        "SUMMARY_MODEL_CONFIG": json.dumps(model),
        "DIALECTIC_LEVELS": json.dumps({"max": {"MODEL_CONFIG": model}}),
        "DIALECTIC_LEVELS__low": json.dumps({"model_config": model, "max_tool_iterations": 4}),
    }
    policies = loaded(**environ)
    for agent in ("summary", "dialectic.max", "dialectic.low"):
        assert chain(policies[agent]) == ["openai/gpt-5.5", "anthropic/x"]


TOML = """
[llm]
OPENAI_API_KEY = "from-the-file"
[deriver.model_config]
model = "gpt-5.5"
[deriver.model_config.fallback]
transport = "anthropic"
model = "from-the-file"
temperature = 0.5
[dialectic.levels.max.model_config.fallback]
model = "gemini/gemini-2.5-pro"
[summary.model_config.fallback]
model = "anthropic/a"
[dream.deduction_model_config.fallback]
model = "anthropic/b"
[dream.induction_model_config.fallback]
model = "anthropic/c"
"""


def test_dotenv_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOM-013: all merge key by key; a .env is read where it is named."""
    monkeypatch.chdir(tmp_path)
    path, env_file = tmp_path / "config.toml", tmp_path / ".env"
    path.write_text(TOML, encoding="utf-8")
    env_file.write_text(f"{F}__MODEL='from-dotenv'\nLLM_ANTHROPIC_API_KEY=own\n", encoding="utf-8")
    environ = {"LLM_GEMINI_API_KEY": "k", f"{F}__MODEL": "from-the-env"}
    environ["LLM_ANTHROPIC_API_KEY"] = "k"
    named = load_policies(environ, toml=path, env_file=env_file)["deriver"]
    assert (named.targets[1].name, key(named)) == ("anthropic/from-dotenv", "own")
    policies = load_policies(environ, toml=path)
    deriver = policies["deriver"]
    assert chain(deriver) == ["openai/gpt-5.5", "anthropic/from-the-env"]
    assert deriver.targets[1].params["temperature"] == 0.5
    assert key(deriver, 0) == "from-the-file"
    assert chain(policies["dialectic.max"])[1:] == ["gemini/gemini-2.5-pro"]
    assert chain(policies["summary"])[1:] == ["anthropic/a"]
    assert chain(policies["dream.deduction"])[1:] == ["anthropic/b"]
    assert chain(policies["dream.induction"])[1:] == ["anthropic/c"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The path is said, a line of it never; one where a dict belongs is told its own argument."""
    path = tmp_path / "config.toml"
    options: Any
    wrong: Any = ".env"
    with pytest.raises(FallbackConfigError, match="source: got a str; pass a dict, or env_file="):
        load_policies(wrong)
    for name in ("toml", "env_file"):
        options = {name: path}
        with pytest.raises(FallbackConfigError, match=f"{name}: .*config.toml cannot be read"):
            load_policies({}, **options)
    path.write_text("= sk-x", encoding="utf-8")
    with pytest.raises(FallbackConfigError, match=r"config\.toml is not TOML") as caught:
        load_policies({}, toml=path)
    assert "sk-x" not in str(caught.value)


def test_timeouts() -> None:
    """HON-051: LLM_DEFAULT_TIMEOUT is 180 s; a target may have a timeout of its own."""
    assert loaded()["deriver"].config.timeout == 180
    environ = {"LLM_DEFAULT_TIMEOUT": "20.5", f"{F}__MODEL": "anthropic/x"}
    for own, of_policy in (("7", 20.5), ("600", 600)):
        environ[f"{F}__OVERRIDES__PROVIDER_PARAMS__TIMEOUT"] = own
        policy = loaded(**environ)["deriver"]
        assert [target.client.timeout for target in policy.targets] == [20.5, float(own)]
        assert policy.config.timeout == of_policy
    policies = load_policies({**KEYS, **environ}, config=FallbackConfig(timeout=3))
    assert policies["deriver"].config.timeout == 3


def test_the_options_are_the_pull_requests_unless_others_are_given() -> None:
    """By default a policy switches by Honcho's table; other options and observers can be given."""
    environ = {**KEYS, f"{F}__MODEL": "anthropic/x"}
    with pytest.raises(StatusError):
        load_policies(environ)["deriver"].start().fail(StatusError(401))
    listener = Listener()
    policies = load_policies(
        environ, config=FallbackConfig(reset="turn"), observers=iter([listener])
    )
    with pytest.warns(UserWarning, match="outside of a turn"):
        run = policies["deriver"].start()
    assert run.fail(StatusError(401)).is_fallback
    assert policies["summary"].config.reset == "turn"
    assert policies["summary"].config.timeout == 180
    with policies["summary"].turn(), pytest.raises(StatusError):
        policies["summary"].start().fail(StatusError(400))
    assert [call.agent for call in listener.starts] == ["deriver", "summary"]


def test_a_missing_key_is_a_failed_authentication_without_a_request() -> None:
    """HOM-023: who asks takes the key from the credential, which says what to set.

    What ``os.environ.get`` did not find is not set.
    """
    without: Any
    for without in ({}, {"LLM_OPENAI_API_KEY": None}):
        with pytest.raises(CredentialError, match=r"LLM_OPENAI_API_KEY: not set.*set") as caught:
            key(load_policies(without)["deriver"], 0)
        assert caught.value.status_code == 401
    environ = {"DERIVER_MODEL_CONFIG__TRANSPORT": "lmstudio", "DERIVER_MODEL_CONFIG__MODEL": "m"}
    assert key(load_policies(environ)["deriver"], 0) == "not-needed"


def test_of_an_address_the_host_is_shown() -> None:
    """HON-075: its path and query may hold a secret, and tell two accounts apart."""
    elsewhere = below({**AT_HOST, "TRANSPORT": "openai_compatible"})
    environ = elsewhere | {f"{F}__BASE_URL": "https://llm.example/tok/v1?k=pw"}
    target, same, other = (
        loaded(**one)["deriver"].targets[1] for one in (environ, environ, elsewhere)
    )
    assert target.endpoint == other.endpoint == "https://llm.example"
    assert target.identity == same.identity != other.identity
    shown = f"{target!r} {target.client!r} {target.identity}"
    assert not any(secret in shown for secret in ("pw", "tok"))


# What nothing reads, and what is said of it.
WRONG = {
    "DIALECTIC_MODEL_CONFIG__FALLBACK__MODEL": "is DIALECTIC_LEVELS__minimal__MODEL_CONFIG__FALL",
    "dialectic_model_config__fallback__model": ", DIALECTIC_LEVELS__max__MODEL_CONFIG__FALLBACK",
    "DREAMER_MODEL_CONFIG__FALLBACK__MODEL": "is DREAM_DEDUCTION_MODEL_CONFIG__FALLBACK__MODEL",
    "DREAM_MODEL_CONFIG__FALLBACK__MODEL": "DREAM_INDUCTION_MODEL_CONFIG__FALLBACK__MODEL",
    "FALLBACK_MODEL_CONFIG__MODEL": f"the name is {F}__MODEL, and likewise DIALECTIC_LEVELS__",
    "MCP_MODEL_CONFIG__FALLBACK__MODEL": "the MCP server asks no model of its own",
    f"{F}__MODLE": "nothing reads it; check its spelling",
    "DERIVER_MODEL_CONFIG__FALLBAK__MODEL": "nothing reads it",
    f"{F}__OVERRIDES__BASEURL": "nothing reads it",
    f"{F}__OVERRIDES__PROVIDER_PARAMS__TIMOUT": "nothing reads it",
    f"{F}__CACHE_POLICY__TTL": "nothing reads it",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_name_that_nothing_reads_gets_one_warning_with_the_right_one(
    wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    """HON-055, HOM-014, G-46: what Honcho passes over in silence is said, once, by name."""
    environ = {**KEYS, f"{F}__MODEL": "openai/m", wrong: "1"}
    load_policies(environ)
    (line,) = warned(caplog)
    # What stands below a key that nothing reads is said by that key.
    assert wrong.upper().startswith(line.partition(":")[0].upper())
    assert WRONG[wrong] in line
    with pytest.raises(FallbackConfigError, match=r"ignores it|nothing reads it"):
        load_policies(environ, strict=True)


def test_other_names_are_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    """Honcho's other settings, and other software's, get no warning."""
    others = [
        "DREAM_DEDUCTION_MAX_TOOL_ITERATIONS",
        "DIALECTIC_LEVELS__low__MAX_OUTPUT_TOKENS",
        "EMBEDDING_MODEL_CONFIG__MODEL",
        "LLM_EMBEDDING_PROVIDER",
        "MCP_TIMEOUT",
        "MY_APP_MODEL_CONFIG__MODEL",
        "VALKEY_FALLBACK",
    ]
    load_policies({**KEYS, **dict.fromkeys(others, "1")}, strict=True)
    assert not warned(caplog)


def test_the_same_goes_for_the_file(caplog: pytest.LogCaptureFixture) -> None:
    """A table of config.toml that nothing reads is named by its variable."""
    load_policies(KEYS, toml={"dialectic": {"model_config": {"fallback": {"model": "openai/m"}}}})
    (line,) = warned(caplog)
    assert line.startswith("DIALECTIC_MODEL_CONFIG: Honcho ignores it; the name is DIALECTIC_")


def test_the_same_is_said_once_for_all_agents(caplog: pytest.LogCaptureFixture) -> None:
    """HON-058, HOM-023, G-40: a missing key is said at load, with the agents that need it."""
    environ = {
        f"{SLOTS[agent]}__FALLBACK__MODEL": "gemini/m"
        for agent in ("deriver", "dialectic.minimal")
    }
    load_policies(environ)
    openai, gemini = warned(caplog)
    assert openai.startswith("LLM_OPENAI_API_KEY: not set")
    assert openai.count("dialectic.") == 5
    assert gemini.startswith("LLM_GEMINI_API_KEY: not set")
    assert gemini.endswith("(deriver, dialectic.minimal)")
    with pytest.raises(FallbackConfigError, match="LLM_GEMINI_API_KEY: not set"):
        load_policies(environ, strict=True)


OPENAI, LOCAL, PROXY = "https://api.openai.com/v1", "http://localhost:1234/v1", "https://p.example"


@pytest.mark.parametrize(
    ("suffixes", "base_url", "key"),
    [
        ({"MODEL": "openai/m"}, OPENAI, "openai-key"),
        ({"MODEL": "openai/m", "OVERRIDES__BASE_URL": LOCAL}, LOCAL, None),
        ({"MODEL": "openai/m", "BASE_URL": LOCAL}, LOCAL, None),
        ({"MODEL": "openai/m", "OVERRIDES__BASE_URL": "http://api.openai.com/v1"}, "http://api.openai.com/v1", None),
        ({"MODEL": "openai/m", "OVERRIDES__BASE_URL": "https://api.openai.com:8443/v1"}, "https://api.openai.com:8443/v1", None),
        ({"MODEL": "openai/m", "OVERRIDES__BASE_URL": LOCAL, "OVERRIDES__API_KEY": "own"}, LOCAL, "own"),
        ({"MODEL": "openai/m", "LLM_OPENAI_BASE_URL": PROXY}, PROXY, "openai-key"),
        ({"MODEL": "openai/m", "LLM_OPENAI_BASE_URL": PROXY, "OVERRIDES__BASE_URL": f"{PROXY}/other"}, f"{PROXY}/other", "openai-key"),
        ({"MODEL": "openai/m", "LLM_OPENAI_BASE_URL": PROXY, "OVERRIDES__API_KEY": "own"}, OPENAI, "own"),
        ({"MODEL": "openai/m", "OVERRIDES__API_KEY_ENV": "LLM_GEMINI_API_KEY"}, OPENAI, "gemini-key"),
        ({"MODEL": "openai/m", "OVERRIDES__API_KEY_ENV": "NOBODY"}, OPENAI, "openai-key"),
        ({"MODEL": "openai/m", "OVERRIDES__API_KEY": "literal", "OVERRIDES__API_KEY_ENV": "LLM_GEMINI_API_KEY"}, OPENAI, "literal"),
        ({"MODEL": "openai/m", "API_KEY": " own\n"}, OPENAI, "own"),
        ({"MODEL": "lmstudio/m"}, LOCAL, None),
        ({"MODEL": "lmstudio/m", "LLM_LMSTUDIO_BASE_URL": "http://box:9/v1", "API_KEY": "own"}, "http://box:9/v1", "own"),
        ({"MODEL": "openai_compatible/m", "BASE_URL": LOCAL}, LOCAL, None),
        ({"MODEL": "openai_compatible/m", "LLM_OPENAI_COMPATIBLE_BASE_URL": PROXY, "LLM_OPENAI_COMPATIBLE_API_KEY": "c"}, PROXY, "c"),
        ({"MODEL": "openai_compatible/m", "LLM_OPENAI_COMPATIBLE_API_KEY": "c", "BASE_URL": "https://elsewhere.example"}, "https://elsewhere.example", None),
    ],
)  # fmt: skip
def test_a_key_goes_only_where_it_was_given_for(
    suffixes: dict[str, str], base_url: str, key: str | None
) -> None:
    """HOM-020 to HOM-022, G-39: a default key goes to the transport's host, a target's to its."""
    target = loaded(**below(suffixes))["deriver"].targets[1]
    assert target.client.base_url == base_url
    assert target.credential is not None
    try:
        sent = target.credential.get()
    except CredentialError:
        sent = "not-needed"
    assert sent.startswith(key or "not-needed")


@pytest.mark.parametrize(
    ("suffixes", "message"),
    [
        ({"MODEL": "openai/m", "OVERRIDES__BASE_URL": LOCAL}, "localhost:1234; Honcho sends LLM_OPENAI_API_KEY there, load_policies() does not"),
        ({"MODEL": "nous/m"}, "LLM_NOUS_API_KEY: not set, so there is no key for inference-api.nousresearch.com"),
        ({"MODEL": "openai_compatible/m", "BASE_URL": "https://p.example/v1?k=pw"}, f"{F}__OVERRIDES__API_KEY: not set, so there is no key for p.example"),
        ({"MODEL": "openai/m", "OVERRIDES__API_KEY_ENV": "NOBODY"}, "a variable that is not set"),
        ({"MODEL": "openai_compatible/m"}, "OVERRIDES__BASE_URL: missing"),
        ({"MODEL": "openai/gpt-5.4-mini"}, "the same model with the same key"),
        ({"LLM_OPENAI_API_KEY": "your-api-key-here"}, "LLM_OPENAI_API_KEY: a placeholder, so there is no key for api.openai.com"),
    ],
)  # fmt: skip
def test_a_target_that_could_not_answer_is_said_at_load(
    suffixes: dict[str, str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """HOM-023, G-38, G-40: not at the outage; with strict it is refused."""
    environ = {**KEYS, **below(suffixes)}
    load_policies(environ)
    (line,) = warned(caplog)
    assert message in line
    assert "pw" not in line
    with pytest.raises(FallbackConfigError, match=r"set|name"):
        load_policies(environ, strict=True)


SAME = {"MODEL": PRIMARY}
AT_OPENAI = f"{PRIMARY}@api.openai.com"


@pytest.mark.parametrize(
    ("suffixes", "names"),
    [
        (SAME, []),
        ({**SAME, "THINKING_EFFORT": "low"}, [AT_OPENAI]),
        ({**SAME, "BASE_URL": LOCAL, "API_KEY": "own"}, [f"{PRIMARY}@localhost:1234"]),
        ({**SAME, "API_KEY": "own", "FALLBACK__MODEL": "openai/gpt-5.5"}, [AT_OPENAI, "openai/gpt-5.5"]),
        ({**SAME, "API_KEY": "one", "FALLBACK__MODEL": PRIMARY, "FALLBACK__API_KEY": "two"}, [AT_OPENAI, f"{AT_OPENAI}#3"]),
    ],
)  # fmt: skip
def test_another_key_is_another_target(suffixes: dict[str, str], names: list[str]) -> None:
    """HRC-014, G-38: the same model with another key, address or effort is not skipped."""
    assert chain(loaded(**below(suffixes))["deriver"]) == [PRIMARY, *names]


SECRET = "sk-sentinel-7f3a9c2e51"
SECRET_NAMES = [
    *(f"{F}__{name}".upper() for name in ModelSettings.model_fields),
    f"{F}__CACHE_POLICY__KEY_VERSION",
    f"{F}__OVERRIDES__API_KEY",
    f"{F}__OVERRIDES__BASE_URL",
    f"{F}__OVERRIDES__PROVIDER_PARAMS__EXTRA_HEADERS",
    "DERIVER_MODEL_CONFIG__OVERRIDES__API_KEY",
    *(name.upper() for name in Settings.model_fields if name.startswith(("llm_", "nous_"))),
    "DIALECTIC_LEVELS",
    "DIALECTIC_MODEL_CONFIG__FALLBACK__OVERRIDES__API_KEY",
    "DERIVER_MODEL_CONFIG__FALLBAK__API_KEY",
    "LLM_OPENAI_APIKEY",
    "OPENAI_BASE_URL",
]


FORMS = {
    "plain": SECRET,
    "json": f'{{"api_key": "{SECRET}", "model": "openai/m"}}',
    "broken json": f'{{"api_key": "{SECRET}"',
    "list": f'["{SECRET}"]',
    "headers": f'{{"extra_headers": {{"Authorization": "{SECRET}"}}}}',
    "url": f"https://p.example/{SECRET}?key={SECRET}",
    "url with a user": f"https://user:{SECRET}@p.example",
    "broken url": f"https://[{SECRET}",
}
# What a transport or a model is called is shown, and so is the name that a key is looked for.
SHOWN = ("TRANSPORT", "MODEL", "API_KEY_ENV")


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from([name for name in SECRET_NAMES if not name.endswith(SHOWN)]),
    form=st.sampled_from([*FORMS]),
    strict=st.booleans(),
)
def test_no_secret_is_ever_shown(
    name: str, form: str, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """HON-075, HOM-076: not in a repr, a log line, an error, a traceback or what commands say."""
    environ = {f"{F}__MODEL": "openai/other", name: FORMS[form]}
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    try:
        policies: dict[str, Any] = load_policies(environ, strict=strict)
        shown += [repr(policies), str(read_settings(environ)), repr(checked(environ, {}, {}))]
        for policy in policies.values():
            shown += [f"{target!r} {target.client!r}" for target in policy.targets]
            shown.append(repr(policy.start()))
        with patch.dict(os.environ, environ):
            shown += examine(None, None)[0] + rehearse("deriver", ["503"], "default", None, None)
    except FallbackConfigError:
        shown.append(traceback.format_exc())
    assert SECRET not in "\n".join([*shown, caplog.text])
