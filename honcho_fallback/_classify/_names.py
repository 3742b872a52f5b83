"""Class names that decide: a table, because importing the SDKs to ask them is not an option."""

from __future__ import annotations

from typing import NamedTuple

from honcho_fallback._failure import FailureKind as Kind


class NameRow(NamedTuple):
    """Say what a class of this name means, in whatever module it lives.

    Args:
        name: The class name, looked up over the whole MRO.
        kind: What it means.
        reason: One line for ``Failure.reason``.
        homes: Where the name comes from, as ``module``; a test looks that it still exists.
        strong: Does the name decide before the status does?
        wraps: Does the class hide another exception that may say more?
        transient: Overrides the kind's answer.
        opaque: Does whatever is inside decide, because the class itself says nothing?
    """

    name: str
    kind: Kind
    reason: str
    homes: tuple[str, ...] = ()
    strong: bool = False
    wraps: bool = False
    transient: bool | None = None
    opaque: bool = False


_OA = ("openai", "anthropic")
_HX = ("httpx", "httpx2")
_TIMEOUT = "a timeout class"
_LOST = "a connection class"
_BAD_REQUEST = "the client library refused the request before sending it"
_UNREADABLE = "the answer could not be decoded"

_ROWS = (
    # Statuses by name, for SDKs and wrappers that keep no number.
    NameRow("RateLimitError", Kind.RATE_LIMIT, "class RateLimitError", _OA),
    NameRow("ResourceExhausted", Kind.RATE_LIMIT, "class ResourceExhausted"),
    NameRow("ThrottlingException", Kind.RATE_LIMIT, "class ThrottlingException"),
    NameRow("TooManyRequests", Kind.RATE_LIMIT, "class TooManyRequests"),
    NameRow("OverloadedError", Kind.OVERLOADED, "class OverloadedError", ("anthropic",)),
    NameRow(
        "ServiceUnavailableError",
        Kind.OVERLOADED,
        "class ServiceUnavailableError",
        ("anthropic", "litellm"),
    ),
    NameRow("ServiceUnavailable", Kind.OVERLOADED, "class ServiceUnavailable"),
    NameRow("InternalServerError", Kind.SERVER_ERROR, "class InternalServerError", _OA),
    NameRow("APIStatusError", Kind.SERVER_ERROR, "an SDK's status class without a status", _OA),
    NameRow("APIError", Kind.SERVER_ERROR, "an SDK's error class that says no more", _OA),
    NameRow("ServerError", Kind.SERVER_ERROR, "class ServerError", ("google.genai.errors",)),
    NameRow("BadGatewayError", Kind.SERVER_ERROR, "class BadGatewayError", ("litellm",)),
    NameRow(
        "EventStreamError", Kind.SERVER_ERROR, "a stream's error event", ("botocore.exceptions",)
    ),
    NameRow("AuthenticationError", Kind.AUTHENTICATION, "class AuthenticationError", _OA),
    NameRow(
        "NoCredentialsError",
        Kind.AUTHENTICATION,
        "no credentials were found",
        ("botocore.exceptions",),
    ),
    NameRow(
        "PartialCredentialsError",
        Kind.AUTHENTICATION,
        "the credentials are incomplete",
        ("botocore.exceptions",),
    ),
    NameRow(
        "CredentialRetrievalError",
        Kind.AUTHENTICATION,
        "no credentials were obtained",
        ("botocore.exceptions",),
    ),
    NameRow(
        "TokenRetrievalError",
        Kind.AUTHENTICATION,
        "no credentials were obtained",
        ("botocore.exceptions",),
    ),
    NameRow(
        "DefaultCredentialsError",
        Kind.AUTHENTICATION,
        "no credentials were found",
        ("google.auth.exceptions",),
    ),
    NameRow(
        "RefreshError",
        Kind.AUTHENTICATION,
        "the credentials could not be refreshed",
        ("google.auth.exceptions",),
    ),
    NameRow("PermissionDeniedError", Kind.PERMISSION, "class PermissionDeniedError", _OA),
    NameRow("NotFoundError", Kind.MODEL_UNAVAILABLE, "class NotFoundError", _OA),
    NameRow("BadRequestError", Kind.INVALID_REQUEST, "class BadRequestError", _OA),
    NameRow(
        "UnprocessableEntityError", Kind.INVALID_REQUEST, "class UnprocessableEntityError", _OA
    ),
    NameRow(
        "RequestTooLargeError",
        Kind.PAYLOAD_TOO_LARGE,
        "class RequestTooLargeError",
        ("anthropic",),
    ),
    # Names that say more than the status they carry.
    NameRow(
        "ContextWindowExceededError",
        Kind.CONTEXT_OVERFLOW,
        "class name",
        ("litellm",),
        strong=True,
    ),
    NameRow(
        "ContextOverflowError",
        Kind.CONTEXT_OVERFLOW,
        "class name",
        ("langchain_core.exceptions",),
        strong=True,
    ),
    NameRow(
        "ContentPolicyViolationError", Kind.CONTENT_POLICY, "class name", ("litellm",), strong=True
    ),
    NameRow(
        "ContentFilterFinishReasonError",
        Kind.CONTENT_POLICY,
        "class name",
        ("openai",),
        strong=True,
    ),
    NameRow("BlockedPromptException", Kind.CONTENT_POLICY, "class name", strong=True),
    NameRow("StopCandidateException", Kind.CONTENT_POLICY, "class name", strong=True),
    NameRow("BudgetExceededError", Kind.QUOTA, "class name", ("litellm",), strong=True),
    # Timeouts.
    *(
        NameRow(name, Kind.TIMEOUT, _TIMEOUT, homes)
        for name, homes in (
            ("TimeoutError", ("builtins",)),
            ("APITimeoutError", _OA),
            ("APIResponseTimeoutError", ()),
            ("TimeoutException", _HX),
            ("ConnectTimeout", (*_HX, "requests.exceptions")),
            ("ReadTimeout", (*_HX, "requests.exceptions")),
            ("WriteTimeout", _HX),
            ("PoolTimeout", _HX),
            ("ServerTimeoutError", ("aiohttp",)),
            ("ConnectionTimeoutError", ("aiohttp",)),
            ("SocketTimeoutError", ("aiohttp",)),
            ("ConnectTimeoutError", ("botocore.exceptions", "urllib3.exceptions")),
            ("ReadTimeoutError", ("botocore.exceptions", "urllib3.exceptions")),
            ("DeadlineExceeded", ()),
            ("GatewayTimeout", ()),
        )
    ),
    NameRow("Timeout", Kind.TIMEOUT, _TIMEOUT, ("litellm", "requests.exceptions"), strong=True),
    NameRow(
        "RetryError",
        Kind.CONNECTION,
        "the transport's retries ran out",
        ("requests.exceptions",),
        wraps=True,
        opaque=True,
    ),
    # Connections. The wrappers among them hide what really happened one level down.
    NameRow("APIConnectionError", Kind.CONNECTION, _LOST, _OA, strong=True, wraps=True),
    NameRow(
        "MidStreamFallbackError",
        Kind.CONNECTION,
        "the stream broke",
        ("litellm.exceptions",),
        strong=True,
        wraps=True,
        opaque=True,
    ),
    *(
        NameRow(name, Kind.CONNECTION, _LOST, homes, wraps=True)
        for name, homes in (
            ("ConnectionError", ("builtins", "requests.exceptions")),
            ("TransportError", (*_HX, "google.auth.exceptions")),
            ("RequestException", ("requests.exceptions",)),
            ("ChunkedEncodingError", ("requests.exceptions",)),
            ("ProxyError", (*_HX, "requests.exceptions")),
            ("MaxRetryError", ("urllib3.exceptions",)),
            ("ClientConnectionError", ("aiohttp",)),
            ("ClientConnectorError", ("aiohttp",)),
            ("ClientOSError", ("aiohttp",)),
            ("ClientPayloadError", ("aiohttp",)),
            ("URLError", ("urllib.error",)),
            ("HTTPClientError", ("botocore.exceptions",)),
            (
                "SSLError",
                ("ssl", "requests.exceptions", "urllib3.exceptions", "botocore.exceptions"),
            ),
            ("NetworkError", _HX),
            ("ConnectError", _HX),
            ("ReadError", _HX),
            ("WriteError", _HX),
            ("CloseError", _HX),
            ("ProtocolError", (*_HX, "urllib3.exceptions")),
            ("RemoteProtocolError", _HX),
            ("NewConnectionError", ("urllib3.exceptions",)),
            ("NameResolutionError", ("urllib3.exceptions",)),
            ("ServerDisconnectedError", ("aiohttp",)),
            ("ServerConnectionError", ("aiohttp",)),
            ("ConnectionClosedError", ("botocore.exceptions",)),
            ("EndpointConnectionError", ("botocore.exceptions",)),
            ("ResponseStreamingError", ("botocore.exceptions",)),
            ("RemoteDisconnected", ("http.client",)),
            ("BadStatusLine", ("http.client",)),
            ("IncompleteRead", ("http.client",)),
            ("IncompleteReadError", ("asyncio",)),
            ("gaierror", ("socket",)),
            ("herror", ("socket",)),
            ("EndOfStream", ("anyio",)),
            ("BrokenResourceError", ("anyio",)),
        )
    ),
    *(
        NameRow(
            name,
            Kind.CONNECTION,
            "the server's certificate was not accepted",
            homes,
            transient=False,
        )
        for name, homes in (
            ("SSLCertVerificationError", ("ssl",)),
            ("ClientConnectorCertificateError", ("aiohttp",)),
        )
    ),
    # Answers that nobody can use.
    *(
        NameRow(name, Kind.MALFORMED_RESPONSE, _UNREADABLE, homes)
        for name, homes in (
            ("JSONDecodeError", ("json", "requests.exceptions")),
            ("DecodingError", _HX),
            ("ContentTypeError", ("aiohttp",)),
            ("ContentDecodingError", ("requests.exceptions",)),
            ("APIResponseValidationError", _OA),
            ("ResponseValidationError", ()),
            ("JSONSchemaValidationError", ("litellm",)),
            ("LengthFinishReasonError", ("openai",)),
            ("UnknownApiResponseError", ("google.genai.errors",)),
            ("ResponseParserError", ("botocore.parsers",)),
            ("UnexpectedModelBehavior", ()),
        )
    ),
    # The program's own mistakes, stated by a library.
    *(
        NameRow(name, Kind.LOCAL, _BAD_REQUEST, homes, strong=True)
        for name, homes in (
            ("ParamValidationError", ("botocore.exceptions",)),
            ("UnsupportedProtocol", _HX),
            ("LocalProtocolError", _HX),
            ("InvalidURL", (*_HX, "requests.exceptions", "aiohttp")),
            ("TooManyRedirects", (*_HX, "requests.exceptions", "aiohttp")),
            ("MissingSchema", ("requests.exceptions",)),
            ("InvalidSchema", ("requests.exceptions",)),
            ("InvalidHeader", ("requests.exceptions",)),
            ("InvalidJSONError", ("requests.exceptions",)),
            ("StreamError", _HX),
        )
    ),
    NameRow(
        "ValidationError", Kind.LOCAL, "a value did not fit the program's own model", ("pydantic",)
    ),
    NameRow(
        "OutputParserException",
        Kind.LOCAL,
        "the program's own parser said no",
        ("langchain_core.exceptions",),
    ),
)

NAMES = {row.name: row for row in _ROWS}

# Endings for classes of SDKs that no row names; nearest class first, longest ending first.
SUFFIXES = tuple(
    NameRow(ending, kind, f"a class name that ends in {ending}")
    for ending, kind in (
        ("ContextWindowExceededError", Kind.CONTEXT_OVERFLOW),
        ("ServiceUnavailableError", Kind.OVERLOADED),
        ("PermissionDeniedError", Kind.PERMISSION),
        ("InternalServerError", Kind.SERVER_ERROR),
        ("AuthenticationError", Kind.AUTHENTICATION),
        ("InvalidRequestError", Kind.INVALID_REQUEST),
        ("InsufficientQuotaError", Kind.QUOTA),
        ("QuotaExceededError", Kind.QUOTA),
        ("ContentFilterError", Kind.CONTENT_POLICY),
        ("OverloadedError", Kind.OVERLOADED),
        ("RateLimitError", Kind.RATE_LIMIT),
        ("RateLimitExceeded", Kind.RATE_LIMIT),
        ("ThrottlingError", Kind.RATE_LIMIT),
        ("TimeoutError", Kind.TIMEOUT),
        ("TimeoutException", Kind.TIMEOUT),
        ("ConnectionError", Kind.CONNECTION),
    )
)

WEB_MODULES = frozenset({"starlette", "fastapi", "werkzeug", "django", "rest_framework", "flask"})
LOCAL_MODULES = frozenset(
    {
        "asyncpg",
        "psycopg",
        "psycopg2",
        "pymongo",
        "redis",
        "sqlalchemy",
        "sqlite3",
        "subprocess",
    }
)
