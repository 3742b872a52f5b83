"""What the words of a message mean, in any tongue, what stands inside one, and whose they are."""

from __future__ import annotations

import builtins
import errno
import json
from http import HTTPStatus
from itertools import product
from typing import Any

import httpcore
import httpx
import pytest
from google.genai import errors as genai
from hypothesis import example, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK
from websockets.frames import Close

from honcho_fallback._classify import classify
from honcho_fallback._classify._tables import STATUSES, WORDS, read
from honcho_fallback._classify._texts import (
    GROUPS,
    LIBRARY,
    NO_STATUS,
    PROGRAM,
    RULES,
    VOCABULARY,
    Vocabulary,
    meaning,
)
from honcho_fallback._values.failure import Failure
from honcho_fallback._values.failure import FailureKind as Kind
from tests.helpers.errors import (
    EXAMPLES,
    ProviderError,
    classified_in_a_task,
    raised_from,
    stand_in,
)
from tests.helpers.own_rules import loaded, of_provider


def error_of(status: int, message: str) -> Exception:
    """Build the exception whose text counts under a status, or under none."""
    if status == PROGRAM:
        return ValueError(message)
    if status == LIBRARY:
        cls: type[Exception] = stand_in("APIConnectionError", "litellm", Exception)
        return cls(message)
    return ProviderError(message, status_code=None if status == NO_STATUS else status)


def first_rule(text: str, status: int) -> Any:
    """Find the first rule that one sentence of a text fits, or None."""
    rules = RULES.get(status) or RULES.get(status // 100 * 100)
    return rules and rules.first(text)


# The status, the sentence and the alternative that it fits.
STANDS_FOR = {"program": PROGRAM, "library": LIBRARY, "none": NO_STATUS}
FIT = [
    (STANDS_FOR.get(row["under"], row["under"]), row["sentence"], row["kind"], row["alternative"])
    for row in EXAMPLES["sentences"]["fit"]
]
SENTENCES = [
    (tongue, row["kind"], row["sentence"])
    for tongue, rows in EXAMPLES["tongues"].items()
    for row in rows
]


@pytest.mark.parametrize(("status", "sentence", "kind", "alternative"), FIT)
def test_a_sentence_fits_its_alternative(
    status: int, sentence: str, kind: str, alternative: str
) -> None:
    """A sentence with the words of an alternative is read by it, alone and inside an exception."""
    rule = first_rule(sentence, status)
    assert rule is not None
    assert (rule.words, rule.row.kind) == (alternative, kind)
    failure = classified_in_a_task(error_of(status, sentence))
    assert (failure.kind, failure.reason) == (kind, rule.row.reason)


def test_every_alternative_has_an_example() -> None:
    """A rule that is added without an example fails here."""
    alternatives = {
        (rule.row.kind, rule.words) for rules in RULES.values() for rule in rules.rules
    }
    assert alternatives == {(kind, alternative) for _, _, kind, alternative in FIT}


def entries(group: str) -> list[str]:
    """List what a group's entries match: a stem itself, any number as one."""
    return [entry.replace("*", "").replace("#", "7") for entry in GROUPS[group]]


def fits(sentence: str, status: int, alternative: str) -> bool:
    rule = first_rule(sentence, status)
    return rule is not None and rule.words == alternative


# What a group of an alternative excludes by its mark, and what may stand before such a word.
EXCLUDES = {"-": [", "], "~": [". ", "\n"]}
EXCLUDING = [
    (status, sentence, alternative, group)
    for status, sentence, _, alternative in FIT
    for group in alternative.split()
    if group[0] in EXCLUDES
]


@pytest.mark.parametrize(("status", "sentence", "alternative", "group"), EXCLUDING)
def test_a_word_that_is_excluded_prevents_it(
    status: int, sentence: str, alternative: str, group: str
) -> None:
    """Each of a group with a minus does so in the sentence, of one with a tilde anywhere."""
    for entry, apart in product(entries(group[1:]), EXCLUDES[group[0]]):
        assert not fits(f"{sentence}{apart}{entry}", status, alternative), entry
        assert not fits(f"{entry}{apart}{sentence}", status, alternative), entry


def test_every_word_is_read_as_its_group() -> None:
    """No entry is out of the reader's reach, whatever case a text has it in."""
    for number, group in enumerate(GROUPS):
        bit = 1 << number
        for entry, pattern in zip(entries(group), GROUPS[group], strict=True):
            texts = [entry, entry.capitalize(), *([] if "'" in entry else [entry.upper()])]
            texts += [entry + "ing"] if pattern[-1] == "*" else []
            for text in texts:
                assert VOCABULARY.sentences(text)[0] & bit, (group, text)
                assert VOCABULARY.sentences(f"so, {text}, it says")[0] & bit, (group, text)


# --- sentences


@pytest.mark.parametrize("row", EXAMPLES["reading"], ids=lambda row: row["says"])
def test_a_text_is_read_by_its_sentences(row: dict[str, Any]) -> None:
    """Each text of a rule fits its alternative, alone and within a sentence, or does not."""
    for text in row.get("fits", ()):
        for whole in (text, f"it says {text}, sorry") if row.get("within", True) else (text,):
            assert fits(whole, row["under"], row["alternative"]), whole
    for text in row.get("fits_not", ()):
        assert not fits(text, row["under"], row["alternative"]), text


@settings(deadline=None)  # speed is not the point
@given(words=st.permutations(["deployment", "was", "removed", "on", "tuesday"]))
def test_words_count_in_any_order(words: list[str]) -> None:
    """A sentence is the set of its words."""
    assert fits(" ".join(words), 404, "model gone -feature -modal")


@pytest.mark.parametrize("stop", [". ", "! ", "? ", "; ", "\n", " { ", " } ", '."', ".'", ".\t"])
def test_a_stop_separates(stop: str) -> None:
    """Words of two sentences fit nothing together."""
    assert meaning(f"deployment{stop}removed", 404) is None
    assert fits(f"hello{stop}deployment removed", 404, "model gone -feature -modal")
    assert fits(f"deployment removed{stop}hello", 404, "model gone -feature -modal")


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
    assert not fits(f"rate {name} limit", 500, "rate -option")


# --- statuses


@example(status=200)
@example(status=399)
@settings(deadline=None)  # speed is not the point
@given(status=st.sampled_from([100, 200, 302, 399, *range(400, 600)]))
def test_an_unknown_status_counts_as_its_class(status: int) -> None:
    """One without rules of its own has those of 400 or of 500; what is no error has none."""
    stands_for = None if status < 400 else 400 if status < 500 else 500
    for _, sentence, _, _ in FIT if status not in RULES else ():
        rule = first_rule(sentence, status)
        assert rule == (stands_for and first_rule(sentence, stands_for))


def test_the_first_rule_that_fits_decides() -> None:
    """The order of the table decides between two rules, not the order of their sentences."""
    rate, crash = "slow down", "goroutine panicked"
    for text in (f"{rate}. {crash}", f"{crash}. {rate}", f"{rate}, {crash}"):
        assert fits(text, 500, "panic")


# --- any text

_tokens = st.sampled_from(
    [
        *(entry.replace("*", "") for group in GROUPS.values() for entry in group),
        *".,;{}():-/'\n",
        "3",
        "429",
        "https://x.test/a",
        "a-b-3",
        "\N{RIGHT SINGLE QUOTATION MARK}",
    ]
)


@settings(deadline=None)  # speed is not the point
@given(text=st.text() | st.lists(_tokens, max_size=30).map(" ".join))
def test_any_text_is_read(text: str) -> None:
    """Nothing raises, and the rule that comes out is one of the status's own."""
    for status, rules in RULES.items():
        rule = first_rule(text, status)
        assert rule is None or rule in rules.rules


def test_a_long_text_is_read_to_its_end() -> None:
    """A text that repeats itself is read in one pass, or the test's time would run out."""
    parts = [*"aA'1-.{_余", "a-", "a.", "aA", "a'", "\N{RIGHT SINGLE QUOTATION MARK}", "http://"]
    for part in (*parts, "a:/", "rate "):
        assert fits(f"{part * 50_000} \n slow down", 500, "rate -option"), part


# --- tongues

ENGLISH: dict[str, list[str]] = read("texts")["words"]


@pytest.mark.parametrize(("tongue", "kind", "sentence"), SENTENCES)
def test_a_sentence_is_read_in_its_tongue(tongue: str, kind: str, sentence: str) -> None:
    """A relay's 400 means what its message says, also in capitals and within another text."""
    english = Vocabulary({group: ENGLISH.get(group, ()) for group in GROUPS})
    assert english.sentences(sentence) != VOCABULARY.sentences(sentence), (tongue, kind)
    within = f"upstream says: {sentence} (request id: ab12)"
    for message in (sentence, sentence.upper(), within):
        body = {"error": {"message": message}}
        assert classify(ProviderError(message, status_code=400, body=body)).kind == kind


# --- letters


@pytest.mark.parametrize("row", EXAMPLES["alphabets"]["words"], ids=lambda row: row["text"])
def test_letters_with_marks_are_read_as_those_without(row: dict[str, Any]) -> None:
    """A word of an alphabet is read as a whole; one of a script without spaces, inside a run."""
    bit = 1 << [*GROUPS].index(row["group"])
    assert bool(VOCABULARY.sentences(row["text"])[0] & bit) is row["has"]


# --- statuses inside texts


def kind_under(status: int) -> Kind:
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
            assert (failure.kind, failure.status) == (kind_under(upstream), status)
        for cls in (ProviderError, RuntimeError, Exception):  # where no attribute holds one
            failure = classify(cls(text))
            assert (failure.kind, failure.status) == (kind_under(upstream), upstream)


def test_every_status_counts_inside_a_text_as_outside() -> None:
    """One that no row names is its class's; so is one before a phrase.

    HON-021: any status from 500 to 599 allows a switch and a retry, as does 429 (HON-020).
    """
    for upstream in (*range(400, 600), *map(HTTPStatus, (429, 500, 503))):
        failure = under(upstream, "hello")
        assert (failure.kind, failure.status) == (kind_under(upstream), upstream)
        assert type(failure.status) is int
        if upstream == 429 or upstream >= 500:
            assert failure.switchable
            assert failure.transient
        text = f"Error code: {int(upstream)} - hello"
        assert under(520, text).kind is failure.kind
    for upstream in (401, 402, 403, 404):
        phrase = HTTPStatus(upstream).phrase
        for text in (
            f"hello {upstream} {phrase}",
            f"{upstream}: {phrase}",
            f"x {upstream} {phrase}.",
        ):
            assert under(502, text).kind is kind_under(upstream)


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
                assert under(502, text).kind is kind_under(code)
            if key == "code":
                text = f"hello: {json.dumps({'hello': inner})}"
                assert under(502, text).kind is kind_under(code)


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
