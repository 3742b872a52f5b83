"""The commands doctor and dry-run, and what importing the adapter costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import honcho_fallback_honcho
from honcho_fallback.cli._app import app

if TYPE_CHECKING:
    from pathlib import Path


# ruff: noqa: E501 # one row of a table is one line


pytest.importorskip("pydantic_settings")

F = "DERIVER_MODEL_CONFIG__FALLBACK"
KEYS = {"LLM_OPENAI_API_KEY": "openai-key", "LLM_ANTHROPIC_API_KEY": "anthropic-key"}
FINE = {**KEYS, f"{F}__MODEL": "anthropic/claude-x"}
LEVELS = ("minimal", "low", "medium", "high", "max")
SECRET = "sk-sentinel-7f3a9c2e51"


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run in a folder without files, on a wide terminal."""
    for name in list(os.environ):
        if name.startswith(("DIALECTIC_", "PYTHON_DOTENV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str, *args: str, **environ: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [command, *args], env=environ)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def run_apart(*args: str, first: str = "pass", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, after a line of code."""
    code = f"import sys; {first}; import honcho_fallback.cli as cli; cli.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_doctor_shows_each_chain() -> None:
    """Nine agents, each target's host and key; those that ask the same are one block."""
    status, output = run("doctor", **FINE, DREAM_INDUCTION_MODEL_CONFIG='{"model": "gpt-5.5"}')
    assert status == 0
    assert output.startswith("1 of 9 agents have a fallback.\n")
    assert output.endswith("\nRead: the environment.\n")
    deriver = next(part for part in re.split(r"\n(?=\S)", output) if part.startswith("deriver\n"))
    assert re.search(r"first +openai/gpt-5.4-mini +set +api.openai.com\n", deriver)
    assert re.search(r"then +anthropic/claude-x +set +api.anthropic.com$", deriver)
    assert "dream.induction\n  first    openai/gpt-5.5 " in output
    same = ", ".join([*(f"dialectic.{one}" for one in LEVELS), "summary", "dream.deduction"])
    assert f"\n{same}\n  first " in output


def test_doctor_shows_the_state_of_each_key() -> None:
    """A key is set, missing or not needed; the key itself is not shown."""
    environ = KEYS
    states = {"anthropic": "set", "gemini": "missing", "lmstudio": "not needed", "nous": "missing"}
    for transport, state in states.items():
        output = run("doctor", **environ, **{f"{F}__MODEL": f"{transport}/x"})[1]
        assert re.search(rf"then +{transport}/x +{state} +\S+\n", output)
        assert SECRET not in output


OPENAI = {f"{F}__TRANSPORT": "openai", f"{F}__MODEL": "q"}
ANTHROPIC = {f"{F}__TRANSPORT": "anthropic", f"{F}__MODEL": "claude-x"}
D, LOCAL = "DERIVER_MODEL_CONFIG", "http://localhost:1234/v1"
ELSEWHERE = "Honcho sends data elsewhere than these settings say: "
# What Honcho's own modules did with it (main, 2026-08-20); the first line, a part of a later one.
SEEN: list[tuple[dict[str, str], str, str]] = [
    ({}, "0 of 9 agents have a fallback.", ""),
    ({"LLM_ANTHROPIC_API_KEY": "", f"{F}__MODEL": "anthropic/x"}, "1 of 9", "LLM_ANTHROPIC_API_KEY: not set"),
    ({"LLM_OPENAI_API_KEY": ""}, "0 of 9", "LLM_OPENAI_API_KEY: not set, so there is no key for api.openai.com (all agents)"),
    ({f"{F}__MODLE": "x"}, "0 of 9 agents have a fallback; 2 settings cannot work.", f"{F}__MODLE: nothing reads it"),
    (ANTHROPIC, "1 of 9", "anthropic/claude-x   set  api.anthropic.com"),
    ({f"{F}__MODEL": "anthropic/claude-x"}, "1 of 9", "then     anthropic/claude-x "),
    ({"LLM_OPENAI_API_KEY": "your-api-key-here"}, "0 of 9 agents have a fallback; 1 setting cannot work.", "a placeholder"),
    ({**OPENAI, f"{F}__BASE_URL": LOCAL}, f"{ELSEWHERE}1 setting;", "sends the data to api.openai.com"),
    ({**OPENAI, f"{F}__API_KEY": "k"}, f"{ELSEWHERE}1 setting;", "sends LLM_OPENAI_API_KEY to api.openai.com"),
    ({f"{D}__MODEL": "anthropic/x"}, f"{ELSEWHERE}1 setting;", "without TRANSPORT the data goes to api.openai.com"),
    ({"OPENAI_BASE_URL": LOCAL}, f"{ELSEWHERE}1 setting;", "OPENAI_BASE_URL: none of Honcho's settings, yet it sends the data to localhost:1234"),
    ({**OPENAI, f"{F}__OVERRIDES__BASE_URL": LOCAL}, "1 of 9", "Honcho sends LLM_OPENAI_API_KEY there, load_policies() does not"),
    ({**OPENAI, f"{F}__OVERRIDES__BASE_URL": LOCAL, f"{F}__OVERRIDES__API_KEY": "k"}, "1 of 9", "then     openai/q             set  localhost:1234"),
        ({f"{F}__TRANSPORT": "openai", f"{F}__MODEL": "gpt-5.4-mini"}, "0 of 9", "the same model with the same key"),
    ({**ANTHROPIC, f"{F}__FALLBACK__MODEL": "gemini/x"}, "1 of 9", f"{F}__FALLBACK: one too many for Honcho"),
    ({"LLM_DEFAULT_TIMEOUT": "300"}, "0 of 9 agents have a fallback.\n", "LLM_DEFAULT_TIMEOUT: Honcho has no such setting"),
    ({f"{F}__MODEL": "q"}, "0 of 9 agents have a fallback; 1 setting cannot work.", f"{F}: the fallback is ignored, {F}__TRANSPORT is missing"),
    ({f"{F}__TRANSPORT": "openai", f"{F}__MODEL": ""}, "0 of 9", f"{F}: the fallback is ignored, {F}__MODEL is missing"),
    ({f"{F}__TRANSPORT": "openai"}, "0 of 9 agents have a fallback; 1 setting cannot work.", f"{F}: the fallback is ignored, {F}__MODEL is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "first", "later"), SEEN)
def test_doctor_says_what_honcho_ignores_and_where_data_goes(
    environ: dict[str, str], first: str, later: str
) -> None:
    """The first line is the answer; status 1 but where no more than hints follow."""
    status, output = run("doctor", **{**KEYS, **environ})
    assert output.startswith(first)
    assert later in output.partition("\n")[2]
    assert SECRET not in output
    answer = output.partition("\n")[0]
    assert status == (answer.startswith(ELSEWHERE) or "cannot work" in answer)


def test_dry_run_says_whose_order_it_shows() -> None:
    """Honcho without the package asks in another order, in its last attempt."""
    output = run("dry-run", "--agent", "deriver", "--fail", "503", **FINE)[1]
    assert "in Honcho with policy_from(); without them the fallback is asked in the last" in output


def test_doctor_reads_files_and_the_env_file_wins(tmp_path: Path) -> None:
    """HOM-013: .env over the environment over config.toml."""
    env, toml = tmp_path / "our.env", tmp_path / "our.toml"
    env.write_text(f'{F}__TRANSPORT="anthropic"\n', encoding="utf-8")
    toml.write_text(
        '[llm]\ndefault_timeout = 77\n[deriver.model_config.fallback]\nmodel = "from-toml"\n',
        encoding="utf-8",
    )
    status, output = run(
        "doctor",
        "--env-file",
        str(env),
        "--toml",
        str(toml),
        **KEYS,
        **{f"{F}__TRANSPORT": "gemini"},
    )
    assert status == 0
    assert output.endswith(f"\nRead: the environment, {env}, {toml}.\n")
    assert re.search(r"then +anthropic/from-toml", output)
    assert "LLM_DEFAULT_TIMEOUT: Honcho has no such setting" in output


@pytest.mark.parametrize(
    ("args", "unread"),
    [
        ([], [".env", "config.toml"]),
        (["--env-file", ".env"], ["config.toml"]),
        (["--env-file", "other", "--toml", "./config.toml"], [".env"]),
    ],
)
def test_doctor_says_which_files_lie_unread(
    empty_folder: Path, args: list[str], unread: list[str]
) -> None:
    """HOM-013: Honcho reads .env and config.toml of its folder; without an option they are not read here."""
    for name in (".env", "config.toml", "other"):
        (empty_folder / name).touch()
    output = run("doctor", *args, **FINE)[1]
    assert re.findall(r"Not read: (\S+) in this folder", output) == unread
    options = {".env": "--env-file .env", "config.toml": "--toml config.toml"}
    for name in unread:
        assert f"; {options[name]} reads it.\n" in output


def test_a_narrow_terminal_breaks_no_name() -> None:
    """In 80 columns lines are wrapped between words, so that every name can be copied."""
    long = f"{F}__OVERRIDES__PROVIDER_PARAMS__TIMOUT"
    environ = {
        **FINE,
        long: "20",
        f"{F}__MODLE": "x",
        "DREAM_DEDUCTION_MODEL_CONFIG__FALLBACK__TRANSPORT": "anthropic",
        "SUMMARY_MODEL_CONFIG__MODEL": "a-model-whose-name-is-longer-than-any-terminal-has-any-right-to-expect-of-it",
    }
    output = run("doctor", **environ, COLUMNS="80")[1]
    for name in (long, f"{F}__MODLE", "DREAM_DEDUCTION_MODEL_CONFIG__FALLBACK__MODEL"):
        assert name in output
    assert f"openai/{environ['SUMMARY_MODEL_CONFIG__MODEL']}" in output
    assert all(len(line) <= 80 or len(line.split()) <= 2 for line in output.splitlines())


@pytest.mark.parametrize(
    ("args", "environ", "text"),
    [
        (["--env-file", "no/such/file"], {}, "--env-file: no/such/file cannot be read"),
        (["--toml", "no/such/file"], {}, "--toml: no/such/file cannot be read"),
        ([], {"LLM_DEFAULT_TIMEOUT": "never"}, "LLM_DEFAULT_TIMEOUT: Input should be a valid number"),
    ],
)  # fmt: skip
def test_wrong_input_gets_one_clear_line(
    args: list[str], environ: dict[str, str], text: str
) -> None:
    """Exit status 2 and what to do, no traceback; a file is named by its option."""
    for command in (["doctor"], ["dry-run", "--agent", "deriver"]):
        status, output = run(*command, *args, **environ)
        assert status == 2
        assert output.startswith(f"honcho-fallback: {text}")
        assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "rows", "end"),
    [
        (["--fail", "429"], [("openai", "0 s", "429 rate_limit"), ("anthropic", "0 s", "answers")], "anthropic/claude-x answers."),
        (["--fail", "ok"], [("openai", "0 s", "answers")], "openai/gpt-5.4-mini answers."),
        (["--fail", "timeout"], [("openai", "0 s", "timeout"), ("anthropic", "0 s", "answers")], "answers."),
        (["--fail", "401"], [("openai", "0 s", "401 authentication")], "rejected, the caller gets the provider's own error."),
        (["--fail", "401", "--preset", "default"], [("openai", "0 s", "401 auth"), ("anthropic", "0 s", "answers")], "answers."),
        (["--fail", "connection", "--fail", "401"], [("openai", "0 s", "connection"), ("anthropic", "0 s", "401")], "rejected, the caller gets the provider's own error."),
        (["--fail", "503", "--fail", "401", "--preset", "default"], [("openai", "0 s", "503"), ("anthropic", "0 s", "401")], "exhausted, the caller gets FallbackExhausted."),
    ],
)  # fmt: skip
def test_dry_run(args: list[str], rows: list[tuple[str, str, str]], end: str) -> None:
    """The order and the waits are those of a real run of the agent's policy; nobody is asked."""
    status, output = run("dry-run", "--agent", "deriver", *args, **FINE)
    assert status == 0
    lines = [line for line in output.splitlines() if re.match(r"\d ", line)]
    assert len(lines) == len(rows)
    for line, (who, wait, result) in zip(lines, rows, strict=True):
        assert re.match(rf"\d +{who}/\S+ +{wait} +{result}", line)
    assert end in output.splitlines()[-1]


def test_dry_run_knows_that_a_key_is_missing() -> None:
    """A target that could only be refused does not answer, whoever is asked before it."""
    environ = {**FINE, "LLM_ANTHROPIC_API_KEY": ""}
    status, output = run("dry-run", "--agent", "deriver", "--fail", "503", **environ)
    assert status == 0
    assert re.search(r"2 +anthropic/claude-x +0 s +401 authentication", output)
    assert "Nobody answers: rejected, the caller gets CredentialError." in output


def test_dry_run_says_what_was_ignored_and_not_read(empty_folder: Path) -> None:
    """What the doctor says of this agent stands above the table, and nothing of the others."""
    (empty_folder / ".env").write_text("", encoding="utf-8")
    environ = {
        **KEYS,
        f"{F}__TRANSPORT": "anthropic",
        "SUMMARY_MODEL_CONFIG__FALLBACK__TRANSPORT": "anthropic",
        "FALLBACK_MODEL_CONFIG__MODEL": "x",
    }
    status, output = run("dry-run", "--agent", "deriver", "--fail", "429", **environ)
    assert status == 0
    above, table = output.split("   asked")
    assert "Not read: .env in this folder" in above
    assert f"{F}: the fallback is ignored" in above
    assert "FALLBACK_MODEL_CONFIG__MODEL: Honcho ignores it" in above
    assert "SUMMARY_MODEL_CONFIG__FALLBACK: the" not in above
    assert "Nobody answers" in table


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None
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
def test_no_secret_is_shown(name: str, form: str, command: tuple[str, ...]) -> None:
    """HON-075: whatever stands wherever in the environment, the commands show none of it."""
    assert SECRET not in run(*command, **{**FINE, name: form})[1]


def test_a_missing_extra_is_named() -> None:
    """Without what it needs a command says what to install, and nothing else."""
    done = run_apart("doctor", first="sys.modules['pydantic_settings'] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("honcho-fallback: pydantic_settings is not installed: ")
    assert "pip install 'honcho-fallback[honcho]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(version("rich").startswith("13."), reason="rich 13 loads its tables itself")
def test_the_options_cost_nothing() -> None:
    """Every start of the command line imports them; settings and frameworks wait for their command."""
    code = (
        "import sys, honcho_fallback_honcho._commands\n"
        "heavy = ('pydantic_settings', 'dotenv', 'langchain_core', 'openai', 'rich.table', "
        "'honcho_fallback_honcho._loaders', 'honcho_fallback_honcho._doctor')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_is_sorted_and_documented() -> None:
    """Each name of `__all__` exists and has a docstring; there is no other public name."""
    assert honcho_fallback_honcho.__all__ == sorted(honcho_fallback_honcho.__all__)
    for name in honcho_fallback_honcho.__all__:
        assert getattr(honcho_fallback_honcho, name).__doc__, name
    assert dir(honcho_fallback_honcho) == honcho_fallback_honcho.__all__


def test_policies_load_no_framework_and_no_sdk() -> None:
    """Who makes policies from settings or objects pays for no LangChain, no LiteLLM, no SDK."""
    code = (
        "import json, sys\n"
        "from honcho_fallback_honcho import load_policies, policy_from\n"
        "load_policies({'LLM_OPENAI_API_KEY': 'k'})\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"anthropic", "google.genai", "httpx", "httpx2", "langchain_core", "litellm", "openai"}
    assert not heavy & {*json.loads(done.stdout)}


def test_policies_from_objects_need_no_extra() -> None:
    """Honcho's own objects are read without pydantic-settings."""
    code = (
        "import sys\n"
        "for name in ('pydantic_settings', 'dotenv'): sys.modules[name] = None\n"
        "from types import SimpleNamespace\n"
        "from honcho_fallback_honcho import policy_from\n"
        "print(policy_from(SimpleNamespace(model='m', transport='openai')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "<FallbackPolicy unknown: openai/m>"


def test_chat_models_name_the_extra_that_is_enough() -> None:
    """Without LangChain the message names the extra that brings the providers' packages, too."""
    code = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "try:\n    from honcho_fallback_honcho import load_chat_models\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'honcho-fallback[providers]'" in done.stdout
