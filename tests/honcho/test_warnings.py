"""What Honcho would ignore, and where a key does not go: each said once, with what to do."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback import CredentialError, FallbackConfigError, Target
from honcho_fallback_honcho import load_policies
from honcho_fallback_honcho._model_settings import ModelSettings
from honcho_fallback_honcho._policies import read_settings
from honcho_fallback_honcho._settings import Settings, checked
from honcho_fallback_honcho._slots import SLOTS

KEYS = {f"LLM_{name}_API_KEY": f"{name}-default" for name in ("OPENAI", "ANTHROPIC", "GEMINI")}
F = "DERIVER_MODEL_CONFIG__FALLBACK"
LEVELS = [env for env in SLOTS.values() if env.startswith("DIALECTIC_")]
ALL_LEVELS = ", and likewise ".join(
    [f"{LEVELS[0]}__FALLBACK__MODEL", ", ".join(f"{env}__FALLBACK__MODEL" for env in LEVELS[1:])]
)
BOTH_DREAMS = (
    "DREAM_DEDUCTION_MODEL_CONFIG__FALLBACK__MODEL"
    ", and likewise DREAM_INDUCTION_MODEL_CONFIG__FALLBACK__MODEL"
)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# What nothing reads, and what is said of it.
WRONG = {
    "DIALECTIC_MODEL_CONFIG__FALLBACK__MODEL": ALL_LEVELS,
    "dialectic_model_config__fallback__model": ALL_LEVELS,
    "DREAM_MODEL_CONFIG__FALLBACK__MODEL": BOTH_DREAMS,
    "DREAMER_MODEL_CONFIG__FALLBACK__MODEL": BOTH_DREAMS,
    "FALLBACK_MODEL_CONFIG__MODEL": f"the name is {F}__MODEL, and likewise DIALECTIC_LEVELS__",
    "FALLBACK_MODEL_CONFIG": f"the name is {F}, and likewise",
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


def fallback(**suffixes: str) -> Target:
    """Return a fallback with these suffixes; LLM_ names stand for themselves."""
    named = {
        name if name.startswith("LLM_") else f"{F}__{name}": value
        for name, value in suffixes.items()
    }
    return load_policies({**KEYS, **named})["deriver"].targets[1]


OPENAI, LOCAL, PROXY = "https://api.openai.com/v1", "http://localhost:1234/v1", "https://p.example"


@pytest.mark.parametrize(
    ("suffixes", "base_url", "key"),
    [
        ({"MODEL": "openai/m"}, OPENAI, "OPENAI-default"),
        ({"MODEL": "openai/m", "OVERRIDES__BASE_URL": LOCAL}, LOCAL, None),
        ({"MODEL": "openai/m", "BASE_URL": LOCAL}, LOCAL, None),
        (
            {"MODEL": "openai/m", "OVERRIDES__BASE_URL": "http://api.openai.com/v1"},
            "http://api.openai.com/v1",
            None,
        ),
        (
            {"MODEL": "openai/m", "OVERRIDES__BASE_URL": "https://api.openai.com@p.example/"},
            "https://api.openai.com@p.example/",
            None,
        ),
        (
            {"MODEL": "openai/m", "OVERRIDES__BASE_URL": "https://api.openai.com:8443/v1"},
            "https://api.openai.com:8443/v1",
            None,
        ),
        (
            {"MODEL": "openai/m", "OVERRIDES__BASE_URL": LOCAL, "OVERRIDES__API_KEY": "own"},
            LOCAL,
            "own",
        ),
        ({"MODEL": "openai/m", "LLM_OPENAI_BASE_URL": PROXY}, PROXY, "OPENAI-default"),
        (
            {
                "MODEL": "openai/m",
                "LLM_OPENAI_BASE_URL": PROXY,
                "OVERRIDES__BASE_URL": f"{PROXY}/other",
            },
            f"{PROXY}/other",
            "OPENAI-default",
        ),
        (
            {"MODEL": "openai/m", "LLM_OPENAI_BASE_URL": PROXY, "OVERRIDES__API_KEY": "own"},
            OPENAI,
            "own",
        ),
        ({"MODEL": "openai/m", "OVERRIDES__API_KEY_ENV": "LLM_GEMINI_API_KEY"}, OPENAI, "GEMINI-"),
        ({"MODEL": "openai/m", "OVERRIDES__API_KEY_ENV": "NOBODY"}, OPENAI, "OPENAI-default"),
        (
            {
                "MODEL": "openai/m",
                "OVERRIDES__API_KEY": "literal",
                "OVERRIDES__API_KEY_ENV": "LLM_GEMINI_API_KEY",
            },
            OPENAI,
            "literal",
        ),
        ({"MODEL": "openai/m", "API_KEY": " own\n"}, OPENAI, "own"),
        ({"MODEL": "lmstudio/m"}, LOCAL, None),
        (
            {"MODEL": "lmstudio/m", "LLM_LMSTUDIO_BASE_URL": "http://box:9/v1", "API_KEY": "own"},
            "http://box:9/v1",
            "own",
        ),
        ({"MODEL": "openai_compatible/m", "BASE_URL": LOCAL}, LOCAL, None),
        (
            {
                "MODEL": "openai_compatible/m",
                "LLM_OPENAI_COMPATIBLE_BASE_URL": PROXY,
                "LLM_OPENAI_COMPATIBLE_API_KEY": "c",
            },
            PROXY,
            "c",
        ),
        (
            {
                "MODEL": "openai_compatible/m",
                "LLM_OPENAI_COMPATIBLE_API_KEY": "c",
                "BASE_URL": "https://elsewhere.example",
            },
            "https://elsewhere.example",
            None,
        ),
    ],
)
def test_a_key_goes_only_where_it_was_given_for(
    suffixes: dict[str, str], base_url: str, key: str | None
) -> None:
    """HOM-020 to HOM-022, G-39: a default key goes to the transport's host, a target's to its."""
    target = fallback(**suffixes)
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
        (
            {"MODEL": "openai/m", "OVERRIDES__BASE_URL": LOCAL},
            "localhost:1234; Honcho sends LLM_OPENAI_API_KEY there, load_policies() does not",
        ),
        (
            {"MODEL": "nous/m"},
            "LLM_NOUS_API_KEY: not set, so there is no key for inference-api.nousresearch.com",
        ),
        (
            {"MODEL": "openai_compatible/m", "BASE_URL": "https://u:pw@p.example/v1?k=pw"},
            f"{F}__OVERRIDES__API_KEY: not set, so there is no key for p.example",
        ),
        ({"MODEL": "openai/m", "OVERRIDES__API_KEY_ENV": "NOBODY"}, "a variable that is not set"),
        ({"MODEL": "openai_compatible/m"}, "OVERRIDES__BASE_URL: missing"),
        ({"MODEL": "openai/gpt-5.4-mini"}, "the same model with the same key"),
    ],
)
def test_a_target_that_could_not_answer_is_said_at_load(
    suffixes: dict[str, str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """HOM-023, G-38, G-40: not at the outage; with strict it is refused."""
    environ = {**KEYS, **{f"{F}__{name}": value for name, value in suffixes.items()}}
    load_policies(environ)
    (line,) = warned(caplog)
    assert message in line
    assert "pw" not in line
    with pytest.raises(FallbackConfigError, match=r"set|name"):
        load_policies(environ, strict=True)


def test_a_placeholder_is_no_key(caplog: pytest.LogCaptureFixture) -> None:
    """What Honcho's template has in a key's place would only be refused by the provider."""
    load_policies({"LLM_OPENAI_API_KEY": "your-api-key-here"})
    (line,) = warned(caplog)
    assert "LLM_OPENAI_API_KEY: a placeholder, so there is no key for api.openai.com" in line


@pytest.mark.parametrize(
    ("suffixes", "names"),
    [
        ({"MODEL": "openai/gpt-5.4-mini"}, ["openai/gpt-5.4-mini"]),
        (
            {"MODEL": "openai/gpt-5.4-mini", "THINKING_EFFORT": "low"},
            ["openai/gpt-5.4-mini", "openai/gpt-5.4-mini@api.openai.com"],
        ),
        (
            {"MODEL": "openai/gpt-5.4-mini", "BASE_URL": LOCAL, "API_KEY": "own"},
            ["openai/gpt-5.4-mini", "openai/gpt-5.4-mini@localhost:1234"],
        ),
        (
            {
                "MODEL": "openai/gpt-5.4-mini",
                "API_KEY": "own",
                "FALLBACK__MODEL": "openai/gpt-5.5",
            },
            ["openai/gpt-5.4-mini", "openai/gpt-5.4-mini@api.openai.com", "openai/gpt-5.5"],
        ),
        (
            {
                "MODEL": "openai/gpt-5.4-mini",
                "API_KEY": "one",
                "FALLBACK__MODEL": "openai/gpt-5.4-mini",
                "FALLBACK__API_KEY": "two",
            },
            [
                "openai/gpt-5.4-mini",
                "openai/gpt-5.4-mini@api.openai.com",
                "openai/gpt-5.4-mini@api.openai.com#3",
            ],
        ),
    ],
)
def test_another_key_is_another_target(suffixes: dict[str, str], names: list[str]) -> None:
    """HRC-014, G-38: the same model with another key, address or effort is not skipped."""
    environ = {**KEYS, **{f"{F}__{name}": value for name, value in suffixes.items()}}
    targets = load_policies(environ)["deriver"].targets
    assert [target.name for target in targets] == names


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
]


def wrapped(name: str, form: str) -> str:
    """Put the secret where a value of that form would have it."""
    forms = {
        "plain": SECRET,
        "json": f'{{"api_key": "{SECRET}", "model": "openai/m"}}',
        "broken json": f'{{"api_key": "{SECRET}"',
        "list": f'["{SECRET}"]',
        "url": f"https://user:{SECRET}@p.example/{SECRET}?key={SECRET}",
        "bad url": f"https://[{SECRET}",
    }
    # What a transport or a model is called is shown, and so is the name that a key is looked for.
    shown = name.endswith(("TRANSPORT", "MODEL", "API_KEY_ENV"))
    return "openai/m" if shown else forms[form]


@given(
    name=st.sampled_from(SECRET_NAMES),
    form=st.sampled_from(["plain", "json", "broken json", "list", "url", "bad url"]),
    strict=st.booleans(),
)
def test_no_secret_is_ever_shown(name: str, form: str, strict: bool) -> None:
    """HON-075, HOM-076: not in a repr, a log line, an error or a traceback, wherever it stands."""
    environ = {f"{F}__MODEL": "openai/other", name: wrapped(name, form)}
    shown: list[str] = []
    keeper = logging.Handler(logging.DEBUG)
    keeper.emit = lambda record: shown.append(record.getMessage())  # type: ignore[method-assign] # the shortest handler
    logger = logging.getLogger("honcho_fallback")
    before = logger.level
    logger.addHandler(keeper)
    logger.setLevel(logging.DEBUG)
    try:
        policies: dict[str, Any] = load_policies(environ, strict=strict)
        shown += [repr(policies), str(read_settings(environ)), repr(checked(environ, {}, {}))]
        for policy in policies.values():
            shown += [f"{target!r} {target.client!r}" for target in policy.targets]
            shown.append(repr(policy.start()))
    except FallbackConfigError:
        shown.append(traceback.format_exc())
    finally:
        logger.removeHandler(keeper)
        logger.setLevel(before)
    assert SECRET not in "\n".join(shown)
