"""What answers hold, and which fail under HTTP 200: real ones, chunks, events and dicts."""

from __future__ import annotations

import warnings
from itertools import chain
from typing import Any

import openai.types.chat
import openai.types.responses
import pytest
from google.genai import types as genai
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChunkEvent

from honcho_fallback import Answer, FailureKind, check_response, has_content, read_answer
from honcho_fallback._classify._answers import BROKEN, EMPTY, thinks
from honcho_fallback._classify._content import SHAPES
from honcho_fallback._classify._usage import usage_of
from tests.helpers import wire
from tests.helpers.answers import ANSWERS, as_object, forms_of
from tests.helpers.wire import CHAT_USAGE, COUNTS, chat_answer, part

Kind = FailureKind
USAGE_CHUNK = wire.chat_chunk(None, model="m", usage=CHAT_USAGE)


def seen(answer: Any) -> tuple[FailureKind, bool] | None:
    """Say what check_response says: the kind, and whether the same target may be asked again."""
    failure = check_response(answer)
    if failure is None:
        return None
    assert failure.reason
    assert failure.error == "ErrorInAnswer"
    return failure.kind, failure.transient


# --- the rows of answers.json

FAILS = {
    name: (answer, group["kind"], group.get("transient"))
    for group in ANSWERS["fails"]
    for name, answer in group["answers"].items()
}


@pytest.mark.parametrize("name", FAILS)
def test_a_failure_under_200_is_seen(name: str) -> None:
    """Each has its kind, in the document as in what its SDK or its framework makes of it."""
    row, kind, again = FAILS[name]
    for answer in forms_of(row):
        failure = seen(answer)
        assert failure is not None
        assert failure[0] == kind
        assert again in {None, failure[1]}


@pytest.mark.parametrize("name", ANSWERS["healthy"])
def test_what_is_healthy_merely_short_or_unknown_is_no_failure(name: str) -> None:
    """A legal answer is left alone; so is whatever nobody knows."""
    for answer in forms_of(ANSWERS["healthy"][name]):
        assert seen(answer) is None
        assert not isinstance(answer, list) or seen((*answer,)) is None


@pytest.mark.parametrize("name", ANSWERS["says"])
def test_an_answer_is_read(name: str) -> None:
    """A document, the SDK's object and a stream's chunks say the same; a refusal is a text."""
    row, wanted = ANSWERS["says"][name]
    counts = getattr(wire, wanted["usage"]) if "usage" in wanted else None
    for one in forms_of(row):
        for answer in [one, tuple(one)] if isinstance(one, list) else [one]:
            read = read_answer(answer)
            assert (read.content, read.model) == (wanted["content"], "m")
            assert wanted.get("finish") in {None, read.finish_reason}
            assert counts is None or read.usage == usage_of(answer) == counts


CHUNKS = [
    (f"carries {what}", name)
    for what in ("nothing", "content", "thinking")
    for name in ANSWERS[f"carries {what}"]
]


@pytest.mark.parametrize(("what", "name"), CHUNKS)
def test_a_chunk_carries_content_or_thinking_or_nothing(what: str, name: str) -> None:
    """Thinking is a sign of life and no content; a frame, usage or an end is neither."""
    carried = (what == "carries content", what == "carries thinking")
    row = ANSWERS[what][name]
    for chunk in (*forms_of(row), *chain.from_iterable(forms_of([row]))):
        assert (has_content(chunk), thinks(chunk)) == carried


ENDS = ("finish_reason", "stop_reason", "status", "incomplete_details")


@pytest.mark.parametrize("stream", ANSWERS["integrations"])
@pytest.mark.parametrize("text", ["we", ""])
def test_a_known_integrations_stream_has_an_end(stream: str, text: str) -> None:
    """Its chunks name it: without a finish reason they are no answer, empty or not."""
    messages = pytest.importorskip("langchain_core.messages")
    chunk = messages.AIMessageChunk
    whole = ANSWERS["integrations"][stream]
    cut = [{name: one[name] for name in one if name not in ENDS} for one in whole]
    chunks = [chunk(text, response_metadata=metadata) for metadata in whole]
    broken = [chunk(text, response_metadata=metadata) for metadata in cut]
    # One that was cut short has to hold some text.
    assert seen(chunks) is None or (stream.endswith("cut short") and not text)
    assert read_answer(chunks).finish_reason
    assert seen(broken) == seen([one.model_dump() for one in broken]) == UNENDED
    assert read_answer(broken).finish_reason is None
    assert seen(broken[0]) is None  # alone it is a message


UNENDED = (Kind.MALFORMED_RESPONSE, True)


@pytest.mark.parametrize("name", ANSWERS["usage"])
def test_usage_has_one_form(name: str) -> None:
    """By itself or inside an answer; a bool, a text or a negative is no count.

    What is in that form already stays as it is.
    """
    usage, counts = ANSWERS["usage"][name]
    assert usage_of({"usage": usage}) == usage_of(usage) == counts
    assert read_answer({"usage": usage}).usage == counts


@pytest.mark.parametrize(("cost", "known"), [(0.5, 0.5), (0, None), (-1, None), ("1", None)])
def test_a_cost_is_taken_where_it_is_one(cost: Any, known: float | None) -> None:
    """OpenRouter puts it into the usage."""
    assert read_answer({"usage": {**CHAT_USAGE, "cost": cost}}).cost == known


# --- whole answers and streams


def test_what_no_answer_says_is_none() -> None:
    """Neither a content nor a model is invented."""
    for nothing in (None, 42, b"hello", object(), {}, {"a": 1}, {"usage": None}, [{"a": 1}]):
        assert read_answer(nothing) == Answer()
    assert read_answer("hello") == Answer("hello")
    assert read_answer(("hel", "lo")) == Answer("hello")
    assert read_answer(("hel", {"a": 1})) == Answer()


def test_a_long_stream_is_read_whole_and_its_usage_at_the_ends() -> None:
    """All text counts; a share of usage that only one provider sends in between does not."""
    words = [part(content="a") for _ in range(100)]
    words[50]["usage"] = {**CHAT_USAGE, "completion_tokens": 1}
    assert read_answer([*words, USAGE_CHUNK]) == Answer("a" * 100, COUNTS, None, "m")
    assert read_answer(words).usage is None


def test_where_a_server_never_says_its_end_a_stream_is_whole_without() -> None:
    """Whoever knows that says so; a stream of nothing is no answer even then."""
    begun, said = part(role="assistant"), part(content="we")
    assert seen([begun, said]) == UNENDED
    assert check_response([begun, said], needs_finish=False) is None
    for nothing in ([begun], [begun, part(reasoning_content="hm")]):
        failure = check_response(nothing, needs_finish=False)
        assert failure is not None
        assert failure.kind is Kind.MALFORMED_RESPONSE


def test_an_sdks_object_of_nothing_is_no_answer() -> None:
    """A class says more than an empty document, and OpenAI's is made of whatever came."""
    response = openai.types.responses.Response
    for made in (
        openai.types.chat.ChatCompletion.construct(),
        genai.GenerateContentResponse.model_construct(),
        response.construct(error="the runner crashed"),
        response.construct(detail="no such page"),
        response.construct(object="response", status="completed", output=None),
    ):
        assert seen(made) == UNENDED


@pytest.mark.parametrize("word", sorted(word for word in BROKEN | EMPTY if "(" not in word))
def test_every_finish_reason_decides(word: str) -> None:
    """Each word gives its row's kind; beside a text only if it means that always."""

    def kind(word: str, text: str) -> FailureKind | None:
        failure = check_response(chat_answer(text, finish=word))
        return failure and failure.kind

    assert kind(word.upper(), "") is (BROKEN | EMPTY)[word].kind
    assert kind(word, "well") is (BROKEN[word].kind if word in BROKEN else None)


def test_no_word_and_no_shape_stands_twice() -> None:
    """A word of two rows, or a value of two shapes, would be decided by chance."""
    assert not BROKEN.keys() & EMPTY.keys()
    rows = [word for table in (BROKEN, EMPTY) for row in {*table.values()} for word in row.keys]
    keys = [key for shape in SHAPES for key in (*shape.values, *shape.fields)]
    for listed in (rows, keys):
        assert len(listed) == len({*listed})


# --- LiteLLM, LangChain, Pydantic AI and the SDKs' helpers


@pytest.mark.filterwarnings("ignore::UserWarning")  # LiteLLM's import warns of its own types
def test_litellm_s_objects_are_read() -> None:
    """Its usage is OpenAI's, its cost and what came unasked stand beside the answer."""
    litellm = pytest.importorskip("litellm")
    whole = litellm.ModelResponse(**chat_answer("hello", model="m"))
    whole._hidden_params = {"response_cost": 0.25}
    assert read_answer(whole) == Answer("hello", COUNTS, "stop", "m", 0.25)
    assert seen(whole) is None
    made = litellm.ModelResponseStream
    first = made(**part(role="assistant", content="hello"))
    last = made(**part("stop"))
    unasked = made(**part("stop"))
    last._hidden_params = {"usage": litellm.Usage()}
    unasked._hidden_params = {"usage": litellm.Usage(**CHAT_USAGE)}
    asked = made(**{**USAGE_CHUNK, "usage": litellm.Usage(**CHAT_USAGE)})
    assert read_answer((first, last)) == Answer("hello", None, "stop", "m")
    assert read_answer((first, unasked)) == Answer("hello", COUNTS, "stop", "m")
    assert read_answer((first, last, asked)) == Answer("hello", COUNTS, "stop", "m")
    assert (seen([first]), seen([first, last])) == (UNENDED, None)


def test_langchain_s_messages_are_read() -> None:
    """Bare, in a generation, in a result and in what a middleware passes on, it is the same."""
    messages = pytest.importorskip("langchain_core.messages")
    outputs = pytest.importorskip("langchain_core.outputs")
    ending = {"finish_reason": "stop", "model_name": "m"}
    usage, _ = ANSWERS["usage"]["langchain"]
    whole = messages.AIMessage("hello", usage_metadata=usage, response_metadata=ending)
    generation = outputs.ChatGeneration(message=whole)
    passed_on = pytest.importorskip("langchain.agents.middleware.types")
    for answer in (
        whole,
        generation,
        outputs.ChatResult(generations=[generation]),
        outputs.LLMResult(generations=[[generation]]),
        passed_on.ModelResponse(result=[whole]),
    ):
        assert read_answer(answer) == Answer("hello", COUNTS, "stop", "m")
    empty = outputs.ChatGeneration(message=messages.AIMessage(""))
    assert read_answer(outputs.ChatResult(generations=[empty])).content == ""
    plain = outputs.LLMResult(generations=[[outputs.Generation(text="hi")]])
    assert read_answer(plain) == Answer("hi")
    older = outputs.ChatResult(generations=[], llm_output={"token_usage": CHAT_USAGE})
    assert read_answer(older).usage == COUNTS


def test_langchain_s_chunks_are_added_up() -> None:
    """Each carries its share of usage, wherever it stands in a long stream."""
    messages = pytest.importorskip("langchain_core.messages")
    outputs = pytest.importorskip("langchain_core.outputs")
    share = {"input_tokens": 12, "output_tokens": 0, "total_tokens": 12}
    rest = {"input_tokens": 0, "output_tokens": 7, "total_tokens": 7}
    piece = messages.AIMessageChunk
    chunks = [
        piece("hel", usage_metadata={**share, "input_token_details": {"cache_read": 4}}),
        *[piece("")] * 20,
        piece("lo", usage_metadata={**rest, "output_token_details": {"reasoning": 2}}),
        *[piece("")] * 20,
        piece("", response_metadata={"finish_reason": "stop", "model_name": "m"}),
    ]
    answer = Answer("hello", COUNTS, "stop", "m")
    assert read_answer(chunks) == answer
    assert read_answer([outputs.ChatGenerationChunk(message=one) for one in chunks]) == answer


def test_the_sdks_own_helpers_are_read() -> None:
    """What they put around chunks counts as what is in it."""
    whole = as_object(chat_answer("we"))
    empty, word = (as_object(part(content=text)) for text in ("", "we"))
    assert not has_content(ChunkEvent.construct(type="chunk", chunk=empty, snapshot=whole))
    assert has_content(ChunkEvent.construct(type="chunk", chunk=word, snapshot=whole))


# --- what is nobody's chunk


class Own:
    """Have names that an SDK's chunks and answers have, too."""

    def __init__(self) -> None:
        self.type, self.delta, self.choices = "message_start", "", list[Any]()
        self.candidates, self.error = list[Any](), "none"


class Array:
    def __bool__(self) -> bool:
        raise ValueError("the truth of an array is ambiguous")


ODD = [(b"", False), (b"a", True), ((), False), (Own(), True), (object(), True), (Array(), True)]


@pytest.mark.parametrize(
    ("chunk", "carries"),
    [*ANSWERS["nobody's"], *ODD],
    ids=lambda value: repr(value).partition(" at ")[0],
)
def test_of_everything_else_its_truth_decides(chunk: Any, carries: bool) -> None:
    """A class of the user's own, and a dict of no known shape, is content where it is true."""
    assert has_content(chunk) is carries
    assert check_response(chunk) is None or "error" in chunk


class Hostile:
    """Claim to be an SDK's object, and raise or warn wherever it is touched."""

    __module__ = "openai.types"

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Trapped:
    """Claim the same, and have a property that nobody may run."""

    __module__ = "openai.types"

    def __init__(self) -> None:
        self.choices, self.usage, self.message = [self], self, self

    @property
    def content(self) -> Any:
        warnings.warn("never ask", DeprecationWarning, stacklevel=2)
        raise RuntimeError("never ask")

    error = content


class Map(dict[str, Any]):
    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError(key)


def test_hostile_objects_are_survived_and_unasked() -> None:
    """No property runs, and what raises all the same says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for answer in (Hostile(), [Hostile()], (Hostile(), "a")):
            assert read_answer(answer) == Answer()
        assert read_answer(Trapped()).usage is None
        assert has_content(Hostile()) is True
        assert thinks(Hostile()) is False
        assert has_content(Trapped()) in {True, False}
        assert check_response(Trapped()) is None
        for unread in (Hostile(), Map(choices=[]), Map(error={"code": 1})):
            assert check_response(unread) is check_response([unread]) is None


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
_leaves |= st.sampled_from([*BROKEN, *EMPTY, *(v for shape in SHAPES for v in shape.values)])
_steps = {step for s in SHAPES for field in s[1:-2] for p in field for step in p.split(".")}
_others = ("code", "type", "object", "message", "status_code", "base_resp", "usage", "name")
_keys = st.sampled_from([*sorted(_steps), *_others, "prompt_tokens"])
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=5),
    max_leaves=12,
)


@settings(deadline=None)  # speed is not the point
@given(answer=_values)
def test_none_of_them_ever_raises(answer: Any) -> None:
    """Whatever an answer holds, an Answer comes out, a yes or no, and nothing or a Failure."""
    within = openai.types.chat.ChatCompletion.construct(choices=answer, usage=answer)
    for one in (answer, [answer], (answer, answer), within):
        assert type(read_answer(one)) is Answer
        assert type(has_content(one)) is type(thinks(one)) is bool
        failure = check_response(one)
        assert failure is None or (failure.kind in FailureKind and failure.reason)
