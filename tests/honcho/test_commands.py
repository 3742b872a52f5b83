"""The commands doctor and dry-run, and what importing the adapter costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
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


def test_doctor_shows_each_chain() -> None:
    """HON-075: nine agents, each target's host and key, no key; who asks the same is one block."""
    status, output = run("doctor", **FINE, DREAM_INDUCTION_MODEL_CONFIG='{"model": "gpt-5.5"}')
    assert status == 0
    assert output.startswith("1 of 9 agents have a fallback.\n")
    assert output.endswith("\nRead: the environment.\n")
    first, then = (
        r"first +openai/gpt-5.4-mini +set +api.openai.com",
        r"then +anthropic/claude-x +set",
    )
    assert re.search(rf"\nderiver\n  {first}\n  {then} +api.anthropic.com\n", output)
    assert "dream.induction\n  first  openai/gpt-5.5 " in output
    assert not any(key in output for key in KEYS.values())
    same = ", ".join([*(f"dialectic.{one}" for one in LEVELS), "summary", "dream.deduction"])
    assert f"\n{same}\n  first " in output


OPENAI = {f"{F}__TRANSPORT": "openai", f"{F}__MODEL": "q"}
ANTHROPIC = {f"{F}__TRANSPORT": "anthropic", f"{F}__MODEL": "claude-x"}
D, LOCAL = "DERIVER_MODEL_CONFIG", "http://localhost:1234/v1"
ELSEWHERE = "Honcho sends data elsewhere than these settings say: "
# What Honcho's own modules did with it (main, 2026-08-20); the first line, a part of a later one.
SEEN: list[tuple[dict[str, str], str, str]] = [
    ({}, "0 of 9 agents have a fallback.", ""),
    ({"LLM_OPENAI_API_KEY": ""}, "0 of 9", "LLM_OPENAI_API_KEY: not set, so there is no key for api.openai.com (all agents)"),
    ({f"{F}__MODLE": "x"}, "0 of 9 agents have a fallback; 2 settings cannot work.", f"{F}__MODLE: nothing reads it"),
    (ANTHROPIC, "1 of 9", "anthropic/claude-x   set  api.anthropic.com"),
    ({**OPENAI, f"{F}__TRANSPORT": "lmstudio"}, "1 of 9", "lmstudio/q           not needed  localhost:1234"),
    ({**OPENAI, f"{F}__BASE_URL": LOCAL}, f"{ELSEWHERE}1 setting;", "sends the data to api.openai.com"),
    ({**OPENAI, f"{F}__BASE_URL": LOCAL, f"{F}__OVERRIDES__API_KEY": "k", "LLM_OPENAI_BASE_URL": "https://p.example/v1"}, f"{ELSEWHERE}1 setting;", "sends the data to api.openai.com"),
    ({**OPENAI, f"{F}__API_KEY": "k"}, f"{ELSEWHERE}1 setting;", "sends LLM_OPENAI_API_KEY to api.openai.com"),
    ({"OPENAI_BASE_URL": LOCAL}, f"{ELSEWHERE}1 setting;", "OPENAI_BASE_URL: none of Honcho's settings, yet it sends the data to localhost:1234"),
    ({**ANTHROPIC, "ANTHROPIC_BASE_URL": LOCAL}, f"{ELSEWHERE}1 setting;", "yet it sends the data to localhost:1234 (deriver)"),
    ({**OPENAI, f"{F}__TRANSPORT": "gemini", "LLM_GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": LOCAL}, f"{ELSEWHERE}1 setting;", "yet it sends the data to localhost:1234"),
    ({"OPENAI_BASE_URL": f"https://[{SECRET}"}, f"{ELSEWHERE}1 setting;", "yet it sends the data to the address in OPENAI_BASE_URL"),
    ({"OPENAI_BASE_URL": LOCAL, "LLM_OPENAI_BASE_URL": "https://api.openai.com/v1"}, "0 of 9 agents have a fallback.\n", ""),
    ({**ANTHROPIC, f"{F}__FALLBACK__MODEL": "lmstudio/x"}, "1 of 9 agents have a fallback.\n", f"{F}__FALLBACK: one too many for Honcho"),
    ({"LLM_DEFAULT_TIMEOUT": "300"}, "0 of 9 agents have a fallback.\n", "LLM_DEFAULT_TIMEOUT: Honcho has no such setting"),
    ({f"{D}__MODEL": "anthropic/x"}, f"{ELSEWHERE}1 setting;", "without TRANSPORT the data goes to api.openai.com"),
    ({**OPENAI, f"{F}__OVERRIDES__BASE_URL": LOCAL}, "1 of 9 agents have a fallback.\n", "Honcho sends LLM_OPENAI_API_KEY there, load_policies() does not"),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "first", "later"), SEEN)
def test_doctor_says_what_honcho_ignores_and_where_data_goes(
    environ: dict[str, str], first: str, later: str
) -> None:
    """HON-056, HON-058: the first line is the answer; status 1 but where only hints follow."""
    status, output = run("doctor", **{**KEYS, **environ})
    assert output.startswith(first)
    assert later in output.partition("\n")[2]
    assert SECRET not in output
    answer = output.partition("\n")[0]
    assert status == (answer.startswith(ELSEWHERE) or "cannot work" in answer)


def test_files_of_the_folder_are_read_as_honcho_reads_them(empty_folder: Path) -> None:
    """HOM-013: .env over the environment over config.toml; others where they are named."""
    toml = '[deriver.model_config.fallback]\nmodel = "from-toml"\n'
    (empty_folder / "config.toml").write_text(toml, encoding="utf-8")
    (empty_folder / ".env").write_text(f'{F}__TRANSPORT="anthropic"\n', encoding="utf-8")
    environ = {**KEYS, f"{F}__TRANSPORT": "gemini"}
    output = run("doctor", **environ)[1]
    assert output.endswith("\nRead: the environment, .env, config.toml.\n")
    assert re.search(r"then +anthropic/from-toml", output)
    (empty_folder / "other").write_text("", encoding="utf-8")
    output = run("dry-run", "--agent", "deriver", "--env-file", "other", **environ)[1]
    assert output.startswith("Read: the environment, other, config.toml.\n")


DOCTOR, DRY_RUN = ["doctor"], ["dry-run", "--agent", "deriver"]


@pytest.mark.parametrize(
    ("args", "environ", "text", "commands"),
    [
        (["--env-file", "no/such/file"], {}, "--env-file: no/such/file cannot be read", [DOCTOR, DRY_RUN]),
        (["--toml", "no/such/file"], {}, "--toml: no/such/file cannot be read", [DOCTOR, DRY_RUN]),
        ([], {"LLM_DEFAULT_TIMEOUT": "never"}, "LLM_DEFAULT_TIMEOUT: Input should be a valid number", [DOCTOR, DRY_RUN]),
        # Whoever names a third of two has another chain in mind.
        (["--fail", "503"] * 3, FINE, "--fail: given 3 times; deriver has 2 targets\n", [DRY_RUN]),
    ],
)  # fmt: skip
def test_wrong_input_gets_one_clear_line(
    args: list[str], environ: dict[str, str], text: str, commands: list[list[str]]
) -> None:
    """Exit status 2 and what to do, no traceback."""
    for command in commands:
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
    assert "with policy_from() after the first" in output
    lines = [line for line in output.splitlines() if re.match(r"  \d ", line)]
    assert len(lines) == len(rows)
    for line, (who, wait, result) in zip(lines, rows, strict=True):
        assert re.match(rf"  \d +{who}/\S+ +{wait} +{result}", line)
    assert end in output.splitlines()[-1]


def test_dry_run_says_what_is_wrong_with_this_agent() -> None:
    """A missing key does not answer, whoever is asked before it; nothing is said of the others."""
    environ = {**FINE, "LLM_ANTHROPIC_API_KEY": "", "SUMMARY_MODEL_CONFIG__MODLE": "x"}
    environ["FALLBACK_MODEL_CONFIG__MODEL"] = "x"
    status, output = run("dry-run", "--agent", "deriver", "--fail", "503", **environ)
    assert status == 0
    assert re.search(r"2 +anthropic/claude-x +0 s +401 authentication", output)
    assert "Nobody answers: rejected, the caller gets CredentialError." in output
    assert "FALLBACK_MODEL_CONFIG__MODEL: Honcho ignores it" in output
    assert "SUMMARY_MODEL_CONFIG__MODLE" not in output


def test_all_is_sorted_and_documented() -> None:
    """Each name of `__all__` exists and has a docstring; there is no other public name."""
    assert honcho_fallback_honcho.__all__ == sorted(honcho_fallback_honcho.__all__)
    for name in honcho_fallback_honcho.__all__:
        assert getattr(honcho_fallback_honcho, name).__doc__, name
    assert dir(honcho_fallback_honcho) == honcho_fallback_honcho.__all__


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command needs and is not installed ends it with status 2."""
    monkeypatch.setitem(sys.modules, "honcho_fallback_honcho._loaders", None)
    monkeypatch.delitem(sys.modules, "honcho_fallback_honcho._doctor", raising=False)
    status, output = run("doctor", **FINE)
    assert (status, len(output.splitlines())) == (2, 1)


def printed(code: str) -> str:
    """Return what a process of its own prints."""
    command = [sys.executable, "-c", f"import sys\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


FRAMEWORKS = (
    "anthropic",
    "google.genai",
    "httpx",
    "httpx2",
    "langchain_core",
    "litellm",
    "openai",
)
LATER = (
    "pydantic_settings",
    "dotenv",
    "honcho_fallback_honcho._loaders",
    "honcho_fallback_honcho._doctor",
)
LOADS = "import honcho_fallback_honcho as ours; ours.policy_from; ours.load_policies({'LLM_OPENAI_API_KEY': 'k'})"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [("import honcho_fallback_honcho._commands", LATER + FRAMEWORKS), (LOADS, FRAMEWORKS)],
    ids=["options", "policies"],
)
def test_nobody_pays_for_what_others_use(code: str, heavy: tuple[str, ...]) -> None:
    """Every start of the command line imports the options; policies want no SDK, no framework."""
    assert printed(f"{code}\nprint([one for one in {heavy} if one in sys.modules])") == "[]"


def test_policies_from_objects_need_no_extra() -> None:
    """Honcho's own objects are read without pydantic-settings."""
    code = (
        "for name in ('pydantic_settings', 'dotenv'): sys.modules[name] = None\n"
        "from types import SimpleNamespace\n"
        "from honcho_fallback_honcho import policy_from\n"
        "print(policy_from(SimpleNamespace(model='m', transport='openai')))"
    )
    assert printed(code) == "<FallbackPolicy unknown: openai/m>"


@pytest.mark.parametrize(
    ("missing", "loader", "extra"),
    [
        ("pydantic_settings", "load_policies", "honcho"),
        ("langchain_core", "load_chat_models", "providers"),
    ],
)
def test_a_loader_names_the_extra_that_is_enough(missing: str, loader: str, extra: str) -> None:
    """The ImportError says what to install."""
    code = (
        f"sys.modules[{missing!r}] = None\n"
        f"try:\n    from honcho_fallback_honcho import {loader}\n"
        "except ImportError as error:\n    print(error)"
    )
    assert f"pip install 'honcho-fallback[{extra}]'" in printed(code)
