"""A provider on real sockets that fails in the way it is told to.

It serves from the event loop that it is started in and takes its time from that loop, so that a
test whose loop has a clock of its own does not wait. The form of answers and errors follows the
path, as in ``tests/helpers/wire.py``; what a fault does holds for each of them.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.helpers.wire import CHAT, form_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.helpers.wire import Form

WORDS = tuple(f"word-{number:02}" for number in range(12))  # each stands in one event only
ANSWER = " ".join(WORDS)


@dataclass(frozen=True, slots=True)
class Fault:
    """Say what a provider does with a request; as it stands, it answers.

    Args:
        times: How many requests meet it, or None for all; the others are answered.
        lasts: Seconds from the provider's start in which requests meet it, or None for ever.
        status: HTTP status; from 400 on the answer is an error.
        code: The error's code.
        headers: Of an error.
        resets: Whether the connection is reset before anything was said.
        silence: Seconds without a word before the connection is closed; 0 for none.
        first_word_after: Seconds between the head of a stream and its first event.
        cut_after: The words after which a stream's connection is closed, or None.
        stall_after: The words after which a stream says nothing for ``stall`` seconds and is
            closed, or None.
        stall: See ``stall_after``, in seconds.
        junk_after: The words after which an event is no JSON, or None.
        done: Whether a stream ends with its last word (``[DONE]``).
        prefill: Whether a request may end with the assistant's own beginning.
    """

    times: int | None = None
    lasts: float | None = None
    status: int = 200
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    resets: bool = False
    silence: float = 0.0
    first_word_after: float = 0.0
    cut_after: int | None = None
    stall_after: int | None = None
    stall: float = 0.0
    junk_after: int | None = None
    done: bool = True
    prefill: bool = True


@dataclass(slots=True)
class Request:
    """Tell one request: when it came, in seconds since the provider's start, and what it met."""

    at: float
    answered: bool


class FaultyProvider:
    """Serve one fault under an address of its own, while the ``async with`` block runs.

    Args:
        fault: What its requests meet.

    Attributes:
        url: For its clients, without a path.
        requests: In the order in which they came.
    """

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.url = ""
        self.requests: list[Request] = []
        self._begun = asyncio.get_running_loop().time()
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def now(self) -> float:
        """Return the seconds since its start."""
        return asyncio.get_running_loop().time() - self._begun

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self.serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the request on a connection, and end it."""
        try:
            # A client that leaves shows as the end of what it sends, or as an error in writing.
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                path, body = await _read(reader)
                await self._answer(form_of(path), body, reader, writer)
        finally:
            writer.close()

    async def _answer(
        self,
        form: Form,
        body: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        fault = self.fault
        now, number = self.now, len(self.requests)
        spent = fault.times is not None and number >= fault.times
        if spent or (fault.lasts is not None and now >= fault.lasts):
            fault = Fault(prefill=fault.prefill)
        refused_prefill = not fault.prefill and _begun_in(body) is not None
        fails = fault.status >= 400 or fault.resets or fault.silence > 0 or refused_prefill
        self.requests.append(Request(now, not fails))
        if fault.resets:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif fault.silence:
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), fault.silence)
        elif fails:
            code = "invalid_prefill" if refused_prefill else fault.code
            status = 400 if refused_prefill else fault.status
            document = form.error("in our own words", form.errors.get(status))
            if form is CHAT:
                document["error"]["code"] = code
            _write(writer, status, document, fault.headers)
        else:
            await self._say(form, fault, body, f"answer-{id(self)}-{number}", writer)
        await writer.drain()

    async def _say(
        self,
        form: Form,
        fault: Fault,
        body: dict[str, Any],
        name: str,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer; each answer has an id of its own, as real ones have."""
        text = ANSWER.removeprefix(_begun_in(body) or "")
        document = {**form.answer(text, str(body.get("model")), True), "id": name}
        if not body.get("stream"):
            await asyncio.sleep(fault.first_word_after)
            data = json.dumps(document)
            keeps = data.index(WORDS[fault.cut_after]) if fault.cut_after else len(data)
            _write(writer, 200, data, {}, keeps)
            return
        head = "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
        writer.write(f"{head}content-type: text/event-stream\r\n\r\n".encode())
        await writer.drain()
        await asyncio.sleep(fault.first_word_after)
        events = [
            event.replace('"chatcmpl-1"', f'"{name}"')
            for event in form.events(document, body, None)
        ]
        before = {word: index for index, event in enumerate(events) for word in _words_in(event)}
        for index, event in enumerate(events):
            if fault.cut_after and index == before[WORDS[fault.cut_after]]:
                return
            if fault.stall_after and index == before[WORDS[fault.stall_after]]:
                await asyncio.sleep(fault.stall)
                return
            if fault.junk_after and index == before[WORDS[fault.junk_after]]:
                _write_event(writer, 'data: {"choices": [{"delta": {"content": ')
            if fault.done or "[DONE]" not in event:
                _write_event(writer, event)
                await writer.drain()
        writer.write(b"0\r\n\r\n")


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    """Read a request: its path, and its body as JSON."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    data = await reader.readexactly(int(fields.get("content-length", 0)))
    return first.split(" ")[1].partition("?")[0], json.loads(data or "{}")


def _begun_in(body: dict[str, Any]) -> str | None:
    """Return the beginning of the answer that a request ends with, or None."""
    last = (body.get("messages") or [{}])[-1]
    return str(last.get("content")) if last.get("role") == "assistant" else None


def _words_in(event: str) -> list[str]:
    return [word for word in WORDS if word in event]


def _write_event(writer: asyncio.StreamWriter, event: str) -> None:
    data = f"{event}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _write(
    writer: asyncio.StreamWriter,
    status: int,
    document: Any,
    headers: Mapping[str, str],
    keeps: int | None = None,
) -> None:
    """Write an answer in whole, or so many bytes of its body."""
    data = (document if isinstance(document, str) else json.dumps(document)).encode()
    own = {"content-type": "application/json", "content-length": str(len(data))}
    fields = {**own, "connection": "close", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {status} .\r\n{head}\r\n".encode() + data[:keeps])
