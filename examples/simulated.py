"""Two providers on loopback, for the examples: OpenAI's is down, Anthropic's answers."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

ERROR = {"error": {"message": "The engine is overloaded.", "type": "server_error"}}
TEXT = {"type": "text", "text": "Good morning!"}
COMPLETION = {"choices": [{"message": {"role": "assistant", "content": TEXT["text"]}}]}
USAGE = {"input_tokens": 9, "output_tokens": 3}


class SimulatedProviders(ThreadingHTTPServer):
    """Serve both under one address; ``seen`` names the provider and the status of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: SimulatedProviders

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        provider = self.path.split("/")[1]
        status = 200 if provider == "anthropic" else 503
        self.server.seen.append(f"{provider} {status}")
        kind, text = "application/json", json.dumps(ERROR)
        if status == 200 and request.get("stream"):
            kind = "text/event-stream"
            text = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in _events())
        elif status == 200:
            # An agent is told to use its tool, and after that is greeted.
            tools = request.get("tools") if len(request["messages"]) == 1 else None
            message = _message(_call(tools[0]), "tool_use") if tools else _message()
            text = json.dumps(COMPLETION if "completions" in self.path else message)
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _message(block: dict[str, Any] = TEXT, reason: str = "end_turn") -> dict[str, Any]:
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5"}
    return {**start, "content": [block], "stop_reason": reason, "usage": USAGE}


def _call(tool: dict[str, Any]) -> dict[str, Any]:
    fields = dict.fromkeys(tool["input_schema"].get("properties", ()), TEXT["text"])
    return {"type": "tool_use", "id": "toolu_1", "name": tool["name"], "input": fields}


def _events() -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "message": {**_message(), "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {**TEXT, "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {**TEXT, "type": "text_delta"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
        {"type": "message_stop"},
    ]
