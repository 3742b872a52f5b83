"""What an exception means: examples, every row of the tables, and what holds for any exception."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import warnings
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pydantic
import pytest
import requests
import tenacity
from hypothesis import given, settings
from hypothesis import strategies as st

from honcho_fallback import FallbackPolicy
from honcho_fallback._classify import classify
from honcho_fallback._classify._facts import ATTRIBUTES
from honcho_fallback._classify._tables import CODES, ENDINGS, GENERIC, NAMES, STATUSES, read
from honcho_fallback._classify._texts import GROUPS, TEXTS
from honcho_fallback._values.failure import KINDS, Failure
from honcho_fallback._values.failure import FailureKind as Kind
from honcho_fallback.redaction import redact
from tests.helpers.errors import (
    REQUEST,
    ProviderError,
    built,
    examples,
    openai_error,
    raised_from,
    requests_answer,
    stand_in,
)
from tests.helpers.own_rules import loaded, of_program, of_provider
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = examples()


@pytest.mark.parametrize("row", EXAMPLES.values(), ids=[*EXAMPLES])
def test_an_error_is_what_its_rule_says(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each example of errors.toml has its kind, and whatever else its rule gives it."""
    monkeypatch.setattr("honcho_fallback._classify._waits.time.time", lambda: 1.7e9)
    gives = row.get("gives", {}) | dict.fromkeys(row.get("lacks", ()))
    failure = classify(built(row))
    assert (failure.kind, {name: getattr(failure, name) for name in gives}) == (row["kind"], gives)


# --- the tables


def twice(entries: list[Any]) -> list[Any]:
    return [entry for entry, count in Counter(entries).items() if count > 1]


def test_no_structured_fact_stands_twice() -> None:
    """A status, code or class name of two rows would be decided by its place alone."""
    codes, names = read("codes"), read("names")
    for table in (codes["status"], codes["code"], codes["errno"], names["origin"]):
        assert not twice([key for row in table for key in row["keys"]])
    assert not twice([code for group in codes["generic"].values() for code in group])
    assert not twice([name.partition(":")[0] for row in names["name"] for name in row["names"]])
    assert not twice([name for row in names["ending"] for name in row["names"]])
    assert all(code == code.lower() for code in CODES)
    assert all(status in row.keys for status, row in STATUSES.items())


def test_each_word_stands_once_in_its_group_and_each_group_is_used() -> None:
    """A word is lower case, one or two to an entry; a group that no rule names would be dead."""
    for entries in GROUPS.values():
        assert not twice(entries)
        assert all(entry == entry.lower() and len(entry.split()) <= 2 for entry in entries)
    named = {name.lstrip("-~") for row in TEXTS for words in row.any for name in words.split()}
    assert named == set(GROUPS)
    assert not twice([row.reason for row in TEXTS])


def test_every_row_says_why() -> None:
    """Each row has one line, which is the reason of what it decides."""
    named: tuple[Any, ...] = (*CODES.values(), *STATUSES.values(), *NAMES.values(), *ENDINGS)
    assert all(row.reason and "\n" not in row.reason for row in (*TEXTS, *named))


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_tells_a_person_what_to_do(kind: Kind) -> None:
    """Cause and next action are a sentence each, and no two kinds share a cause."""
    failure = Failure.of(kind)
    for sentence in (failure.cause, failure.next_action):
        assert sentence.endswith(".")
        assert "\n" not in sentence
    assert sum(facts.cause == failure.cause for facts in KINDS.values()) == 1
    credentials = {Kind.AUTHENTICATION, Kind.QUOTA}
    assert failure.scope == ("credential" if kind in credentials else "model")


def test_every_code_decides() -> None:
    """Each code gives its row's kind and reason, against a status that says otherwise."""
    misread: dict[str, Kind] = {}
    for code, row in CODES.items():
        status = next(iter(sorted(row.statuses)), 500)
        error: Exception = openai_error(max(status, 400), {"message": "no", "code": code})
        if status < 400:
            error = openai.APIError("no", REQUEST, body={"code": code})
        failure = classify(error)
        if (failure.kind, failure.reason) != (row.kind, row.reason):
            misread[code] = failure.kind
    assert misread == {}


def test_every_generic_code_stands_for_its_status() -> None:
    """Without a status, a code that names a class of them counts like that status."""
    for code in GENERIC.keys() - CODES.keys():
        without = ProviderError("no", body={"error": {"type": code, "message": "no"}})
        with_status = ProviderError("no", status_code=GENERIC[code], body={"message": "no"})
        assert classify(without).kind is classify(with_status).kind, code


# The built wheel is tested without these.
_NOT_ALWAYS = ("litellm", "langchain", "anyio", "huggingface_hub")


def test_hon_029_every_listed_class_exists_in_its_sdk() -> None:
    """HON-029: a rename in an SDK is seen: each name of the table is still a class there."""
    gone: list[str] = []
    named = (one.partition(": ") for row in read("names")["name"] for one in row["names"])
    for name, home in ((name, home) for name, _, homes in named for home in homes.split()):
        if home.startswith(_NOT_ALWAYS) and importlib.util.find_spec(home.split(".")[0]) is None:
            continue
        cls = getattr(importlib.import_module(home), name.rpartition(".")[2], None)
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            gone.append(f"{home}.{name}")
    assert gone == []


def test_every_name_decides_in_any_module() -> None:
    """Each name of the table gives its kind without a status and without a message."""
    for row in NAMES.values():
        failure = classify(stand_in(row.name, "some.sdk", Exception)())
        assert (failure.kind, failure.error) == (row.kind, row.name)
        assert row.transient in {None, failure.transient}, row.name


def test_every_ending_decides() -> None:
    """A class that no row names is known by the end of its name, if its module is a model's."""
    for place, row in enumerate(ENDINGS):
        for name, module in ((f"Nimbus{row.name}", "nimbus.llm"), (f"LLM{row.name}", "nimbus")):
            failure = classify(stand_in(name, module, Exception)())
            assert (failure.kind, failure.reason) == (row.kind, row.reason), row.name
        of_a_tool = stand_in(f"Nimbus{row.name}", "nimbus.weather", Exception)
        assert classify(of_a_tool()).kind is Kind.LOCAL
        assert not any(row.name.endswith(shorter.name) for shorter in ENDINGS[:place])


def test_langchains_own_classes_say_so_themselves() -> None:
    """What their rows say of asking again is what LangChain says of each class."""
    home = pytest.importorskip("langchain_core.exceptions")
    rows = [row for row in EXAMPLES.values() if row.get("real", "").startswith(home.__name__)]
    says = {row["real"]: getattr(home, row["real"].split(".")[-1]).is_retryable for row in rows}
    assert says == {row["real"]: row["gives"]["transient"] for row in rows}
    assert len(says) == 10


# --- documents and responses


def nested(depth: int, wrap: Callable[[Any], Any], inner: Any) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def nested_in(key: str, write: Callable[[Any], Any] = lambda inner: inner) -> Any:
    return lambda depth: nested(depth, lambda inner: {key: write(inner)}, ABC)


def long_document(size: int) -> str:
    start = '{"code": "abc", "message": "hello", "echo": "'
    return start + "x" * (size - len(start) - 2) + '"}'


ABC: dict[str, Any] = {"code": "abc", "message": "hello"}
BOUNDS: dict[str, tuple[list[int], int, Callable[[int], Any]]] = {
    "a body of 64 KiB is parsed": ([65_536], 65_537, long_document),
    "eight errors of a list are read": ([1, 8], 9, lambda n: [{}] * (n - 1) + [ABC]),
    "three documents inside one are read": ([0, 3], 4, nested_in("error")),
    "three documents in metadata are read": ([1, 3], 4, nested_in("metadata")),
    "three documents as texts inside one are read": ([1, 3], 4, nested_in("message", json.dumps)),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_body_is_read_up_to_a_bound(bound: str) -> None:
    """What is longer or deeper is a page, or the request that came back."""
    read_at, lost_at, body = BOUNDS[bound]
    for size in (*read_at, lost_at):
        failure = classify(ProviderError("own words", status_code=400, body=body(size)))
        assert failure.code == (None if size == lost_at else "abc"), size


@pytest.mark.parametrize("body", [b"hello", None, b""])
def test_bytes_are_a_body_and_nothing_is_none(body: Any) -> None:
    """Plain text is the message, however it came; where there is none, the next body counts."""
    error = ProviderError("no", status_code=400, body=body, details="hello")
    assert classify(error).provider_message == "hello"


def test_the_content_of_a_response_is_read() -> None:
    """requests keeps the status and the bytes that it has already read; others compute them."""
    body = '{"error": {"code": "insufficient_quota", "message": "hello"}}'
    kept = requests_answer(400, body)
    failure = classify(requests.HTTPError("no", response=kept))
    assert (failure.kind, failure.status) == (Kind.QUOTA, 400)
    assert failure.provider_message == "hello"
    headers = property(lambda _: {b"retry-after": b"7"})
    for name in ("status_code", "status"):
        computed = {name: property(lambda _: 429), "headers": headers}
        failure = classify(ProviderError("hello", response=type("Computed", (), computed)()))
        assert (failure.kind, failure.status) == (Kind.RATE_LIMIT, 429)
        assert failure.retry_after == 7


# --- messages


class QuotingError(Exception):
    status_code = 500

    def __str__(self) -> str:
        return f"quoted {self.args!r}"


class MuteError(Exception):
    status_code = 500

    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (QuotingError("hello"), "hello"),
        (QuotingError("hello", 7), "quoted ('hello', 7)"),
        (QuotingError(7), "quoted (7,)"),
        (QuotingError(), "quoted ()"),
        (MuteError("hello"), "hello"),
        (MuteError(), ""),
    ],
)
def test_the_only_argument_is_the_message(error: Exception, message: str) -> None:
    """One text is the message, whatever str makes of it; of several, str speaks."""
    assert classify(error).provider_message == message


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
def test_a_provider_message_shows_no_key(secret: str) -> None:
    """Keys and long tokens are masked wherever they stand."""
    for frame in ("key {} is wrong", "({})", "got '{}', sorry", "a={}"):
        failure = classify(ProviderError(frame.format(secret), status_code=401))
        assert secret not in failure.provider_message


def test_a_short_key_is_known_by_its_place() -> None:
    """What stands behind Bearer, key= and their like is masked however short."""
    for frame in (
        "Bearer {}",
        "at https://h.test/x?key={}&v=1",
        "api_key={}",
        "x-api-key: {}",
        "https://me:{}@h.test/",
        "secret={}",
    ):
        assert "hunter2" not in redact(frame.format("hunter2")), frame


def test_a_provider_message_is_one_short_line() -> None:
    """Whitespace is folded, control characters go, 200 characters remain."""
    shown = classify(ProviderError("a\n\tb\x00\x1b[31m " + "word " * 99, status_code=500))
    assert shown.provider_message.startswith("a b[31m word")
    assert len(shown.provider_message) == 200
    assert shown.provider_message.isprintable()


# --- the program's own, and whom the caller names


OF_A_TOOL = stand_in("OddError", "acme.weather", Exception)


@pytest.mark.parametrize(
    ("error", "plain", "named"),
    [
        (ProviderError(status_code=429), Kind.RATE_LIMIT, Kind.RATE_LIMIT),
        (ValueError("x"), Kind.LOCAL, Kind.SERVER_ERROR),
        (stand_in("ValidationError", "some.sdk")("hello"), Kind.LOCAL, Kind.SERVER_ERROR),
        (stand_in("TimeoutError", "some.sdk")("hello"), Kind.TIMEOUT, Kind.TIMEOUT),
        (OF_A_TOOL("Rate limit exceeded."), Kind.LOCAL, Kind.SERVER_ERROR),
    ],
    ids=repr,
)
def test_hon_038_classes_named_by_the_caller_settle_it(
    error: Exception, plain: Kind, named: Kind
) -> None:
    """A rule wins over every fact, and one by default where nothing else decides."""
    assert classify(error).kind is plain
    assert classify(error, rules=loaded(of_provider(type(error)))).kind is named
    for one in (error, raised_from(stand_in("ConnectError", "sdk", Exception)("hello"), error)):
        failure = classify(one, rules=loaded(of_program(type(error))))
        assert (failure.kind, failure.reason) == (Kind.LOCAL, "rule 1 given in Python")


def test_what_does_not_fit_a_models_class_is_local_unless_named() -> None:
    """A parser's error is the answer's, and a validation error the program's own."""
    with pytest.raises(json.JSONDecodeError) as parsed:
        json.loads("<html>")
    assert classify(parsed.value).kind is Kind.MALFORMED_RESPONSE
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(int).validate_python("x")
    assert classify(caught.value).kind is Kind.LOCAL
    retries = stand_in("InstructorRetryException", "instructor.core.exceptions", Exception)
    wrapped = raised_from(retries("hello"), caught.value)
    assert classify(wrapped).kind is Kind.MALFORMED_RESPONSE
    assert classify(retries(ProviderError(status_code=429))).kind is Kind.RATE_LIMIT


def test_a_page_where_an_answer_was_expected_is_no_bug() -> None:
    """An SDK that takes a page for its answer misses whatever it looks for."""
    for page, kind in (("<html>Sign in</html>", "malformed_response"), ("hello", "local")):
        with pytest.raises(AttributeError) as caught:
            getattr(page, "model_dump")()  # noqa: B009 # as the SDK does it
        assert classify(caught.value).kind == kind


# --- causes, contexts and groups


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: raised_from(RuntimeError("agent failed"), inner),
        lambda inner: ExceptionGroup("hello", [inner]),
    ],
    ids=["cause", "group"],
)
@pytest.mark.parametrize(("depth", "kind"), [(5, Kind.RATE_LIMIT), (6, Kind.LOCAL)])
def test_hon_036_causes_and_groups_are_opened_five_deep(wrap: Any, depth: int, kind: Kind) -> None:
    """What is inside decides where the outer exception says nothing, which stays the error."""
    error: Exception = nested(depth, wrap, ProviderError(status_code=429))
    assert (classify(error).kind, classify(error).error) == (kind, type(error).__name__)


def test_hon_036_tenacity_is_unwrapped() -> None:
    """RetryError stands for its last attempt."""

    @tenacity.retry(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
    def call() -> None:
        raise ProviderError(status_code=503)

    with pytest.raises(tenacity.RetryError) as caught:
        call()
    assert classify(caught.value).kind is Kind.OVERLOADED


def raise_from_here() -> None:
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_call_in_an_except_block_is_judged_by_itself(driver: str) -> None:
    """What the caller was handling before says nothing of a lost connection; nor in its loop."""
    script = repeating(primary=[ConnectionResetError("lost")], backup=["hello"])
    policy = FallbackPolicy(script.targets)
    run = policy.start()
    try:
        raise RuntimeError("the caller's own")
    except RuntimeError:
        assert DRIVERS[driver](policy, script, policy.start()) == "hello"
        try:
            raise_from_here()
        except httpx.ConnectError as error:
            run.fail(error)
    assert run.attempt.target.name == "backup"


def test_a_mistake_that_a_connection_class_hides_is_a_mistake() -> None:
    """A library that raises it while it handles the program's error tried no connection."""
    with pytest.raises(httpx.ConnectError) as caught:
        try:
            raise TypeError("a header that is no text")
        except TypeError:
            raise httpx.ConnectError("failed")  # noqa: B904 # as libraries do
    assert classify(caught.value).kind is Kind.LOCAL


_edges = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))


@settings(deadline=None)  # speed is not the point
@given(edges=st.lists(_edges, max_size=18))
def test_any_net_of_causes_ends(edges: list[tuple[int, int, int]]) -> None:
    """Causes, contexts, wrapped exceptions and arguments may point anywhere, and back."""
    errors: list[Any] = [RuntimeError(str(number)) for number in range(6)]
    for start, end, how in edges:
        one, other = errors[start], errors[end]
        if how == 0:
            one.__cause__ = other
        elif how == 1:
            one.__context__ = other
        elif how == 2:
            one.reason = other
        else:
            one.args = (other, one)
    for error in errors:
        assert classify(error).kind is Kind.LOCAL
    for error in errors:  # or the collector has to find them
        error.__cause__ = error.__context__ = None
        error.args = ()
        error.__dict__.clear()


# --- hostile exceptions


def never_ask(_: object) -> None:
    raise RuntimeError


def warn(_: object) -> int:
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    return 401


def trapped(traps: dict[str, tuple[str, Any]]) -> Any:
    """Build an exception whose attributes raise, warn or hold something odd."""
    getters: dict[str, Any] = {"raise": lambda _: never_ask, "warn": lambda _: warn}
    getters["return"] = lambda value: lambda _: value
    computed = {
        name: property(getters[how](value))
        for name, (how, value) in traps.items()
        if how in getters
    }
    error: Any = type("TrappedError", (MuteError,), {"status_code": None} | computed)()
    error.__dict__.update({name: value for name, (how, value) in traps.items() if how == "hold"})
    return error


def test_properties_that_raise_or_warn_are_survived() -> None:
    """A property that raises is absent, as is one that warns: nobody hears of it."""
    traps = {"status_code": ("raise", 0), "code": ("warn", 401), "status": ("return", 503)}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert classify(trapped(traps)).kind is Kind.OVERLOADED
    assert heard == []


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_names = st.sampled_from(
    [*sorted(ATTRIBUTES), "type", "last_attempt", "litellm_response_headers", "__notes__"]
)
_traps = st.tuples(st.sampled_from(["raise", "warn", "return", "hold"]), _values)


@settings(deadline=None)  # speed is not the point
@given(traps=st.dictionaries(_names, _traps, max_size=6), args=st.lists(_values, max_size=3))
def test_classify_never_raises(traps: dict[str, tuple[str, Any]], args: list[Any]) -> None:
    """Whatever attributes and arguments do, a Failure comes out and keeps its promises."""
    error = trapped(traps)
    error.args = tuple(args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        failure = classify(raised_from(RuntimeError("outer"), error))
    assert failure.kind in Kind
    assert failure.status is None or 100 <= failure.status <= 599
    assert failure.retry_after is None or failure.retry_after >= 0
    assert len(failure.provider_message) <= 200
    assert failure.reason


def test_no_reference_to_the_traceback_is_kept() -> None:
    """What the failing frames held is free as soon as the caller lets go of the exception."""

    class Prompt:
        pass

    def ask(prompt: Prompt) -> None:
        raise TimeoutError(prompt)

    prompt = Prompt()
    alive = weakref.ref(prompt)
    failures: list[Failure] = []
    try:
        ask(prompt)
    except TimeoutError as error:
        failures.append(classify(error))
    del prompt
    gc.collect()
    assert failures[0].kind is Kind.TIMEOUT
    assert alive() is None
