"""``honcho-fallback explain --from-log``: which errors it finds, and what it says of them."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from honcho_fallback.cli import _log
from honcho_fallback.cli._app import app
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sk-proj-abcdefghijklmnop1234"  # gitleaks:allow
LIMIT = (
    "openai.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit, key "
    f"{KEY}', 'type': 'tokens', 'code': 'rate_limit_exceeded'}}}}"
)
TRACEBACK = f"""\
2026-11-22 14:05:01,001 ERROR app Request failed: {LIMIT.partition(": ")[2]}
Traceback (most recent call last):
  File "httpx.py", line 3, in <module>
    raise HTTPStatusError
httpx.HTTPStatusError: Client error '429 Too Many Requests'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "app.py", line 3, in <module>
    ask()
{LIMIT}
2026-11-22 14:05:02,001 INFO app next
"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "x.py", line 1, in <module>
  |     raise FallbackExhausted
  | honcho_fallback.FallbackExhausted: nobody answered (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "x.py", line 2
    | openai.APITimeoutError: Request timed out.
    +---------------- 2 ----------------
    | anthropic.InternalServerError: Error code: 500 - {'type': 'error', 'error': {'type': 'x'}}
    +------------------------------------
"""


def run(log: str | bytes, *args: str) -> Any:
    return CliRunner().invoke(app, ["explain", "--from-log", "-", *args], input=log)


def counted(log: str | bytes, *args: str) -> dict[str, Any]:
    """Return what ``--json`` prints of a log."""
    result = run(log, "--json", *args)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def kinds(log: str | bytes, *args: str) -> dict[str, int]:
    return {row["kind"]: row["count"] for row in counted(log, *args)["kinds"]}


def line(**fields: Any) -> str:
    return json.dumps(fields)


def test_a_traceback_its_headline_and_its_causes_are_one_error() -> None:
    """Who logs an exception writes it two or three times; it happened once."""
    found = counted(TRACEBACK * 2)
    assert (found["errors"], found["lines"]) == (2, 26)
    (row,) = found["kinds"]
    assert (row["count"], row["kind"], row["switches"]) == (2, "rate_limit", "yes")
    assert row["example"].startswith("RateLimitError 429 rate_limit_exceeded: Rate limit, key")


def test_members_of_a_group_are_errors_each() -> None:
    """The group itself is none."""
    assert kinds(GROUP) == {"timeout": 1, "server_error": 1}


def test_a_cause_decides_where_the_class_that_was_raised_says_nothing() -> None:
    """The chain in the text is the chain that the classifier walks."""
    log = TRACEBACK.replace(LIMIT, "acme.WrapperError: it failed").partition("\n")[2]
    assert kinds(log) == {"rate_limit": 1}
    during = log.replace(
        "The above exception was the direct cause of the following exception",
        "During handling of the above exception, another exception occurred",
    )
    assert counted(during)["errors"] == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("WARNING app call failed: Error code: 503 - {'error': {'message': 'x'}}", "overloaded"),
        (
            "api-1  | \x1b[31mlitellm.AuthenticationError: OpenAIException - bad\x1b[0m",
            "authentication",
        ),
        ("ERROR x: 401 Client Error: Unauthorized for url: http://x", "authentication"),
        ("14:05 retrying after httpx.ConnectTimeout('timed out')", "timeout"),
        ("got {'type': 'error', 'error': {'type': 'overloaded_error'}} from it", "overloaded"),
        ('{"error": {"code": "insufficient_quota", "message": "pay"}}', "quota"),
        (line(status=529, body={"error": {"message": "x"}}, headers={"a": 1}), "overloaded"),
        (line(level="ERROR", statusMessage="litellm.Timeout: x"), "timeout"),
        (line(level="error", event="failed", exception=TRACEBACK), "rate_limit"),
        (line(level="info", event="failed: Error code: 401 - {}"), "authentication"),
        (
            line(
                status="failure",
                error_str="it failed",
                error_information={"error_class": "NotFoundError", "error_code": "404"},
            ),
            "model_unavailable",
        ),
        (
            line(**{"exception.type": "openai.APITimeoutError", "exception.message": "x"}),
            "timeout",
        ),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "connection"),
        ("asyncio.exceptions.CancelledError", "cancelled"),
    ],
)
def test_errors_in_many_forms(text: str, kind: str) -> None:
    """A line of text, what SDKs write, JSON of Langfuse, LiteLLM, structlog and OpenTelemetry."""
    if text.startswith(("Connection", "asyncio")):  # bare: the end of a traceback
        text = f'Traceback (most recent call last):\n  File "x.py"\n{text}'
    assert kinds(f"{text}\n") == {kind: 1}


@pytest.mark.parametrize(
    "text",
    [
        "INFO Application startup complete",
        'INFO "POST /v1 HTTP/1.1" 200',
        line(level="info", event="done", response={"choices": []}, status=200),
        line(status="success", error=None),
        '{"level": "info", "broken',
        "agent=a primary=p failed=p fallback=f reason=timeout,ReadTimeout call_id=1",
    ],
)
def test_what_is_no_error(text: str) -> None:
    """Other lines are counted as lines, the package's own among them: the error has its own."""
    found = counted(f"{text}\n")
    assert (found["lines"], found["errors"]) == (1, 0)


def test_records_keep_their_kinds() -> None:
    """A record has no text to judge again: what was recorded counts, unless a rule fits."""
    policy = FallbackPolicy([Target("p"), Target("f")], wait=0)
    call = policy.start()
    policy.call(repeating(p=[StatusError(403, code="TEAM")], f=["yes"]).ask, run=call)
    log = json.dumps(call.record.to_dict())
    (row,) = counted(log)["kinds"]
    assert (row["kind"], row["reason"]) == ("permission", "as recorded")
    assert row["example"] == "StatusError 403 TEAM"


def test_rules_judge_first(tmp_path: Path) -> None:
    """With --rules a log shows what they would make of it: records, texts and JSON."""
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\nkind='quota'\nerror='acme.Budget'\nreason='ours'", "utf-8")
    text = 'Traceback (most recent call last):\n  File "x.py"\nacme.Budget: empty\n'
    assert counted(text)["not_understood"] == [{"count": 1, "example": "Budget: empty"}]
    found = counted(text, "--rules", str(path))
    assert found["not_understood"] == []
    (row,) = found["kinds"]
    assert (row["kind"], row["by_rule"]) == ("quota", True)
    assert row["reason"] == "rule 1 of rules.toml: ours"


def test_rules_judge_a_single_error_as_well(tmp_path: Path) -> None:
    """The verdict of the policy is that under the rules."""
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\nkind='quota'\nstatus=400", "utf-8")
    args = ["explain", "--status", "400", "--rules", str(path), "--json"]
    found = json.loads(CliRunner().invoke(app, args).stdout)
    assert (found["kind"], found["reason"]) == ("quota", "rule 1 of rules.toml")
    assert found["policy"]["with a fallback"]["action"] == "switch"
    path.write_text("[[rule]]\nkind='quotta'\nstatus=400", "utf-8")
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert "did you mean quota?" in result.stderr


def test_what_was_not_understood_is_listed_apart() -> None:
    """So that people see what is misjudged; errors that differ in numbers only are one sort."""
    log = "".join(f"ERROR acme.BudgetError: team {n} is out\n" for n in range(30))
    result = run(log + "ERROR cannot load it\n")
    assert result.exit_code == 0
    assert "not understood" in result.stdout
    assert "     30  BudgetError: team 0 is out\n" in result.stdout
    assert "      1  cannot load it\n" in result.stdout
    assert "--rules" in result.stdout


def test_sorts_beyond_those_kept_apart_are_counted_together() -> None:
    """Memory is bounded, and what is known is counted under its kind all the same."""
    words = [f"{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}{'x' * (n // 676)}" for n in range(1100)]
    log = "".join(f"ERROR {word}\n" for word in words)
    found = counted(f"{log}{LIMIT}\n")
    assert (found["errors"], len(found["not_understood"])) == (1101, 1001)
    assert found["not_understood"][0] == {
        "count": 100,
        "example": "others, of too many sorts to keep apart",
    }
    assert [row["kind"] for row in found["kinds"]] == ["rate_limit"]
    assert "1,001" not in run(log).stdout
    assert "others, of 981 sorts; see --json" in run(log).stdout


def test_no_secret_gets_out() -> None:
    """Whether an error is understood or not."""
    log = f"{TRACEBACK}ERROR it has key {KEY}\nERROR acme.XError: Bearer {'a' * 30}\n"
    for result in (run(log), run(log, "--json")):
        assert "[redacted]" in result.stdout
        assert "abcdefgh" not in result.stdout
        assert "aaaa" not in result.stdout


def test_nothing_acts_on_the_terminal() -> None:
    """What an error says is text, neither markup nor a sequence of control characters."""
    result = run("ERROR acme.XError: [bold]no[/bold] \x07\x1b]0;title\x07\n")
    assert "[bold]no[/bold]" in result.stdout
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout


@pytest.mark.parametrize(
    "log",
    [
        b"",
        bytes(range(256)) * 5000,
        b"\n" * 100,
        b"{" * 100_000 + b"}\n",
        b"[" * 100_000 + b"]\n",
        b"x" * 9_000_000,
        b"Traceback (most recent call last)",
        b"acme.XErro" * 20_000,
    ],
)
def test_rubbish_is_no_error(log: bytes) -> None:
    """Empty, binary, nested, cut off, without line ends: it is read to its end and says so."""
    result = run(log)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "0 errors" in result.stdout


def test_a_long_line_is_cut_and_the_next_one_read() -> None:
    """No line is held whole."""
    found = counted(b"ERROR first " + b"x" * 10_000_000 + b"\n" + LIMIT.encode() + b"\n")
    assert (found["lines"], found["errors"]) == (2, 2)


def test_what_windows_shells_write_is_read() -> None:
    """UTF-16 and a byte order mark."""
    for encoding in ("utf-16", "utf-8-sig"):
        assert kinds(f"{LIMIT}\r\n".encode(encoding)) == {"rate_limit": 1}


@pytest.mark.parametrize("missing", ["nowhere.log", "."])
def test_a_file_that_cannot_be_read_is_named(missing: str, tmp_path: Path) -> None:
    """With exit status 2, before anything is printed."""
    path = str(tmp_path / missing)
    result = CliRunner().invoke(app, ["explain", "--from-log", path])
    assert (result.exit_code, result.stdout) == (2, "")
    assert path in result.stderr
    assert "check the path" in result.stderr


def test_a_file_is_read(tmp_path: Path) -> None:
    """It is named in the first line."""
    path = tmp_path / "app.log"
    path.write_text(TRACEBACK, "utf-8")
    result = CliRunner().invoke(app, ["explain", "--from-log", str(path)])
    assert result.stdout.replace("\n", "").startswith(f"{path}: 13 lines, 1 errors")
    assert "rate_limit          yes" in result.stdout


@pytest.mark.parametrize("other", [["-"], ["--status", "429"], ["--body", "{}"]])
def test_facts_and_a_log_exclude_each_other(other: list[str]) -> None:
    """Either is explained."""
    result = CliRunner().invoke(app, ["explain", "--from-log", "x", *other])
    assert result.exit_code == 2
    assert "--from-log goes with --rules and --json alone" in result.stderr


def test_ctrl_c_shows_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of a `tail -f`: the table so far, and exit status 130."""

    class Endless(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            read = super().readline(size)
            if not read:
                raise KeyboardInterrupt
            return read

    tally = _log.Tally(FallbackConfig())
    tally.read(Endless(f"{TRACEBACK}{LIMIT}\n".encode()))
    assert (tally.interrupted, tally.lines) == (True, 14)
    assert [row.count for row in tally.known()] == [2]  # the last line's, too
    monkeypatch.setattr(_log, "read_log", lambda *_: tally)
    result = CliRunner().invoke(app, ["explain", "--from-log", "x"])
    assert result.exit_code == 130
    assert "rate_limit" in result.stdout
    assert "stopped after 14 lines" in result.stderr


def test_a_log_is_read_line_by_line() -> None:
    """What a line completes is counted before the next one is there."""
    tally = _log.Tally(FallbackConfig())

    class Slow(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            seen.append(sum(row.count for row in tally.rows.values()))
            return super().readline(size)

    seen: list[int] = []
    tally.read(Slow(f"{LIMIT}\n".encode() * 4))
    assert seen == [0, 0, 1, 2, 3]
