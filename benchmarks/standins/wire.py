"""HTTP/1.1, as much of it as an SDK's POST needs, and ways to do it wrong."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_REASONS = {200: "OK", 401: "Unauthorized", 429: "Too Many Requests"}


@dataclass(frozen=True, slots=True)
class Request:
    """Tell one request.

    Args:
        path: With its query.
        body: As it came.
        arrived: Nanoseconds of the monotonic clock, which all processes share.
    """

    path: str
    body: bytes
    arrived: int

    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    """Answer one request, well or badly."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.sent = 0

    def mark(self) -> None:
        """Note the moment before the first byte goes out, so that no gap looks shorter."""
        self.sent = time.monotonic_ns()

    async def json(
        self, status: int, body: Any, headers: dict[str, str] | None = None, *, cut: int = 0
    ) -> None:
        """Send a whole answer, or without its last ``cut`` bytes, and hang up."""
        data = json.dumps(body).encode()
        self.mark()
        self._head(status, {"content-type": "application/json", **(headers or {})}, len(data))
        self._writer.write(data[: len(data) - cut])
        await self._writer.drain()
        if cut:
            self.drop()

    async def begin_events(self) -> None:
        """Begin a stream."""
        self.mark()
        self._head(
            200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}, None
        )
        await self._writer.drain()

    async def event(self, data: str) -> None:
        """Send one event of a stream."""
        line = f"data: {data}\n\n".encode()
        self._writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await self._writer.drain()

    async def end_events(self) -> None:
        """End a stream as it should end."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def drop(self) -> None:
        """Hang up."""
        if not self.sent:
            self.mark()
        self._writer.close()

    async def hang(self, seconds: float) -> None:
        """Say nothing until the client has left, or so long."""
        with suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(self._reader.read(1), seconds)
        self.drop()

    def _head(self, status: int, headers: dict[str, str], length: int | None) -> None:
        told = headers if length is None else {**headers, "content-length": str(length)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        reason = _REASONS.get(status, "Other")
        self._writer.write(f"HTTP/1.1 {status} {reason}\r\n{lines}\r\n".encode())


async def _read(reader: asyncio.StreamReader) -> Request | None:
    first = await reader.readline()
    if not first:
        return None
    arrived = time.monotonic_ns()
    path, length = first.decode().split(" ")[1], 0
    while (line := await reader.readline()) not in {b"\r\n", b""}:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return Request(path, await reader.readexactly(length), arrived)


def _connected(
    handle: Callable[[Request, Reply], Awaitable[None]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (request := await _read(reader)) is not None:
                await handle(request, Reply(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            writer.close()

    return connected


async def _serve(handlers: tuple[Callable[[Request, Reply], Awaitable[None]], ...]) -> None:
    servers = [
        await asyncio.start_server(_connected(handle), "127.0.0.1", 0, backlog=1024)
        for handle in handlers
    ]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)  # ends with the parent
    os._exit(0)


def serve(*handlers: Callable[[Request, Reply], Awaitable[None]]) -> None:
    """Serve each handler on a port of its own, print the ports, and end with the parent."""
    asyncio.run(_serve(handlers))
