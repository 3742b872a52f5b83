"""The README's examples run as they stand, against servers on this machine."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from werkzeug import Response

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer
    from werkzeug import Request

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, wanted: str) -> list[str]:
    """Return the blocks of code in one language."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for language, code in found if language == wanted]


def section(title: str) -> str:
    """Return one section of the README."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


LANGCHAIN = section("LangChain")  # starts afresh; the other sections build on each other
TESTING = section("Testing your own code")  # a test file
CORE = README.replace(LANGCHAIN, "").replace(TESTING, "")
PYTHON, TEXT = blocks(CORE, "python"), blocks(CORE, "text")


def without_figures(text: str) -> str:
    """Leave out what differs from run to run: the call's id and the milliseconds."""
    return re.sub(r"Call \S+|\d+ ms", "…", text).strip()


def chat(message: dict[str, Any]) -> Response:
    """Answer as a server that speaks OpenAI's protocol."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return Response(json.dumps({**body, "choices": [choice]}), content_type="application/json")


def chat_stream(*words: str) -> Response:
    """Answer as `chat` does, in chunks."""
    body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = [
        json.dumps({**body, "choices": [{"index": 0, "delta": {"content": word}}]})
        for word in words
    ]
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events.append(json.dumps({**body, "choices": [last]}))
    lines = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
    return Response(lines, content_type="text/event-stream")


def local_model(request: Request) -> Response:
    """Call the tool until its result is there, then answer; never give up on the mail."""
    asked: dict[str, Any] = request.get_json()
    if asked.get("stream"):
        return chat_stream("", "good ", "morning")
    name = asked["tools"][0]["function"]["name"] if "tools" in asked else None
    if name == "read_mail" or (name and asked["messages"][-1]["role"] != "tool"):
        function = {"name": name, "arguments": "{}"}
        return chat({"tool_calls": [{"id": "t1", "type": "function", "function": function}]})
    return chat({"content": "noon"})


@pytest.fixture
def providers(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> HTTPServer:
    """Put a dead primary and two live fallbacks where the SDKs look for theirs."""
    httpserver.expect_request("/primary/chat/completions").respond_with_json(
        {"error": {"message": "overloaded"}}, status=503
    )
    httpserver.expect_request("/anthropic/v1/messages").respond_with_json(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5",
            "content": [{"type": "text", "text": "good morning"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    )
    httpserver.expect_request("/local/chat/completions").respond_with_handler(local_model)
    for name, value in {
        "OPENAI_BASE_URL": httpserver.url_for("/primary"),
        "OPENAI_API_KEY": "not-a-key",
        "ANTHROPIC_BASE_URL": httpserver.url_for("/anthropic"),
        "ANTHROPIC_API_KEY": "not-a-key",
        "LOCAL_URL": httpserver.url_for("/local"),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    return httpserver


def test_first_example_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the first screen needs nothing but the package and prints what follows it."""
    exec(compile(PYTHON[0], "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 # our own README
    assert without_figures(capsys.readouterr().out) == without_figures(TEXT[0])


# Other people's warnings, which would become errors in the middle of LiteLLM's error handling.
@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_example_runs(
    providers: HTTPServer,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The examples run in the order in which they are read; the primary sees one request each."""
    monkeypatch.chdir(tmp_path)  # for what they write
    names: dict[str, Any] = {"__name__": "readme"}
    for code in PYTHON:
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102 # our own README
    assert names["text"] == "good morning"
    shown = capsys.readouterr().out
    assert "good morning" in shown
    assert "noon" in shown
    assert "good morning\nbackup\n" in shown
    assert "primary failed (overloaded ServiceUnavailableError 503), asking backup" in shown
    assert "openai/gpt-5.5 failed (overloaded Overloaded 503), asking" in shown
    assert names["slowest"].call_id in (tmp_path / "records.jsonl").read_text("utf-8")
    logged = {message.partition(" call_id=")[0] for message in caplog.messages}
    assert TEXT[1].partition(" call_id=")[0].strip() in logged
    asked = [request.path for request, _ in providers.log]
    # The SDK's call, its stream, a tool loop of two iterations, a resilient call, one that must
    # not degrade and the one after it (which leaves the primary alone), a loop of one's own;
    # LiteLLM's; then the deriver's two iterations, each of which starts on the primary.
    assert asked.count("/primary/chat/completions") == 6 + 1 + 2
    assert asked.count("/local/chat/completions") == 6 + 2
    assert "noon lmstudio/qwen3-4b" in shown
    assert "bad_credentials False Log in" in shown
    assert "\nI stopped: read_mail failed 3 times" in shown


def test_the_langchain_examples_run(
    providers: HTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """LangChain's section runs from top to bottom; a dead primary sees one request per call."""
    first, *others = blocks(LANGCHAIN, "python")
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(first, "README.md", "exec"), names)  # noqa: S102 # our own README
    assert capsys.readouterr().out == blocks(LANGCHAIN, "text")[0]
    for code in others:
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102 # our own README
    *shown, stopped = capsys.readouterr().out.splitlines()
    assert shown == ["good morning", "noon", "bad_credentials"]
    assert stopped.startswith("I stopped: read_mail failed 3 times in the same way.")
    assert names["asked"].tool_calls
    assert names["told"].content == "noon"
    asked = [request.path for request, _ in providers.log]
    # Two calls, a whole chain, and one each for the agent's turn and the block's.
    assert asked.count("/primary/chat/completions") == 5


def test_the_test_file_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The section on testing is a whole test file."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    code, _ = blocks(TESTING, "python")
    pytester.makepyfile(code)
    command = [sys.executable, "-m", "pytest", "-p", "honcho_fallback", "-p", "no:cacheprovider"]
    pytester.run(*command).assert_outcomes(passed=2)


def test_the_simulator_example_prints_what_the_readme_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The servers of the test kit stand in for real ones without pytest."""
    _, code = blocks(TESTING, "python")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 # our own README
    assert capsys.readouterr().out == blocks(TESTING, "text")[0]


def test_the_extras_table_is_complete() -> None:
    """Every extra stands in the table, and nothing else does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = section("Two commands").partition("| extra |")[2]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE)))
    assert {*named} == {*project["optional-dependencies"]}


def test_the_commands_table_is_complete() -> None:
    """Every command stands in the table, and nothing else does."""
    from honcho_fallback.cli._app import app  # noqa: PLC0415 # only this test needs it

    rows = re.findall(r"^\| (`.*?) \|", section("The command line"), re.MULTILINE)
    named = re.findall(r"`([\w-]+)`", "".join(rows))
    assert {*named} == {*typer.main.get_group(app).commands}


def test_links_lead_somewhere() -> None:
    """A heading that was renamed, or a file that was moved, would leave a dead link."""
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
        headings = re.findall(r"^##+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
            found = link[1:] in anchors if link.startswith("#") else (ROOT / link).exists()
            assert found, f"{page}: {link}"


def test_the_options_table_is_complete() -> None:
    """Every option stands in the table, and nothing else does."""
    from honcho_fallback import FallbackConfig  # noqa: PLC0415 # only this test needs it

    options = {field.alias or name for name, field in FallbackConfig.model_fields.items()}
    rows = re.findall(r"^\| `(\w+)` \|", section("Options"), re.MULTILINE)
    assert {*rows} == options
