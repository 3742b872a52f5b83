"""What gateways and wrappers hide in their texts, and whose texts are not a provider's."""

from __future__ import annotations

import builtins
import errno
import json
from http import HTTPStatus
from typing import Any

import httpcore
import httpx
import pytest
from google.genai import errors as genai
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK
from websockets.frames import Close

from honcho_fallback._classify import classify
from honcho_fallback._classify._tables import STATUSES, WORDS
from honcho_fallback._values.failure import Failure
from honcho_fallback._values.failure import FailureKind as Kind
from tests.helpers.errors import EXAMPLES, ProviderError, raised_from, stand_in
from tests.helpers.own_rules import loaded, of_provider


def kind_of(status: int) -> Kind:
    return (STATUSES.get(status) or STATUSES[status // 100 * 100]).kind


def under(status: int, text: str) -> Failure:
    return classify(ProviderError(text, status_code=status))


# Statuses under which a gateway hands on whatever it got.
GATEWAY = [400, 403, 404, 422, 500, 502, 503, 520]
# What an upstream answers; each means something else than what it is wrapped in.
UPSTREAM = [400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529]


@pytest.mark.parametrize("stated", EXAMPLES["inside"]["statuses"])
def test_the_status_that_a_text_states_decides(stated: str) -> None:
    """What a gateway wraps is nearer to the cause than its own status, which stays the status."""
    for upstream in UPSTREAM:
        text = stated.replace("NNN", str(upstream))
        for status in GATEWAY:
            failure = under(status, text)
            assert (failure.kind, failure.status) == (kind_of(upstream), status)
        for cls in (ProviderError, RuntimeError, Exception):  # where no attribute holds one
            failure = classify(cls(text))
            assert (failure.kind, failure.status) == (kind_of(upstream), upstream)


def test_every_status_counts_inside_a_text_as_outside() -> None:
    """A status that no row names is its class's, wherever it stands; so is one before a phrase."""
    for upstream in range(400, 600):
        assert classify(ProviderError("hello", status_code=upstream)).kind is kind_of(upstream)
        assert under(520, f"Error code: {upstream} - hello").kind is kind_of(upstream)
    for upstream in (401, 402, 403, 404):
        phrase = HTTPStatus(upstream).phrase
        for text in (
            f"hello {upstream} {phrase}",
            f"{upstream}: {phrase}",
            f"x {upstream} {phrase}.",
        ):
            assert under(502, text).kind is kind_of(upstream)


# --- documents inside texts


@pytest.mark.parametrize("status", [400, 500, 502])
@pytest.mark.parametrize("key", ["code", "type", "status", "reason"])
@pytest.mark.parametrize(("code", "kind"), EXAMPLES["inside"]["codes"].items())
def test_a_document_inside_a_text_decides(status: int, key: str, code: str, kind: str) -> None:
    """JSON, JSON in a string in JSON, and Python's repr say what the document says."""
    document = {"error": {"message": "hello", key: code}}
    once = json.dumps(document)
    twice = json.dumps({"hello": once})
    for text in (
        f"hello: {once}",
        f"hello: {twice}",
        f"hello: {json.dumps([twice])}",
        f"hello: {document}",
        f"hello - {[document]}",
        f"b'{once}'",
    ):
        failure = under(status, text)
        assert (failure.kind, failure.status) == (kind, status), text


@pytest.mark.parametrize("key", ["code", "status", "status_code"])
def test_a_number_inside_a_text_decides(key: str) -> None:
    """A document's status counts with quotes and without, also in a document in a document."""
    for code in (429, 401, 404):
        for document in ({"error": {key: code}}, {"error": {key: str(code)}}):
            inner = json.dumps(document)
            for text in (f"hello: {document}", f"hello: {inner}"):
                assert under(502, text).kind is kind_of(code)
            if key == "code":
                text = f"hello: {json.dumps({'hello': inner})}"
                assert under(502, text).kind is kind_of(code)


# --- AWS


AWS = "An error occurred ({}) when calling the {} operation: hello"


@pytest.mark.parametrize("operation", WORDS["operations"])
def test_a_models_operation_says_what_its_code_says(operation: str) -> None:
    """An exception's code stands in AWS's own sentence, inside whatever wraps it."""
    for code, kind in [
        ("ValidationException", Kind.INVALID_REQUEST),
        ("ResourceNotFoundException", Kind.MODEL_UNAVAILABLE),
        ("ModelTimeoutException", Kind.TIMEOUT),
        ("ServiceQuotaExceededException", Kind.QUOTA),
    ]:
        text = AWS.format(code, operation)
        for error in (
            ProviderError(text),
            RuntimeError(f"hello: {text}"),
            ValueError(f"Error raised by bedrock service: {text}"),
            ProviderError(f"hello - {text}", status_code=500),
            ProviderError(f"hello - {text}", status_code=400),
        ):
            assert classify(error).kind is kind, (error, code)


@pytest.mark.parametrize("operation", ["PutObject", "GetItem", "Query", "GetSecretValue"])
def test_another_services_operation_is_local(operation: str) -> None:
    """A bucket, a table or a queue is no provider, whatever status a wrapper gives it."""
    for code in ("ThrottlingException", "AccessDenied", "InternalFailure"):
        text = AWS.format(code, operation)
        for error in (RuntimeError(text), ProviderError(text, status_code=503), ValueError(text)):
            failure = classify(error)
            assert (failure.kind, failure.switchable) == (Kind.LOCAL, False)
            named = classify(error, rules=loaded(of_provider(type(error))))
            assert (named.kind, named.status) == (Kind.SERVER_ERROR, failure.status)


# --- the program's own words


@pytest.mark.parametrize("name", WORDS["bugs"])
def test_what_only_a_bug_raises_is_never_read(name: str) -> None:
    """No provider wrote the text of a lookup or an assertion."""
    cls: Any = getattr(builtins, name)
    derived = type("HelloError", (cls,), {"__init__": lambda self, *_: None})
    for error in (cls.__new__(cls), derived("status 503")):
        error.args = ("Error code: 503 - rate limit, connection refused",)
        assert classify(error).kind is Kind.LOCAL


@pytest.mark.parametrize("part", WORDS["parts"])
def test_a_part_that_an_answer_lacks_is_the_answers_fault(part: str) -> None:
    """A reader that looks for what every answer has got none; any other name is a bug."""
    for error in (KeyError(part), AttributeError("x", name=part)):
        failure = classify(error)
        assert failure.kind is Kind.MALFORMED_RESPONSE
        assert part in failure.reason
    for bug in (KeyError("x" + part), KeyError(part, 1), AttributeError(part), LookupError(part)):
        assert classify(bug).kind is Kind.LOCAL


def test_another_services_error_is_local_whatever_is_derived_from_it() -> None:
    """A database has statuses, limits and timeouts of its own, also where a rule has a default."""
    for name in ("RateLimitError", "TimeoutError", "HelloError"):
        base = stand_in(name, "psycopg.errors")
        derived = type("MineError", (base,), {})("hello", status_code=503)
        assert classify(base("connection refused")).kind is Kind.LOCAL
        assert classify(derived, rules=loaded(of_provider(type(derived)))).kind is Kind.LOCAL


# --- an OSError that says nothing itself

ATTEMPTS = "All connection attempts failed"


def raised_for(inner: BaseException | None, text: str = ATTEMPTS) -> Exception:
    """Build httpx's error as anyio and httpcore leave it: an OSError without a number within."""
    outer = OSError(text)
    outer.__cause__ = inner
    return raised_from(httpx.ConnectError(text), raised_from(httpcore.ConnectError(text), outer))


def refused() -> OSError:
    return ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def number(name: str) -> OSError:
    return OSError(getattr(errno, name), name)


@pytest.mark.parametrize(
    "inner",
    [
        refused(),
        ExceptionGroup("multiple connection attempts failed", [refused(), refused()]),
        # A machine without IPv6 asks for it all the same.
        ExceptionGroup("multiple", [number("EAFNOSUPPORT"), refused()]),
        ExceptionGroup("multiple", [number("ENETUNREACH"), number("EADDRNOTAVAIL")]),
        None,
    ],
)
def test_an_os_error_without_a_number_leaves_it_to_what_it_was_raised_from(
    inner: BaseException | None,
) -> None:
    """anyio and trio raise one for all addresses; under a connection class it says nothing."""
    assert classify(raised_for(inner)).kind is Kind.CONNECTION


@pytest.mark.parametrize("name", ["ENOSPC", "EACCES", "EPERM", "EMFILE", "ENFILE"])
def test_what_the_machine_lacks_is_local_under_a_connection_class(name: str) -> None:
    """No other model mends a full disk, a refused permission or too many open files."""
    texts = f"Multiple exceptions: [Errno 111] refused, [Errno {getattr(errno, name)}] {name}"
    for error in (
        raised_for(number(name)),
        raised_for(ExceptionGroup("multiple", [refused(), number(name)])),
        raised_for(None, texts),  # asyncio's, with the numbers of all in its text
        OSError(texts),
    ):
        assert classify(error).kind is Kind.LOCAL
    assert classify(OSError("Multiple exceptions: [Errno 111] no, [Errno 111] no")).kind is (
        Kind.CONNECTION
    )


# --- a websocket's close


def closed(
    number: int, reason: str, cls: type[ConnectionClosed] = ConnectionClosedError
) -> ConnectionClosed:
    """Build what the websockets library raises for a server's close frame."""
    frame = Close(number, reason)
    return cls(frame, frame, rcvd_then_sent=True)


@pytest.mark.parametrize("close", EXAMPLES["websocket"]["closes"], ids=str)
def test_a_close_frames_reason_is_the_message(close: dict[str, Any]) -> None:
    """A server that closes a websocket says why there; Google's SDK keeps it as an answer."""
    number, reason = close["number"], close["reason"]
    failure = classify(closed(number, reason))
    assert (failure.kind, failure.provider_message) == (close["kind"], reason)
    assert classify(genai.APIError(number, reason, None)).kind == close["kind"]


def test_a_close_that_does_not_say_why_is_a_lost_connection_or_an_end() -> None:
    """A session's normal end is the caller's own; one that the server ends by a limit is not."""
    for number in (1008, 1011, 4000):  # which alone says too little
        assert classify(closed(number, "")).kind is Kind.CONNECTION
    assert classify(ConnectionClosedError(None, None)).kind is Kind.CONNECTION
    assert classify(closed(1000, "", ConnectionClosedOK)).kind is Kind.CANCELLED
    assert classify(closed(1000, "bye", ConnectionClosedOK)).kind is Kind.CANCELLED
    limit = "Your session hit the maximum duration of 60 minutes."
    failure = classify(closed(1001, limit, ConnectionClosedOK))
    assert (failure.kind, failure.switchable, failure.transient) == (Kind.TIMEOUT, True, True)
