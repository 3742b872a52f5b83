"""What classify makes of real SDK errors, of look-alikes and of hostile ones."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import functools
import gc
import http
import importlib
import importlib.util
import json
import socket
import ssl
import warnings
import weakref
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import anthropic
import botocore.exceptions
import httpx
import openai
import pydantic
import pytest
import requests
import tenacity
from google.genai import errors as genai
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback._classify import classify
from honcho_fallback._classify._tables import CODES, GENERIC, NAMES, STATUSES, Row
from honcho_fallback._values.failure import Failure, FailureKind
from honcho_fallback.redaction import redact
from tests.helpers.own_rules import loaded, of_program, of_provider
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Kind = FailureKind
URL = "https://provider.test/v1/chat"
# Any, because openai and anthropic sit on either of the two httpx lineages.
REQUEST: Any = httpx.Request("POST", URL)


@functools.cache
def openai_client() -> openai.OpenAI:
    return openai.OpenAI(api_key="x", base_url=URL)


class ProviderError(Exception):
    """An in-house client's error: whatever it is given becomes an attribute."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


def openai_error(status: int, error: Any, **headers: str) -> openai.APIStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer: Any = httpx.Response(
        status, json={"error": error}, headers=named, request=httpx.Request("POST", URL)
    )
    return openai_client()._make_status_error_from_response(answer)


def raised_from(outer: Exception, cause: BaseException) -> Exception:
    outer.__cause__ = cause
    return outer


# --- statuses


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Kind.INVALID_REQUEST),
        (401, Kind.AUTHENTICATION),
        (402, Kind.QUOTA),
        (403, Kind.PERMISSION),
        (404, Kind.MODEL_UNAVAILABLE),
        (407, Kind.AUTHENTICATION),
        (408, Kind.TIMEOUT),
        (409, Kind.SERVER_ERROR),
        (410, Kind.MODEL_UNAVAILABLE),
        (413, Kind.PAYLOAD_TOO_LARGE),
        (418, Kind.INVALID_REQUEST),
        (422, Kind.INVALID_REQUEST),
        (424, Kind.SERVER_ERROR),
        (425, Kind.SERVER_ERROR),
        (429, Kind.RATE_LIMIT),
        (451, Kind.PERMISSION),
        (499, Kind.SERVER_ERROR),
        (500, Kind.SERVER_ERROR),
        (502, Kind.SERVER_ERROR),
        (503, Kind.OVERLOADED),
        (504, Kind.TIMEOUT),
        (520, Kind.SERVER_ERROR),
        (524, Kind.TIMEOUT),
        (529, Kind.OVERLOADED),
        (598, Kind.TIMEOUT),
        (599, Kind.TIMEOUT),
    ],
)
def test_a_status_decides_whoever_raised_it(status: int, kind: FailureKind) -> None:
    """Every row of the status table holds for an SDK's error and for a plain exception."""
    for error in (openai_error(status, {"message": "no"}), ProviderError(status_code=status)):
        failure = classify(error)
        assert (failure.kind, failure.status) == (kind, status)
        assert failure.reason


def test_every_status_row_is_consistent() -> None:
    """A row's key is its own status."""
    assert all(status in row.keys for status, row in STATUSES.items())


@pytest.mark.parametrize("name", ["status_code", "http_status", "status", "statusCode", "code"])
def test_a_status_is_read_from_each_attribute(name: str) -> None:
    """Every attribute that clients use for the status is known."""
    facts: dict[str, Any] = {name: 503}
    assert classify(ProviderError(**facts)).kind is Kind.OVERLOADED


def test_a_status_is_read_from_the_response_and_from_botocore() -> None:
    """The response object and botocore's dict carry it too."""
    answer = requests.Response()
    answer.status_code = 429
    assert classify(requests.HTTPError("no", response=answer)).kind is Kind.RATE_LIMIT
    boto = botocore.exceptions.ClientError(
        {
            "Error": {"Code": "Whatever", "Message": "no"},
            "ResponseMetadata": {
                "HTTPStatusCode": 503,
                "HTTPHeaders": {},
                "RequestId": "r",
                "HostId": "h",
                "RetryAttempts": 0,
            },
        },
        "Converse",
    )
    assert classify(boto).kind is Kind.OVERLOADED


# --- codes


def test_every_code_decides() -> None:
    """Each code of the table gives its row's kind, against a status that says otherwise."""
    misread: dict[str, Kind] = {}
    for code, row in CODES.items():
        status = next(iter(sorted(row.statuses)), 500)
        error: Exception = openai_error(max(status, 400), {"message": "no", "code": code})
        if status < 400:
            error = openai.APIError("no", REQUEST, body={"code": code})
        if (kind := classify(error).kind) is not row.kind:
            misread[code] = kind
    assert misread == {}


def test_every_generic_code_stands_for_its_status() -> None:
    """Without a status, a code that names a class of them counts like that status."""
    for code in GENERIC.keys() - CODES.keys():
        without = ProviderError("no", body={"error": {"type": code, "message": "no"}})
        with_status = ProviderError("no", status_code=GENERIC[code], body={"message": "no"})
        assert classify(without).kind is classify(with_status).kind, code


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
def test_no_balance_is_quota_behind_any_status(status: int) -> None:
    """A provider's code that contradicts its status wins."""
    failure = classify(openai_error(status, {"message": "no", "code": "insufficient_quota"}))
    assert (failure.kind, failure.transient, failure.switchable) == (Kind.QUOTA, False, True)
    assert (failure.status, failure.code) == (status, "insufficient_quota")


def test_a_403_for_content_is_a_refusal() -> None:
    """A refusal's code decides over 403; an external 403 without one is a permission."""
    refused = openai_error(403, {"message": "no", "code": "content_filter"})
    assert classify(refused).kind is Kind.CONTENT_POLICY
    assert classify(openai_error(403, {"message": "not for you"})).kind is Kind.PERMISSION


def test_an_error_wrapped_by_a_gateway_is_found_one_level_down() -> None:
    """JSON inside a message, and OpenRouter's metadata, are read."""
    inner = json.dumps({"error": {"code": "context_length_exceeded", "message": "long"}})
    assert classify(openai_error(400, {"message": inner})).kind is Kind.CONTEXT_OVERFLOW
    raw = {"message": "no", "metadata": {"raw": "out of credits, sorry"}}
    assert classify(openai_error(400, raw)).kind is Kind.QUOTA


def test_a_document_inside_a_text_body_is_read() -> None:
    """A body that came as text, whole, behind a prefix or in a list, says what it says parsed."""
    said = json.dumps({"error": {"type": "overloaded_error", "message": "later"}})
    for body in (said, said.encode(), f"data: {said}", f"[{said}]"):
        failure = classify(ProviderError("no", status_code=500, body=body))
        assert (failure.kind, failure.code) == (Kind.OVERLOADED, "overloaded_error")
        assert "later" in failure.provider_message


# --- texts

EXAMPLES = [
    (429, "This one request too large for the tier", Kind.PAYLOAD_TOO_LARGE),
    (500, "our machines are overloaded, come back", Kind.OVERLOADED),
    (400, "you have insufficient credits on file", Kind.QUOTA),
    (429, "your weekly limit is used", Kind.QUOTA),
    (429, "usage limit reached, try again in 5 minutes", Kind.RATE_LIMIT),
    (402, "usage limit reached, try again in 5 minutes", Kind.QUOTA),
    (400, "the context window holds less than you sent", Kind.CONTEXT_OVERFLOW),
    (400, "stopped by our content filter", Kind.CONTENT_POLICY),
    (400, "that is an incorrect API key", Kind.AUTHENTICATION),
    (None, "no API key was configured anywhere", Kind.AUTHENTICATION),
    (400, "we failed to parse tool call output", Kind.MALFORMED_RESPONSE),
    (400, "your location is not supported here", Kind.PERMISSION),
    (503, "the model's weights are warming up", Kind.MODEL_UNAVAILABLE),
    (404, "this one is a chat model", Kind.UNSUPPORTED),
    (400, "unknown model nimbus-9", Kind.MODEL_UNAVAILABLE),
    (400, "the model nimbus-9 does not exist", Kind.MODEL_UNAVAILABLE),
    (400, "payload too large for this door", Kind.PAYLOAD_TOO_LARGE),
    (400, "you hit the rate limit", Kind.RATE_LIMIT),
    (500, "the worker timed out", Kind.TIMEOUT),
    (500, "connection refused by the backend", Kind.CONNECTION),
    (None, "peer said: internal server error", Kind.SERVER_ERROR),
    (400, "the upstream part failed", Kind.SERVER_ERROR),
]


@pytest.mark.parametrize(("status", "message", "kind"), EXAMPLES)
def test_a_text_decides_where_no_code_does(
    status: int | None, message: str, kind: FailureKind
) -> None:
    """Each kind's wording is understood, in words of our own."""
    facts: dict[str, Any] = {} if status is None else {"status_code": status}
    assert classify(ProviderError(message, **facts)).kind is kind


def test_a_message_about_a_parameter_is_no_overflow() -> None:
    """Words that also occur in overflows do not make one (max_tokens, context)."""
    wording = "parameter max_tokens is not supported with this model"
    assert classify(openai_error(400, {"message": wording})).kind is Kind.UNSUPPORTED


@pytest.mark.parametrize(
    "wording",
    [
        "response_format of type json_schema is not supported here",
        "house/tiny:2b does not support tools",
        "images are nothing that this model supports: image input is unsupported",
        "temperature does not support 0.2 with this model",
        "max_tokens is not supported with this model, use another field",
        "reasoning_effort none is not supported for this model",
        "this mode does not support this tool_choice",
        "This model does not support a prefill. Conversations must end with the user.",
        "logit_bias is not supported",
        "a prefill of 31 GB would exceed the memory ceiling of 24 GB; reduce the prompt",
    ],
)
def test_what_a_model_lacks_is_asked_of_the_next(wording: str) -> None:
    """The request is well, this target is too: another one may take it, and nobody rests."""
    failure = classify(openai_error(400, {"message": wording, "type": "invalid_request_error"}))
    assert failure.kind is Kind.UNSUPPORTED
    assert (failure.switchable, failure.transient, failure.reached) == (True, False, "refused")


@pytest.mark.parametrize(
    "code", ["unsupported_value", "unsupported_parameter", "unsupported_file"]
)
def test_a_code_that_names_what_is_lacking_is_read_by_its_words(code: str) -> None:
    """Under whatever sentence; but what an account has to do first says more than the code."""
    assert (
        classify(openai_error(400, {"message": "Sorry.", "code": code})).kind is Kind.UNSUPPORTED
    )
    first = {"message": "Your account must be verified to use it", "code": code}
    assert classify(openai_error(400, first)).kind is Kind.PERMISSION


@pytest.mark.parametrize("text", ["took 5030 ms", "id 14290", "v4.29", "port 50311", "x503y"])
def test_numbers_inside_numbers_are_no_status(text: str) -> None:
    """A status in a text needs digit boundaries and a word that says it is one."""
    assert classify(ProviderError(text)).kind is Kind.LOCAL


def test_a_stated_status_in_a_text_counts() -> None:
    """A wrapper that keeps only text is understood."""
    assert classify(ProviderError("Error code: 429 - slow")).kind is Kind.RATE_LIMIT
    assert classify(ProviderError("503 Service Unavailable")).kind is Kind.OVERLOADED


# --- waits


def test_retry_after_is_read_from_each_place() -> None:
    """Seconds, a date, milliseconds, Google's detail, LiteLLM's headers and the text count."""
    assert classify(openai_error(429, {"message": "no"}, retry_after="7")).retry_after == 7.0
    ms = openai_error(429, {"message": "no"}, retry_after="9", retry_after_ms="250")
    assert classify(ms).retry_after == 0.25
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    dated = classify(openai_error(503, {"message": "no"}, retry_after=when)).retry_after
    assert dated is not None
    assert 40 < dated <= 50
    google = genai.ClientError(
        429,
        {
            "error": {
                "code": 429,
                "status": "RESOURCE_EXHAUSTED",
                "message": "no",
                "details": [{"@type": "RetryInfo", "retryDelay": "11s"}],
            }
        },
        None,
    )
    assert classify(google).retry_after == 11.0
    lite = ProviderError(status_code=429, litellm_response_headers={"Retry-After": "4"})
    assert classify(lite).retry_after == 4.0
    told = ProviderError("slow down: try again in 1m2.5s", status_code=429)
    assert classify(told).retry_after == 62.5


@pytest.mark.parametrize(
    "facts",
    [
        {"headers": {"retry-after": "1m30s"}},
        {"headers": {"Retry-After": "1700000090"}},
        {"headers": {"retry-after-ms": "90000"}},
        {"headers": {b"retry-after": b"90"}},
        {"body": {"errors": [{"retry_after": "90s"}]}},
        {"body": 'data: {"error": {"retry_after": 90}}'},
    ],
)
def test_a_wait_is_read_alike_wherever_it_stands(
    facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds, durations and times since the epoch count in headers and in bodies."""
    monkeypatch.setattr("honcho_fallback._classify._waits.time.time", lambda: 1.7e9)
    failure = classify(ProviderError("no", status_code=429, **facts))
    assert failure.retry_after == 90


@pytest.mark.parametrize("value", ["soon", "-3", "nan", "inf", ""])
def test_an_unusable_retry_after_is_none(value: str) -> None:
    """A header that means nothing is ignored."""
    failure = classify(ProviderError(status_code=429, headers={"retry-after": value}))
    assert (failure.kind, failure.retry_after) == (Kind.RATE_LIMIT, None)


def test_a_window_of_hours_is_a_quota() -> None:
    """A rate limit that lasts for hours is used-up quota: the same target will not work soon."""
    failure = classify(openai_error(429, {"message": "no"}, retry_after="86400"))
    assert (failure.kind, failure.transient) == (Kind.QUOTA, False)


def test_x_should_retry_false_is_obeyed() -> None:
    """The provider's word that asking again is useless makes it not transient."""
    failure = classify(openai_error(500, {"message": "no"}, x_should_retry="false"))
    assert (failure.kind, failure.transient, failure.switchable) == (
        Kind.SERVER_ERROR,
        False,
        True,
    )


# --- names


# The built wheel is tested without these.
_NOT_ALWAYS = ("litellm", "langchain", "anyio", "huggingface_hub")


def _homes() -> list[tuple[Row, str]]:
    return [(row, home) for row in NAMES.values() for home in row.homes]


def test_hon_029_every_listed_class_exists_in_its_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """HON-029: a rename in an SDK is seen: each name of the table is still a class there."""
    gone: list[str] = []
    for row, home in _homes():
        if home.startswith(_NOT_ALWAYS) and importlib.util.find_spec(home.split(".")[0]) is None:
            continue
        cls = getattr(importlib.import_module(home), row.name.rpartition(".")[2], None)
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            gone.append(f"{home}.{row.name}")
    assert gone == []


def test_every_name_decides_in_any_module() -> None:
    """Each name of the table gives its kind without a status and without a message."""
    for row in NAMES.values():
        cls = type(row.name, (Exception,), {"__module__": "some.sdk"})
        failure = classify(cls())
        assert (failure.kind, failure.error) == (row.kind, row.name)
        assert row.transient in {None, failure.transient}, row.name


def test_a_subclass_of_a_named_class_counts() -> None:
    """Names are looked up over the whole MRO."""

    class Odd(httpx.ReadTimeout):
        pass

    assert classify(Odd("slow")).kind is Kind.TIMEOUT


@pytest.mark.parametrize(
    ("name", "kind", "transient"),
    [
        ("ModelError", Kind.SERVER_ERROR, False),
        ("ModelAPIError", Kind.SERVER_ERROR, True),
        ("ModelAuthenticationError", Kind.AUTHENTICATION, False),
        ("ModelPermissionDeniedError", Kind.PERMISSION, False),
        ("ModelInvalidRequestError", Kind.INVALID_REQUEST, False),
        ("ModelNotFoundError", Kind.MODEL_UNAVAILABLE, False),
        ("ModelRateLimitError", Kind.RATE_LIMIT, True),
        ("ModelConnectionError", Kind.CONNECTION, True),
        ("ModelTimeoutError", Kind.TIMEOUT, True),
        ("ContextOverflowError", Kind.CONTEXT_OVERFLOW, False),
    ],
)
def test_langchains_own_model_errors(name: str, kind: Kind, transient: bool) -> None:
    """Each class that an integration may raise bare, or derive from, says what it stands for."""
    exceptions = pytest.importorskip("langchain_core.exceptions")
    cls = getattr(exceptions, name)
    assert cls.is_retryable is transient
    for error in (cls("something went wrong"), type("Odd", (cls,), {})("something went wrong")):
        failure = classify(error)
        assert (failure.kind, failure.transient) == (kind, transient)


@pytest.mark.parametrize(
    ("cls", "status", "facts", "kind"),
    [
        (
            "GoogleInvalidRequestError",
            400,
            {
                "message": "API key not valid. Please pass a valid API key.",
                "status": "INVALID_ARGUMENT",
                "details": [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}],
            },
            Kind.AUTHENTICATION,
        ),
        (
            "GoogleInvalidRequestError",
            400,
            {"message": "User location is not supported for the API use."},
            Kind.PERMISSION,
        ),
        (
            "GoogleInvalidRequestError",
            400,
            {"message": "The free tier is not available in your country."},
            Kind.PERMISSION,
        ),
        (
            "GoogleInvalidRequestError",
            400,
            {"message": "Please use a valid role: user, model."},
            Kind.INVALID_REQUEST,
        ),
        (
            "GoogleRateLimitError",
            429,
            {"message": "You exceeded your current quota, please check your plan"},
            Kind.QUOTA,
        ),
        ("GoogleRateLimitError", 429, {"message": "Resource exhausted"}, Kind.RATE_LIMIT),
        ("GoogleModelNotFoundError", 404, {"message": "gone"}, Kind.MODEL_UNAVAILABLE),
    ],
)
def test_a_class_that_only_sorts_by_status_leaves_it_to_its_cause(
    cls: str, status: int, facts: dict[str, Any], kind: Kind
) -> None:
    """An integration's class hides the SDK's error, which says what is wrong with the request."""
    module = pytest.importorskip("langchain_google_genai.chat_models")
    error = getattr(module, cls)("Error calling model")
    error.__cause__ = genai.ClientError(status, {"error": {"code": status, **facts}})
    failure = classify(error)
    assert (failure.kind, failure.status, failure.error) == (kind, status, cls)


@pytest.mark.parametrize(
    "text", ["No generation chunks were returned", "No generations found in stream."]
)
def test_langchains_empty_stream_is_no_answer(text: str) -> None:
    """A provider that sent no event that an integration knows raises a ValueError there."""
    assert classify(ValueError(text)).kind is Kind.MALFORMED_RESPONSE


def test_a_local_cause_makes_no_provider_error_local() -> None:
    """A key file that is missing is still a key that this provider did not get."""
    error = type("ProviderAuthenticationError", (Exception,), {})("no key")
    error.__cause__ = FileNotFoundError(errno.ENOENT, "no such file")
    assert classify(error).kind is Kind.AUTHENTICATION


# --- regressions


def test_hon_020_429_is_a_rate_limit() -> None:
    """429 allows a switch and a retry."""
    failure = classify(openai_error(429, {"message": "no"}))
    assert (failure.kind, failure.transient, failure.switchable) == (Kind.RATE_LIMIT, True, True)


def test_hon_021_every_5xx_switches() -> None:
    """Any status from 500 to 599 allows a switch and a retry."""
    for status in range(500, 600):
        failure = classify(ProviderError(status_code=status))
        assert (failure.switchable, failure.transient) == (True, True), status


@pytest.mark.parametrize("cls", [TimeoutError, asyncio.TimeoutError, socket.timeout])
def test_hon_022_builtin_timeout(cls: type[Exception]) -> None:
    """The builtin timeout is a timeout under each of its names."""
    assert classify(cls()).kind is Kind.TIMEOUT


@pytest.mark.parametrize(
    "cls",
    [
        ConnectionError,
        ConnectionResetError,
        ConnectionRefusedError,
        ConnectionAbortedError,
        BrokenPipeError,
    ],
)
def test_hon_023_builtin_connection_errors(cls: type[Exception]) -> None:
    """The builtin connection family is a connection."""
    assert classify(cls()).kind is Kind.CONNECTION


def test_hon_024_names_without_a_status() -> None:
    """The class names of the first sketch are known without any status."""
    want = {
        "APITimeoutError": Kind.TIMEOUT,
        "APIConnectionError": Kind.CONNECTION,
        "InternalServerError": Kind.SERVER_ERROR,
        "ServiceUnavailableError": Kind.OVERLOADED,
        "RateLimitError": Kind.RATE_LIMIT,
    }
    assert {n: classify(type(n, (Exception,), {})()).kind for n in want} == want


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("x"), TypeError("x"), RuntimeError("x"), Exception("x")]
)
def test_hon_025_everything_else_is_local(error: Exception) -> None:
    """What says nothing about a provider neither retries nor switches."""
    failure = classify(error)
    assert (failure.kind, failure.transient, failure.switchable) == (Kind.LOCAL, False, False)


def test_hon_026_a_status_beats_the_class_name() -> None:
    """A class name is asked only where there is no status."""
    named = type("RateLimitError", (ProviderError,), {})(status_code=400)
    assert classify(named).kind is Kind.INVALID_REQUEST


def test_hon_027_408_is_a_timeout() -> None:
    """408 is no invalid request."""
    assert classify(openai_error(408, {"message": "no"})).kind is Kind.TIMEOUT


@pytest.mark.parametrize(
    "error",
    [
        OSError("disk"),
        OSError(errno.ENOSPC, "full"),
        PermissionError(errno.EACCES, "no"),
        FileNotFoundError(errno.ENOENT, "gone"),
        IsADirectoryError(errno.EISDIR, "dir"),
        OSError(errno.EMFILE, "files"),
    ],
)
def test_hon_028_a_bare_os_error_is_local(error: OSError) -> None:
    """Disk and permissions are the program's own; only a network errno is a connection."""
    assert classify(error).kind is Kind.LOCAL


def test_hon_028_an_os_error_with_a_network_errno_is_a_connection() -> None:
    """An errno of the network decides over the bare class."""
    assert classify(OSError(errno.ENETUNREACH, "far")).kind is Kind.CONNECTION
    assert classify(OSError(errno.EHOSTUNREACH, "far")).kind is Kind.CONNECTION


def test_hon_030_a_success_is_no_error_status() -> None:
    """200 decides nothing: the body does."""
    error = ProviderError("no", status_code=200, body={"error": {"type": "rate_limit_error"}})
    assert classify(error).kind is Kind.RATE_LIMIT


@pytest.mark.parametrize(
    "cls",
    [
        asyncio.CancelledError,
        KeyboardInterrupt,
        SystemExit,
        GeneratorExit,
        concurrent.futures.CancelledError,
    ],
)
def test_hon_031_cancellation_is_never_retried(cls: type[BaseException]) -> None:
    """Cancellation neither retries nor switches, whatever it carries or is named."""
    error = cls()
    error.__dict__["status_code"] = 429
    failure = classify(error, rules=loaded(of_provider(cls)))
    assert (failure.kind, failure.switchable) == (Kind.CANCELLED, False)


def test_hon_031_a_graph_interrupt_is_a_cancellation() -> None:
    """LangGraph's control flow is no error."""
    base = type("GraphBubbleUp", (Exception,), {"__module__": "langgraph.errors"})
    assert classify(type("Mine", (base,), {})()).kind is Kind.CANCELLED


@pytest.mark.parametrize("status", ["503", " 503 ", http.HTTPStatus.SERVICE_UNAVAILABLE])
def test_hon_032_status_as_digit_string(status: object) -> None:
    """Digit strings and enum members are statuses."""
    failure = classify(ProviderError(status_code=status))
    assert (failure.kind, failure.status) == (Kind.OVERLOADED, 503)
    assert type(failure.status) is int


@pytest.mark.parametrize("status", ["abc", "5 03", "99", "600", 99, 600, -1, 10**40, 4.29, b"503"])
def test_hon_032_what_is_no_status(status: object) -> None:
    """Anything outside 100 to 599 is ignored and never raises."""
    assert classify(ProviderError(status_code=status)).kind is Kind.LOCAL


def test_hon_033_google_keeps_the_status_in_code() -> None:
    """google-genai's number is found in ``.code``."""
    error = genai.ServerError(
        503, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "no"}}, None
    )
    assert (classify(error).kind, classify(error).status) == (Kind.OVERLOADED, 503)


@pytest.mark.parametrize("module", ["httpx", "httpx2"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ReadTimeout", Kind.TIMEOUT),
        ("ConnectTimeout", Kind.TIMEOUT),
        ("WriteTimeout", Kind.TIMEOUT),
        ("PoolTimeout", Kind.TIMEOUT),
        ("ConnectError", Kind.CONNECTION),
        ("ReadError", Kind.CONNECTION),
        ("RemoteProtocolError", Kind.CONNECTION),
        ("ProxyError", Kind.CONNECTION),
        ("DecodingError", Kind.MALFORMED_RESPONSE),
        ("UnsupportedProtocol", Kind.LOCAL),
        ("LocalProtocolError", Kind.LOCAL),
    ],
)
def test_hon_034_raw_transport_errors(module: str, name: str, kind: FailureKind) -> None:
    """Both httpx lineages' raw errors are known."""
    lib = pytest.importorskip(module)
    assert classify(getattr(lib, name)("oops")).kind is kind


def test_hon_035_an_error_event_inside_a_stream() -> None:
    """Status 200 and no status at all leave the decision to the body."""
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    failure = classify(ProviderError("later", status_code=200, body=body))
    assert failure.kind is Kind.OVERLOADED
    event = openai.APIError("no", REQUEST, body={"type": "server_error"})
    assert classify(event).kind is Kind.SERVER_ERROR
    numbered = openai.APIError("no", REQUEST, body={"code": 502})
    assert (classify(numbered).kind, classify(numbered).status) == (Kind.SERVER_ERROR, 502)


def test_hon_036_causes_are_unwrapped() -> None:
    """A cause decides where the outer exception says nothing, at most five deep."""
    error: Exception = ProviderError(status_code=429)
    for _ in range(5):
        error = raised_from(RuntimeError("agent failed"), error)
    failure = classify(error)
    assert (failure.kind, failure.error) == (Kind.RATE_LIMIT, "RuntimeError")
    assert classify(raised_from(RuntimeError("one more"), error)).kind is Kind.LOCAL


def test_hon_036_tenacity_is_unwrapped() -> None:
    """RetryError stands for its last attempt."""

    @tenacity.retry(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
    def call() -> None:
        raise ProviderError(status_code=503)

    with pytest.raises(tenacity.RetryError) as caught:
        call()
    assert classify(caught.value).kind is Kind.OVERLOADED


def test_hon_036_in_a_group_the_worst_member_wins() -> None:
    """What forbids a switch decides over what allows it; cancellation over all."""
    slow, bug = ProviderError(status_code=429), ValueError("bug")
    assert classify(ExceptionGroup("g", [slow, TimeoutError()])).kind is Kind.RATE_LIMIT
    assert classify(ExceptionGroup("g", [slow, bug])).kind is Kind.LOCAL
    nested = BaseExceptionGroup("g", [slow, BaseExceptionGroup("h", [KeyboardInterrupt()])])
    assert classify(nested).kind is Kind.CANCELLED


def test_hon_036_an_unrelated_context_is_not_followed() -> None:
    """An error raised while a 429 was handled is not that 429."""
    plain = ValueError("bug in the handler")
    plain.__context__ = ProviderError(status_code=429)
    assert classify(plain).kind is Kind.LOCAL
    hidden = requests.ConnectionError("lost")
    hidden.__context__ = TimeoutError()
    hidden.__suppress_context__ = True
    assert classify(hidden).kind is Kind.CONNECTION


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_call_in_an_except_block_is_judged_by_itself(driver: str) -> None:
    """What the caller was handling before the call says nothing of a connection that is lost."""
    script = repeating(primary=[ConnectionResetError("lost")], backup=["hello"])
    policy = FallbackPolicy(script.targets)
    try:
        raise RuntimeError("the caller's own")
    except RuntimeError:
        answer = DRIVERS[driver](policy, script, policy.start())
    assert answer == "hello"


def test_a_loop_of_ones_own_in_an_except_block_is_judged_by_itself() -> None:
    """So is one that catches both in the same function."""
    run = FallbackPolicy([Target("primary"), Target("backup")]).start()

    def ask() -> None:
        raise httpx.ConnectError("refused")

    try:
        raise ValueError("the caller's own")
    except ValueError:
        try:
            ask()
        except httpx.ConnectError as error:
            run.fail(error)
    assert run.attempt.target.name == "backup"


def test_a_mistake_that_a_connection_class_hides_is_a_mistake() -> None:
    """A library that raises it while it handles the program's error tried no connection."""

    def ask() -> None:
        try:
            raise TypeError("a header that is no text")
        except TypeError:
            raise httpx.ConnectError("failed")  # noqa: B904 # as libraries do

    with pytest.raises(httpx.ConnectError) as caught:
        ask()
    assert classify(caught.value).kind is Kind.LOCAL


def test_hon_036_a_cycle_of_causes_ends() -> None:
    """Causes that point at each other are asked once."""
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first).kind is Kind.LOCAL


def test_hon_037_dns_is_a_connection() -> None:
    """A name that does not resolve is a connection that may pass."""
    failure = classify(socket.gaierror(socket.EAI_AGAIN, "try later"))
    assert (failure.kind, failure.transient) == (Kind.CONNECTION, True)


def test_hon_037_a_certificate_failure_is_not_transient() -> None:
    """A certificate that fails anywhere among the causes fails again."""
    bad = ssl.SSLCertVerificationError(1, "certificate verify failed")
    for error in (
        bad,
        raised_from(httpx.ConnectError("no"), bad),
        raised_from(
            openai.APIConnectionError(request=REQUEST),
            raised_from(httpx.ConnectError("no"), bad),
        ),
        requests.exceptions.SSLError(bad),
    ):
        failure = classify(error)
        assert (failure.kind, failure.transient, failure.switchable) == (
            Kind.CONNECTION,
            False,
            True,
        )


@pytest.mark.parametrize(
    "module",
    [
        "starlette.exceptions",
        "fastapi.exceptions",
        "werkzeug.exceptions",
        "django.http",
        "aiohttp.web_exceptions",
    ],
)
def test_hon_038_a_web_frameworks_own_errors_are_local(module: str) -> None:
    """The service's own answer to its own caller is no provider's error."""
    base = type("HTTPException", (Exception,), {"__module__": module, "status_code": 503})
    assert classify(type("Mine", (base,), {})()).kind is Kind.LOCAL


def test_hon_038_classes_named_by_the_caller_settle_it() -> None:
    """A rule wins over every fact; one by default counts where nothing else decides."""
    mine = ProviderError(status_code=500)
    assert classify(mine, rules=loaded(of_program(ProviderError))).kind is Kind.LOCAL
    values = loaded(of_provider(ValueError))
    assert classify(ValueError("x"), rules=values).kind is Kind.SERVER_ERROR
    told = ProviderError(status_code=429)
    own = loaded(of_provider(ProviderError))
    assert classify(told, rules=own).kind is Kind.RATE_LIMIT


def test_hon_039_a_bool_is_no_status() -> None:
    """True is an int in Python and still no status."""
    assert classify(ProviderError(status_code=True)).kind is Kind.LOCAL
    assert classify(ProviderError(status_code=True)).status is None


# --- answers nobody can use, and bugs


def test_an_answer_that_is_not_json_is_malformed() -> None:
    """Streams raise the parser's error as it is."""
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("<html>")
    assert classify(caught.value).kind is Kind.MALFORMED_RESPONSE


def test_a_validation_error_is_local_unless_named() -> None:
    """The program's own model said no; a rule by default makes it the provider's."""
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(int).validate_python("x")
    assert classify(caught.value).kind is Kind.LOCAL
    named = classify(caught.value, rules=loaded(of_provider(pydantic.ValidationError)))
    assert named.kind is Kind.SERVER_ERROR


def test_a_bug_under_an_sdks_connection_error_is_local() -> None:
    """A client used after close is no lost connection."""
    outer = openai.APIConnectionError(request=REQUEST)
    assert classify(raised_from(outer, RuntimeError("closed client"))).kind is Kind.LOCAL


def test_anthropic_status_errors() -> None:
    """anthropic's own classes are read through body and type."""
    answer: Any = httpx.Response(
        529,
        json={"type": "error", "error": {"type": "overloaded_error", "message": "later"}},
        request=REQUEST,
    )
    client = anthropic.Anthropic(api_key="x", base_url=URL)
    failure = classify(client._make_status_error_from_response(answer))
    assert (failure.kind, failure.code) == (Kind.OVERLOADED, "overloaded_error")
    assert failure.provider_message == "later"


def test_aiohttp_errors() -> None:
    """aiohttp's errors are read without its deprecated ``code`` warning."""
    aiohttp = pytest.importorskip("aiohttp")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = aiohttp.ClientResponseError(None, (), status=429, message="no")
        assert classify(answer).kind is Kind.RATE_LIMIT
    assert classify(aiohttp.ServerDisconnectedError()).kind is Kind.CONNECTION
    assert classify(aiohttp.ServerTimeoutError()).kind is Kind.TIMEOUT


def test_grpc_codes_are_read_from_the_method() -> None:
    """gRPC keeps its code behind a call."""
    code = type("StatusCode", (), {"name": "RESOURCE_EXHAUSTED"})()
    base = type("RpcError", (Exception,), {"code": lambda self: code, "details": lambda self: "x"})
    assert classify(base()).kind is Kind.RATE_LIMIT


# --- what a Failure holds


def test_a_failure_holds_no_reference_to_the_exception() -> None:
    """Neither the exception nor its traceback outlives the caller's own reference."""
    error = ProviderError("no", status_code=429)
    alive = weakref.ref(error)
    failure = classify(error)
    del error
    gc.collect()
    assert isinstance(failure, Failure)
    assert alive() is None


SECRETS = [
    "sk-" + "proj-" + "a1b2" * 8,
    "gsk_" + "Z9y8" * 8,
    "AIza" + "Sy0x" * 9,
    "AKIA" + "Q7" * 8,
    "eyJ" + "hbGciOi.eyJzdWIi.c2ln" * 2,
    "deadbeef" * 5,
    "Zm9v" * 12,
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("frame", ["key {} is wrong", "({})", "got '{}', sorry", "a={}"])
def test_a_provider_message_shows_no_key(secret: str, frame: str) -> None:
    """Keys and long tokens are masked wherever they stand."""
    failure = classify(ProviderError(frame.format(secret), status_code=401))
    assert secret not in failure.provider_message


@pytest.mark.parametrize(
    "message",
    [
        "Bearer hunter2",
        "at https://h.test/x?key=hunter2&v=1",
        "api_key=hunter2",
        "x-api-key: hunter2",
        "https://me:hunter2@h.test/",
        "secret=hunter2",
    ],
)
def test_a_short_key_is_known_by_its_place(message: str) -> None:
    """What stands behind Bearer, key= and their like is masked however short."""
    assert "hunter2" not in redact(message)


def test_a_provider_message_is_one_short_line() -> None:
    """Whitespace is folded, control characters go, 200 characters remain."""
    shown = classify(ProviderError("a\n\tb\x00\x1b[31m " + "word " * 99, status_code=500))
    assert shown.provider_message.startswith("a b[31m word")
    assert len(shown.provider_message) == 200
    assert shown.provider_message.isprintable()


# --- hostile exceptions


class HostileError(Exception):
    """Raises and warns wherever it is touched."""

    @property
    def status_code(self) -> int:
        raise RuntimeError("never ask")

    @property
    def code(self) -> int:
        warnings.warn("old", DeprecationWarning, stacklevel=2)
        return 401

    @property
    def status(self) -> int:
        self.filters = warnings.filters
        return 503

    def __str__(self) -> str:
        raise ValueError("no words")

    def __repr__(self) -> str:
        raise ValueError("no words")


def test_properties_that_raise_or_warn_are_survived() -> None:
    """A property that raises is absent, as is one that warns: the filters are the process's."""
    error = HostileError()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = warnings.filters
        assert classify(error).kind is Kind.OVERLOADED
        assert error.filters is filters


class UnreadableError(Exception):
    """Refuses every attribute."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_an_exception_that_refuses_everything_is_local() -> None:
    """What cannot be read is the program's own."""
    assert classify(UnreadableError()).kind is Kind.LOCAL


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_names = st.sampled_from(
    [
        "status_code",
        "status",
        "code",
        "type",
        "body",
        "details",
        "error",
        "response",
        "headers",
        "message",
        "last_attempt",
        "reason",
        "litellm_response_headers",
        "__notes__",
    ]
)


@given(facts=st.dictionaries(_names, _values), args=st.lists(_values, max_size=3))
def test_classify_never_raises(facts: dict[str, Any], args: list[Any]) -> None:
    """Whatever attributes and arguments hold, a Failure comes out and keeps its promises."""
    error = ProviderError()
    error.args = tuple(args)
    error.__dict__.update(facts)
    failure = classify(raised_from(RuntimeError("outer"), error))
    assert failure.kind in Kind
    assert failure.status is None or 100 <= failure.status <= 599
    assert failure.retry_after is None or failure.retry_after >= 0
    assert len(failure.provider_message) <= 200
    assert failure.reason


def test_the_end_of_an_iterator_is_no_failure() -> None:
    """StopIteration, also as the RuntimeError that coroutines make of it, never switches."""

    async def coroutine() -> None:
        raise StopIteration

    async def generator() -> AsyncIterator[None]:
        raise StopAsyncIteration
        yield

    async def read() -> None:
        async for _ in generator():
            pass

    ended: list[BaseException] = [StopIteration(), StopAsyncIteration()]
    for made in (coroutine, read):
        with pytest.raises(RuntimeError) as raised:
            asyncio.run(made())
        ended.append(raised.value)
    for error in ended:
        failure = classify(error, rules=loaded(of_provider(Exception)))
        assert failure.kind is FailureKind.CANCELLED
    assert classify(RuntimeError("a bug")).kind is FailureKind.LOCAL
