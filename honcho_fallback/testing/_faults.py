"""When something healthy fails, and what goes wrong then: of any client that speaks by httpx."""

from __future__ import annotations

import sys
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from honcho_fallback import FallbackConfigError, Runtime

if TYPE_CHECKING:
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


class _Rule(NamedTuple):
    """Hold which requests fail, until when, and how; ``FaultTransport.on`` describes them."""

    numbers: tuple[int, ...]
    until: float
    status: int | None
    retry_after: float | None
    code: str | None
    error: BaseException | Literal["timeout", "connection"] | None


class FaultTransport(_Transport):
    """Fail requests on schedule in the place where an HTTP client sends them.

    It is a transport for the clients of httpx and httpx2, sync and async, and so for every SDK
    that takes one: ``openai.OpenAI(http_client=openai.DefaultHttpxClient(
    transport=FaultTransport().on(1, status=503)))``. The SDK makes its own exception of it.
    Errors have the JSON form of the API that was asked: Anthropic's, Google's, or else OpenAI's.

    Requests are numbered from 1. ``on`` adds a rule and returns the transport itself; the first
    rule that applies wins, and any number of threads and tasks may send.

    Args:
        transport: What sends the requests that do not fail; a real one if left out.

    Attributes:
        requests: How many requests came, those that failed included.
        failed: How many of them failed.
    """

    def __init__(self, transport: Any = None) -> None:
        self._given = transport
        self._opened: dict[Any, Any] = {}
        self._rules: list[_Rule] = []
        self._lock = Lock()
        self.requests = self.failed = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.failed} of {self.requests} requests failed>"

    def on(
        self,
        *numbers: int,
        seconds: float | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        error: BaseException | Literal["timeout", "connection"] | None = None,
    ) -> Self:
        """Fail certain requests, or all, with one of ``status`` and ``error``.

        Args:
            *numbers: Which, from 1; without any, all of them.
            seconds: For how long from now, by the clock of ``Runtime.current()``:
                ``fallback_clock`` moves it, if it was there before this rule; default: for ever.
            status: An HTTP status, 400 to 599.
            retry_after: Seconds for its Retry-After header.
            code: The provider's error code, such as ``"insufficient_quota"``.
            error: ``"timeout"``, ``"connection"``, or an exception to raise as it is.

        Raises:
            FallbackConfigError: A number below 1, or an option out of range.
        """
        if min(numbers, default=1) < 1:
            raise FallbackConfigError.about("numbers", f"got {numbers}", "count requests from 1")
        if (status is None) == (error is None):
            raise FallbackConfigError.about(
                "status", "not one of status and error", "pass status=503 or error='timeout'"
            )
        if status is not None and status not in range(400, 600):
            raise FallbackConfigError.about("status", f"got {status!r}", "pass 400 to 599")
        if isinstance(error, str) and error not in {"timeout", "connection"}:
            raise FallbackConfigError.about(
                "error", f"got {error!r}", "pass 'timeout', 'connection' or an exception"
            )
        until = inf if seconds is None else Runtime.current().monotonic() + seconds
        self._rules.append(_Rule(numbers, until, status, retry_after, code, error))
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
        if fault is not None:
            return _response(fault, request)
        return self._inner("HTTPTransport", request).handle_request(request)

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request of an async client, or raise; called by httpx."""
        fault = self._next()
        if fault is not None:
            return _response(fault, request)
        return await self._inner("AsyncHTTPTransport", request).handle_async_request(request)

    def close(self) -> None:
        """Close the connections of sync clients; called by httpx."""
        for inner in self._inners("close"):
            inner.close()

    async def aclose(self) -> None:
        """Close the connections of async clients; called by httpx."""
        for inner in self._inners("aclose"):
            await inner.aclose()

    def _next(self) -> _Rule | None:
        """Count a request, and return what goes wrong with it, or None."""
        with self._lock:
            self.requests += 1
            for rule in self._rules:
                applies = not rule.numbers or self.requests in rule.numbers
                if applies and Runtime.current().monotonic() < rule.until:
                    self.failed += 1
                    return rule
        return None

    def _inner(self, name: str, request: Any) -> Any:
        """Return what sends a request."""
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


def _response(fault: _Rule, request: Any) -> Any:
    httpx = _httpx_of(request)
    if isinstance(fault.error, BaseException):
        raise fault.error
    if fault.status is None:
        kind = httpx.ReadTimeout if fault.error == "timeout" else httpx.ConnectError
        raise kind(_MESSAGE, request=request)
    headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
    body = _body(fault.status, fault.code, request.url.path)
    return httpx.Response(fault.status, headers=headers, json=body)


def _body(status: int, code: str | None, path: str) -> dict[str, Any]:
    if "/v1/messages" in path:
        kind = code or _ANTHROPIC_TYPES.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": _MESSAGE}}
    if path.endswith((":generateContent", ":streamGenerateContent")):
        name = code or _GOOGLE_STATUSES.get(status, "INTERNAL")
        return {"error": {"code": status, "message": _MESSAGE, "status": name}}
    return {"error": {"message": _MESSAGE, "type": None, "param": None, "code": code}}
