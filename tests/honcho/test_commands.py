"""``doctor`` and ``dry-run``: Honcho's settings read, shown and tried, and no secret in any of it."""

# ruff: noqa: E501 # one row of a table is one line

from __future__ import annotations

import os
import re
import signal
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


def test_doctor_shows_each_chain_and_where_it_came_from() -> None:
    """Nine agents, each target's host and key, and the name behind every value; status 0."""
    status, output = run(
        "doctor", **FINE, DIALECTIC_LEVELS__max__MODEL_CONFIG='{"model": "gpt-5.5"}'
    )
    assert status == 0
    blocks = re.split(r"\n(?=\S)", output)
    deriver = next(block for block in blocks if block.startswith("deriver\n"))
    assert re.search(r"first +openai/gpt-5.4-mini +set +180 s +api.openai.com\n", deriver)
    assert re.search(r"then +anthropic/claude-x +set +180 s +api.anthropic.com\n", deriver)
    assert f"fallback.model from {F}__MODEL" in deriver
    assert "dialectic.max\n  first    openai/gpt-5.5 " in output
    assert "model from DIALECTIC_LEVELS__MAX__MODEL_CONFIG (JSON)" in output
    assert "all agents: openai_api_key from LLM_OPENAI_API_KEY" in output
    assert "1 of 9 agents have a fallback." in output


def test_doctor_shows_agents_that_ask_the_same_together() -> None:
    """Seven agents without a word of their own are one block, with all their names above it."""
    same = "dialectic.minimal, dialectic.low, dialectic.medium, dialectic.high, dialectic.max, summary, dream.deduction"
    output = run("doctor", **FINE, DREAM_INDUCTION_MODEL_CONFIG__MODEL="gpt-5.5")[1]
    assert f"\n{same}\n  first " in output
    assert output.count("openai/gpt-5.4-mini") == 2


def test_doctor_says_whose_sdk_retries() -> None:
    """HOM-026: a client of Honcho's own retries by itself, a chat model of ours does not."""
    output = " ".join(run("doctor", **FINE)[1].split())
    assert "load_chat_models() retry nothing by themselves" in output
    assert "sends up to 3 requests per attempt, unless it has max_retries=0" in output


@pytest.mark.parametrize(
    ("environ", "status", "text"),
    [
        (KEYS, 0, "0 of 9 agents have a fallback"),
        ({"LLM_OPENAI_API_KEY": "k", f"{F}__MODEL": "anthropic/x"}, 1, "LLM_ANTHROPIC_API_KEY: not set"),
        ({}, 1, "LLM_OPENAI_API_KEY: not set, so there is no key for api.openai.com (all agents)"),
        ({**KEYS, f"{F}__TRANSPORT": "anthropic"}, 1, f"{F}__MODEL is missing"),
        ({**KEYS, "DREAMER_MODEL_CONFIG__FALLBACK__MODEL": "x"}, 1, "the name is DREAM_DEDUCTION_"),
        ({**KEYS, f"{F}__MODLE": "x"}, 1, f"the name is {F}__MODEL"),
        ({**FINE, f"{F}__MODEL": "openai/gpt-5.4-mini"}, 1, "the same model at the same address"),
        ({**FINE, f"{F}__OVERRIDES__BASE_URL": "http://127.0.0.1:1"}, 1, "is not sent to 127.0.0.1:1"),
        ({**KEYS, f"{F}__MODEL": "lmstudio/x"}, 0, "not needed"),
    ],
)  # fmt: skip
def test_doctor_says_what_could_not_work(environ: dict[str, str], status: int, text: str) -> None:
    """What is ignored, partial, missing or kept back is shown, and is status 1 for a fallback."""
    exit_status, output = run("doctor", **environ)
    assert text in output
    assert exit_status == status


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({f"{F}__MODEL": "anthropic/x"}, "set"),
        ({f"{F}__MODEL": "gemini/x"}, "missing"),
        ({f"{F}__MODEL": "lmstudio/x"}, "not needed"),
        ({f"{F}__MODEL": "nous/x", "NOUS_REFRESH_TOKEN": SECRET}, "OAuth"),
    ],
)
def test_doctor_shows_the_state_of_each_key(environ: dict[str, str], key: str) -> None:
    """A key is set, missing, not needed, or fetched by OAuth; the key itself is not shown."""
    output = run("doctor", **KEYS, **environ)[1]
    assert re.search(rf"then +\w+/x +{key} +180 s +\S+\n", output)
    assert SECRET not in output


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({f"{F}__TRANSPORT": "anthropic"}, f"  ignored  {F}: the fallback is ignored, {F}__MODEL is missing"),
        ({f"{F}__MODEL": "openai/gpt-5.4-mini"}, f"  ignored  {F}: the same model at the same address"),
        ({f"{F}__MODEL": "openai_compatible/x"}, f"  ignored  {F}__OVERRIDES__BASE_URL: missing"),
    ],
)  # fmt: skip
def test_doctor_shows_an_ignored_fallback_in_its_place(environ: dict[str, str], line: str) -> None:
    """It stands where it would be asked, between the primary and the fallback's own fallback."""
    output = run("doctor", **KEYS, **environ, **{f"{F}__FALLBACK__MODEL": "anthropic/x"})[1]
    agent, first, ignored, then = output[output.index("deriver\n") :].splitlines()[:4]
    assert agent == "deriver"
    assert first.startswith("  first    openai/gpt-5.4-mini ")
    assert ignored.startswith(line)
    assert then.startswith("  then     anthropic/x ")


def test_doctor_reads_files_and_the_env_file_wins(tmp_path: Path) -> None:
    """HOM-013: .env over the environment over config.toml, each named as the source."""
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
    assert output.startswith(f"Read: the environment, {env}, {toml}.\n")
    assert re.search(r"anthropic/from-toml .* 77 s ", output)
    assert "fallback.model from config.toml [deriver.model_config.fallback]\n" in output
    assert "all agents: default_timeout from config.toml [llm]\n" in output


def test_a_value_of_the_file_is_not_ascribed_to_a_variable_without_it(tmp_path: Path) -> None:
    """Where a variable holds part of a model as JSON, the rest still comes from the file."""
    toml = tmp_path / "our.toml"
    toml.write_text('[deriver.model_config]\ntop_p = 0.5\nmodel = "x"\n', encoding="utf-8")
    model = '{"model": "gpt-5.5", "Reasoning_Effort": "low", "fallback": {"model": "anthropic/y"}}'
    output = run("doctor", "--toml", str(toml), **KEYS, DERIVER_MODEL_CONFIG=model)[1]
    for name in ("model", "thinking_effort", "fallback.model"):
        assert f"  {name} from DERIVER_MODEL_CONFIG (JSON)\n" in output
    assert "  top_p from config.toml [deriver.model_config]\n" in output


@pytest.mark.parametrize(
    ("args", "environ", "unread"),
    [
        ([], {}, [".env", "config.toml"]),
        (["--env-file", ".env"], {}, ["config.toml"]),
        (["--toml", "config.toml"], {}, [".env"]),
        (["--env-file", "other", "--toml", "./config.toml"], {}, [".env"]),
        ([], {"PYTHON_DOTENV_DISABLED": "True"}, ["config.toml"]),
        ([], {"PYTHON_DOTENV_DISABLED": "0"}, [".env", "config.toml"]),
        ([], {"HONCHO_CONFIG_TOML_DISABLED": "1"}, [".env"]),
    ],
)
def test_doctor_says_which_files_lie_unread(
    empty_folder: Path, args: list[str], environ: dict[str, str], unread: list[str]
) -> None:
    """HOM-013: Honcho reads .env and config.toml of its folder; without an option they are not read here."""
    for name in (".env", "config.toml", "other"):
        (empty_folder / name).touch()
    output = run("doctor", *args, **FINE, **environ)[1]
    assert re.findall(r"Not read: (\S+) in this folder", output) == unread
    options = {".env": "--env-file .env", "config.toml": "--toml config.toml"}
    for name in unread:
        assert f"; {options[name]} reads it.\n" in output


def test_an_empty_folder_needs_no_word() -> None:
    """Where neither file is, nothing is said of them."""
    output = run("doctor", **FINE)[1]
    assert output.startswith("Read: the environment.\n")
    assert "Not read" not in output


def test_a_narrow_terminal_breaks_no_name() -> None:
    """In 80 columns lines are wrapped between words, so that every name can be copied."""
    long = f"{F}__OVERRIDES__PROVIDER_PARAMS__TIMEOUT"
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
@pytest.mark.parametrize("command", [["doctor"], ["dry-run", "--agent", "deriver"]])
def test_wrong_input_gets_one_clear_line(
    command: list[str], args: list[str], environ: dict[str, str], text: str
) -> None:
    """Exit status 2 and what to do, no traceback; a file is named by its option."""
    status, output = run(*command, *args, **environ)
    assert status == 2
    assert output.startswith(f"honcho-fallback: {text}")
    assert len(output.splitlines()) == 1


def answers(providers: ProviderServer, status: int, error: str) -> dict[str, str]:
    """Put a primary that answers and a fallback that fails where the settings look."""
    providers["two"].fail(status, message=SECRET, error=error)
    return {
        "LLM_OPENAI_BASE_URL": providers["one"].url,
        "LLM_OPENAI_API_KEY": SECRET,
        f"{F}__TRANSPORT": "openai_compatible",
        f"{F}__MODEL": "two",
        f"{F}__BASE_URL": providers["two"].url,
        f"{F}__API_KEY": SECRET,
    }


def with_oauth(providers: ProviderServer, portal: str) -> dict[str, str]:
    """Make the deriver's primary one that is asked with a token."""
    return {
        "LLM_OPENAI_BASE_URL": providers["one"].url,
        "LLM_OPENAI_API_KEY": SECRET,
        "LLM_NOUS_BASE_URL": providers["nous"].url,
        "DERIVER_MODEL_CONFIG__TRANSPORT": "nous",
        "DERIVER_MODEL_CONFIG__MODEL": "hermes",
        "NOUS_REFRESH_TOKEN": SECRET,
        "NOUS_PORTAL_BASE_URL": portal,
        "NOUS_OAUTH_STATE_PATH": "state.json",
    }


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


@pytest.mark.parametrize(
    ("fail", "line"),
    [
        ("ok", r"- +anthropic/claude-x +never asked: another target answered first"),
        ("401", r"- +anthropic/claude-x +never asked: the failure is not one that it could help with"),
    ],
)  # fmt: skip
def test_dry_run_says_why_a_target_is_never_asked(fail: str, line: str) -> None:
    """Who is left over stands below those who are asked, with the record's own reason."""
    output = run("dry-run", "--agent", "deriver", "--fail", fail, **FINE)[1]
    assert re.match(line, output.splitlines()[-2])


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
    assert f"{F}: the fallback is ignored, {F}__MODEL is missing" in above
    assert "FALLBACK_MODEL_CONFIG__MODEL: Honcho ignores it" in above
    assert "SUMMARY_MODEL_CONFIG__FALLBACK: the" not in above
    assert "Nobody answers" in table


def test_dry_run_takes_recoveries_for_successful(tmp_path: Path) -> None:
    """A refused token is refreshed and the same target asked again; nothing is fetched or written."""
    state = tmp_path / "state.json"
    environ = {
        **KEYS,
        "NOUS_REFRESH_TOKEN": "t",
        "NOUS_OAUTH_STATE_PATH": str(state),
        "DERIVER_MODEL_CONFIG__TRANSPORT": "nous",
        "DERIVER_MODEL_CONFIG__MODEL": "hermes",
    }
    status, output = run("dry-run", "--agent", "deriver", "--fail", "401", **environ)
    assert status == 0
    assert re.search(r"\n1 +nous/hermes +0 s +401 authentication +\n", output)
    assert re.search(r"\n2 +nous/hermes .*\(after a refresh of its credential\)", output)
    assert not state.exists()


@pytest.mark.parametrize(
    ("args", "text"),
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
def test_a_dry_run_that_makes_no_sense_is_refused(args: list[str], text: str) -> None:
    """Each option's mistake is named, with what there is to choose from."""
    status, output = run("dry-run", *args, **FINE)
    assert status == 2
    assert output.startswith(f"honcho-fallback: {text}")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(
    name=st.sampled_from(
        [f"{F}__OVERRIDES__API_KEY", f"{F}__API_KEY", f"{F}__BASE_URL", "LLM_OPENAI_API_KEY", F,
         "LLM_OPENAI_BASE_URL", "LLM_ANTHROPIC_BASE_URL", f"{F}__OVERRIDES__PROVIDER_PARAMS",
         f"{F}__SEED", f"{F}__UNKNOWN", "DIALECTIC_LEVELS", "LLM_OPENAI_APIKEY", "NOUS_REFRESH_TOKEN"]
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


@pytest.mark.parametrize(
    ("missing", "extra", "args"),
    [
        ("pydantic_settings", "honcho", ["doctor"]),
        ("pydantic_settings", "honcho", ["dry-run", "--agent", "deriver"]),
    ],
)
def test_a_missing_extra_is_named(missing: str, extra: str, args: list[str]) -> None:
    """Without what it needs a command says what to install, and nothing else."""
    done = run_apart(*args, first=f"sys.modules[{missing!r}] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"honcho-fallback: {missing} is not installed: ")
    assert f"pip install 'honcho-fallback[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_dry_run_logs_nothing() -> None:
    """The log lines of a call that is not made would only come between the lines shown."""
    args = ("dry-run", "--agent", "deriver", "--fail", "503", "--fail", "503")
    done = run_apart(*args, **FINE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "caller gets FallbackExhausted" in done.stdout


@pytest.mark.parametrize("args", [["doctor"], ["dry-run", "--agent", "deriver"]])
def test_ctrl_c_ends_a_command_quietly(tmp_path: Path, args: list[str]) -> None:
    """Exit status 130 and no traceback, here while a file is being read."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from honcho_fallback.cli import main; main()"
    command = [sys.executable, "-c", code, *args, "--env-file", str(fifo)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with fifo.open("w", encoding="utf-8"):  # returns when the command has opened it as well
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_options_cost_nothing() -> None:
    """Every start of the command line imports them; settings and frameworks wait for their command."""
    code = (
        "import sys, honcho_fallback_honcho._commands\n"
        "heavy = ('pydantic_settings', 'dotenv', 'langchain_core', 'openai', 'rich.table', "
        "'honcho_fallback_honcho._policies', 'honcho_fallback_honcho._doctor')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
