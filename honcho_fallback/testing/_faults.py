"""When something healthy fails, and what goes wrong then: of any client that speaks by httpx."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from json import dumps
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

from honcho_fallback import FallbackConfigError, Runtime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import httpx
    import httpx2

    class _Transport(
        httpx.BaseTransport,
        httpx.AsyncBaseTransport,
        httpx2.BaseTransport,
        httpx2.AsyncBaseTransport,
    ):
        def handle_request(self, request: Any) -> Any: ...
        async def handle_async_request(self, request: Any) -> Any: ...
else:
    _Transport = object  # importing the kit imports no HTTP client

_MESSAGE = "a fault of the test"
_EVENT_END = re.compile(rb"\r?\n\r?\n")
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_GOOGLE_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class FaultOptions(TypedDict, total=False):
    """Name what goes wrong with a request; see ``FaultTransport``."""

    status: int | None
    retry_after: float | None
    code: str | None
    error: BaseException | Literal["timeout", "connection"] | None
    after_chunks: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Hold what goes wrong with a request; ``FaultTransport`` describes the fields."""

    status: int | None = None
    retry_after: float | None = None
    code: str | None = None
    error: BaseException | Literal["timeout", "connection"] | None = None
    after_chunks: int = 0

    def __post_init__(self) -> None:
        status, error = self.status, self.error
        if (status is None) == (error is None):
            raise FallbackConfigError.about(
                "status", "not one of status and error", "pass status=503 or error='timeout'"
            )
        if status is not None and not 400 <= status <= 599:
            raise FallbackConfigError.about("status", f"got {status}", "pass 400 to 599")
        if isinstance(error, str) and error not in {"timeout", "connection"}:
            raise FallbackConfigError.about(
                "error", f"got {error!r}", "pass 'timeout', 'connection' or an exception"
            )


class FaultTransport(_Transport):
    """Fail requests on schedule in the place where an HTTP client sends them.

    It is a transport for the clients of httpx and httpx2, sync and async, and so for every SDK
    that takes one: ``openai.OpenAI(http_client=openai.DefaultHttpxClient(
    transport=FaultTransport().on(1, status=503)))``. The SDK makes its own exception of it.
    Errors have the JSON form of the API that was asked: Anthropic's, Google's, or else OpenAI's.

    Requests are numbered from 1. ``on`` adds a rule and returns the transport itself; the first
    rule that applies wins, and any number of threads and tasks may send. Each rule takes what goes
    wrong, one of ``status`` and ``error``:

    - ``status``: an HTTP status, 400 to 599; ``retry_after``: seconds for its Retry-After header;
      ``code``: the provider's error code, such as ``"insufficient_quota"``.
    - ``error``: ``"timeout"``, ``"connection"``, or an exception to raise as it is.
    - ``after_chunks``: break a stream off after so many server-sent events instead of failing at
      once; by itself it means a lost connection, and a ``status`` comes as an error event. A
      short stream breaks off before its last event; an answer that is no event stream fails as a
      whole.

    Args:
        transport: What sends the requests that do not fail; a real one if left out.

    Attributes:
        requests: How many requests came, those that failed included.
        failed: How many of them failed.
    """

    def __init__(self, transport: Any = None) -> None:
        self._given = transport
        self._opened: dict[Any, Any] = {}
        self._rules: list[tuple[tuple[int, ...], float, Fault]] = []
        self._lock = Lock()
        self.requests = self.failed = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.failed} of {self.requests} requests failed>"

    def on(
        self, *numbers: int, seconds: float | None = None, **fault: Unpack[FaultOptions]
    ) -> Self:
        """Fail certain requests, or all.

        Args:
            *numbers: Which, from 1; without any, all of them.
            seconds: For how long from now, by the clock of ``Runtime.current()``:
                ``fallback_clock`` moves it, if it was there before this rule; default: for ever.
            **fault: What goes wrong: see the class.

        Raises:
            FallbackConfigError: A number below 1, or an option out of range.
        """
        if min(numbers, default=1) < 1:
            raise FallbackConfigError.about("numbers", f"got {numbers}", "count requests from 1")
        if fault.get("after_chunks") and fault.get("status") is None:
            fault = {"error": "connection", **fault}
        until = inf if seconds is None else Runtime.current().monotonic() + seconds
        self._rules.append((numbers, until, Fault(**fault)))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def handle_request(self, request: Any) -> Any:
        """Answer a request of a sync client, or raise; called by httpx."""
        fault = self._next()
        if fault is not None and not fault.after_chunks:
            return _response(fault, request)
        response = self._inner("HTTPTransport", request, fault).handle_request(request)
        if fault is None or _breaks_off(response, fault, request):
            return response
        response.close()
        return _response(fault, request)

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request of an async client, or raise; called by httpx."""
        fault = self._next()
        if fault is not None and not fault.after_chunks:
            return _response(fault, request)
        inner = self._inner("AsyncHTTPTransport", request, fault)
        response = await inner.handle_async_request(request)
        if fault is None or _breaks_off(response, fault, request):
            return response
        await response.aclose()
        return _response(fault, request)

    def close(self) -> None:
        """Close the connections of sync clients; called by httpx."""
        for inner in self._inners("close"):
            inner.close()

    async def aclose(self) -> None:
        """Close the connections of async clients; called by httpx."""
        for inner in self._inners("aclose"):
            await inner.aclose()

    def _next(self) -> Fault | None:
        """Count a request, and return what goes wrong with it, or None."""
        with self._lock:
            self.requests += 1
            for numbers, until, fault in self._rules:
                applies = not numbers or self.requests in numbers
                if applies and Runtime.current().monotonic() < until:
                    self.failed += 1
                    return fault
        return None

    def _inner(self, name: str, request: Any, fault: Fault | None) -> Any:
        """Return what sends a request."""
        if fault is not None:
            request.headers["accept-encoding"] = "identity"  # events are counted in plain text
        if self._given is not None:
            return self._given
        kind = getattr(_httpx_of(request), name)
        with self._lock:
            if kind not in self._opened:
                self._opened[kind] = kind()
            return self._opened[kind]

    def _inners(self, verb: str) -> list[Any]:
        with self._lock:
            inners = [self._given, *self._opened.values()]
        return [inner for inner in inners if hasattr(inner, verb)]


def _httpx_of(request: Any) -> Any:
    """Return the module that a request is of: SDKs use httpx or its successor httpx2."""
    return sys.modules[type(request).__module__.partition(".")[0]]


def _response(fault: Fault, request: Any) -> Any:
    httpx = _httpx_of(request)
    if fault.status is None:
        raise _transport_error(fault, request, httpx.ConnectError)
    headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
    return httpx.Response(fault.status, headers=headers, json=_body(fault, request))


def _transport_error(fault: Fault, request: Any, connection: Any) -> BaseException:
    if isinstance(fault.error, BaseException):
        return fault.error
    kind = _httpx_of(request).ReadTimeout if fault.error == "timeout" else connection
    error: BaseException = kind(_MESSAGE, request=request)
    return error


def _body(fault: Fault, request: Any) -> dict[str, Any]:
    path, status = request.url.path, fault.status or 0
    if "/v1/messages" in path:
        kind = fault.code or _ANTHROPIC_TYPES.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": _MESSAGE}}
    if path.endswith((":generateContent", ":streamGenerateContent")):
        name = fault.code or _GOOGLE_STATUSES.get(status, "INTERNAL")
        return {"error": {"code": status, "message": _MESSAGE, "status": name}}
    return {"error": {"message": _MESSAGE, "type": None, "param": None, "code": fault.code}}


class _Events:
    """Take so many server-sent events off a stream of bytes, and never its last."""

    def __init__(self, number: int) -> None:
        self.left = number
        self._last: list[bytes] = []
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        *events, self._rest = _EVENT_END.split(self._rest + data)
        events = [*self._last, *events]
        self._last = events[-1:]  # SDKs stop reading there, and would miss what is to go wrong
        taken = events[:-1][: self.left]
        self.left -= len(taken)
        return b"".join(event + b"\n\n" for event in taken)


@cache  # one class per httpx, whose clients take streams of their own classes only
def _broken_stream(httpx: Any) -> Any:
    class BrokenStream(httpx.SyncByteStream, httpx.AsyncByteStream):  # type: ignore[misc] # of either httpx
        def __init__(self, stream: Any, fault: Fault, request: Any) -> None:
            self._stream, self._fault, self._request = stream, fault, request

        def __iter__(self) -> Iterator[bytes]:
            events = _Events(self._fault.after_chunks)
            for data in self._stream:
                yield events.take(data)
                if events.left <= 0:
                    break
            yield _stream_end(self._fault, self._request)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            events = _Events(self._fault.after_chunks)
            async for data in self._stream:
                yield events.take(data)
                if events.left <= 0:
                    break
            yield _stream_end(self._fault, self._request)

        def close(self) -> None:
            self._stream.close()

        async def aclose(self) -> None:
            await self._stream.aclose()

    return BrokenStream


def _breaks_off(response: Any, fault: Fault, request: Any) -> bool:
    """Let a response break off, if it is a stream of events."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        return False
    response.stream = _broken_stream(_httpx_of(request))(response.stream, fault, request)
    return True


def _stream_end(fault: Fault, request: Any) -> bytes:
    if fault.status is None:
        raise _transport_error(fault, request, _httpx_of(request).ReadError)
    body = _body(fault, request)
    name = "event: error\n" if "type" in body else ""  # Anthropic names its events
    return f"{name}data: {dumps(body)}\n\n".encode()
