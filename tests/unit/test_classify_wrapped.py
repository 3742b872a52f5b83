"""What gateways and wrappers hide in their texts, and whose texts are not a provider's."""

from __future__ import annotations

import builtins
import errno
import json
import smtplib
from typing import Any

import botocore.exceptions
import httpcore
import httpx
import pytest
from google.genai import errors as genai
from hypothesis import given
from hypothesis import strategies as st
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
# Statuses that mean what they say.
PLAIN = [401, 402, 407, 408, 413, 429, 504, 524, 529]
# What an upstream answers; each means something else than what it is wrapped in.
UPSTREAM = st.sampled_from([400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529])
# Ways to write a status, with words that mean nothing beside it.
STATED = [
    "Error code: {}",
    "Error code: {} - hello",
    "hello, status code: {}.",
    "hello (status_code={})",
    "HTTP status {} hello",
    "http {}",
    "{{'status': {}}} hello",
    '{{"status": "{}"}} hello',
    "code({}) hello",
    "error {} hello",
    "hello [{}] hello",
    "[{} hello]",
    "{}: hello",
    " {}, hello",
    "hello failed {}",
    "hello returned {}: hello",
    "hello replied with {}",
    "hello responded: {} hello",
    "hello answered, {}",
    "we received {}",
    "we got {}",
    "{} client error for url",
    "Received client error ({}) from hello",
]


@pytest.mark.parametrize("stated", STATED)
@pytest.mark.parametrize("status", GATEWAY)
@given(upstream=UPSTREAM)
def test_the_status_that_a_text_states_decides(status: int, stated: str, upstream: int) -> None:
    """What a gateway wraps is nearer to the cause than its own status, which stays the status."""
    failure = under(status, stated.format(upstream))
    assert (failure.kind, failure.status) == (kind_of(upstream), status)


@pytest.mark.parametrize("stated", STATED)
@given(upstream=UPSTREAM)
def test_a_wrapper_without_a_status_has_the_one_that_it_states(stated: str, upstream: int) -> None:
    """Where no attribute holds a status, the text's is the failure's."""
    for cls in (ProviderError, RuntimeError, Exception):
        failure = classify(cls(stated.format(upstream)))
        assert (failure.kind, failure.status) == (kind_of(upstream), upstream)


def test_every_status_counts_inside_a_text_as_outside() -> None:
    """A status that no row names is its class's, wherever it stands."""
    for upstream in range(400, 600):
        assert classify(ProviderError("hello", status_code=upstream)).kind is kind_of(upstream)
        assert under(520, f"Error code: {upstream} - hello").kind is kind_of(upstream)


@pytest.mark.parametrize("phrase", ["Unauthorized", "Payment Required", "Not Found", "Forbidden"])
def test_a_status_before_its_phrase_counts(phrase: str) -> None:
    """HTTP's own phrase says that the number is a status."""
    statuses = {"Unauthorized": 401, "Payment Required": 402, "Not Found": 404, "Forbidden": 403}
    upstream = statuses[phrase]
    for text in (f"hello {upstream} {phrase}", f"{upstream}: {phrase}", f"x {upstream} {phrase}."):
        assert under(502, text).kind is kind_of(upstream)


@pytest.mark.parametrize(
    "text",
    [
        "hello 429",
        "429 hello",
        "429 items hello",
        "we got 429 items",
        "hello failed with 429 rows",
        "expected status: 429",
        "error 4290",
        "code: 14290",
        "code: 429.5",
        "status 429.01",
        "v1.429 forbidden",
        "1429 too late",
        "[4290]",
        "429hello: hello",
        "code: 299",
        "code: 629",
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_a_number_that_is_no_status_says_nothing(status: int, text: str) -> None:
    """Counts, parts of numbers, and what was only expected are no status."""
    assert under(status, text).reason == STATUSES[status].reason
    assert classify(RuntimeError(text)).kind is Kind.LOCAL


@pytest.mark.parametrize("status", PLAIN)
@pytest.mark.parametrize(
    "text",
    [
        "Error code: 400 - hello",
        "{'error': {'code': '1301'}}",
        "BadRequestError: hello",
        "An error occurred (AccessDeniedException) when calling the Converse operation: hello",
    ],
)
def test_a_plain_status_means_what_it_says(status: int, text: str) -> None:
    """A refused key, no credit, a limit and a timeout are no gateway's wrapping."""
    assert under(status, text).kind is kind_of(status)


# --- documents inside texts

CODES_INSIDE = [
    ("insufficient_quota", Kind.QUOTA),
    ("overloaded_error", Kind.OVERLOADED),
    ("context_length_exceeded", Kind.CONTEXT_OVERFLOW),
    ("1113", Kind.QUOTA),
    ("1301", Kind.CONTENT_POLICY),
    ("1305", Kind.OVERLOADED),
    ("authentication_error", Kind.AUTHENTICATION),
    ("rate_limit_error", Kind.RATE_LIMIT),
]


@pytest.mark.parametrize("status", [400, 500, 502])
@pytest.mark.parametrize("key", ["code", "type", "status", "reason"])
@pytest.mark.parametrize(("code", "kind"), CODES_INSIDE)
def test_a_document_inside_a_text_decides(status: int, key: str, code: str, kind: Kind) -> None:
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
@pytest.mark.parametrize("code", [429, 401, 404])
def test_a_number_inside_a_text_decides(code: int, key: str) -> None:
    """A document's status counts with quotes and without."""
    for document in ({"error": {key: code}}, {"error": {key: str(code)}}):
        for text in (f"hello: {document}", f"hello: {json.dumps(document)}"):
            assert under(502, text).kind is kind_of(code)


@pytest.mark.parametrize("code", [401, "401"])
def test_a_numeric_code_in_json_in_json_decides(code: object) -> None:
    """A document in a string in a document may state its status as a number."""
    inner = json.dumps({"error": {"code": code}})
    assert under(502, f"hello: {json.dumps({'hello': inner})}").kind is Kind.AUTHENTICATION


@pytest.mark.parametrize("key", ["error_code", "code", "status_code", "http_code"])
@pytest.mark.parametrize("own", [400, 500, 502])
def test_a_number_in_nested_metadata_decides(own: int, key: str) -> None:
    """A gateway's own number stands outside, the provider's inside."""
    metadata = {"provider_name": "hello", key: 401}
    body = {"error": {"message": "hello", "code": own, "metadata": metadata}}
    failure = classify(ProviderError("hello", status_code=own, body=body))
    assert (failure.kind, failure.status) == (Kind.AUTHENTICATION, own)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_the_callers_own_400_inside_a_500_does_not_switch(status: int) -> None:
    """A wrong request is wrong everywhere, whatever number a gateway gives it."""
    for text in ("Error code: 400 - hello", "hello [400]", "hello 400 Bad Request"):
        failure = under(status, text)
        assert (failure.kind, failure.switchable) == (Kind.INVALID_REQUEST, False)


@pytest.mark.parametrize("status", [500, 502, 503])
@pytest.mark.parametrize(
    "code", ["invalid_request_error", "invalid_request", "INVALID_ARGUMENT", "bad_request"]
)
def test_a_code_alone_makes_no_5xx_a_bad_request(status: int, code: str) -> None:
    """Providers that are down call that a bad request, too; a text or a status says otherwise."""
    for body in (
        {"error": {"message": "hello", "type": code}},
        {"error": {"message": json.dumps({"error": {"message": "hello", "code": code}})}},
    ):
        failure = classify(ProviderError("hello", status_code=status, body=body))
        assert failure.kind is kind_of(status)
    body = {"error": {"message": "tools are not supported", "type": code}}
    failure = classify(ProviderError("hello", status_code=status, body=body))
    assert failure.kind is Kind.UNSUPPORTED


@pytest.mark.parametrize("code", ["api_error", "unavailable", "upstream_error", "data_loss"])
def test_a_code_beside_its_own_status_adds_nothing(code: str) -> None:
    """A code that names 5xx does not change a 4xx, nor one 5xx another."""
    for status in (400, 404, 500, 503):
        body = {"error": {"message": "hello", "type": code}}
        failure = classify(ProviderError("hello", status_code=status, body=body))
        assert failure.kind is kind_of(status)


# --- classes named in texts


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("RequestTooLargeError", Kind.PAYLOAD_TOO_LARGE),
        ("BadRequestError", Kind.INVALID_REQUEST),
        ("NotFoundError", Kind.MODEL_UNAVAILABLE),
        ("DefaultCredentialsError", Kind.AUTHENTICATION),
        ("StopCandidateException", Kind.REFUSAL),
        ("ReadTimeout", Kind.TIMEOUT),
        ("BlockedPromptException", Kind.CONTENT_POLICY),
    ],
)
def test_a_class_that_a_text_names_decides(name: str, kind: Kind) -> None:
    """A gateway's text names the exception that it got; the last one named was the first."""
    for text in (f"HelloException - {name}: hello", f"hello.{name}(hello)", f"APIError: {name}"):
        assert under(500, text).kind is kind


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


@pytest.mark.parametrize(
    "operation", ["PutObject", "GetItem", "Query", "SendMessage", "GetSecretValue"]
)
@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDenied", "InternalFailure"])
def test_another_services_operation_is_local(operation: str, code: str) -> None:
    """A bucket, a table or a queue is no provider, whatever status a wrapper gives it."""
    text = AWS.format(code, operation)
    for error in (RuntimeError(text), ProviderError(text, status_code=503), ValueError(text)):
        failure = classify(error)
        assert (failure.kind, failure.switchable) == (Kind.LOCAL, False)
        named = classify(error, rules=loaded(of_provider(type(error))))
        assert (named.kind, named.status) == (Kind.SERVER_ERROR, failure.status)


@pytest.mark.parametrize(
    "error",
    [
        botocore.exceptions.SSOError(),
        botocore.exceptions.SSOTokenLoadError(error_msg="hello"),
        botocore.exceptions.UnauthorizedSSOTokenError(),
        botocore.exceptions.TokenRetrievalError(provider="sso", error_msg="hello"),
        botocore.exceptions.CredentialRetrievalError(provider="sso", error_msg="hello"),
        botocore.exceptions.NoCredentialsError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_credentials_that_aws_does_not_get_are_no_bug(error: Exception) -> None:
    """A session that ended is an authentication: another provider has its own."""
    failure = classify(error)
    assert (failure.kind, failure.switchable) == (Kind.AUTHENTICATION, True)


# --- the program's own words


@pytest.mark.parametrize("cls", [ValueError, TypeError])
@pytest.mark.parametrize(
    "text",
    [
        "404 items could not be processed",
        "expected status: 500, got 200",
        "timeout must be positive",
        "status: 503",
        "Error code: 429 - hello",
        "503 Service Unavailable",
        "connection refused",
        "rate limit",
        "the model was not found",
        "An error occurred (ThrottlingException)",
    ],
)
def test_a_plain_value_or_type_error_is_the_programs_own(cls: type[Exception], text: str) -> None:
    """Numbers and words of a built-in class are no provider's; those of a wrapper's may be."""
    assert classify(cls(text)).kind is Kind.LOCAL
    derived = stand_in("HelloError", "hello", cls)
    assert classify(derived("Error code: 429 - hello")).kind is Kind.RATE_LIMIT


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


# --- packages


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("UNKNOWN", Kind.SERVER_ERROR),
        ("INVALID_ARGUMENT", Kind.INVALID_REQUEST),
        ("DEADLINE_EXCEEDED", Kind.TIMEOUT),
        ("NOT_FOUND", Kind.MODEL_UNAVAILABLE),
        ("PERMISSION_DENIED", Kind.PERMISSION),
        ("RESOURCE_EXHAUSTED", Kind.RATE_LIMIT),
        ("FAILED_PRECONDITION", Kind.INVALID_REQUEST),
        ("ABORTED", Kind.SERVER_ERROR),
        ("OUT_OF_RANGE", Kind.INVALID_REQUEST),
        ("INTERNAL", Kind.SERVER_ERROR),
        ("UNAVAILABLE", Kind.OVERLOADED),
        ("DATA_LOSS", Kind.SERVER_ERROR),
        ("UNAUTHENTICATED", Kind.AUTHENTICATION),
    ],
)
def test_grpcs_codes(name: str, kind: Kind) -> None:
    """Each code that a provider's gRPC gives is known, and its details are its message."""
    code = type("StatusCode", (), {"name": name})()
    base = stand_in("RpcError", "grpc", Exception)
    namespace = {"code": lambda _: code, "details": lambda _: "hello"}
    failure = classify(type("_InactiveRpcError", (base,), namespace)())
    assert (failure.kind, failure.code, failure.provider_message) == (kind, name, "hello")


def test_grpcs_details_are_read() -> None:
    """They say more than the code where they do."""
    code = type("StatusCode", (), {"name": "UNKNOWN"})()
    namespace = {"code": lambda _: code, "details": lambda _: "your balance is too low"}
    error = type("_InactiveRpcError", (Exception,), namespace)()
    assert classify(error).kind is Kind.QUOTA


@pytest.mark.parametrize(
    "module",
    [
        "smtplib",
        "aiosmtplib.errors",
        "ftplib",
        "stripe._error",
        "slack_sdk.errors",
        "redis.exceptions",
        "psycopg.errors",
        "sqlalchemy.exc",
        "pymongo.errors",
        "elastic_transport",
        "qdrant_client.http.exceptions",
        "celery.exceptions",
        "jwt.exceptions",
        "boto3.exceptions",
    ],
)
def test_another_services_package_is_local(module: str) -> None:
    """A mail server or a database has statuses, limits and timeouts of its own."""
    for name in ("RateLimitError", "TimeoutError", "HelloError"):
        error = stand_in(name, module)("connection refused", status_code=429)
        assert classify(error).kind is Kind.LOCAL
        derived = type("MineError", (type(error),), {})("hello", status_code=503)
        assert classify(derived, rules=loaded(of_provider(type(derived)))).kind is Kind.LOCAL


def test_a_mail_servers_errors_are_local() -> None:
    """SMTP's numbers are no HTTP statuses, and its lost connection is nobody's model."""
    assert classify(smtplib.SMTPResponseException(503, b"bad sequence")).kind is Kind.LOCAL
    assert classify(smtplib.SMTPServerDisconnected("connection closed")).kind is Kind.LOCAL


# --- LiteLLM's two catch-alls

WRAPPED = [
    ("model nimbus not found", Kind.MODEL_UNAVAILABLE),
    ("403 Forbidden", Kind.PERMISSION),
    ("Error code: 401 - hello", Kind.AUTHENTICATION),
]
LOST = ["[Errno -2] Name or service not known", "Server disconnected", "Connection reset by peer"]


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    return pytest.importorskip("litellm")


def wrapped(cls: Any, text: str) -> Any:
    return cls(message=f"OllamaException - {text}", llm_provider="ollama", model="m")


def test_litellms_own_check_of_parameters_is_what_the_model_lacks(litellm: Any) -> None:
    """Its class says so before any request, whatever the sentence and the status."""
    error = litellm.UnsupportedParamsError("hello", llm_provider="house", model="m")
    assert classify(error).kind is Kind.UNSUPPORTED


@pytest.mark.parametrize(("text", "kind"), [*WRAPPED, *((text, Kind.CONNECTION) for text in LOST)])
def test_litellms_server_error_is_what_it_wraps(litellm: Any, text: str, kind: Kind) -> None:
    """What an integration did not map keeps its text, which says more than 500."""
    failure = classify(wrapped(litellm.InternalServerError, text))
    assert (failure.kind, failure.status) == (kind, 500)
    assert classify(wrapped(litellm.InternalServerError, "hello")).kind is Kind.SERVER_ERROR


@pytest.mark.parametrize("text", ["hello", *LOST])
def test_litellms_connection_error_is_one_unless_it_says_more(litellm: Any, text: str) -> None:
    """Its status of 500 is its own."""
    failure = classify(wrapped(litellm.APIConnectionError, text))
    assert (failure.kind, failure.reason) == (Kind.CONNECTION, "a connection class")


@pytest.mark.parametrize(("text", "kind"), WRAPPED)
def test_litellms_connection_error_is_what_it_wraps(litellm: Any, text: str, kind: Kind) -> None:
    """It has whatever no integration mapped."""
    assert classify(wrapped(litellm.APIConnectionError, text)).kind is kind


@pytest.mark.parametrize(
    "text",
    ["'NoneType' object is not subscriptable", "argument of type 'NoneType' is not iterable"],
)
def test_an_answer_that_litellm_could_not_read_is_no_wrong_request(
    litellm: Any, text: str
) -> None:
    """Python's own words come from the reader of the answer, so another target may work."""
    for cls in (litellm.InternalServerError, litellm.APIConnectionError):
        assert classify(wrapped(cls, text)).switchable


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
        raised_for(None, texts),
    ):
        assert classify(error).kind is Kind.LOCAL


def test_asyncios_error_for_several_addresses_is_read_by_its_numbers() -> None:
    """It has no number and no cause, but the numbers of all in its text."""
    text = "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] no"
    assert classify(OSError(text)).kind is Kind.CONNECTION
    assert classify(OSError("Multiple exceptions: [Errno 28] full, [Errno 28] full")).kind is (
        Kind.LOCAL
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


@pytest.mark.parametrize("number", [1008, 1011, 4000])
def test_a_close_without_a_reason_is_a_lost_connection(number: int) -> None:
    """Its number alone says too little."""
    assert classify(closed(number, "")).kind is Kind.CONNECTION
    assert classify(ConnectionClosedError(None, None)).kind is Kind.CONNECTION


def test_an_end_is_no_error_unless_it_says_why() -> None:
    """A session's normal end is the caller's own; one that the server ends by a limit is not."""
    assert classify(closed(1000, "", ConnectionClosedOK)).kind is Kind.CANCELLED
    assert classify(closed(1000, "bye", ConnectionClosedOK)).kind is Kind.CANCELLED
    limit = "Your session hit the maximum duration of 60 minutes."
    failure = classify(closed(1001, limit, ConnectionClosedOK))
    assert (failure.kind, failure.switchable, failure.transient) == (Kind.TIMEOUT, True, True)
