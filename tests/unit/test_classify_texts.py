"""What the words of a message mean: each alternative of each rule, and what is no such text."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from honcho_fallback._classify import classify
from honcho_fallback._classify._texts import (
    GROUPS,
    LIBRARY,
    NO_STATUS,
    PROGRAM,
    RULES,
    VOCABULARY,
    first_rule,
    meaning,
)
from honcho_fallback._values.failure import Failure
from honcho_fallback._values.failure import FailureKind as Kind

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = GROUPS


class ProviderError(Exception):
    """An in-house client's error: whatever it is given becomes an attribute."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


def error_of(status: int, message: str) -> Exception:
    """Build the exception whose text counts under a status, or under none."""
    if status == PROGRAM:
        return ValueError(message)
    if status == LIBRARY:
        cls: type[Exception] = type("APIConnectionError", (Exception,), {"__module__": "litellm"})
        return cls(message)
    return (
        ProviderError(message)
        if status == NO_STATUS
        else ProviderError(message, status_code=status)
    )


def under_a_loop(read: Callable[..., Any], *text: Any) -> Any:
    """Read a text where a client of this process may be stale."""

    async def in_task() -> Any:
        return read(*text)

    return asyncio.run(in_task())


# The status, the sentence and the alternative that it fits; sentences of our own.
EXAMPLES: list[tuple[int, str, Kind, str]] = [
    (LIBRARY, "it got multiple values for a name", Kind.LOCAL, "own_fault"),
    (LIBRARY, "a list is not subscriptable", Kind.MALFORMED_RESPONSE, "python_error"),
    (LIBRARY, "the content filter stepped in", Kind.CONTENT_POLICY, "filtered"),
    (
        LIBRARY,
        "tokens exceeded before any word came",
        Kind.MALFORMED_RESPONSE,
        "tokens over unanswered",
    ),
    (
        400,
        "a rate limit of input tokens was exceeded",
        Kind.RATE_LIMIT,
        "rate tokens -long_window -too_large",
    ),
    (
        403,
        "tokens of this minute are exhausted",
        Kind.RATE_LIMIT,
        "tokens short_window lacking -too_large",
    ),
    (
        NO_STATUS,
        "this is the limit of tokens for a minute",
        Kind.RATE_LIMIT,
        "tokens short_window limit -too_large",
    ),
    (404, "that vector store does not exist", Kind.INVALID_REQUEST, "object gone -model"),
    (403, "the container expired", Kind.INVALID_REQUEST, "object expired -model"),
    (404, "there is no thread found here", Kind.INVALID_REQUEST, "object found negation -model"),
    (400, "too big for a minute", Kind.PAYLOAD_TOO_LARGE, "too_large short_window"),
    (
        422,
        "max_tokens must be at least 1, got -186",
        Kind.CONTEXT_OVERFLOW,
        "output below_zero",
    ),
    (400, "a tool cannot be used with effort", Kind.UNSUPPORTED, "feature usable negation"),
    (
        400,
        "the limit of bytes is 6291456",
        Kind.PAYLOAD_TOO_LARGE,
        "bytes limit -memory -characters",
    ),
    (400, "this method not allowed", Kind.MODEL_UNAVAILABLE, "method"),
    (
        424,
        "it was not found for this version of the api",
        Kind.MODEL_UNAVAILABLE,
        "found negation own_api -key -object",
    ),
    (400, "the requests reached their limit", Kind.RATE_LIMIT, "calls lacking limit"),
    (500, "more than the limit of requests", Kind.RATE_LIMIT, "calls over limit"),
    (NO_STATUS, "the client has been closed", Kind.CONNECTION, "client closed"),
    (500, "the client was closed", Kind.CONNECTION, "client closed"),
    (500, "this event loop is closed", Kind.CONNECTION, "event_loop closed"),
    (NO_STATUS, "attached to a different loop", Kind.CONNECTION, "other_loop"),
    (PROGRAM, "there are no deployments", Kind.OVERLOADED, "no_deployments"),
    (NO_STATUS, "The call was locally cancelled", Kind.CANCELLED, "cancelled_here"),
    (500, "goroutine panicked on a map", Kind.SERVER_ERROR, "panic"),
    (
        500,
        "parsing the tool call stopped at column 3",
        Kind.MALFORMED_RESPONSE,
        "tool_call unparsed",
    ),
    (
        400,
        "the model wrote no JSON",
        Kind.MALFORMED_RESPONSE,
        "model wrote negation output_format -negated_support",
    ),
    (500, "what the model produced is empty", Kind.MALFORMED_RESPONSE, "model wrote invalid"),
    (
        400,
        "the model wrote malformed JSON",
        Kind.MALFORMED_RESPONSE,
        "model wrote rejected output_format",
    ),
    (500, "it failed to generate JSON", Kind.MALFORMED_RESPONSE, "failed output_format writing"),
    (
        400,
        "the model would not call a tool",
        Kind.MALFORMED_RESPONSE,
        "model negation writing output_format",
    ),
    (NO_STATUS, "there were no generations", Kind.MALFORMED_RESPONSE, "negation generated"),
    (500, "Expecting value, column one", Kind.MALFORMED_RESPONSE, "undecodable ~traceback"),
    (
        500,
        "that was an invalid response",
        Kind.MALFORMED_RESPONSE,
        "invalid_response -upstream ~traceback",
    ),
    (422, "no valid response came", Kind.MALFORMED_RESPONSE, "negation valid_answer"),
    (424, "a malformed upstream response", Kind.MALFORMED_RESPONSE, "their_answer rejected"),
    (NO_STATUS, "unhandled stop reason", Kind.MALFORMED_RESPONSE, "stop_reason unhandled"),
    (PROGRAM, "an empty streaming answer", Kind.MALFORMED_RESPONSE, "empty_stream"),
    (429, "this body is too big", Kind.PAYLOAD_TOO_LARGE, "too_large sized"),
    (
        400,
        "an attachment that is too big",
        Kind.PAYLOAD_TOO_LARGE,
        "too_large sized -tokens -context",
    ),
    (500, "12 megabytes surpass it", Kind.PAYLOAD_TOO_LARGE, "bytes lacking -memory"),
    (400, "beyond 20 MB", Kind.PAYLOAD_TOO_LARGE, "bytes over -tokens -memory"),
    (400, "send fewer pages", Kind.PAYLOAD_TOO_LARGE, "many pieces -tools -characters -own_fault"),
    (
        422,
        "the size of an attachment is above 9",
        Kind.PAYLOAD_TOO_LARGE,
        "size sized over -tokens -context -memory",
    ),
    (
        400,
        "the context length is beyond it",
        Kind.CONTEXT_OVERFLOW,
        "context over -output -short_window -negated_support",
    ),
    (
        400,
        "your prompt is above the context size, whatever max tokens are",
        Kind.CONTEXT_OVERFLOW,
        "context over prompt -short_window",
    ),
    (
        NO_STATUS,
        "the context window is exhausted",
        Kind.CONTEXT_OVERFLOW,
        "context lacking -short_window -negated_support",
    ),
    (
        400,
        "a prompt of 9 tokens is above 8",
        Kind.CONTEXT_OVERFLOW,
        "prompt tokens over -short_window -media",
    ),
    (
        500,
        "tokens of a conversation must be below 8",
        Kind.CONTEXT_OVERFLOW,
        "prompt tokens must_be -media",
    ),
    (
        400,
        "the conversation is too long",
        Kind.CONTEXT_OVERFLOW,
        "prompt over -item -output -short_window -media",
    ),
    (
        400,
        "the prompt hit its cap",
        Kind.CONTEXT_OVERFLOW,
        "prompt lacking limit -item -short_window",
    ),
    (
        400,
        "the history crossed the window",
        Kind.CONTEXT_OVERFLOW,
        "prompt lacking window_size -item",
    ),
    (NO_STATUS, "shorten the conversation", Kind.CONTEXT_OVERFLOW, "reduced prompt -short_window"),
    (
        400,
        "the prompt is 9000 tokens but 8000 fit",
        Kind.CONTEXT_OVERFLOW,
        "prompt tokens contrast -output -short_window",
    ),
    (
        400,
        "a batch has too many tokens",
        Kind.CONTEXT_OVERFLOW,
        "many_tokens -output -short_window -long_window -again",
    ),
    (
        400,
        "lower the number of tokens",
        Kind.CONTEXT_OVERFLOW,
        "reduced tokens -output -short_window -long_window",
    ),
    (400, "the range of input length is 1 to 8", Kind.CONTEXT_OVERFLOW, "length prompt range"),
    (
        400,
        "the length of an input must be 1 to 8",
        Kind.CONTEXT_OVERFLOW,
        "length prompt must_be -item -output",
    ),
    (
        400,
        "the input has 9000 tokens, and the context window 8000",
        Kind.CONTEXT_OVERFLOW,
        "context prompt tokens -output -short_window -negated_support",
    ),
    (
        400,
        "9 tokens are above 8",
        Kind.CONTEXT_OVERFLOW,
        "over tokens -output -short_window -long_window -item -again",
    ),
    (
        400,
        "9 tokens in request 1 are above max tokens",
        Kind.CONTEXT_OVERFLOW,
        "over tokens in_request",
    ),
    (413, "this context window is full", Kind.CONTEXT_OVERFLOW, "context"),
    (400, "it was flagged", Kind.CONTENT_POLICY, "unsafe -negated_support -account_blocked -rate"),
    (400, "the image was filtered", Kind.CONTENT_POLICY, "content blocked -account_blocked"),
    (500, "the guardrail failed", Kind.CONTENT_POLICY, "guardrail failed -endpoints -load"),
    (
        400,
        "the guardrail is unknown",
        Kind.CONTENT_POLICY,
        "guardrail wrong -account_blocked -endpoints",
    ),
    (
        NO_STATUS,
        "a guardrail refused it",
        Kind.CONTENT_POLICY,
        "guardrail blocked -account_blocked",
    ),
    (400, "this API token was revoked", Kind.AUTHENTICATION, "key bad -limit -permitted"),
    (400, "login rejected", Kind.AUTHENTICATION, "login bad -permitted"),
    (500, "the token was invalidated", Kind.AUTHENTICATION, "token expired"),
    (400, "UNAUTHENTICATED", Kind.AUTHENTICATION, "unauthorized"),
    (PROGRAM, "an API key must come first", Kind.AUTHENTICATION, "key missing -limit"),
    (400, "unsupported region", Kind.PERMISSION, "place negated_support"),
    (500, "your country is restricted", Kind.PERMISSION, "place denied"),
    (400, "not available at this location", Kind.PERMISSION, "place gone -option"),
    (400, "only on the gold tier", Kind.PERMISSION, "plan only"),
    (400, "downloading the URL took a while", Kind.INVALID_REQUEST, "fetching fetched"),
    (500, "we could not decode the PDF", Kind.INVALID_REQUEST, "fetched failed decode"),
    (400, "the MCP part failed", Kind.INVALID_REQUEST, "mcp failed -wrote"),
    (500, "unknown MCP label", Kind.INVALID_REQUEST, "mcp wrong -wrote"),
    (401, "unknown model nimbus", Kind.MODEL_UNAVAILABLE, "unknown_model -parameter_name"),
    (
        500,
        "everybody is busy",
        Kind.OVERLOADED,
        "busy -rate_words -upgrade -modal -exhausted_own",
    ),
    (408, "it took too many hours: deadline", Kind.TIMEOUT, "time -parameter -obligation"),
    (408, "we could not connect", Kind.CONNECTION, "connect failed"),
    (500, "the connection was reset", Kind.CONNECTION, "connection refused"),
    (NO_STATUS, "ECONNRESET", Kind.CONNECTION, "broken_link"),
    (500, "getaddrinfo failed", Kind.CONNECTION, "dns failed -model"),
    (NO_STATUS, "Failed to fetch", Kind.CONNECTION, "failed to_fetch -fetched -model"),
    (404, "use chat completions here", Kind.UNSUPPORTED, "chat_api"),
    (404, "never a function call", Kind.UNSUPPORTED, "tool_call negation -endpoints"),
    (404, "unrecognized parameter", Kind.INVALID_REQUEST, "parameter unrecognized"),
    (500, "the route is unsupported", Kind.UNSUPPORTED, "own_api negated_support"),
    (422, "duplicate property", Kind.INVALID_REQUEST, "parameter wrong -python_error -null_type"),
    (500, "vision is unsupported", Kind.UNSUPPORTED, "feature negated_support -mismatch"),
    (400, "temperature isn't supported", Kind.UNSUPPORTED, "parameter negated_support -mismatch"),
    (400, "a field is deprecated for model 7", Kind.UNSUPPORTED, "parameter gone for_model"),
    (400, "at most 7 images, please", Kind.UNSUPPORTED, "at_most media"),
    (400, "the cap is 7 tools", Kind.UNSUPPORTED, "limit tools -requests"),
    (422, "the dice are not supported", Kind.UNSUPPORTED, "negated_support -mismatch"),
    (400, "logprobs: no longer for model 7", Kind.UNSUPPORTED, "feature gone for_model"),
    (400, "the engine never looks at images", Kind.UNSUPPORTED, "feature negation model"),
    (500, "it needs more than the memory budget", Kind.UNSUPPORTED, "memory_limit needed"),
    (400, "9 GB is above the memory ceiling", Kind.UNSUPPORTED, "memory_limit over"),
    (500, "insufficient, as the memory limit says", Kind.UNSUPPORTED, "memory_limit lacking"),
    (400, "invalid image bytes came", Kind.INVALID_REQUEST, "broken_file"),
    (400, "turns must alternate", Kind.INVALID_REQUEST, "roles"),
    (500, "jinja stopped", Kind.INVALID_REQUEST, "template"),
    (429, "unavailable, retry", Kind.OVERLOADED, "absent now -connection"),
    (401, "your balance is too low", Kind.QUOTA, "money lacking -parameter ~short_window"),
    (429, "you have no funds", Kind.QUOTA, "money negation -charged -valid -rate"),
    (NO_STATUS, "recharge, please: add some", Kind.QUOTA, "money needed -parameter ~rate"),
    (400, "the budget is consumed", Kind.QUOTA, "budget lacking -tokens"),
    (500, "the key limit was hit", Kind.QUOTA, "key_limit lacking"),
    (400, "overdue", Kind.QUOTA, "in_debt"),
    (403, "your trial ended", Kind.QUOTA, "trial ended"),
    (
        401,
        "your allowance is consumed",
        Kind.QUOTA,
        "quota lacking ~short_window ~throttled -rate",
    ),
    (
        429,
        "you hit your limit, it resets at 8pm",
        Kind.QUOTA,
        "own_limit lacking resets ~short_window",
    ),
    (429, "no allocation for you", Kind.QUOTA, "quota negation ~short_window"),
    (400, "an entitlement is needed", Kind.QUOTA, "quota needed -rate -lacking"),
    (429, "the weekly cap", Kind.QUOTA, "limit long_window -short_window"),
    (
        500,
        "you used up the calls of this day",
        Kind.QUOTA,
        "requests long_window lacking -short_window",
    ),
    (429, "too many in a month", Kind.QUOTA, "too_many long_window"),
    (429, "your tier is maxed", Kind.QUOTA, "plan lacking ~rate ~short_window"),
    (429, "your plan caps at its cap", Kind.QUOTA, "plan limit ~rate ~short_window"),
    (
        403,
        "your team hit its cap",
        Kind.QUOTA,
        "account lacking limit_word ~rate ~short_window -tokens -prompt",
    ),
    (500, "slow down", Kind.RATE_LIMIT, "rate -option"),
    (400, "resources exhausted", Kind.RATE_LIMIT, "exhausted"),
    (NO_STATUS, "calls per minute are capped", Kind.RATE_LIMIT, "requests short_window limit"),
    (500, "the checkpoint is warming", Kind.MODEL_UNAVAILABLE, "model loading"),
    (424, "the deployment was removed", Kind.MODEL_UNAVAILABLE, "model gone -feature -modal"),
    (400, "the endpoint is not started", Kind.MODEL_UNAVAILABLE, "endpoints stopped"),
    (
        400,
        "that engine is not supported",
        Kind.MODEL_UNAVAILABLE,
        "model not_supported -feature -for_model -parameter",
    ),
    (
        401,
        "the deployment does not support chat",
        Kind.MODEL_UNAVAILABLE,
        "model own_api negated_support -feature",
    ),
    (
        400,
        "the parameter names a model that does not support this endpoint",
        Kind.MODEL_UNAVAILABLE,
        "model this_api negated_support",
    ),
    (500, "no healthy deployments here", Kind.MODEL_UNAVAILABLE, "healthy negation"),
    (424, "there is no account supporting model nine", Kind.MODEL_UNAVAILABLE, "negation serves"),
    (
        507,
        "projected memory of what we load: it could not fit",
        Kind.MODEL_UNAVAILABLE,
        "load memory failed",
    ),
    (400, "the endpoint was retired", Kind.MODEL_UNAVAILABLE, "endpoints gone -feature"),
    (500, "it failed to load the adapter", Kind.MODEL_UNAVAILABLE, "model load failed"),
    (400, "no adapters were loaded", Kind.MODEL_UNAVAILABLE, "model load negation -feature"),
    (NO_STATUS, "the checkpoint wants more VRAM", Kind.MODEL_UNAVAILABLE, "model memory"),
    (400, "wrong model slug", Kind.MODEL_UNAVAILABLE, "model identifier wrong -feature"),
    (400, "a verified organization is required", Kind.PERMISSION, "account verified needed"),
    (422, "your project has not been enabled", Kind.PERMISSION, "account set_up negation"),
    (
        400,
        "your organization has not verified itself",
        Kind.PERMISSION,
        "account verified negation",
    ),
    (404, "your project has no access", Kind.PERMISSION, "account permitted negation"),
    (412, "the engine is not permitted", Kind.PERMISSION, "model permitted negation -feature"),
    (500, "the account was suspended", Kind.PERMISSION, "account denied -model"),
    (422, "operation not permitted", Kind.PERMISSION, "operation permitted negation"),
    (400, "no consent was given", Kind.PERMISSION, "terms negation"),
    (404, "the EULA needs a yes: add it", Kind.PERMISSION, "terms needed"),
    (NO_STATUS, "access denied", Kind.PERMISSION, "denied permitted"),
    (451, "the engine was removed", Kind.MODEL_UNAVAILABLE, "model gone -feature -account"),
    (408, "the socket closed", Kind.CONNECTION, "connection broken"),
    (500, "TLS error", Kind.CONNECTION, "connection error"),
    (400, "the proxy is unreachable", Kind.CONNECTION, "far_end broken"),
    (422, "the worker crashed", Kind.SERVER_ERROR, "server crashed -parameter ~rejected"),
    (424, "unable to get a response from it", Kind.SERVER_ERROR, "their_answer failed"),
    (400, "a failure of the upstream", Kind.SERVER_ERROR, "upstream failing -parameter ~rejected"),
    (NO_STATUS, "something on our side", Kind.SERVER_ERROR, "our_side ~rejected"),
    (400, "the certificate check failed", Kind.CONNECTION, "certificate failed"),
    (NO_STATUS, "a self-signed certificate", Kind.CONNECTION, "certificate untrusted"),
    (PROGRAM, "the context window was exceeded", Kind.CONTEXT_OVERFLOW, "context over"),
    (PROGRAM, "a negative context size is left", Kind.CONTEXT_OVERFLOW, "context lacking"),
    (
        400,
        "the sequence length has a limit",
        Kind.CONTEXT_OVERFLOW,
        "context limit -output -short_window -negated_support",
    ),
    (
        400,
        "the maximum of the prompt's length is 7",
        Kind.CONTEXT_OVERFLOW,
        "length prompt limit -item -output",
    ),
    (500, "a prompt is required", Kind.INVALID_REQUEST, "prompt required"),
    (500, "tool calls: unable to convert", Kind.INVALID_REQUEST, "tool_call failed decode"),
    (501, "this is not implemented", Kind.UNSUPPORTED, "unimplemented"),
    (
        500,
        "an error in parsing the completion",
        Kind.MALFORMED_RESPONSE,
        "failed unparsed answer -parameter -filtered",
    ),
    (500, "unable to parse what it wrote", Kind.MALFORMED_RESPONSE, "failed unparsed wrote"),
    (PROGRAM, "an empty response of the LLM", Kind.MALFORMED_RESPONSE, "undecodable llm"),
    (PROGRAM, "no: invalid response of the LLM", Kind.MALFORMED_RESPONSE, "invalid_response llm"),
    (400, "only one model is allowed", Kind.MODEL_UNAVAILABLE, "model only permitted -feature"),
    (PROGRAM, "the accessor: block_reason is set", Kind.CONTENT_POLICY, "block_reason"),
    (PROGRAM, "the quick accessor found nothing", Kind.MALFORMED_RESPONSE, "accessor"),
    (PROGRAM, "no generation chunks came", Kind.MALFORMED_RESPONSE, "negation generated"),
    (PROGRAM, "a null value for choices", Kind.MALFORMED_RESPONSE, "null choices"),
    (
        PROGRAM,
        "unexpected response from the endpoint",
        Kind.MALFORMED_RESPONSE,
        "unexpected_response endpoint",
    ),
]


@pytest.mark.parametrize(("status", "sentence", "kind", "alternative"), EXAMPLES)
def test_a_sentence_fits_its_alternative(
    status: int, sentence: str, kind: Kind, alternative: str
) -> None:
    """A sentence with the words of an alternative is read by it, alone and inside an exception."""
    rule = under_a_loop(first_rule, sentence, status)
    assert rule is not None
    assert (rule.words, rule.row.kind) == (alternative, kind)
    failure: Failure = under_a_loop(classify, error_of(status, sentence))
    assert (failure.kind, failure.reason) == (kind, rule.row.reason)


def test_every_alternative_has_an_example() -> None:
    """A rule that is added without an example fails here."""
    alternatives = {
        (rule.row.kind, rule.words) for rules in RULES.values() for rule in rules.rules
    }
    assert alternatives == {(kind, alternative) for _, _, kind, alternative in EXAMPLES}


def marked(mark: str) -> list[tuple[int, str, str, str]]:
    """List the examples with each group that their alternatives exclude."""
    return [
        (status, sentence, alternative, group[1:])
        for status, sentence, _, alternative in EXAMPLES
        for group in alternative.split()
        if group[0] == mark
    ]


def entries(group: str) -> list[str]:
    """List what a group's entries match: a stem itself, any number as one."""
    return [entry.replace("*", "").replace("#", "7") for entry in WORDS[group]]


def fits(sentence: str, status: int, alternative: str) -> bool:
    rule = under_a_loop(first_rule, sentence, status)
    return rule is not None and rule.words == alternative


@pytest.mark.parametrize(("status", "sentence", "alternative", "group"), marked("-"))
def test_an_excluded_word_in_the_sentence_prevents_it(
    status: int, sentence: str, alternative: str, group: str
) -> None:
    """Each word of a group that stands with a minus parts the sentence from its alternative."""
    for entry in entries(group):
        assert not fits(f"{sentence}, {entry}", status, alternative), entry
        assert not fits(f"{entry}, {sentence}", status, alternative), entry


@pytest.mark.parametrize(("status", "sentence", "alternative", "group"), marked("~"))
def test_an_absent_word_anywhere_prevents_it(
    status: int, sentence: str, alternative: str, group: str
) -> None:
    """Each word of a group with a tilde does so from another sentence, too."""
    for entry in entries(group):
        assert not fits(f"{sentence}. {entry}", status, alternative), entry
        assert not fits(f"{entry}\n{sentence}", status, alternative), entry


def test_every_word_is_read_as_its_group() -> None:
    """No entry is out of the reader's reach, whatever case a text has it in."""
    for number, group in enumerate(WORDS):
        bit = 1 << number
        for entry, pattern in zip(entries(group), WORDS[group], strict=True):
            texts = [entry, entry.capitalize(), *([] if "'" in entry else [entry.upper()])]
            texts += [entry + "ing"] if pattern[-1] == "*" else []
            for text in texts:
                assert VOCABULARY.sentences(text)[0] & bit, (group, text)
                assert VOCABULARY.sentences(f"so, {text}, it says")[0] & bit, (group, text)


def test_a_word_that_is_no_stem_needs_its_whole_length() -> None:
    """Only an entry with a star is the beginning of longer words."""
    assert fits("the panicking part", 500, "panic")
    assert fits("use chat models here", 404, "chat_api") is False
    assert fits("use a chat model here", 404, "chat_api")


# --- sentences


@given(words=st.permutations(["deployment", "was", "removed", "on", "tuesday"]))
def test_words_count_in_any_order(words: list[str]) -> None:
    """A sentence is the set of its words."""
    assert fits(" ".join(words), 404, "model gone -feature -modal")


STOPS = [". ", "! ", "? ", "; ", "\n", " { ", " } ", '."', ".'", ".\t"]


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_separates(stop: str) -> None:
    """Words of two sentences fit nothing together."""
    assert fits("deployment removed", 404, "model gone -feature -modal")
    assert meaning(f"deployment{stop}removed", 404) is None
    assert fits(f"hello{stop}deployment removed", 404, "model gone -feature -modal")
    assert fits(f"deployment removed{stop}hello", 404, "model gone -feature -modal")


@pytest.mark.parametrize("part", [", ", ": ", " (", ") ", " - ", " / ", " = ", " v1.2 ", " a.b "])
def test_what_is_no_stop_keeps_the_sentence(part: str) -> None:
    """A comma, brackets, a dash and a dot inside a token leave the words together."""
    assert fits(f"deployment{part}removed", 404, "model gone -feature -modal")


def test_the_name_of_a_field_is_no_part_of_its_value() -> None:
    """A document that stands in a text is read by its values, each for itself."""
    assert fits("unknown parameter", 400, "parameter wrong -python_error -null_type")
    assert meaning("{'parameter': 'unknown'}", 400) is None
    text = """hello: {"type": "unknown", 'detail': 'the deployment was removed'}"""
    assert fits(text, 400, "model gone -feature -modal")


def test_a_dot_between_names_is_no_stop() -> None:
    """A dotted name is read as the words of one sentence."""
    assert fits("deployment.removed", 404, "model gone -feature -modal")


@pytest.mark.parametrize(
    "name",
    [
        "deploymentRemoved",
        "DeploymentRemoved",
        "HTTPDeploymentRemoved",
        "DeploymentRemovedHTTP",
        "deployment_removed",
        "DEPLOYMENT_REMOVED",
        "Deployment_Removed",
        "deployment-removed",
        "Deployment-Removed",
        "DEPLOYMENT-REMOVED",
        "deployment/removed",
        "deployment:removed",
        "the-deployment-was-removed",
        "deployment-removed_now",
    ],
)
def test_a_name_is_read_as_its_words(name: str) -> None:
    """Camels, snakes, kebabs and paths are sentences, alone and within one."""
    assert fits(name, 404, "model gone -feature -modal")
    assert fits(f"it says {name}, sorry", 404, "model gone -feature -modal")


@pytest.mark.parametrize(
    "name", ["RateLimit", "rateLimit", "rate_limit", "rate-limit", "RATE_LIMIT"]
)
def test_a_name_holds_phrases(name: str) -> None:
    """Words that a name joins stand side by side; so do its ends and the words beside it."""
    assert fits(name, 500, "rate -option")
    assert fits("the x-rate limit", 500, "rate -option")
    assert fits("a rate limit-x", 500, "rate -option")


@pytest.mark.parametrize(
    "name",
    [
        "deployment-3-removed",
        "removed-deployment-3b",
        "deployment/removed:2",
        "https://deployment.test/removed",
        "http://x.test/deployment-removed?removed=deployment",
    ],
)
def test_a_models_name_and_an_address_say_nothing(name: str) -> None:
    """Words of a name with a number, and of an address, are no words of the sentence."""
    assert VOCABULARY.sentences(name) == [0]
    assert meaning(f"we saw {name}, hello", 404) is None
    assert fits(f"deployment {name} removed", 404, "model gone -feature -modal")
    assert fits("rate limit", 500, "rate -option")
    assert not fits(f"rate {name} limit", 500, "rate -option")


@pytest.mark.parametrize(
    "text",
    [
        "rate of limit",
        "limit rate",
        "rate, limit",
        "rate: limit",
        "rate (limit)",
        "rate 3 limit",
        "rate. limit",
        "rate\nlimit",
    ],
)
def test_a_phrase_stands_side_by_side(text: str) -> None:
    """Words apart, in another order or in two sentences are no phrase."""
    assert not fits(text, 500, "rate -option")


@pytest.mark.parametrize(
    "text",
    [
        "The requested deployment could not be found.",
        "This deployment has not been deployed.",
        "The deployment is not yet available.",
        "The deployment is not currently available",
        "The deployment isn't available.",
        "The deployment cannot be found",
        "The deployment hasn't been deployed",
    ],
)
def test_a_verb_of_being_does_not_part_the_words_of_a_phrase(text: str) -> None:
    """A phrase is read in whatever voice and tense it is written, and "n't" is "not"."""
    assert fits(text, 404, "model gone -feature -modal")
    apart = text.replace("not ", "not so ").replace("n't", "n't so")
    assert not fits(apart, 404, "model gone -feature -modal")


def test_a_phrase_begins_where_another_ends() -> None:
    """The middle one of three words may belong to both sides."""
    assert fits("no request rate limit", 500, "rate -option")
    assert fits("too rate limited", 500, "rate -option")


@pytest.mark.parametrize(
    "text", ["您的账户余额不足", "错误:余额已不足!", "sorry: 账户余额 is 不足", "余额、不足。"]
)
def test_words_of_other_scripts_are_found_inside_a_run(text: str) -> None:
    """A script without spaces has its words inside longer runs."""
    assert fits(text, 400, "money lacking -parameter ~short_window")
    assert fits(text, NO_STATUS, "money lacking -parameter ~short_window")


def test_a_typographic_apostrophe_is_one() -> None:
    """A word is the same with either apostrophe."""
    for apostrophe in ("'", "\N{RIGHT SINGLE QUOTATION MARK}"):
        assert fits(f"the host couldn{apostrophe}t resolve", 500, "dns failed -model")


# --- statuses


@given(status=st.integers(400, 599).filter(lambda status: status not in RULES))
def test_an_unknown_status_counts_as_its_class(status: int) -> None:
    """A status without rules of its own has those of 400 or of 500."""
    stands_for = 400 if status < 500 else 500
    for _, sentence, _, _ in EXAMPLES:
        assert first_rule(sentence, status) == first_rule(sentence, stands_for)


@pytest.mark.parametrize("status", [100, 200, 302, 399])
def test_a_success_has_no_rules(status: int) -> None:
    """What is no error status is nobody's class."""
    assert all(first_rule(sentence, status) is None for _, sentence, _, _ in EXAMPLES)


def test_the_first_rule_that_fits_decides() -> None:
    """The order of the table decides between two rules, not the order of their sentences."""
    rate, crash = "slow down", "goroutine panicked"
    for text in (f"{rate}. {crash}", f"{crash}. {rate}", f"{rate}, {crash}"):
        assert fits(text, 500, "panic")


# --- any text

_tokens = st.sampled_from(
    [
        *(entry.replace("*", "") for group in WORDS.values() for entry in group),
        *".,;{}():-/'\n",
        "3",
        "429",
        "https://x.test/a",
        "a-b-3",
        "\N{RIGHT SINGLE QUOTATION MARK}",
    ]
)


@given(text=st.text() | st.lists(_tokens, max_size=30).map(" ".join))
@example(text="ClientISClosed")  # means something under an event loop only
def test_any_text_is_read(text: str) -> None:
    """Nothing raises, and the rule that comes out is one of the status's own."""
    for status, rules in RULES.items():
        rule = first_rule(text, status)
        assert rule is None or rule in rules.rules
        assert meaning(text, status) == (rule and rule.row)


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "a-",
        "a.",
        "A",
        "aA",
        "'",
        "a'",
        "1",
        "-",
        ".",
        "{",
        "\N{RIGHT SINGLE QUOTATION MARK}",
        "余",
        "http://",
        "rate ",
        "a:/",
        "_",
    ],
)
def test_a_long_text_is_read_to_its_end(part: str) -> None:
    """A text that repeats itself is read in one pass, or the test's time would run out."""
    text = f"{part * 50_000} \n slow down"
    assert fits(text, 500, "rate -option")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[Errno 113] No route to host", Kind.CONNECTION),
        ("TypeError: Failed to fetch", Kind.CONNECTION),
        ("getaddrinfo EAI_AGAIN api.example.com", Kind.CONNECTION),
        ("[SSL: SSLV3_ALERT_BAD_RECORD_MAC] alert", Kind.CONNECTION),
        (
            "ThrottlingException: Too many tokens, please wait before trying again.",
            Kind.RATE_LIMIT,
        ),
        (
            "(ThrottlingException) calling Converse: Too many tokens, please wait and try again.",
            Kind.RATE_LIMIT,
        ),
        ("the prompt has too many tokens", Kind.CONTEXT_OVERFLOW),
        ("no route for model nimbus", Kind.LOCAL),
        ("failed to fetch the image", Kind.LOCAL),
    ],
)
def test_an_error_that_lost_its_class_is_told_by_its_words(text: str, kind: Kind) -> None:
    """A gateway hands on the text alone; a rate of tokens is not the window's size."""
    assert classify(ProviderError(text)).kind is kind


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("isn't", "is not"),
        ("wasn't", "was not"),
        ("can\u2019t be", "cannot be"),
        ("couldn't be", "could not be"),
        ("hadn't been", "had not been"),
    ],
)
def test_a_contraction_is_two_words(short: str, long: str) -> None:
    """Whatever "not" leans on, the sentence says what it says with "not"."""
    for end, status in (("found", 404), ("supported with tools", 400), ("accepted", 401)):
        contracted = meaning(f"The model gpt-9 {short} {end}.", status)
        assert contracted == meaning(f"The model gpt-9 {long} {end}.", status)
    assert meaning("The model gpt-9 hasn't got access to tools.", 400) is not None
