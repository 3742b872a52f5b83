"""What a text is about comes before the status, the class and the wire that carry it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
from google.genai import errors as genai
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK
from websockets.frames import Close

from honcho_fallback._classify import classify
from honcho_fallback._values.failure import Failure
from honcho_fallback._values.failure import FailureKind as Kind


def openai_error(status: int, message: str) -> openai.APIStatusError:
    """Build what OpenAI's client raises for an answer with this message."""
    request = httpx.Request("POST", "https://llm.test/v1/chat/completions")
    body = {"error": {"message": message, "type": "invalid_request_error"}}
    response = httpx.Response(status, json=body, request=request)
    return openai.APIStatusError(message, response=response, body=body["error"])  # type: ignore[arg-type]  # openai 3 has httpx2


# --- limits for a time


@pytest.mark.parametrize("status", [400, 403, 500])
@pytest.mark.parametrize(
    "message",
    [
        "Exceeded workspace input tokens per minute rate limit",
        "Exceeded output tokens per minute rate limit for this endpoint",
        "Tokens per minute limit exceeded - too many tokens processed.",
        "input token rate limit exceeded, retry in 12s",
        "This would exceed the rate limit of 20,000 input tokens per minute. Reduce the prompt",
    ],
)
def test_a_limit_of_tokens_for_a_minute_is_a_rate(status: int, message: str) -> None:
    """Whoever asks too fast may ask another; the window's size is not what is spoken of."""
    failure = classify(openai_error(status, message))
    assert (failure.kind, failure.switchable, failure.transient) == (Kind.RATE_LIMIT, True, True)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("the input of 9000 tokens exceeds the limit of 8000 tokens", Kind.CONTEXT_OVERFLOW),
        ("tokens per day limit exceeded", Kind.QUOTA),
        ("Request too large: 8000 tokens per minute is the limit", Kind.PAYLOAD_TOO_LARGE),
    ],
)
def test_other_limits_of_tokens_are_none(message: str, kind: Kind) -> None:
    """A window has no minute, a day's limit is a quota, and one request may be over any rate."""
    assert classify(openai_error(400, message)).kind is kind


# --- what the caller made


@pytest.mark.parametrize(
    "message",
    [
        "The video is no longer available. Downloads expire after 1 hours.",
        "No such File object: file-abc123",
        "Previous response with id 'resp_123' not found.",
        "Item with id 'rs_68' not found. Items are not persisted when `store` is set to false.",
        "No thread found with id 'thread_abc'.",
        "Container is expired.",
        "Vector store 'vs_1' not found.",
        "No batch found with id batch_1",
        "CachedContent not found",
    ],
)
def test_a_404_of_the_callers_own_object_stays(message: str) -> None:
    """Nobody else knows its id, and the model that said so is well."""
    failure = classify(openai_error(404, message))
    assert (failure.kind, failure.switchable) == (Kind.INVALID_REQUEST, False)


@pytest.mark.parametrize(
    "message",
    [
        "The model `nimbus-9` does not exist or you do not have access to it.",
        "the response says that the model was not found",
        "Not Found",
        "404 page not found",
        "No endpoints found for nimbus.",
        'model "nimbus" not found, try pulling it first',
    ],
)
def test_a_404_of_anything_else_is_the_models(message: str) -> None:
    """Where no object is named, the model or its address is missing."""
    failure = classify(openai_error(404, message))
    assert (failure.kind, failure.switchable) == (Kind.MODEL_UNAVAILABLE, True)


# --- what failed in this process


def litellm_error(name: str, text: str, **facts: Any) -> Exception:
    """Build an error of LiteLLM by its place, its name and what it carries."""
    cls: type[Exception] = type(name, (Exception,), {"__module__": "litellm.exceptions"})
    error = cls(text)
    error.__dict__.update(facts)
    return error


OWN_FAULTS = [
    "Timeout context manager should be used inside a task",
    "Object of type datetime is not JSON serializable",
    "[Errno 24] Too many open files",
    "functools.partial() got multiple values for keyword argument 'acompletion'",
]


@pytest.mark.parametrize("text", OWN_FAULTS)
@pytest.mark.parametrize("name", ["APIError", "APIConnectionError"])
def test_a_fault_of_this_process_that_litellm_wraps_is_local(name: str, text: str) -> None:
    """Its class and its 500 are for whatever no integration mapped: nobody was asked."""
    error = litellm_error(name, f"{name}: HouseException - {text}", status_code=500)
    failure = classify(error)
    assert (failure.kind, failure.switchable) == (Kind.LOCAL, False)


@pytest.mark.parametrize("text", OWN_FAULTS)
def test_the_same_words_of_a_server_are_the_servers(text: str) -> None:
    """A proxy that runs Python answers with the same texts; its fault is not ours."""
    for error in (openai_error(500, text), litellm_error("InternalServerError", text)):
        assert classify(error).switchable


def test_a_cause_comes_before_the_words_that_wrap_it() -> None:
    """Where the error itself is inside, it tells what its text only repeats."""
    error = litellm_error("APIConnectionError", "it got multiple values for argument 'model'")
    error.__cause__ = httpx.ReadTimeout("")
    assert classify(error).kind is Kind.TIMEOUT


FRAMES = """Traceback (most recent call last):
  File "main.py", line 3, in completion
    if "rate_limit_exceeded" in response["blockReason"]:
"""


@pytest.mark.parametrize(
    "text",
    [
        "'ModelResponse' object has no attribute 'service_tier'",
        "list indices must be integers or slices, not str",
        "ModelResponse() argument after ** must be a mapping, not list",
        "1 validation error for _HouseResponse\nmessage\n  Input should be a valid dictionary",
        f"argument of type 'NoneType' is not iterable\n{FRAMES}TypeError: it is not iterable\n",
    ],
)
def test_an_answer_that_litellm_could_not_read_is_the_answers_fault(text: str) -> None:
    """Python's own words come from the reader of the answer, so another target may work.

    Its code, which LiteLLM adds to the text, says nothing.
    """
    error = litellm_error("APIConnectionError", f"APIConnectionError: {text}", status_code=500)
    error.__cause__ = TypeError(text)
    failure = classify(error)
    assert (failure.kind, failure.switchable) == (Kind.MALFORMED_RESPONSE, True)


def test_the_code_in_a_traceback_is_no_message() -> None:
    """A line of a library's source names what it looks for, not what it found."""
    assert classify(openai_error(500, f"it failed\n{FRAMES}")).kind is Kind.SERVER_ERROR
    assert classify(openai_error(500, f"{FRAMES}Error: slow down")).kind is Kind.RATE_LIMIT


@pytest.mark.parametrize("text", ["Event loop is closed", "bound to a different event loop"])
def test_a_stale_loop_that_litellm_wraps_is_a_lost_connection(text: str) -> None:
    """Under a running loop the next target may answer, and nobody rests for it."""
    error = litellm_error("APIError", f"APIError: HouseException - {text}", status_code=500)

    async def ask() -> Failure:
        return classify(error)

    failure = asyncio.run(ask())
    assert (failure.kind, failure.scope, failure.switchable) == (Kind.CONNECTION, "client", True)


# --- a websocket's close


def closed(
    number: int, reason: str, cls: type[ConnectionClosed] = ConnectionClosedError
) -> ConnectionClosed:
    """Build what the websockets library raises for a server's close frame."""
    frame = Close(number, reason)
    return cls(frame, frame, rcvd_then_sent=True)


CLOSES = [
    (1008, "models/nimbus-live-001 is not found for API version v1alpha", Kind.MODEL_UNAVAILABLE),
    (1007, "API key not valid. Please pass a valid API key.", Kind.AUTHENTICATION),
    (1011, "You exceeded your current quota, please check your plan", Kind.QUOTA),
    (1008, "Your project has been denied access. Please contact support.", Kind.PERMISSION),
    (1007, "Request contains an invalid argument.", Kind.INVALID_REQUEST),
    (1008, "This model's maximum context length is 32768 tokens.", Kind.CONTEXT_OVERFLOW),
    (1008, "it went wrong, and you pay nothing", Kind.SERVER_ERROR),
    (1008, "The field voice must be in the first message.", Kind.INVALID_REQUEST),
    (1008, "Unregistered callers may not use this method", Kind.AUTHENTICATION),
    (1008, "This operation is not implemented.", Kind.UNSUPPORTED),
    (1013, "please come another day", Kind.OVERLOADED),
    (1011, "Internal error encountered.", Kind.SERVER_ERROR),
    (4401, "go away", Kind.AUTHENTICATION),
    (4429, "go away", Kind.RATE_LIMIT),
    (4003, "Insufficient balance", Kind.QUOTA),
    (4999, "go away", Kind.SERVER_ERROR),
]


@pytest.mark.parametrize(("number", "reason", "kind"), CLOSES)
def test_a_close_frames_reason_is_the_message(number: int, reason: str, kind: Kind) -> None:
    """A server that closes a websocket says why there, and nowhere else."""
    failure = classify(closed(number, reason))
    assert (failure.kind, failure.provider_message) == (kind, reason)


@pytest.mark.parametrize(("number", "reason", "kind"), CLOSES)
def test_googles_sdk_keeps_a_close_as_a_status(number: int, reason: str, kind: Kind) -> None:
    """It raises its own class with the number as its code and the reason as its details."""
    assert classify(genai.APIError(number, reason, None)).kind is kind


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


# --- what frameworks raise


def raised(module: str, name: str, text: str) -> Exception:
    cls: type[Exception] = type(name, (Exception,), {"__module__": module})
    return cls(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("litellm.NotFoundError: HouseException - 404 page not found", Kind.MODEL_UNAVAILABLE),
        ("litellm.AuthenticationError: Incorrect API key provided", Kind.AUTHENTICATION),
        ("litellm.RateLimitError: You exceeded your current quota", Kind.QUOTA),
        (
            "Error code: 400 - {'error': {'message': 'Invalid schema for function'}}",
            Kind.INVALID_REQUEST,
        ),
        ("litellm.BadRequestError: no", Kind.INVALID_REQUEST),
        ("the model did not do as told", Kind.MALFORMED_RESPONSE),
    ],
)
def test_what_instructor_wraps_decides_without_a_cause(text: str, kind: Kind) -> None:
    """Its class says that attempts ran out, its text what the last one met."""
    error = raised("instructor.core.exceptions", "InstructorRetryException", text)
    assert classify(error).kind is kind


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("agents.exceptions", "ModelBehaviorError"),
        ("pydantic_ai.exceptions", "UnexpectedModelBehavior"),
    ],
)
def test_a_frameworks_misbehaved_model_may_have_been_stopped(module: str, name: str) -> None:
    """A filter and a budget are named in the text; anything else is an answer nobody can use."""
    filtered = "terminal event; incomplete_details=IncompleteDetails(reason='content_filter')"
    assert classify(raised(module, name, filtered)).kind is Kind.CONTENT_POLICY
    spent = "Model token limit (16000) exceeded before any response was generated."
    failure = classify(raised(module, name, spent))
    assert (failure.kind, failure.transient) == (Kind.MALFORMED_RESPONSE, False)
    for text in (
        "Exceeded maximum retries (1) for output validation",
        "Tool check_credit_balance not found in agent",
        "1 validation error: input_value=None, 'NoneType' object has no attribute 'x'",
    ):
        failure = classify(raised(module, name, text))
        assert (failure.kind, failure.transient) == (Kind.MALFORMED_RESPONSE, True), text


@pytest.mark.parametrize("module", ["agents.exceptions", "pydantic_ai.exceptions"])
def test_a_name_that_is_taken_twice_is_the_programs_own_mistake(module: str) -> None:
    """A framework refuses it with the class with which it refuses what a model lacks."""
    text = "Tool name conflicts with existing tool: `look`"
    assert classify(raised(module, "UserError", text)).kind is Kind.LOCAL
    text = "Hosted tools are not supported with this API"
    assert classify(raised(module, "UserError", text)).kind is Kind.UNSUPPORTED


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "Your text was found to be unsafe.", Kind.CONTENT_POLICY),
        (400, "The request was blocked by moderation", Kind.CONTENT_POLICY),
        (400, "The endpoint nimbus is stopped", Kind.MODEL_UNAVAILABLE),
        (400, "Your message is too long for this model", Kind.CONTEXT_OVERFLOW),
        (400, "Backend Error", Kind.SERVER_ERROR),
    ],
)
def test_what_a_bad_request_is_about_says_more_than_its_status(
    status: int, text: str, kind: Kind
) -> None:
    """Many call a bad request what another target would answer."""
    assert classify(openai_error(status, text)).kind is kind


def test_openais_answer_that_was_cut_is_not_asked_for_again() -> None:
    """The same budget ends the same answer; another model may need less."""
    error = raised("openai", "LengthFinishReasonError", "the length limit was reached")
    failure = classify(error)
    assert (failure.kind, failure.switchable, failure.transient) == (
        Kind.MALFORMED_RESPONSE,
        True,
        False,
    )


# --- addresses, tokens, pages


@pytest.mark.parametrize(
    "url",
    ["http+docker://localhost/v1.35/auth", "http+unix://%2Fvar%2Frun%2Fd.sock/v1.43/containers"],
)
def test_an_address_may_name_its_way(url: str) -> None:
    """A scheme with a plus leads to a service of this machine."""
    text = f"500 Server Error: Internal Server Error for url: {url}"
    assert classify(raised("requests.exceptions", "HTTPError", text)).kind is Kind.LOCAL


def test_a_token_that_is_not_exchanged_is_a_bad_credential() -> None:
    """The service that hands out tokens answers 400; the model was not asked."""
    text = "Error getting IAM Token.\nReason: <Response [400]>"
    error = raised("ibm_watsonx_ai.wml_client_error", "WMLClientError", text)
    assert classify(error).kind is Kind.AUTHENTICATION


def test_an_address_that_takes_no_such_method_serves_no_model() -> None:
    """Another target's address may."""
    failure = classify(openai_error(405, "Method Not Allowed"))
    assert (failure.kind, failure.switchable) == (Kind.MODEL_UNAVAILABLE, True)


def test_the_parts_of_a_page_are_sentences() -> None:
    """Words that a page shows in two places are no sentence."""
    page = "<h2>Worker threw exception</h2><p>a network</p><p>An unknown error occurred.</p>"
    assert classify(openai_error(500, page)).kind is Kind.SERVER_ERROR
    assert classify(openai_error(500, "<p>a network error</p>")).kind is Kind.CONNECTION


def test_a_stream_that_the_peer_reset_is_a_lost_connection() -> None:
    """HTTP/2 calls it an internal error."""
    text = "stream error: stream ID 47; INTERNAL_ERROR; received from peer"
    assert classify(raised("openai", "APIError", text)).kind is Kind.CONNECTION


def test_a_class_that_a_text_names_beside_a_4xx_is_no_bad_request() -> None:
    """A gateway calls what its provider refused by that name; the status says more."""
    text = "HouseException BadRequestError - hello"
    assert classify(openai_error(403, text)).kind is Kind.PERMISSION
