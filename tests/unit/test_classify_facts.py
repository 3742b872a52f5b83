"""Which facts of an exception the classifier reads, and which of two decides."""

from __future__ import annotations

import json
from typing import Any

import botocore.exceptions
import pytest
import requests

from honcho_fallback._classify import classify
from honcho_fallback._classify._tables import NAMES
from honcho_fallback._values.failure import Failure
from honcho_fallback._values.failure import FailureKind as Kind
from tests.helpers.own_rules import loaded, of_program, of_provider


class ProviderError(Exception):
    """An in-house client's error: whatever it is given becomes an attribute."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


def named(name: str, base: type[Exception] = ProviderError) -> type[Any]:
    return type(name, (base,), {"__module__": "some.sdk"})


def raised_from(outer: Exception, cause: BaseException) -> Exception:
    outer.__cause__ = cause
    return outer


def of_body(body: Any, status: int | None = 400, message: str = "own words") -> Failure:
    facts = {} if status is None else {"status_code": status}
    return classify(ProviderError(message, body=body, **facts))


# --- documents


def test_each_text_of_a_document_counts_once() -> None:
    """A text that stands twice is shown once, and each is a text of its own."""
    body = {"error": {"message": "hello"}, "message": "hello", "detail": "there"}
    assert of_body(body).provider_message == "hello there"


def test_two_texts_are_two_sentences() -> None:
    """Words of two fields fit nothing together."""
    body = {"message": "the deployment", "detail": "was removed"}
    assert of_body(body, 403).reason == "status 403"
    assert of_body({"message": "the deployment was removed"}, 403).kind is Kind.MODEL_UNAVAILABLE


def test_a_code_is_read_by_its_words() -> None:
    """A code that no table has says what its words say."""
    assert of_body({"code": "tenant_balance_too_low"}).kind is Kind.QUOTA
    assert of_body({"type": "TenantBalanceTooLow", "message": "hello"}).kind is Kind.QUOTA
    assert of_body({"code": "tenant_balance", "message": "too low"}).kind is Kind.INVALID_REQUEST


@pytest.mark.parametrize("key", ["metadata", "response", "errors"])
def test_a_plain_text_where_a_document_belongs_is_no_message(key: str) -> None:
    """Only the fields that hold texts are read as one."""
    failure = of_body({key: "you hit the rate limit", "message": "hello"})
    assert (failure.kind, failure.provider_message) == (Kind.INVALID_REQUEST, "hello")


def test_a_document_as_a_text_gives_its_texts() -> None:
    """A field that holds nothing but a document stands for what is in it."""
    inner = json.dumps({"message": "hello"})
    assert of_body({"message": inner}).provider_message == "hello"
    assert of_body({"message": f"there: {inner}"}).provider_message.startswith("hello there:")
    bare = json.dumps({"code": "abc"})
    assert of_body({"message": bare}).provider_message == bare
    assert of_body(bare).provider_message == "own words"
    assert of_body(bare).code == "abc"
    assert of_body({"message": "{no json}"}).provider_message == "{no json}"


@pytest.mark.parametrize("body", ["x", "hello", b"hello"])
def test_a_body_that_is_plain_text_is_the_message(body: str | bytes) -> None:
    """However short it is."""
    want = body if isinstance(body, str) else body.decode()
    assert of_body(body).provider_message == want


@pytest.mark.parametrize(("size", "code"), [(65_536, "abc"), (65_537, None)])
def test_a_body_of_more_than_64_kib_is_not_parsed(size: int, code: str | None) -> None:
    """What is longer is a page or an echo."""
    body = json.dumps({"code": "abc", "message": "hello", "echo": ""})
    body = body.replace('"echo": "', '"echo": "' + "x" * (size - len(body)))
    assert len(body) == size
    assert of_body(body).code == code


@pytest.mark.parametrize(("place", "code"), [(1, "abc"), (8, "abc"), (9, None)])
def test_eight_errors_of_a_list_are_read(place: int, code: str | None) -> None:
    """A list of more is no longer a list of causes."""
    errors: list[dict[str, str]] = [{}] * (place - 1) + [{"code": "abc"}]
    assert of_body(errors).code == code


@pytest.mark.parametrize(("depth", "code"), [(0, "abc"), (3, "abc"), (4, None)])
def test_three_documents_inside_one_are_read(depth: int, code: str | None) -> None:
    """Deeper ones are the request that came back."""
    for wrap in ("error", "metadata"):
        body: Any = {"code": "abc"}
        for _ in range(depth):
            body = {wrap: body}
        assert of_body(body).code == code


@pytest.mark.parametrize(("depth", "code"), [(1, "abc"), (3, "abc"), (4, None)])
def test_three_documents_as_texts_inside_one_are_read(depth: int, code: str | None) -> None:
    """A gateway before a gateway quotes what the other quoted."""
    body: Any = {"code": "abc", "message": "hello"}
    for _ in range(depth):
        body = {"message": json.dumps(body)}
    assert of_body(body).code == code


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("X", "X"),
        ("x" * 64, "x" * 64),
        ("x" * 65, None),
        ("", None),
        ("None", None),
        (None, None),
        (True, None),
        (["abc"], None),
        (7, "7"),
        (1113, "1113"),
    ],
)
def test_a_code_is_a_short_string_or_a_number(code: Any, shown: str | None) -> None:
    """Whatever else stands in its place is none."""
    assert of_body({"code": code, "message": "hello"}).code == shown


def test_the_code_that_is_shown_is_the_first_that_tells() -> None:
    """An error that is only called error, and a status, leave the place to the next code."""
    assert of_body({"type": "error", "error_code": "abc"}).code == "abc"
    assert of_body({"code": 400, "type": "abc", "status": "DEF"}).code == "abc"
    assert of_body({"type": "error"}).code == "error"
    assert of_body({"type": "outer", "error": {"type": "inner"}}).code == "inner"


@pytest.mark.parametrize("name", ["code", "type", "status", "error_code"])
def test_a_code_is_read_from_each_attribute(name: str) -> None:
    """Clients that keep no body keep the code by itself; a body's code goes first."""
    facts: dict[str, Any] = {name: "insufficient_quota"}
    failure = classify(ProviderError("hello", status_code=400, **facts))
    assert (failure.kind, failure.code) == (Kind.QUOTA, "insufficient_quota")
    both = classify(ProviderError("hello", status_code=400, body={"code": "abc"}, **facts))
    assert (both.kind, both.code) == (Kind.QUOTA, "abc")


def test_the_first_of_several_bodies_counts() -> None:
    """Clients keep what they parsed, then the raw answer."""
    raw = {"code": "insufficient_quota", "message": "there"}
    error = ProviderError("no", status_code=400, body={"message": "hello"}, details=raw)
    assert (classify(error).kind, classify(error).provider_message) == (
        Kind.INVALID_REQUEST,
        "hello",
    )
    for name in ("body", "details", "error"):
        assert classify(ProviderError("no", status_code=400, **{name: raw})).kind is Kind.QUOTA
    unread: list[Any] = [{}, [], "", b"", None, 7]
    for nothing in unread:
        error = ProviderError("no", status_code=400, body=nothing, details=raw)
        assert classify(error).kind is Kind.QUOTA


def test_the_content_of_a_response_is_read() -> None:
    """requests keeps the bytes that it has already read."""
    answer = requests.Response()
    answer.status_code = 400
    answer._content = b'{"error": {"code": "insufficient_quota", "message": "hello"}}'
    failure = classify(requests.HTTPError("no", response=answer))
    assert (failure.kind, failure.provider_message) == (Kind.QUOTA, "hello")


def test_botocores_headers_are_read() -> None:
    """The wait stands among the metadata of the answer."""
    answer: Any = {
        "Error": {"Code": "Whatever", "Message": "hello"},
        "ResponseMetadata": {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "7"}},
    }
    failure = classify(botocore.exceptions.ClientError(answer, "Converse"))
    assert (failure.kind, failure.status, failure.retry_after) == (Kind.RATE_LIMIT, 429, 7.0)


@pytest.mark.parametrize(
    "response",
    [None, 7, "hello", [], {}, {"ResponseMetadata": 7}, {"ResponseMetadata": {"HTTPHeaders": 7}}],
    ids=str,
)
def test_an_odd_response_hides_nothing(response: Any) -> None:
    """What stands beside it still counts."""
    error = ProviderError("hello", status_code=429, response=response)
    assert classify(error).kind is Kind.RATE_LIMIT


class Answer:
    """A response whose facts are properties."""

    status_code = property(lambda _: 429)
    headers = property(lambda _: {"retry-after": "7"})


class OtherAnswer:
    status = property(lambda _: 429)


def test_a_response_is_read_through_its_properties() -> None:
    """Some clients compute the status and the headers."""
    failure = classify(ProviderError("hello", response=Answer()))
    assert (failure.kind, failure.status, failure.retry_after) == (Kind.RATE_LIMIT, 429, 7.0)
    assert classify(ProviderError("hello", response=OtherAnswer())).status == 429


@pytest.mark.parametrize(("wait", "kind"), [(3599, Kind.RATE_LIMIT), (3600, Kind.QUOTA)])
def test_a_window_of_an_hour_is_a_quota(wait: int, kind: Kind) -> None:
    """From an hour on, a limit is an allowance that is used up, wherever the wait stands."""
    header = ProviderError("hello", status_code=429, headers={"retry-after": str(wait)})
    text = ProviderError(f"hello, try again in {wait}s", status_code=429)
    for error in (header, text):
        assert (classify(error).kind, classify(error).retry_after) == (kind, wait)


# --- messages


class QuotingError(Exception):
    def __str__(self) -> str:
        return f"quoted {self.args!r}"


class MuteError(Exception):
    status_code = 500

    def __str__(self) -> str:
        raise ValueError("no words")


def test_the_only_argument_is_the_message() -> None:
    """One text is the message, whatever str makes of it; of several, str speaks."""
    for args, want in [
        (("hello",), "hello"),
        (("hello", 7), "quoted ('hello', 7)"),
        ((7,), "quoted (7,)"),
        ((), "quoted ()"),
    ]:
        error = QuotingError(*args)
        error.__dict__["status_code"] = 500
        assert classify(error).provider_message == want
    assert classify(MuteError("hello")).provider_message == "hello"
    assert classify(MuteError()).provider_message == ""


def test_a_class_that_no_row_names_is_read_by_its_words() -> None:
    """A name says what happened where neither a status nor a row does."""
    balance = named("TenantBalanceDepleted")
    assert classify(balance("hello")).kind is Kind.QUOTA
    assert classify(type("Odd", (balance,), {})("hello")).kind is Kind.QUOTA
    assert classify(balance("hello", status_code=400)).kind is Kind.INVALID_REQUEST
    assert classify(named("TenantBalance")("depleted")).kind is Kind.LOCAL


# --- statuses


def test_the_lowest_error_status_is_400() -> None:
    """Codes from 400 on are statuses; what is below is none."""
    failure = of_body({"code": 400, "message": "hello"}, None)
    assert (failure.kind, failure.status) == (Kind.INVALID_REQUEST, 400)
    assert of_body({"code": 399, "message": "hello"}, None).kind is Kind.LOCAL
    assert classify(ProviderError("hello", status_code=400)).kind is Kind.INVALID_REQUEST


@pytest.mark.parametrize("status", [200, 302, 399])
def test_an_error_under_a_success_is_a_broken_answer(status: int) -> None:
    """Where nothing else is said, the answer could not be used; the status stays."""
    failure = classify(ProviderError("hello", status_code=status))
    assert (failure.kind, failure.status) == (Kind.MALFORMED_RESPONSE, status)
    assert str(status) in failure.reason
    coded = classify(ProviderError("x", status_code=status, body={"code": "insufficient_quota"}))
    assert (coded.kind, coded.status) == (Kind.QUOTA, status)
    worded = classify(ProviderError("your balance is too low", status_code=status))
    assert (worded.kind, worded.status) == (Kind.QUOTA, status)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("RateLimitError", "this body is too big", Kind.PAYLOAD_TOO_LARGE),
        ("OverloadedError", "the checkpoint is warming", Kind.MODEL_UNAVAILABLE),
        ("InternalServerError", "slow down", Kind.RATE_LIMIT),
        ("PermissionDeniedError", "the engine was removed", Kind.MODEL_UNAVAILABLE),
        ("PermissionDeniedError", "your engine was removed", Kind.PERMISSION),
        ("NotFoundError", "use chat completions here", Kind.UNSUPPORTED),
        ("BadRequestError", "the conversation is too long", Kind.CONTEXT_OVERFLOW),
    ],
)
def test_a_class_without_a_status_stands_for_one(name: str, text: str, kind: Kind) -> None:
    """Its text means what it would mean under the status that the class stands for."""
    failure = classify(named(name)(text))
    assert (failure.kind, failure.status) == (kind, None)
    assert classify(named(name)("hello")).kind is NAMES[name].kind


@pytest.mark.parametrize("code", ["invalid_parameter_error", "InvalidParameter", "BAD_REQUEST"])
def test_a_code_that_only_calls_a_request_bad_says_less_than_its_subject(code: str) -> None:
    """What a sentence says of the model counts for more, and a 5xx stays one."""
    body = {"error": {"code": code, "message": "The model m is not supported."}}
    assert of_body(body, 400).kind is Kind.MODEL_UNAVAILABLE
    assert of_body({"error": {"code": code, "message": "No."}}, 400).kind is Kind.INVALID_REQUEST
    assert of_body({"error": {"code": code, "message": "No."}}, 500).kind is Kind.SERVER_ERROR


def test_a_generic_code_stands_for_a_status_of_its_own() -> None:
    """A code that names a class of statuses lets the text be read under it."""
    body = {"error": {"type": "not_found", "message": "use chat completions here"}}
    assert of_body(body, None).kind is Kind.UNSUPPORTED
    assert of_body({"error": {"type": "not_found"}}, None).kind is Kind.MODEL_UNAVAILABLE


def test_a_text_counts_under_the_status_that_it_states() -> None:
    """What means something under 404 only means it where the upstream's status is 404."""
    text = "Error code: 404 - use chat completions here"
    assert classify(ProviderError(text, status_code=502)).kind is Kind.UNSUPPORTED
    assert classify(ProviderError(text[18:], status_code=502)).kind is Kind.SERVER_ERROR


def test_a_stated_status_is_nearer_than_a_gateways_code() -> None:
    """The number inside the text decides against the gateway's own word for it."""
    body = {"type": "invalid_request_error", "message": "Error code: 404 - hello"}
    assert of_body(body, 500).kind is Kind.MODEL_UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "kind"),
    [("not_found", Kind.MODEL_UNAVAILABLE), ("tokens", Kind.RATE_LIMIT)],
)
def test_a_generic_code_inside_a_text_is_a_status(code: str, kind: Kind) -> None:
    """A quoted code that only names a class of statuses counts as one of them."""
    for status in (400, 500):
        text = f"hello: {{'error': {{'code': '{code}'}}}}"
        assert classify(ProviderError(text, status_code=status)).kind is kind
    failure = classify(RuntimeError(f"hello: {{'code': '{code}'}}"))
    assert (failure.kind, failure.status) == (kind, {"not_found": 404, "tokens": 429}[code])


def test_a_providers_number_inside_a_text_needs_no_status() -> None:
    """A number that means something under a success or an error means it without either."""
    assert classify(RuntimeError("hello: {'code': '1008'}")).kind is Kind.QUOTA
    assert classify(ProviderError("{'code': '1008'}", status_code=429)).kind is Kind.RATE_LIMIT
    assert classify(ProviderError("{'code': '1008'}", status_code=403)).kind is Kind.PERMISSION


def test_a_providers_number_needs_its_status() -> None:
    """A number that many use means what its provider says only under that provider's statuses."""
    for status, kind in [(None, Kind.QUOTA), (400, Kind.QUOTA), (403, Kind.PERMISSION)]:
        assert of_body({"code": "1008", "message": "hello"}, status).kind is kind


# --- classes


def test_a_strong_class_decides_against_everything() -> None:
    """What a library found out before or after the answer is not in the answer."""
    error = named("BudgetExceededError")("hello", status_code=400, body={"code": "1301"})
    assert classify(error).kind is Kind.QUOTA


@pytest.mark.parametrize("facts", [{}, {"status_code": 500}])
def test_a_catch_all_is_a_lost_connection_unless_its_text_says_more(facts: Any) -> None:
    """LiteLLM gives it to whatever no integration mapped, with a status of its own."""
    cls = named("APIConnectionError")
    for text, kind in [
        ("hello", Kind.CONNECTION),
        ("Error code: 500 - hello", Kind.CONNECTION),
        ("the socket closed", Kind.CONNECTION),
        ("your balance is too low", Kind.QUOTA),
        ("Error code: 404 - hello", Kind.MODEL_UNAVAILABLE),
        ("hello: {'code': '1301'}", Kind.CONTENT_POLICY),
    ]:
        failure = classify(cls(text, **facts))
        assert failure.kind is kind, text
        if kind is Kind.CONNECTION:
            assert failure.reason == "a connection class"


def test_a_rule_by_default_makes_a_local_class_a_providers() -> None:
    """A class that is local by its name alone is the provider's where the caller says so."""
    cls = named("ValidationError")
    assert classify(cls("hello")).kind is Kind.LOCAL
    assert classify(cls("hello"), rules=loaded(of_provider(cls))).kind is Kind.SERVER_ERROR
    timeout = named("TimeoutError")
    assert classify(timeout("hello"), rules=loaded(of_provider(timeout))).kind is Kind.TIMEOUT


# --- causes


def test_a_class_of_the_callers_own_is_local_wherever_it_stands() -> None:
    """What a rule names decides over the connection class that hides it."""
    mine = ProviderError("hello", status_code=429)
    for error in (mine, raised_from(named("ConnectError", Exception)("hello"), mine)):
        failure = classify(error, rules=loaded(of_program(ProviderError)))
        assert (failure.kind, failure.reason) == (Kind.LOCAL, "rule 1 given in Python")


@pytest.mark.parametrize("end", [StopIteration(), StopAsyncIteration()], ids=str)
def test_only_python_makes_an_end_of_an_iterator_a_runtime_error(end: Exception) -> None:
    """Any other class that was raised for one says itself what it is."""
    assert classify(raised_from(RuntimeError("hello"), end)).kind is Kind.CANCELLED
    for cls in (ProviderError, named("SomeRuntimeError", RuntimeError)):
        error = raised_from(cls("Error code: 429 - hello"), end)
        assert classify(error).kind is Kind.RATE_LIMIT
    other = raised_from(RuntimeError("Error code: 429 - hello"), ProviderError("there"))
    assert classify(other).kind is Kind.RATE_LIMIT


@pytest.mark.parametrize(
    "bug",
    [
        RuntimeError("hello"),
        TypeError("hello"),
        ValueError("hello"),
        ZeroDivisionError("hello"),
        AttributeError("hello"),
        KeyError("hello"),
    ],
    ids=lambda bug: type(bug).__name__,
)
def test_each_mistake_of_the_program_under_a_connection_is_local(bug: Exception) -> None:
    """A connection class hides it; a class that says nothing itself does not become it."""
    failure = classify(raised_from(named("ConnectError")("hello"), bug))
    assert failure.kind is Kind.LOCAL
    assert "mistake" in failure.reason
    opaque = raised_from(named("ModelAPIError")("hello"), bug)
    assert classify(opaque).kind is Kind.SERVER_ERROR


def test_an_unknown_cause_of_a_connection_is_no_mistake() -> None:
    """Only built-in classes of bugs are taken for one."""
    error = raised_from(named("ConnectError")("hello"), ProviderError("hello"))
    assert classify(error).kind is Kind.CONNECTION


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (ProviderError("x", status_code=400), Kind.CONNECTION),
        (ProviderError("x", status_code=401), Kind.CONNECTION),
        (ProviderError("x", status_code=503), Kind.CONNECTION),
        (ProviderError("x", status_code=429), Kind.RATE_LIMIT),
        (TimeoutError("x"), Kind.TIMEOUT),
        (FileNotFoundError(2, "x"), Kind.LOCAL),
    ],
    ids=str,
)
def test_a_connection_hides_only_what_can_be_below_it(cause: Exception, kind: Kind) -> None:
    """A parser's number below a lost connection is no answer; an opaque class has any cause."""
    assert classify(raised_from(named("ConnectError")("hello"), cause)).kind is kind
    opaque = raised_from(named("ModelError")("hello"), cause)
    assert classify(opaque).kind is classify(cause).kind


def test_no_class_becomes_its_cancelled_cause() -> None:
    """A cancellation below an error that was raised for it is not the caller's word."""
    for name in ("ConnectError", "ModelError", "SomeFailure"):
        error = raised_from(named(name)("hello"), KeyboardInterrupt())
        assert classify(error).kind is not Kind.CANCELLED


class CountingError(Exception):
    """Count how often it is read."""

    reads = 0

    @property
    def status_code(self) -> None:
        type(self).reads += 1


def test_an_exception_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ways lead to it."""
    monkeypatch.setattr(CountingError, "reads", 0)
    cause = CountingError("x")
    outer: Any = raised_from(CountingError("x"), cause)
    outer.reason, outer.original_exception, outer.args = cause, outer, (cause, outer)
    assert classify(outer).kind is Kind.LOCAL
    assert CountingError.reads == 2


@pytest.mark.parametrize(("depth", "kind"), [(5, Kind.RATE_LIMIT), (6, Kind.LOCAL)])
def test_groups_are_opened_five_deep(depth: int, kind: Kind) -> None:
    """A group counts as a cause does."""
    error: Exception = ProviderError("x", status_code=429)
    for _ in range(depth):
        error = ExceptionGroup("hello", [error])
    assert classify(error).kind is kind


def test_a_page_where_an_answer_was_expected_is_no_bug() -> None:
    """An SDK that takes a page for its answer misses whatever it looks for."""
    for page, kind in (("<html>Sign in</html>", "malformed_response"), ("hello", "local")):
        with pytest.raises(AttributeError) as caught:
            getattr(page, "model_dump")()  # noqa: B009 # as the SDK does it
        assert classify(caught.value).kind == kind


def test_an_error_document_that_was_raised_as_it_is_says_what_it_means() -> None:
    """LangChain's OpenAI model puts the provider's document into a ValueError."""
    document = {"message": "try again", "type": "server_error", "code": "server_error"}
    assert classify(ValueError(document)).kind == "server_error"
    assert classify(ValueError({"field": "server_error"})).kind == "local"


# --- whom a failure reaches


@pytest.mark.parametrize(
    ("quota", "scope"),
    [
        ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "model"),
        ("GenerateRequestsPerDayPerProject", "credential"),
    ],
)
def test_googles_quota_of_one_model_is_the_models(quota: str, scope: str) -> None:
    """Another model of the same key still has its own; where a project's is used up, none has."""
    violation = {"quotaMetric": "generate_requests", "quotaId": quota}
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "40000s"},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": message, "details": details}
    failure = of_body({"error": error}, 429)
    assert (failure.kind, failure.scope) == (Kind.QUOTA, scope)


@pytest.mark.parametrize("kind", Kind)
def test_only_a_key_and_an_account_are_the_credentials(kind: Kind) -> None:
    """By the table; whom an endpoint's failure reaches is a fact of the single error."""
    credentials = {Kind.AUTHENTICATION, Kind.QUOTA}
    assert Failure.of(kind).scope == ("credential" if kind in credentials else "model")
