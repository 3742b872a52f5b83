"""Scripted providers on loopback: one server plays any number of them under one address.

The first part of a request's path is the provider's name, the rest says in which form it is asked
and hence in which form it answers: ``/primary/chat/completions``, ``/backup/v1/messages``,
``/primary/responses``, ``/primary/embeddings``, streamed or not. A provider of which nothing was
said answers well. Only the standard library is needed; ``benchmarks.providers`` runs it in a
process of its own.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from tests.helpers.wire import MESSAGE, Json, form_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.helpers.strict import Rules

_LOOK_SECONDS = 0.05  # how often a silent connection is looked at, and a drip is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Say what a provider does with one request.

    Args:
        status: HTTP status; from 400 on an error in the provider's form.
        text: What the model says; by default ``hello from`` and the provider's name.
        body: The whole answer, where it is no text: JSON, or a string that is sent as it is.
        events: What is streamed, where that does not follow from the answer.
        headers: Beyond the content type.
        error: The type of the error; under a status below 400 the stream breaks with it after
            its text, in place of its end.
        message: What an error says.
        usage: Whether the answer reports tokens.
        delay: Seconds before it answers.
        hold: It waits for this before it answers.
        drop: The connection drops before any answer.
        cut: The connection drops after the events, or in the middle of a body.
        hang: It says nothing more until the client leaves: after the events, where there are
            any, else from the start.
        drip: What it sends again and again meanwhile, after the events.
        left: What it sets when the client has left.
    """

    status: int = 200
    text: str | None = None
    body: Any = None
    events: Sequence[str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    error: str | None = None
    message: str = MESSAGE
    usage: bool = True
    delay: float = 0.0
    hold: threading.Event | None = None
    drop: bool = False
    cut: bool = False
    hang: bool = False
    drip: str | None = None
    left: threading.Event | None = None


@dataclass(slots=True)
class SeenRequest:
    """Tell one request.

    Args:
        path: Behind the provider's name, with its query.
        body: As JSON.
        headers: With names in lower case.
        at: When it came, in seconds of the monotonic clock, which all processes share.
        answered: When the first byte of the answer went out, or the connection was dropped.
    """

    path: str
    body: Json
    headers: dict[str, str]
    at: float
    answered: float | None = None

    @property
    def key(self) -> str:
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-api-key") or self.headers.get("x-goog-api-key") or bearer

    @property
    def wants_stream(self) -> bool:
        """Tell whether a stream is wanted: the body says so, or Gemini's path."""
        return bool(self.body.get("stream")) or ":stream" in self.path


class Provider:
    """Hold one provider's behaviour and the requests that came.

    Args:
        name: The first part of its path.
        url: The base URL for its clients.
        key: The only API key that it takes, or None for any.
        rules: What it refuses with status 400, or None for nothing.

    Attributes:
        requests: In the order in which they came.
        refused: The reasons for which its rules refused requests.
        standing: What it does when nothing is queued: a reply, or a function of the request.
    """

    def __init__(
        self, name: str, url: str, *, key: str | None = None, rules: Rules | None = None
    ) -> None:
        self.name = name
        self.url = url
        self.key = key
        self.rules = rules
        self.requests: list[SeenRequest] = []
        self.refused: list[str] = []
        self.standing: Reply | Callable[[SeenRequest], Reply] = Reply()
        self._queue: deque[Reply] = deque()

    def reply(self, *replies: Reply) -> None:
        self._queue.extend(replies)

    def fail(self, status: int = 500, *, times: int | None = None, **fields: Any) -> None:
        """Answer with an error: so many times, or from now on.

        Args:
            status: HTTP status.
            times: For how many requests; None for all.
            **fields: Of the reply.
        """
        reply = Reply(status=status, **fields)
        if times is None:
            self.standing = reply
        else:
            self._queue.extend([reply] * times)

    @property
    def bodies(self) -> list[Json]:
        return [request.body for request in self.requests]

    def next_reply(self, request: SeenRequest) -> Reply:
        self.requests.append(request)
        if self.key is not None and request.key != self.key:
            return Reply(status=401)
        faults = [] if self.rules is None else self.rules.faults(request.body)
        if faults:
            self.refused += faults
            return Reply(status=400, message="; ".join(faults))
        if self._queue:
            return self._queue.popleft()
        return self.standing if isinstance(self.standing, Reply) else self.standing(request)


class _Listener(ThreadingHTTPServer):
    request_queue_size = 256  # a hundred callers come at once; who is dropped comes back after 1 s
    daemon_threads = True

    def __init__(self, providers: ProviderServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.providers = providers
        self.open: set[socket.socket] = set()

    def handle_error(self, *_: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body leave in one piece
    disable_nagle_algorithm = True
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        at = time.monotonic()
        name, _, path = self.path.lstrip("/").partition("/")
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
            headers = {header.lower(): value for header, value in self.headers.items()}
            request = SeenRequest(path, body, headers, at)
            provider, reply = self.server.providers.take(name, request)
            self._answer(provider, request, reply)
        except ConnectionError:  # the client left
            self.close_connection = True

    def do_GET(self) -> None:
        self.do_POST()

    def _answer(self, provider: Provider, request: SeenRequest, reply: Reply) -> None:
        if reply.delay:
            time.sleep(reply.delay)
        if reply.hold is not None:
            reply.hold.wait(10)
        form = form_of(request.path.partition("?")[0])
        events = reply.events
        document = reply.body
        if document is None and reply.status >= 400:
            document = form.error(reply.message, reply.error or form.errors.get(reply.status))
        elif document is None:
            text = f"hello from {provider.name}" if reply.text is None else reply.text
            document = form.answer(text, str(request.body.get("model")), reply.usage)
        if reply.status < 400 and events is None and request.wants_stream:
            error = None if reply.error is None else form.error(reply.message, reply.error)
            events = form.events(document, request.body, error)
        if provider.rules is not None and reply.status < 400:
            provider.rules.remember(document)
        request.answered = time.monotonic()
        if reply.drop:
            self.close_connection = True
        elif reply.hang and reply.events is None:
            self._hang(reply, None)
        elif events is not None:
            self._send_events(reply, events)
        else:
            self._send_json(reply, document)

    def _send_json(self, reply: Reply, document: Any) -> None:
        data = (document if isinstance(document, str) else json.dumps(document)).encode()
        own = {"content-type": "application/json", "content-length": str(len(data))}
        self._send_head(reply.status, {**own, **reply.headers})
        self.wfile.write(data[: len(data) // 2] if reply.cut else data)
        self.close_connection = self.close_connection or reply.cut

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if not self.server.providers.keep_alive:
            self.send_header("connection", "close")
        self.end_headers()

    def _send_events(self, reply: Reply, events: Sequence[str]) -> None:
        stream = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        self._send_head(reply.status, {**stream, **reply.headers})
        self.wfile.flush()
        for event in events:
            self._send_event(event)
        if reply.hang:
            self._hang(reply, reply.drip)
        elif reply.cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _send_event(self, event: str) -> None:
        data = f"{event}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _hang(self, reply: Reply, drip: str | None) -> None:
        self.close_connection = True
        self.connection.settimeout(_LOOK_SECONDS)
        while True:
            try:
                self.connection.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                if drip is not None:
                    self._send_event(drip)
            except ConnectionError:
                break
            else:
                break  # the client left
        if reply.left is not None:
            reply.left.set()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class ProviderServer:
    """Serve any number of providers under one address, until it is closed.

    Args:
        keep_alive: Whether a connection serves more than one request. Clients that outlive an
            event loop, as frameworks cache them, must not find an old connection in the next.

    Attributes:
        url: Where it listens; a provider's own URL has its name behind this one.
        order: The names of the providers that were asked, in order.
    """

    def __init__(self, *, keep_alive: bool = True) -> None:
        self.keep_alive = keep_alive
        self.order: list[str] = []
        self._providers: dict[str, Provider] = {}
        self._lock = threading.RLock()  # a standing function may name providers
        self._numbers = count(1)
        self._listener = _Listener(self)
        self.url = f"http://127.0.0.1:{self._listener.server_address[1]}"
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Provider:
        """Return the provider of a name, which exists once it is named."""
        with self._lock:
            if name not in self._providers:
                self._providers[name] = Provider(name, f"{self.url}/{name}")
            return self._providers[name]

    def new(self, name: str, *, key: str | None = None, rules: Rules | None = None) -> Provider:
        """Return a provider whose URL nobody has used: some clients are cached by URL.

        Args:
            name: What its own name begins with.
            key: The only API key that it takes, or None for any.
            rules: What it refuses, or None.
        """
        provider = self[f"{name}-{next(self._numbers)}"]
        provider.key, provider.rules = key, rules
        return provider

    def take(self, name: str, request: SeenRequest) -> tuple[Provider, Reply]:
        provider = self[name]
        with self._lock:
            self.order.append(name)
            return provider, provider.next_reply(request)

    def reset(self) -> None:
        with self._lock:
            self._providers.clear()
            self.order.clear()

    def close(self) -> None:
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        for connection in [*self._listener.open]:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed in the meantime
