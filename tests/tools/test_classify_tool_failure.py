"""What a tool's failure means: every rule of the table, every precedence, every known weakness."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import honcho_fallback.tools
from honcho_fallback.testing import StatusError
from honcho_fallback.tools import (
    ToolBlockedError,
    ToolDeniedError,
    ToolFailure,
    ToolFailureCategory,
    ToolFailureKind,
    classify_tool_failure,
)
from tests.helpers.errors import raised_from
from tests.helpers.scripted import exhausted

PAGE = "https://tickets.example/issues/7"  # of a service that is no model's
TABLE = Path(honcho_fallback.tools.__file__).with_name("tools.toml")
EXAMPLES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("failures.toml").read_text(encoding="utf-8")
)


def kind(error: BaseException | str, **options: Any) -> str:
    return classify_tool_failure(error, **options).kind.value


def misread(expected: dict[str, str]) -> dict[str, str]:
    """Return the texts that do not mean what they should, with what they do."""
    kinds = {text: kind(text) for text in expected}
    return {text: kind for text, kind in kinds.items() if kind != expected[text]}


def test_every_rule() -> None:
    """Each needle decides, in any case; a bare status at the start of a text does too."""
    rows = {text: kind for kind, texts in EXAMPLES["needles"].items() for text in texts}
    assert misread(rows) == {}
    assert misread({text.upper(): kind for text, kind in rows.items()}) == {}
    assert misread({f"Error: {text} (while reading)": kind for text, kind in rows.items()}) == {}


def test_every_group_of_words_is_named_by_a_rule() -> None:
    """A word that no rule asks for would be read for nothing."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    sections = [table[name] for name in table if name != "words"]
    named = {
        group.lstrip("-~")
        for section in sections
        for rules in section.values()
        for rule in rules
        for group in rule.split()
    }
    assert table["words"].keys() == named


def test_texts() -> None:
    """OH-003 to OH-008, OH-011, OH-020 to OH-022, E.1: each means what the table says."""
    denied, blocked = ToolDeniedError.marker, ToolBlockedError.marker
    marked = {
        f"{denied} approval timed out after 600s": "approval_expired",
        f"{denied} the approval expired": "approval_expired",
        f"{denied} by the user": "denied",
        f"{blocked} timed out, 401 unauthorized": "blocked_by_policy",
    }
    assert misread(EXAMPLES["texts"] | marked) == {}


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("E  ConnectionError: connection refused\nExit code: 1", {}, "unknown"),
        ("Exit code 2\nFAILED: timed out after 30 s", {}, "unknown"),
        ("Command 'make' returned non-zero exit status 2: 401 unauthorized", {}, "unknown"),
        ('{"exit_code": 1, "stderr": "[Errno 13] Permission denied"}', {}, "unknown"),
        ("the process exited with status -9, blocked by policy", {}, "unknown"),
        ("error: timed out\n" * 5_000 + "exited with code 1", {}, "unknown"),
        ("401 unauthorized, timed out", {"exit_code": 1}, "unknown"),
        (ToolBlockedError.marker, {"exit_code": 1}, "unknown"),
        (RuntimeError("connection refused"), {"exit_code": 1}, "unknown"),
        # A shell's own code for a missing program; 0 is no failure; a host's stop beats them.
        ("sh: pytest: not found\nExit code: 127", {}, "missing_app"),
        ("401", {"exit_code": 127}, "missing_app"),
        ("partial output", {"exit_code": -9, "timed_out": True}, "timeout"),
        ("connection refused, exit code 0", {}, "service_unavailable"),
        ("connection refused", {"exit_code": 0}, "service_unavailable"),
        ("returned status code 503", {}, "service_unavailable"),
        (f"{ToolDeniedError.marker} exit code 1", {"timed_out": True}, "denied"),
    ],
)
def test_the_output_of_a_command_is_its_own(text: Any, options: Any, expected: str) -> None:
    """OH-020: whatever a command printed before it exited, it failed in a way of its own."""
    assert kind(text, **options) == expected


def http_error(status: int) -> BaseException:
    request = httpx.Request("GET", "http://localhost")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status))


def failed_command(code: str) -> BaseException:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return caught.value


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ToolBlockedError("401, timed out"), "blocked_by_policy"),
        (ToolDeniedError("timed out"), "denied"),
        (ToolDeniedError(expired=True), "approval_expired"),
        (RuntimeError(ToolBlockedError.marker), "blocked_by_policy"),
        (raised_from(RuntimeError("wrapped"), ToolBlockedError()), "blocked_by_policy"),
        (TimeoutError(), "timeout"),
        (httpx.ReadTimeout("slow"), "timeout"),
        (subprocess.TimeoutExpired("cmd", 3), "timeout"),
        (PermissionError(13, "Permission denied"), "missing_permission"),
        (FileNotFoundError(2, "No such file or directory", "data.csv"), "unknown"),
        (failed_command("import sys; sys.exit(127)"), "missing_app"),
        (failed_command("import sys; sys.exit('token expired')"), "unknown"),
        (raised_from(RuntimeError("timed out"), failed_command("raise SystemExit(3)")), "unknown"),
        (ConnectionRefusedError(), "service_unavailable"),
        (httpx.ConnectError("no"), "service_unavailable"),
        (httpx.ConnectError("no", request=httpx.Request("GET", PAGE)), "service_unavailable"),
        (httpx.ReadTimeout("", request=httpx.Request("GET", PAGE)), "timeout"),
        (OSError(28, "No space left on device"), "unknown"),
        (type("OddError", (Exception,), {"__module__": "acme.weather"})("no wind"), "unknown"),
        (StatusError(403), "bad_credentials"),
        (StatusError(429), "service_unavailable"),
        (StatusError(504), "service_unavailable"),
        (http_error(404), "unknown"),
        (http_error(522), "service_unavailable"),
        (raised_from(RuntimeError("the tool gave up"), StatusError(403)), "bad_credentials"),
        (ExceptionGroup("both", [ValueError("x"), StatusError(503)]), "service_unavailable"),
        (RuntimeError("error 403: forbidden path"), "blocked_by_policy"),
        (ValueError("invalid timeout parameter"), "unknown"),
        (
            raised_from(one := RuntimeError("one"), raised_from(RuntimeError("two"), one)),
            "unknown",
        ),
        (exhausted(401, 402), "model_connection"),
    ],
    ids=repr,
)
def test_an_exceptions_facts_come_before_its_text(error: BaseException, expected: str) -> None:
    """OH-013: what an exception is, carries and was raised for decides; its words do last."""
    assert kind(error) == expected


@pytest.mark.parametrize(
    "error", ["401 unauthorized", "", PermissionError(13, "no"), KeyError("x")]
)
def test_the_flag_beats_everything_but_policy(error: BaseException | str) -> None:
    """OH-002: whoever stopped the tool knows; only the host's own policy and user know better."""
    assert kind(error, timed_out=True) == "timeout"
    assert kind(ToolBlockedError.marker, timed_out=True) == "blocked_by_policy"
    assert kind(ToolDeniedError(), timed_out=True) == "denied"


CATEGORIES = {
    "recoverable": "service_unavailable model_connection timeout unknown",
    "needs_user_confirmation": "missing_permission missing_app missing_connection bad_credentials",
    "blocked_by_policy": "blocked_by_policy",
    "user_declined": "denied approval_expired",
}


def test_every_kind_says_all_five() -> None:
    """OH-009, OH-010: kind, category, cause, next action and whether it may pass."""
    rows = {kind: category for category, kinds in CATEGORIES.items() for kind in kinds.split()}
    assert rows.keys() == {kind.value for kind in ToolFailureKind}
    for name, category in rows.items():
        failure = ToolFailure.of(ToolFailureKind(name))
        assert failure.to_dict() == {
            "kind": name,
            "category": category,
            "cause": failure.cause,
            "next_action": failure.next_action,
            "recoverable": category == "recoverable",
        }
        assert failure.category is ToolFailureCategory(category)
        assert failure.cause.endswith(".")
        assert failure.next_action.endswith(".")


class HostileError(Exception):
    """An exception that cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError


@settings(deadline=None)  # speed is not the point
@given(st.text(), st.booleans())
def test_no_text_makes_it_raise_or_is_repeated(text: str, timed_out: bool) -> None:
    """Whatever a tool says, the answer is one of ten, in our own words."""
    secret = "sk-sentinel-7f3a9c2e51"
    for error in (text + secret, RuntimeError(text + secret), HostileError()):
        failure = classify_tool_failure(error, timed_out)
        assert secret not in repr(failure) + str(failure.to_dict())
