"""``doctor`` and ``dry-run``: Honcho's settings read, told and tried, and no secret in any of it."""

# ruff: noqa: E501 # one row of a table is one line

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from honcho_fallback.cli._app import app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.provider import ProviderServer

pytest.importorskip("pydantic_settings")

F = "DERIVER_MODEL_CONFIG__FALLBACK"
KEYS = {"LLM_OPENAI_API_KEY": "openai-key", "LLM_ANTHROPIC_API_KEY": "anthropic-key"}
FINE = {**KEYS, f"{F}__MODEL": "anthropic/claude-x"}
SECRET = "sk-sentinel-7f3a9c2e51"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away every variable that the commands would read, and give them a wide terminal."""
    for name in list(os.environ):
        if "API_KEY" in name or "MODEL_CONFIG" in name or name.startswith(("LLM_", "DIALECTIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "250")


def run(command: str, *args: str, **environ: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [command, *args], env=environ)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_doctor_shows_each_chain_and_where_it_came_from() -> None:
    """Nine agents, each target's host and key, and the name behind every value; status 0."""
    status, told = run(
        "doctor", **FINE, DIALECTIC_LEVELS__max__MODEL_CONFIG='{"model": "gpt-5.5"}'
    )
    assert status == 0
    assert re.search(r"deriver +first +openai/gpt-5.4-mini +api.openai.com +set +180 s", told)
    assert re.search(r"then +anthropic/claude-x +api.anthropic.com +set", told)
    assert re.search(rf"deriver +fallback.model +{F}__MODEL", told)
    assert re.search(r"dialectic.max +model +DIALECTIC_LEVELS__MAX__MODEL_CONFIG \(JSON\)", told)
    assert re.search(r"all +openai_api_key +LLM_OPENAI_API_KEY", told)
    assert "1 of 9 agents have a fallback." in told
    assert "max_retries=0" in told


@pytest.mark.parametrize(
    ("environ", "status", "said"),
    [
        (KEYS, 0, "0 of 9 agents have a fallback"),
        ({"LLM_OPENAI_API_KEY": "k", f"{F}__MODEL": "anthropic/x"}, 1, "LLM_ANTHROPIC_API_KEY: not set"),
        ({}, 1, "LLM_OPENAI_API_KEY: not set"),
        ({**KEYS, f"{F}__TRANSPORT": "anthropic"}, 1, f"{F}__MODEL is missing"),
        ({**KEYS, "DREAMER_MODEL_CONFIG__FALLBACK__MODEL": "x"}, 1, "the name is DREAM_DEDUCTION_"),
        ({**KEYS, f"{F}__MODLE": "x"}, 1, f"the name is {F}__MODEL"),
        ({**KEYS, "DREAMER_ENABLED": "x"}, 0, "DREAMER_ENABLED: Honcho ignores it"),
        ({**FINE, f"{F}__MODEL": "openai/gpt-5.4-mini"}, 1, "the same model at the same address"),
        ({**FINE, f"{F}__OVERRIDES__BASE_URL": "http://127.0.0.1:1"}, 1, "is not sent to 127.0.0.1:1"),
        ({**KEYS, f"{F}__MODEL": "lmstudio/x"}, 0, "not needed"),
    ],
)  # fmt: skip
def test_doctor_says_what_could_not_work(environ: dict[str, str], status: int, said: str) -> None:
    """What is ignored, partial, missing or kept back is said, and is status 1 for a fallback."""
    found, told = run("doctor", **environ)
    assert said in told
    assert found == status


def test_doctor_reads_files_and_the_env_file_wins(tmp_path: Path) -> None:
    """HOM-013: .env over the environment over config.toml, each named as the source."""
    env, toml = tmp_path / ".env", tmp_path / "config.toml"
    env.write_text(f'{F}__TRANSPORT="anthropic"\n', encoding="utf-8")
    toml.write_text('[deriver.model_config.fallback]\nmodel = "from-toml"\n', encoding="utf-8")
    status, told = run(
        "doctor",
        "--env-file",
        str(env),
        "--toml",
        str(toml),
        **KEYS,
        **{f"{F}__TRANSPORT": "gemini"},
    )
    assert status == 0
    assert "anthropic/from-toml" in told
    assert re.search(r"fallback.model +config.toml \[deriver.model_config.fallback\]", told)


@pytest.mark.parametrize(
    ("args", "environ", "said"),
    [
        (["--env-file", "no/such/file"], {}, "--env-file: no/such/file cannot be read"),
        (["--toml", "no/such/file"], {}, "toml: no/such/file cannot be read"),
        ([], {"LLM_DEFAULT_TIMEOUT": "never"}, "LLM_DEFAULT_TIMEOUT: Input should be a valid number"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [["doctor"], ["dry-run", "--agent", "deriver"]])
def test_wrong_input_gets_one_clear_line(
    command: list[str], args: list[str], environ: dict[str, str], said: str
) -> None:
    """Exit status 2 and what to do, no traceback."""
    status, told = run(*command, *args, **environ)
    assert status == 2
    assert told.startswith(f"honcho-fallback: {said}")


def answers(providers: ProviderServer, status: int = 401) -> dict[str, str]:
    """Put a primary that answers and a fallback that says `status` where the settings look."""
    providers["two"].fail(status, message=SECRET, error="invalid_api_key")
    return {
        "LLM_OPENAI_BASE_URL": providers["one"].url,
        "LLM_OPENAI_API_KEY": SECRET,
        f"{F}__TRANSPORT": "openai_compatible",
        f"{F}__MODEL": "two",
        f"{F}__BASE_URL": providers["two"].url,
        f"{F}__API_KEY": SECRET,
    }


def test_probe_asks_each_target_once(providers: ProviderServer) -> None:
    """A tiny request for every distinct target, nine agents or not, and what a failure means."""
    environ = answers(providers)
    status, told = run("doctor", "--probe", **environ)
    assert status == 1
    assert re.search(r"openai/gpt-5.4-mini +127.0.0.1:\d+ +answered", told)
    assert re.search(r"openai_compatible/two +127.0.0.1:\d+ +authentication 401", told)
    assert "Check that the key is set" in told
    assert providers.order == ["one", "two"]
    assert SECRET not in told


def test_a_probe_that_is_answered_gives_status_0(providers: ProviderServer) -> None:
    """With every target answering there is nothing to complain about."""
    environ = {name: value for name, value in answers(providers).items() if "FALLBACK" not in name}
    assert run("doctor", "--probe", **environ)[0] == 0


@pytest.mark.parametrize(
    ("args", "rows", "end"),
    [
        (["--fail", "429"], [("openai", "0 s", "429 rate_limit"), ("anthropic", "0 s", "answers")], "anthropic/claude-x answers."),
        ([], [("openai", "0 s", "answers")], "openai/gpt-5.4-mini answers."),
        (["--fail", "ok"], [("openai", "0 s", "answers")], "openai/gpt-5.4-mini answers."),
        (["--fail", "timeout"], [("openai", "0 s", "timeout"), ("anthropic", "0 s", "answers")], "answers."),
        (["--fail", "401"], [("openai", "0 s", "401 authentication")], "rejected, the caller gets the provider's own error."),
        (["--fail", "401", "--preset", "default"], [("openai", "0 s", "401 auth"), ("anthropic", "0 s", "answers")], "answers."),
        (["--fail", "401", "--preset", "resilient"], [("openai", "0 s", "401 auth"), ("anthropic", "0 s", "answers")], "answers."),
        (["--fail", "400", "--preset", "honcho_main"], [("openai", "0 s", "400"), ("openai", "4.00 s", "400"), ("anthropic", "4.00 s", "answers")], "answers."),
        (["--fail", "connection", "--fail", "401"], [("openai", "0 s", "connection"), ("anthropic", "0 s", "401")], "rejected"),
        (["--fail", "503", "--fail", "401", "--preset", "default"], [("openai", "0 s", "503"), ("anthropic", "0 s", "401")], "exhausted, the caller gets FallbackExhausted."),
    ],
)  # fmt: skip
def test_dry_run(args: list[str], rows: list[tuple[str, str, str]], end: str) -> None:
    """The order and the waits are those of a real run of the agent's policy; nobody is asked."""
    status, told = run("dry-run", "--agent", "deriver", *args, **FINE)
    assert status == 0
    lines = [line for line in told.splitlines() if re.match(r"\d ", line)]
    assert len(lines) == len(rows)
    for line, (who, wait, said) in zip(lines, rows, strict=True):
        assert re.match(rf"\d +{who}/\S+ +{wait} +{said}", line)
    assert end in told.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--agent", "derivr"], "--agent: got 'derivr'; choose from deriver, dialectic.minimal"),
        (["--agent", "deriver", "--fail", "200"], "--fail: got '200'; pass 400 to 599, timeout"),
        (["--agent", "deriver", "--fail", "slow"], "--fail: got 'slow'"),
        (
            ["--agent", "summary", "--fail", "503", "--fail", "503"],
            "--fail: given 2 times; summary",
        ),
        (
            ["--agent", "deriver", "--preset", "x"],
            "--preset: got 'x'; choose from honcho, default",
        ),
    ],
)
def test_a_dry_run_that_makes_no_sense_is_refused(args: list[str], said: str) -> None:
    """Each option's mistake is named, with what there is to choose from."""
    status, told = run("dry-run", *args, **FINE)
    assert status == 2
    assert told.startswith(f"honcho-fallback: {said}")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(
    name=st.sampled_from(
        [f"{F}__OVERRIDES__API_KEY", f"{F}__API_KEY", f"{F}__BASE_URL", "LLM_OPENAI_API_KEY", F,
         "LLM_OPENAI_BASE_URL", "LLM_ANTHROPIC_BASE_URL", f"{F}__OVERRIDES__PROVIDER_PARAMS",
         f"{F}__SEED", f"{F}__UNKNOWN", "DIALECTIC_LEVELS", "LLM_OPENAI_APIKEY"]
    ),
    form=st.sampled_from(
        [SECRET, f'{{"extra_headers": {{"Authorization": "{SECRET}"}}}}', f'{{"{SECRET[:2]}',
         f"https://user:{SECRET}@p.example/{SECRET}", f"https://[{SECRET}"]
    ),
    command=st.sampled_from([("doctor",), ("dry-run", "--agent", "deriver", "--fail", "503")]),
)  # fmt: skip
def test_no_secret_is_told(name: str, form: str, command: tuple[str, ...]) -> None:
    """HON-075: whatever stands wherever in the environment, the commands show none of it."""
    assert SECRET not in run(*command, **{**FINE, name: form})[1]


@pytest.mark.parametrize("command", [("doctor",), ("dry-run", "--agent", "deriver")])
def test_a_missing_extra_is_named(command: tuple[str, ...]) -> None:
    """Without pydantic-settings the commands say what to install."""
    code = (
        "import sys; sys.modules['pydantic_settings'] = None\n"
        f"sys.argv = ['honcho-fallback', *{command!r}]\n"
        "from honcho_fallback.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'honcho-fallback[settings]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_commands_do_not_load_the_settings() -> None:
    """``explain`` needs no pydantic-settings and no SDK."""
    code = (
        "import sys; from honcho_fallback.cli import _app; "
        "print([m for m in ('pydantic_settings', 'openai', 'honcho_fallback.settings') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
