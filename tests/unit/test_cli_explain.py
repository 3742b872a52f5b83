from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import tenacity
from typer.testing import CliRunner, Result

from honcho_fallback import FallbackConfig
from honcho_fallback.cli._app import app
from honcho_fallback.cli._explain import LONGEST_WAIT
from tests.helpers.canaries import KEY, documents
from tests.helpers.processes import python

if TYPE_CHECKING:
    from pathlib import Path

SLOW = json.dumps({"error": {"message": "slow"}})
RATE_LIMIT = ("--status", "429", "--header", "Retry-After: 7", "--body")
PLAIN = "with a fallback"


def explain(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["explain", *args], input=stdin, env={"COLUMNS": "200"})


def explained(*args: str, stdin: str | None = None) -> Any:
    """What ``explain --json`` prints."""
    result = explain(*args, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_rate_limit_waits_alone_and_switches_with_a_fallback() -> None:
    """The verdict is the policy's own: Retry-After alone, no wait where another target is free."""
    printed = explained(*RATE_LIMIT, SLOW)
    facts = {name: printed[name] for name in ("kind", "transient", "switchable", "status")}
    assert facts == {"kind": "rate_limit", "transient": True, "switchable": True, "status": 429}
    assert (printed["retry_after"], printed["provider_message"]) == (7.0, "slow")
    assert all(printed[name] for name in ("reason", "cause", "next_action"))
    verdicts = {chain: (one["action"], one["wait"]) for chain, one in printed["policy"].items()}
    assert verdicts == {"with one target": ("retry", 7.0), PLAIN: ("switch", 0.0)}
    # Where a shell would spoil it, the body comes on standard input.
    assert explained(*RATE_LIMIT, "-", stdin=SLOW) == printed


@pytest.mark.parametrize(
    ("status", "body", "kind", "plain"),
    [
        (400, {"error": {"code": "context_length_exceeded"}}, "context_overflow", "switch"),
        (400, {"error": {"type": "invalid_request_error"}}, "invalid_request", "raise"),
        (401, None, "authentication", "switch"),
        (429, {"error": {"code": "insufficient_quota"}}, "quota", "switch"),
    ],
)
def test_what_the_policy_does_depends_on_the_kind(
    status: int, body: object, kind: str, plain: str
) -> None:
    """A fallback is asked where it may help."""
    printed = explained("--status", str(status), "--body", json.dumps(body))
    assert (printed["kind"], printed["policy"][PLAIN]["action"]) == (kind, plain)


def test_a_person_reads_words() -> None:
    """Without --json the same is told in lines, and no log line of the trial runs gets out.

    A wait with jitter is told as what it is at most, that of the default policy.
    """
    asks_again = "asks the same target again after"
    for args, wait in (([], "up to 0.5 s"), (["--header", "retry-after: 7"], "7 s")):
        result = explain("--status", "503", *args)
        words = " ".join(result.stdout.split())
        assert (result.exit_code, result.stderr) == (0, "")
        for one in ("overloaded", "asks the fallback after 0 s", f"{asks_again} {wait}"):
            assert one in words
    default = FallbackConfig().wait
    assert isinstance(default, tenacity.wait_random_exponential)
    assert (default.multiplier, default.max) == (LONGEST_WAIT.multiplier, LONGEST_WAIT.max)


@pytest.mark.parametrize(
    "text",
    [
        "no healthy upstream",
        "404 page not found",
        "upstream error",
        "<html><body>Bad gateway</body></html>",
        "so [bold]no[/bold] [/nonsense]",
    ],
)
def test_a_sentence_and_a_page_are_bodies(text: str) -> None:
    """A proxy answers in plain text or HTML, given or piped in; what looks like markup is text."""
    printed = explained("--status", "503", "--body", text)
    assert (printed["kind"], printed["provider_message"]) == ("overloaded", text)
    assert explained("--status", "503", "--body", "-", stdin=text) == printed
    assert text in explain("--status", "503", "--body", text).stdout


def test_a_body_of_another_encoding_is_read() -> None:
    """What is no UTF-8 costs its own characters."""
    page = "<html>Dienst nicht verf\u00fcgbar</html>".encode("latin-1")
    done = subprocess.run(
        [sys.executable, "-m", "honcho_fallback.cli", "explain", "--status", "503", "--body", "-"],
        input=page,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Dienst nicht verf\ufffdgbar" in done.stdout.decode()


@pytest.mark.parametrize(
    ("args", "stdin", "words"),
    [
        (["--status", "99"], "", "status"),
        (["--status", "600"], "", "status"),
        (["--status", "many"], "", "--status"),
        (["--body", "{"], "", "quote it for your shell, or pass - and pipe it in"),
        (["--body", "'{error}'"], "", "--body: no JSON"),
        (["--body", "-"], "{", "correct it"),
        (["--header", "retry-after"], "", "write it as 'name: value'"),
        (["file.json"], "", "unexpected extra argument"),
        ([], "", "no facts; give --status"),
    ],
)
def test_what_cannot_be_is_refused(args: list[str], stdin: str, words: str) -> None:
    """Bad input gets one clear message on standard error and exit status 2."""
    result = explain(*args, stdin=stdin)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_rules_of_ones_own_are_asked_first(tmp_path: Path) -> None:
    """The verdict of the policy is that under the rules."""
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\nkind='quota'\nstatus=400", "utf-8")
    args = ["--status", "400", "--rules", str(path)]
    printed = explained(*args)
    assert (printed["kind"], printed["reason"]) == ("quota", "rule 1 of rules.toml")
    assert printed["policy"][PLAIN]["action"] == "switch"
    path.write_text("[[rule]]\nkind='quotta'\nstatus=400", "utf-8")
    result = explain(*args)
    assert result.exit_code == 2
    assert "did you mean quota?" in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--version"], "honcho-fallback 0."),
        (["-h"], "Usage: honcho-fallback"),
        (["show", "-h"], "Usage: honcho-fallback show"),
    ],
)
def test_version_and_help_are_told(args: list[str], words: str) -> None:
    """The usual options work, before a command and after it."""
    result = CliRunner().invoke(app, args, prog_name="honcho-fallback")
    assert result.exit_code == 0
    assert words in result.stdout


@pytest.mark.parametrize("missing", ["rich", "typer"])
def test_a_missing_extra_is_named(missing: str) -> None:
    """Without the extra the command says what to install, with exit status 2."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None; import honcho_fallback.cli as c; c.main()"
    )
    done = python("-c", code)
    assert done.returncode == 2
    assert "pip install 'honcho-fallback[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_distribution_adds_a_command(tmp_path: Path) -> None:
    """Its entry point names a function; options, help and errors are those of any command."""
    (tmp_path / "greeter.py").write_text(
        "def greet(name: str, loud: bool = False) -> None:\n    print('hello', name, loud)\n"
    )
    info = tmp_path / "greeter-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[honcho_fallback.commands]\ngreet = greeter:greet\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = python("-m", "honcho_fallback.cli", "greet", "you", "--loud", env=environment)
    assert (done.stdout, done.stderr) == ("hello you True\n", "")


ESCAPES = "\x1b]0;owned\x07 \x1b[31mred\x9b2J \u202egnihton [bold]x[/bold]"
ACTING = ("\x1b", "\x07", "\x9b", "\u202e")


def test_nothing_that_is_printed_acts_on_a_terminal() -> None:
    """An error's body and saved lines are written by strangers: escapes are shown as text."""
    body = json.dumps({"error": {"message": ESCAPES, "code": ESCAPES, "type": ESCAPES}})
    for args, stdin in (
        (["--status", "429", "--body", body], ""),
        (["--status", "502", "--body", f"<html>{ESCAPES}</html>"], ""),
        (["--status", "429", "--body", "-"], body),
    ):
        for options in ([], ["--json"]):
            result = explain(*args, *options, stdin=stdin)
            assert result.exit_code == 0
            assert [mark for mark in ACTING if mark in result.stdout] == []
            assert "red" in result.stdout
            assert "[bold]x[/bold]" in result.stdout


def test_no_key_is_printed() -> None:
    """The text is the user's own, who may show it to others: a key in it is blackened."""
    for body in map(json.dumps, documents(f"no {KEY} here")):
        for options in ([], ["--json"]):
            result = explain("--status", "401", "--body", body, *options)
            assert KEY not in result.stdout + result.stderr
