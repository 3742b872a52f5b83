"""Real Routers over scripted providers on loopback."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

HERE = Path(__file__).resolve().parent

# Before the first import of LiteLLM, which would fetch a price list.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
pytest.importorskip("litellm")

# ruff: noqa: E402
import litellm
from litellm import Router
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from honcho_fallback_litellm import FallbackRoutingStrategy, warm_up

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from honcho_fallback import CallContent, CallRecord, CallStart, FallbackConfig, Restore, Switch

# Other people's warnings, which would become errors in the middle of LiteLLM's own error handling.
THEIRS = (
    "ignore::UserWarning:pydantic",
    "ignore::DeprecationWarning:litellm",
    "ignore:Router\\.:DeprecationWarning",
    "ignore::DeprecationWarning:aiohttp",
    # LiteLLM keeps its aiohttp sessions beyond the event loop they belong to.
    "ignore:unclosed:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let LiteLLM and what it stands on warn."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for warning in THEIRS:
                item.add_marker(pytest.mark.filterwarnings(warning))


MESSAGES = [{"role": "user", "content": "hello"}]
GROUP = "deriver"


@dataclass
class Say:
    """Say what a provider answers once.

    Args:
        status: HTTP status.
        body: JSON, or None for a good answer in the form of the endpoint.
        headers: Beyond the content type.
        chunks: For a stream: the events' data, in order.
        cut: Whether the connection drops after the chunks.
        drop: Whether it drops before any answer.
        hold: Waits for this before it answers.
        stall: Waits for this after the chunks, and keeps the connection alive meanwhile,
        drip: with this.
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[str] | None = None
    cut: bool = False
    drop: bool = False
    hold: threading.Event | None = None
    stall: threading.Event | None = None
    drip: str = ": ping"


@dataclass
class Seen:
    """Tell one request that a provider saw."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    at: float


class Listening(ThreadingHTTPServer):
    """Keep room for a hundred callers at once; dropped ones come back after seconds only."""

    request_queue_size = 256


class Providers:
    """Serve any number of providers under one address; the path's first part is the name."""

    def __init__(self) -> None:
        self.Say = Say
        self.said: dict[str, list[Say]] = defaultdict(list)
        self.always: dict[str, Say] = {}
        self.seen: dict[str, list[Seen]] = defaultdict(list)
        self.order: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = Listening(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fail(self, name: str, status: int = 500, *, times: int | None = None, **more: Any) -> None:
        """Answer with an error: so many times, or until further notice."""
        body = more.pop("body", {"error": {"message": "in our own words", "type": "none"}})
        said = Say(status, body, **more)
        if times is None:
            self.always[name] = said
        else:
            self.said[name] += [said] * times

    def say(self, name: str, *said: Say) -> None:
        self.said[name] += said

    def forget(self) -> None:
        """Start over."""
        self.said.clear()
        self.always.clear()
        self.seen.clear()
        self.order.clear()

    def count(self, name: str) -> int:
        return len(self.seen[name])

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        name, _, path = handler.path.lstrip("/").partition("/")
        raw = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        body = json.loads(raw or b"{}")
        headers = {key.lower(): value for key, value in handler.headers.items()}
        self.seen[name].append(Seen(path, body, headers, time.monotonic()))
        self.order.append(name)
        said = self.said[name].pop(0) if self.said[name] else self.always.get(name, Say())
        if said.drop:
            handler.close_connection = True
            return
        if said.hold is not None:
            said.hold.wait(10)
        try:
            self._send(handler, name, path, body, said)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True

    @staticmethod
    def _send_chunk(handler: BaseHTTPRequestHandler, chunk: str) -> None:
        data = f"{chunk}\n\n".encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.wfile.flush()

    def _send(
        self, handler: BaseHTTPRequestHandler, name: str, path: str, asked: Any, said: Say
    ) -> None:
        chunks = said.chunks
        if chunks is None and asked.get("stream") and said.status < 400:
            chunks = good_chunks(name, path, asked)
        handler.send_response(said.status)
        for header, value in said.headers.items():
            handler.send_header(header, value)
        if chunks is not None:
            handler.send_header("content-type", "text/event-stream")
            handler.send_header("transfer-encoding", "chunked")
            handler.end_headers()
            for chunk in chunks:
                self._send_chunk(handler, chunk)
            while said.stall is not None and not said.stall.wait(0.05):
                self._send_chunk(handler, said.drip)
            if said.cut:
                handler.close_connection = True
            else:
                handler.wfile.write(b"0\r\n\r\n")
            return
        body = said.body if said.body is not None else good_answer(name, path, asked)
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def good_answer(name: str, path: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Answer in the form of the endpoint."""
    text = f"hello from {name}"
    if path.endswith("embeddings"):
        vector = {"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}
        usage = {"prompt_tokens": 3, "total_tokens": 3}
        return {"object": "list", "data": [vector], "model": asked["model"], "usage": usage}
    if path.endswith("responses"):
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        return {
            "id": "r1",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": asked["model"],
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 3,
                "output_tokens": 4,
                "total_tokens": 7,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }
    if path.endswith("messages"):
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": asked["model"],
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 4},
        }
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [choice],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }


def chat_chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> str:
    """Write one event of a chat's stream."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return "data: " + json.dumps({**body, "choices": choices, **more})


def chat_chunks(*words: str, usage: bool = False) -> list[str]:
    """Write the events of a chat's stream, role first."""
    chunks = [chat_chunk({"role": "assistant", "content": ""})]
    chunks += [chat_chunk({"content": word}) for word in words]
    chunks.append(chat_chunk({}, "stop"))
    if usage:
        cost = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        chunks.append(chat_chunk(None, usage=cost))
    return [*chunks, "data: [DONE]"]


def good_chunks(name: str, path: str, asked: dict[str, Any]) -> list[str]:
    """Stream in the form of the endpoint."""
    words = ("hello ", "from ", name)
    if path.endswith("messages"):
        return message_events(*words)
    if path.endswith("responses"):
        return response_events(asked["model"], *words)
    usage = bool((asked.get("stream_options") or {}).get("include_usage"))
    return chat_chunks(*words, usage=usage)


def event(kind: str, **more: Any) -> str:
    """Write one named event."""
    return f"event: {kind}\ndata: " + json.dumps({"type": kind, **more})


def message_events(*words: str) -> list[str]:
    """Write the events of Anthropic's stream."""
    usage = {"input_tokens": 3, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    block = {"type": "text", "text": ""}
    return [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block=block),
        *(
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
            for word in words
        ),
        event("content_block_stop", index=0),
        event(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={"output_tokens": 4},
        ),
        event("message_stop"),
    ]


def response_events(model: str, *words: str) -> list[str]:
    """Write the events of the Responses API's stream."""
    whole = good_answer("".join(words).removeprefix("hello from "), "responses", {"model": model})
    item = whole["output"][0]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    number = iter(range(100))

    def write(kind: str, **more: Any) -> str:
        return event(kind, sequence_number=next(number), **more)

    part = {"type": "output_text", "text": "", "annotations": []}
    where = {"item_id": "m1", "output_index": 0, "content_index": 0}
    return [
        write("response.created", response=begun),
        write("response.output_item.added", output_index=0, item={**item, "content": []}),
        write("response.content_part.added", **where, part=part),
        *(write("response.output_text.delta", **where, delta=word, logprobs=[]) for word in words),
        write("response.output_text.done", **where, text="".join(words), logprobs=[]),
        write("response.completed", response=whole),
    ]


class Listener:
    """Note everything that an observer hears."""

    def __init__(self) -> None:
        self.starts: list[CallStart] = []
        self.switches: list[Switch] = []
        self.records: list[CallRecord] = []
        self.restores: list[Restore] = []

    def on_start(self, call: CallStart) -> None:
        self.starts.append(call)

    def on_switch(self, switch: Switch) -> None:
        self.switches.append(switch)

    def on_finish(self, record: CallRecord) -> None:
        self.records.append(record)

    def on_restore(self, restore: Restore) -> None:
        self.restores.append(restore)

    @property
    def record(self) -> CallRecord:
        """Return the record of the one call that there was."""
        (record,) = self.records
        assert len(self.starts) == 1
        return record


class ContentListener(Listener):
    """Hear prompts and answers, too."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[CallContent] = []

    def on_content(self, content: CallContent) -> None:
        self.contents.append(content)


@dataclass
class Bench:
    """Make Routers over the scripted providers."""

    providers: Providers

    def deployment(self, name: str, rank: int | None, **more: Any) -> dict[str, Any]:
        """Describe one provider to a Router."""
        group = more.pop("group", GROUP)
        info = {"id": name, **more.pop("info", {})}
        if rank is not None:
            info["fallback_rank"] = rank
        params = {
            "model": f"openai/{name}-model",
            "api_base": f"{self.providers.url}/{name}",
            "api_key": f"key-of-{name}",
            **more,
        }
        return {"model_name": group, "litellm_params": params, "model_info": info}

    def chain(self, *names: str, **more: Any) -> list[dict[str, Any]]:
        """Describe a group whose first member is the primary."""
        return [self.deployment(name, rank, **more) for rank, name in enumerate(names)]

    def router(self, models: list[dict[str, Any]] | None = None, **options: Any) -> Router:
        """Make a plain Router."""
        return Router(model_list=models or self.chain("primary", "backup"), **options)

    def managed(
        self,
        config: FallbackConfig | None = None,
        *,
        models: list[dict[str, Any]] | None = None,
        respect_cooldown: bool | None = None,
        listener: Listener | None = None,
        **options: Any,
    ) -> tuple[Router, Listener]:
        """Make a Router with a strategy."""
        listener = listener or Listener()
        router = self.router(models, **options)
        FallbackRoutingStrategy(
            config, observers=[listener], respect_cooldown=respect_cooldown
        ).register(router)
        return router, listener


@pytest.fixture(scope="session", autouse=True)
def warmed() -> None:
    """Pay LiteLLM's lazy imports once, before anything is timed out."""
    warm_up()


@pytest.fixture(autouse=True)
def clean_litellm() -> Iterator[None]:
    """Leave LiteLLM's global lists as they were: every Router adds to them."""
    names = [name for name in vars(litellm) if name.endswith("callback") or name == "callbacks"]
    before = {
        name: list(value) for name in names if isinstance(value := getattr(litellm, name), list)
    }
    yield
    for name, value in before.items():
        getattr(litellm, name)[:] = value
    cache = litellm.in_memory_llm_clients_cache
    for client in cache.cache_dict.values():
        close = getattr(client, "close", None)
        if close is not None and not inspect.iscoroutinefunction(close):
            close()
    cache.flush_cache()


@pytest.fixture
def providers() -> Iterator[Providers]:
    """Serve scripted providers."""
    serving = Providers()
    yield serving
    serving.stop()


@pytest.fixture
def bench(providers: Providers) -> Bench:
    """Make Routers over the scripted providers."""
    return Bench(providers)


def run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run in a loop of its own, and close what LiteLLM leaves open in it."""

    async def inside() -> Any:
        try:
            return await coroutine
        finally:
            await close_litellm_async_clients()

    return asyncio.run(inside())


@pytest.fixture
def run() -> Any:
    """Return the function that runs a coroutine."""
    return run_async


ASKS = ("sync", "async", "sync in a loop")


@pytest.fixture(params=ASKS)
def ask(request: pytest.FixtureRequest) -> Any:
    """Ask a Router in each of the ways; ``ask(router, "completion", ...)``."""

    def in_a_way(router: Router, method: str, **options: Any) -> Any:
        if request.param == "sync":
            return getattr(router, method)(**options)

        async def inside() -> Any:
            if request.param == "sync in a loop":
                return getattr(router, method)(**options)
            return await getattr(router, f"a{method}")(**options)

        return run_async(inside())

    return in_a_way


def text_of(answer: Any) -> str:
    """Return what was said, however."""
    if isinstance(answer, dict):
        return "".join(part["text"] for part in answer["content"])
    output = getattr(answer, "output", None)
    if output is not None:
        return "".join(part.text for item in output for part in item.content)
    return answer.choices[0].message.content or ""


@pytest.fixture
def text() -> Any:
    """Return the function that reads the text of any answer."""
    return text_of


@pytest.fixture(scope="session")
def make_providers() -> Any:
    """Return the class, for fixtures that live longer than a test."""
    return Providers


@pytest.fixture(scope="session")
def redis_port() -> Iterator[int]:
    """Serve a real Redis on a free port."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                running.kill()
                pytest.fail("redis-server did not start")
            time.sleep(0.05)
        else:
            break
    yield port
    running.terminate()
    running.wait()


@pytest.fixture
def content_listener() -> ContentListener:
    """Return an observer that hears prompts and answers."""
    return ContentListener()
