"""The least of a client: one connection a request, so that 200 at a time cost next to nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

_DONE, _LAST = b"data: [DONE]\n", b"0\r\n"
_HOST = "127.0.0.1"


class StatusError(Exception):
    """Say that a provider answered with an error, as an SDK's exception does."""

    def __init__(self, status: int, headers: dict[str, str], body: Any) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code, self.headers, self.body = status, headers, body


def ask(port: int, body: dict[str, Any], timeout: float | None) -> Any:
    """Post in this thread, and return the answer."""
    with closing(_sent(port, body, timeout)) as reader:
        length = _length(_checked(_head(reader), reader))
        return _whole(reader.read(length), length)


def ask_stream(
    port: int, body: dict[str, Any], timeout: float | None
) -> Generator[Any, None, None]:
    """Post in this thread, and hand out the events."""
    with closing(_sent(port, body, timeout)) as reader:
        _checked(_head(reader), reader)
        while (line := reader.readline()) not in {_DONE, _LAST}:
            if (event := _event(line)) is not None:
                yield event


async def aask(port: int, body: dict[str, Any]) -> Any:
    """Post in this task, and return the answer."""
    reader, writer = await _asent(port, body)
    try:
        status, headers = await _ahead(reader)
        length = _length(headers)
        return _good(status, headers, await _awhole(reader, length))
    finally:
        writer.close()


async def aask_stream(port: int, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
    """Post in this task, and hand out the events."""
    reader, writer = await _asent(port, body)
    try:
        status, headers = await _ahead(reader)
        if status != 200:
            length = _length(headers)
            _good(status, headers, await _awhole(reader, length))
        while (line := await reader.readline()) not in {_DONE, _LAST}:
            if (event := _event(line)) is not None:
                yield event
    finally:
        writer.close()


def _request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (
        len(data),
        data,
    )


def _sent(port: int, body: dict[str, Any], timeout: float | None) -> Any:
    connection = socket.create_connection((_HOST, port), timeout)
    with connection:  # the reader holds the socket open
        reader = connection.makefile("rb")
        try:
            connection.sendall(_request(body))
        except BaseException:
            reader.close()
            raise
        return reader


async def _asent(
    port: int, body: dict[str, Any]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(_HOST, port)
    writer.write(_request(body))
    return reader, writer


def _head(reader: Any) -> tuple[int, dict[str, str]]:
    lines: list[bytes] = []
    while (line := reader.readline()) not in {b"", b"\r\n"}:
        lines.append(line)
    return _parsed(lines)


async def _ahead(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines: list[bytes] = []
    while (line := await reader.readline()) not in {b"", b"\r\n"}:
        lines.append(line)
    return _parsed(lines)


def _parsed(lines: list[bytes]) -> tuple[int, dict[str, str]]:
    if not lines:
        raise ConnectionResetError("the provider hung up without an answer")
    told = [line.decode().strip().partition(": ") for line in lines[1:]]
    return int(lines[0].split(b" ")[1]), {name: value for name, _, value in told}


def _checked(head: tuple[int, dict[str, str]], reader: Any) -> dict[str, str]:
    status, headers = head
    if status != 200:
        length = _length(headers)
        _good(status, headers, _whole(reader.read(length), length))
    return headers


def _length(headers: dict[str, str]) -> int:
    return int(headers.get("content-length", 0))


def _good(status: int, headers: dict[str, str], body: Any) -> Any:
    if status != 200:
        raise StatusError(status, headers, body)
    return body


def _whole(data: bytes, length: int) -> Any:
    if len(data) < length:
        raise ConnectionResetError("the provider hung up in the middle of its answer")
    return json.loads(data)


async def _awhole(reader: asyncio.StreamReader, length: int) -> Any:
    try:
        return json.loads(await reader.readexactly(length))
    except asyncio.IncompleteReadError as cut:
        return _whole(cut.partial, length)


def _event(line: bytes) -> Any:
    if not line:
        raise ConnectionResetError("the provider hung up in the middle of its stream")
    return json.loads(line[6:]) if line.startswith(b"data: ") else None
