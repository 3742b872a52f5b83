"""The README's examples run as they stand, against servers on this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from werkzeug import Response

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer
    from werkzeug import Request

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PYTHON = [code for language, code in BLOCKS if language == "python"]
TEXT = [code for language, code in BLOCKS if language == "text"]


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
    lines = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
    return Response(lines, content_type="text/event-stream")


def local_model(request: Request) -> Response:
    """Call the tool until its result is there, then answer."""
    asked: dict[str, Any] = request.get_json()
    if asked.get("stream"):
        return chat_stream("", "good ", "morning")
    if "tools" in asked and asked["messages"][-1]["role"] != "tool":
        function = {"name": "clock", "arguments": "{}"}
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
    return httpserver


def test_first_example_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the first screen needs nothing but the package and prints what follows it."""
    exec(compile(PYTHON[0], "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 # our own README
    assert without_figures(capsys.readouterr().out) == without_figures(TEXT[0])


def test_every_example_runs(
    providers: HTTPServer,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The examples run in the order in which they are read; the primary sees one request each."""
    names: dict[str, Any] = {"__name__": "readme"}
    for code in PYTHON:
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102 # our own README
    assert names["text"] == "good morning"
    shown = capsys.readouterr().out
    assert "good morning" in shown
    assert "noon" in shown
    assert "openai/gpt-5.5 failed (overloaded Overloaded 503), asking" in shown
    assert TEXT[1].strip() in caplog.messages
    asked = [request.path for request, _ in providers.log]
    # The SDK's call, its stream, a tool loop of two iterations, a resilient call, one that must
    # not degrade and the one after it (which leaves the primary alone), a loop of one's own.
    assert asked.count("/primary/chat/completions") == 6
    assert asked.count("/local/chat/completions") == 6


def test_the_options_table_is_complete() -> None:
    """Every option stands in the table, and nothing else does."""
    from honcho_fallback import FallbackConfig  # noqa: PLC0415 # only this test needs it

    options = {field.alias or name for name, field in FallbackConfig.model_fields.items()}
    section = README.partition("\n## Options\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert {*rows} == options
