"""A fault on the wire, and as the exception that a provider's own SDK makes of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing._need import need
from honcho_fallback.testing._status_error import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

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
# The SDKs that Stainless generates; they differ in names and in what errors look like in JSON.
_CLIENTS = {"anthropic": "Anthropic", "groq": "Groq", "openai": "OpenAI"}


class FaultOptions(TypedDict, total=False):
    """Name what may go wrong; one of ``status`` and ``error`` is needed.

    Args:
        status: HTTP status, 400 to 599.
        retry_after: Seconds for the Retry-After header.
        code: The provider's error code, such as ``insufficient_quota``.
        error: ``"timeout"``, ``"connection"``, or an exception to raise as it is.
        after_chunks: Break a stream off after so many chunks; chat models only.
    """

    status: int | None
    retry_after: float | None
    code: str | None
    error: BaseException | Literal["timeout", "connection"] | None
    after_chunks: int


class Fault(NamedTuple):
    """Tell what goes wrong with one request; the fields are those of FaultOptions."""

    status: int | None = None
    retry_after: float | None = None
    code: str | None = None
    error: BaseException | str | None = None
    after_chunks: int = 0

    @classmethod
    def of(cls, options: FaultOptions) -> Fault:
        """Check what may go wrong."""
        fault = cls(**options)
        status, error = fault.status, fault.error
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
        return fault

    def respond(self, provider: str, transport: Any, request: Any) -> Any:
        """Return the HTTP response of a provider that fails so, or raise."""
        if self.error == "timeout":
            raise transport.ReadTimeout(_MESSAGE, request=request)
        if self.error == "connection":
            raise transport.ConnectError(_MESSAGE, request=request)
        if isinstance(self.error, BaseException):
            raise self.error
        return transport.Response(
            self.status, headers=self._headers(), json=self._body(provider), request=request
        )

    def exception(self, provider: str | None) -> BaseException:
        """Return what a provider's own SDK raises, where there is one and it is installed."""
        if isinstance(self.error, BaseException):
            return self.error
        if provider in _CLIENTS:
            return self._from_sdk(provider)
        if self.status is not None:
            return StatusError(self.status, retry_after=self.retry_after, code=self.code)
        return TimeoutError(_MESSAGE) if self.error == "timeout" else ConnectionError(_MESSAGE)

    def _from_sdk(self, provider: str) -> BaseException:
        # Over a transport that fails so, the SDK makes its own error: class, headers, body.
        sdk = need(provider, "providers")
        transport = transport_of(sdk.DefaultHttpxClient)
        answer: Callable[[Any], Any] = lambda request: self.respond(provider, transport, request)  # noqa: E731 # one line
        with transport.Client(transport=transport.MockTransport(answer)) as http_client:
            client = getattr(sdk, _CLIENTS[provider])(
                api_key="none", max_retries=0, http_client=http_client
            )
            try:
                client.get("/", cast_to=object)
            except sdk.APIError as error:
                made: BaseException = error.with_traceback(None)
                return made
        raise AssertionError(f"{provider} took a fault for an answer")  # pragma: no cover

    def _headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"retry-after": f"{self.retry_after:g}"}

    def _body(self, provider: str) -> dict[str, Any]:
        if provider == "anthropic":
            kind = self.code or _ANTHROPIC_TYPES.get(self.status or 0, "api_error")
            return {"type": "error", "error": {"type": kind, "message": _MESSAGE}}
        return {"error": {"message": _MESSAGE, "type": None, "param": None, "code": self.code}}


def transport_of(kind: type[Any]) -> Any:
    """Return the module that an HTTP client comes from: the SDKs use two lineages of httpx."""
    roots = [base.__module__.partition(".")[0] for base in kind.__mro__]
    return sys.modules[next(root for root in roots if root in {"httpx", "httpx2"})]


def provider_of(kind: type[Any]) -> str | None:
    """Return whose SDK a client or a LangChain chat model stands on, or None."""
    for base in kind.__mro__:
        name = base.__module__.partition(".")[0].removeprefix("langchain_")
        if name in _CLIENTS:
            return name
    return None
