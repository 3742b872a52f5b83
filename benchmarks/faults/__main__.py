"""Every outage by the model's name, for any client: ``python -m benchmarks.faults``.

One address speaks Chat Completions, Responses, Anthropic's Messages and Gemini; the model that a
request names says what is done with it. ``s04`` is the primary of that scenario, ``s04-fallback``
its fallback; ``reset-in-the-body`` and its like break the connection in that way; any other model
answers. ``GET /models`` lists them, ``GET /requests`` says who was asked when, and
``POST /reset`` forgets that and begins every outage anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from benchmarks.faults import Fault, FaultyProvider
from benchmarks.faults.scenarios import HEALTHY, SCENARIOS
from tests.helpers.broken_server import AFTER_A_REQUEST, BrokenServer, Connection

if TYPE_CHECKING:
    import socket


def model_of(way: str) -> str:
    """Return the name of the model that breaks in a way."""
    return way.lower().replace(" ", "-").replace(",", "")


_PARTS: dict[str, tuple[Fault, str]] = {}
for _one in SCENARIOS:
    _PARTS[_one.name.lower()] = _one.primary, f"{_one.name}: {_one.title}"
    _PARTS[f"{_one.name.lower()}-fallback"] = _one.fallback, f"the fallback of {_one.name}"
_BREAKS = {model_of(way): way for way in AFTER_A_REQUEST}
_IN_A_PATH = re.compile(r"/models/([^/:]+):")  # where Gemini names the model


class FaultServer:
    """Serve while the ``with`` block runs.

    Args:
        port: Where; 0 for one that is free.

    Attributes:
        url: For its clients, without a path.
    """

    def __init__(self, port: int = 0) -> None:
        self._loop = asyncio.new_event_loop()
        self._providers: dict[str, FaultyProvider] = {}
        self._looping = threading.Thread(target=self._loop.run_forever)
        self._looping.start()
        self._server = BrokenServer(self._break, at=port)
        self._server.content_was_read.set()  # nobody here says when it was
        self.url = f"http://127.0.0.1:{self._server.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._server.__exit__()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._looping.join()
        self._loop.close()

    def _break(self, connection: Connection) -> None:
        method, path, model = _look(connection)
        if model in _BREAKS:
            AFTER_A_REQUEST[_BREAKS[model]][0](connection)
        elif method == "POST" and path != "/reset":
            serving = self._serve(model, connection.hand_over())
            asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        else:
            connection.receive()
            connection.send(_answer(self._report(path)))

    def _report(self, path: str) -> Any:
        if path == "/reset":
            self._providers.clear()
        if path.endswith("/models"):
            names = {name: title for name, (_, title) in _PARTS.items()} | _BREAKS
            return {"object": "list", "data": [{"id": one, "title": names[one]} for one in names]}
        return {
            name: [{"at": round(one.at, 3), "answered": one.answered} for one in each.requests]
            for name, each in self._providers.items()
        }

    async def _serve(self, model: str, sock: socket.socket) -> None:
        if model not in self._providers:
            self._providers[model] = FaultyProvider(_PARTS.get(model, (HEALTHY, ""))[0])
        with suppress(asyncio.CancelledError):  # the server ends
            await self._providers[model].serve(*await asyncio.open_connection(sock=sock))

    async def _close(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def _look(connection: Connection) -> tuple[str, str, str]:
    """Return the method, the path and the model of a request, and leave it to be read."""
    head, body = connection.peek()
    method, target = head.split(" ")[:2]
    path, model = target.partition("?")[0], None
    named = _IN_A_PATH.search(path)
    with suppress(ValueError, AttributeError):
        model = named[1] if named else json.loads(body).get("model")
    return method, path, str(model).lower()


def _answer(document: Any) -> bytes:
    data = json.dumps(document, indent=2).encode()
    fields = f"content-type: application/json\r\ncontent-length: {len(data)}\r\nconnection: close"
    return f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + data


def main() -> None:
    """Serve until somebody presses Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--port", type=int, default=8399)
    # A shell that starts it in the background has it ignore the signal that ends it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with FaultServer(parser.parse_args().port) as server, suppress(KeyboardInterrupt):
        print(f"base_url={server.url}/v1 (OpenAI), {server.url} (Anthropic, Gemini)", flush=True)
        print(f"curl {server.url}/models lists what there is; Ctrl-C ends it", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
