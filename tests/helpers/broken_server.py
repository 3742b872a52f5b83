"""Servers that break on the way, each in its own: what a client really meets when one is down.

Everything happens on real sockets of this machine. Only what the machine decides, a name's
addresses and the routes, is played by the standard library's two functions that ask for it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import ssl
import struct
import threading
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias
from unittest.mock import patch

import trustme

from tests.helpers.wire import CHAT, GEMINI, MESSAGES, form_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST = "127.0.0.1"
# Of each form: how many events come before the first with content.
_BEFORE_CONTENT = ((CHAT, 1), (MESSAGES, 2), (GEMINI, 0))
OK = b"HTTP/1.1 200 OK\r\n"
NAME = "llm.invalid"
LONG = 30.0  # nobody waits for it: a test that did would be ended before
SHORT = 0.1
Breaks: TypeAlias = "Callable[[Connection], object]"
_numbers = count(1)
_LENGTH = re.compile(rb"(?i)content-length: (\d+)")


class Request(NamedTuple):
    path: str
    document: dict[str, Any]

    @property
    def body(self) -> bytes:
        text = form_of(self.path).answer("hello", str(self.document.get("model")), True)
        return json.dumps(text).encode()

    def events(self, *, content: bool) -> bytes:
        """Return what a stream begins with, its first content included or not."""
        form = form_of(self.path)
        answer = form.answer("hello again", str(self.document.get("model")), True)
        events = form.events(answer, self.document, None)
        before = next(count for known, count in _BEFORE_CONTENT if known is form)
        text = "".join(f"{event}\n\n" for event in events[: before + content])
        return b"%x\r\n%s\r\n" % (len(text), text.encode()) if text else b""


class Connection:
    def __init__(self, sock: socket.socket, server: BrokenServer) -> None:
        self._sock = sock
        self.server = server

    def read(self) -> Request:
        """Read one request to its end, and count it."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.receive()
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        while len(rest) < int(headers.get("content-length", 0)):
            rest += self.receive()
        self.server.requests += 1
        return Request(first.split(" ")[1].partition("?")[0], json.loads(rest or b"{}"))

    def peek(self) -> tuple[str, str]:
        """Return the head and the body of the request that is here, and leave both to be read."""
        while data := self._sock.recv(65536, socket.MSG_PEEK):
            head, end, body = data.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if end and len(body) >= int(length[1] if length else 0):
                return head.decode("latin-1"), body.decode()
            time.sleep(0.001)  # what is looked at stays, and would be looked at again at once
        raise ConnectionAbortedError

    def hand_over(self) -> socket.socket:
        sock, self._sock = self._sock, socket.socket()
        return sock

    def receive(self) -> bytes:
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionAbortedError
        return data

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def reset(self) -> None:
        """Let the client's next look end with ECONNRESET."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def silence(self) -> None:
        """Say nothing until the client has left."""
        while self._sock.recv(65536):
            pass

    def tls(self, certificate: trustme.LeafCert | trustme.CA) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if isinstance(certificate, trustme.CA):  # signed by itself
            with (
                certificate.cert_pem.tempfile() as cert,
                certificate.private_key_pem.tempfile() as key,
            ):
                context.load_cert_chain(cert, key)
        else:
            certificate.configure_cert(context)
        self._sock = context.wrap_socket(self._sock, server_side=True)

    def close(self) -> None:
        self._sock.close()


@dataclass
class BrokenServer:
    """Listen, and break each connection in one way.

    Args:
        breaks: What is done with a connection.
        at: Where it listens; 0 for a port that is free.

    Attributes:
        port: Where it listens.
        requests: How many came; a connection on which none could be read counts, too.
        content_was_read: Set by the test once the first content of a stream has arrived.
    """

    breaks: Breaks
    at: int = 0
    requests: int = 0
    content_was_read: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._socket = socket.create_server((HOST, self.at), backlog=16)
        self.port: int = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._socket.close()
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def stop_listening(self) -> None:
        """Let whoever comes next find a closed port."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        connection = Connection(sock, self)
        before = self.requests
        try:
            self.breaks(connection)
        except (OSError, ValueError):
            pass  # the client left, or spoke another language
        finally:
            # Before the connection ends, so that the client cannot look earlier.
            self.requests += self.requests == before
            connection.close()


@dataclass(frozen=True, slots=True)
class Place:
    """Say where a client is sent.

    Args:
        url: Without a path.
        server: Who counts the requests, or None where no connection is ever made.
        timeout: What the client is given for connecting and for reading, in seconds.
        streamed: Can only a client that streams meet it?
        warm: Does one call succeed on the same client before the one that fails?
    """

    url: str
    server: BrokenServer | None = None
    timeout: float = LONG
    streamed: bool = False
    warm: bool = False

    def heard(self) -> None:
        if self.server is not None:
            self.server.content_was_read.set()


# --- what a server does with a connection


def _silent(connection: Connection) -> None:
    connection.read()
    connection.silence()


def _sends(write: Callable[[Request], bytes], *, reset: bool = True) -> Breaks:
    def serve(connection: Connection) -> None:
        connection.send(write(connection.read()))
        if reset:
            connection.reset()

    return serve


def _half_of_the_body(request: Request) -> bytes:
    body = request.body
    head = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return OK + head + body[: len(body) // 2]


def _stream(request: Request, *, content: bool) -> bytes:
    head = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return OK + head + request.events(content=content)


def _stream_without_content(connection: Connection) -> None:
    connection.send(_stream(connection.read(), content=False))
    connection.silence()


def _half_a_stream(connection: Connection) -> None:
    connection.send(_stream(connection.read(), content=True))
    connection.server.content_was_read.wait(LONG)
    connection.reset()


def _whole(body: bytes, *headers: bytes) -> Callable[[Request], bytes]:
    length = b"content-length: %d" % len(body)
    head = b"\r\n".join((*headers, length, b"connection: close", b"", b""))
    return lambda _: OK + head + body


def _half_a_json(request: Request) -> bytes:
    body = request.body
    return _whole(body[: len(body) // 2], b"content-type: application/json")(request)


def _once(connection: Connection) -> None:
    """Answer the first request of all; the connection ends when the next one has come."""
    body = connection.read().body
    if connection.server.requests > 1:
        return
    head = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    connection.send(OK + head + body)
    connection.read()


def _tls(certificate: Callable[[], trustme.LeafCert | trustme.CA]) -> Breaks:
    return lambda connection: connection.tls(certificate())


def _speak_plainly(connection: Connection) -> None:
    connection.receive()
    connection.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")


def _refuse_tunnel(status: bytes) -> Breaks:
    return _sends(lambda _: b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n", reset=False)


@cache
def authority() -> trustme.CA:
    return trustme.CA()


def _certificate(host: str = HOST, days: float | None = None) -> Callable[[], trustme.LeafCert]:
    """Have one for this host issued, that is over since so many days."""
    if days is None:
        return lambda: authority().issue_cert(host)
    end = datetime.now(UTC) - timedelta(days=days)
    begin = end - timedelta(days=8)
    return lambda: authority().issue_cert(host, not_before=begin, not_after=end)


# --- what the machine decides


def _closed_port() -> int:
    with socket.create_server((HOST, 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def _resolving(look_up: Callable[[int], list[Any]] | socket.gaierror) -> Iterator[Place]:
    """Send a client to a name, for which this function of the port, or error, is the resolver."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if host not in (NAME, NAME.encode()):
            return real(host, port, *args, **kwargs)
        if isinstance(look_up, socket.gaierror):
            raise socket.gaierror(*look_up.args)
        return look_up(int(port))

    with patch.object(socket, "getaddrinfo", getaddrinfo):
        yield Place(f"http://{NAME}:{_closed_port()}")


def _two_addresses(port: int) -> list[Any]:
    stream = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    return [
        (socket.AF_INET6, *stream, ("::1", port, 0, 0)),
        (socket.AF_INET, *stream, (HOST, port)),
    ]


@contextmanager
def _without_route(number: int) -> Iterator[Place]:
    """Send a client where the kernel knows no way to; one that came through would be answered."""
    real = socket.socket.connect
    with BrokenServer(_once) as server:

        def connect(self: socket.socket, address: Any) -> None:
            if address[1] == server.port:
                raise OSError(number, os.strerror(number))
            real(self, address)

        with patch.object(socket.socket, "connect", connect):
            yield Place(f"http://{HOST}:{server.port}")


@contextmanager
def _silent_connect() -> Iterator[Place]:
    """Send a client to a port whose queue is full, where no connection is ever made."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(listening.getsockname())
        yield Place(f"http://{HOST}:{listening.getsockname()[1]}", timeout=SHORT)


@contextmanager
def _through_proxy(breaks: Breaks | None) -> Iterator[Place]:
    """Send a client to a name by way of a proxy; without a function nobody listens there."""
    with ExitStack() as stack:
        server = stack.enter_context(BrokenServer(breaks)) if breaks else None
        proxy = f"http://{HOST}:{server.port if server else _closed_port()}"
        names = ("HTTPS_PROXY", "https_proxy")
        stack.enter_context(patch.dict(os.environ, dict.fromkeys(names, proxy)))
        # A name of its own, as clients are kept by address, with the proxy of their time.
        yield Place(f"https://{next(_numbers)}.{NAME}", server)


def served(
    breaks: Breaks, scheme: str = "http", **fields: Any
) -> Callable[[], AbstractContextManager[Place]]:
    """Serve, for as long as the place is used; fields are those of the place."""

    @contextmanager
    def place() -> Iterator[Place]:
        with BrokenServer(breaks) as server:
            yield Place(f"{scheme}://{HOST}:{server.port}", server, **fields)

    return place


_GZIP = b"content-encoding: gzip"
_JSON = b"content-type: application/json"

# The ways to break, by what a person would call them: first those of a server that has read a
# request, each with what a client of it needs.
AFTER_A_REQUEST: dict[str, tuple[Breaks, dict[str, Any]]] = {
    "closed without an answer": (Connection.read, {}),
    "reset in the status line": (_sends(lambda _: OK[:9]), {}),
    "reset in the headers": (_sends(lambda _: OK + _JSON[:20]), {}),
    "reset in the body": (_sends(_half_of_the_body), {}),
    "reset in a stream, before content": (
        _sends(lambda request: _stream(request, content=False)),
        {"streamed": True},
    ),
    "reset in a stream, after content": (_half_a_stream, {"streamed": True}),
    "no answer": (_silent, {"timeout": SHORT}),
    "no first token": (_stream_without_content, {"timeout": SHORT, "streamed": True}),
    "gzip is broken": (_sends(_whole(b"no gzip", _JSON, _GZIP), reset=False), {}),
    "200 with HTML": (
        _sends(_whole(b"<html><h1>Sign in</h1></html>", b"content-type: text/html"), reset=False),
        {},
    ),
    "200 with nothing": (_sends(_whole(b"", _JSON), reset=False), {}),
    "200 with half a JSON": (_sends(_half_a_json, reset=False), {}),
}
WAYS: dict[str, Callable[[], AbstractContextManager[Place]]] = {
    "port closed": lambda: nullcontext(Place(f"http://{HOST}:{_closed_port()}")),
    "two addresses, both closed": lambda: _resolving(_two_addresses),
    "name unknown": lambda: _resolving(
        socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    ),
    "resolver says try again": lambda: _resolving(
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    ),
    "network unreachable": lambda: _without_route(errno.ENETUNREACH),
    "no route to host": lambda: _without_route(errno.EHOSTUNREACH),
    "connecting is silent": _silent_connect,
    "reset at once": served(Connection.reset),
    **{name: served(breaks, **fields) for name, (breaks, fields) in AFTER_A_REQUEST.items()},
    "kept connection dies": served(_once, warm=True),
    "TLS wanted, plain spoken": served(_speak_plainly, "https"),
    "plain wanted, TLS spoken": served(_tls(_certificate())),
    "certificate expired": served(_tls(_certificate(days=1)), "https"),
    "certificate signed by itself": served(_tls(trustme.CA), "https"),
    "certificate of another host": served(_tls(_certificate("another.invalid")), "https"),
    "proxy down": lambda: _through_proxy(None),
    "proxy says 407": lambda: _through_proxy(_refuse_tunnel(b"407 Proxy Authentication Required")),
    "proxy says 502": lambda: _through_proxy(_refuse_tunnel(b"502 Bad Gateway")),
}


@contextmanager
def trusted() -> Iterator[None]:
    """Let the clients trust our authority, and use no proxy of this machine."""
    unset = [name for name in os.environ if name.lower().endswith("_proxy")]
    files = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    with (
        authority().cert_pem.tempfile() as path,
        patch.dict(os.environ, dict.fromkeys(files, path)),
    ):
        for name in unset:
            del os.environ[name]
        yield
