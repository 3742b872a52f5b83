"""Streams of real SDKs: texts that break off and go on, and helpers that say a text twice."""

from __future__ import annotations

import sys
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    StreamInterrupted,
    Target,
    read_answer,
)
from tests.helpers.answers import as_object
from tests.helpers.scripted import asked_by
from tests.helpers.wire import (
    CHAT,
    MESSAGES,
    block_delta,
    gemini_answer,
    message_answer,
    message_delta,
    part,
    responses_answer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from honcho_fallback import Attempt
    from honcho_fallback.testing import Clock

# Cut points over real tokenisations, in the chunks of real SDKs: no word is lost or doubled.

TEXTS = {
    "prose": (
        "Dear Ms. O'Neill,\n\nthe harbour was quiet on the 3rd; two boats came in before noon — "
        "late, as ever. Would you send the papers? We'd rather not wait a week.\n\nYours, K."
    ),
    "a table": "| a | b |\n|---|---|\n| 1 | 2 |\n| 1 | 2 |\n| 1 | 3 |\n\nThat is all of it.",
    "code": "def f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)\n\nf(9)",
    "other scripts": (
        "\u6771\u4eac\u306f\u4eca\u65e5\u3082\u96e8\u3067\u3059\u3002"
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u00bfQu\u00e9 tal? "
        "\u0645\u0631\u062d\u0628\u0627 \U0001f469\u200d\U0001f680\U0001f680 done."
    ),
}


def chat_chunk(text: str, finish: str | None = None) -> Any:
    return as_object(part(finish, role="assistant", content=text))


def claude_chunk(text: str, finish: str | None = None) -> Any:
    if finish:
        return as_object(message_delta(message_answer()))
    return as_object(block_delta({"type": "text_delta", "text": text}))


def gemini_chunk(text: str, finish: str | None = None) -> Any:
    return as_object(gemini_answer({"text": text}, finish=finish))


def responses_chunk(text: str, finish: str | None = None) -> Any:
    if finish:
        return as_object({"type": "response.completed", "response": responses_answer()})
    return as_object({"type": "response.output_text.delta", "delta": text})


def langchain_chunk(text: str, finish: str | None = None) -> Any:
    messages = pytest.importorskip("langchain_core.messages")
    metadata = {"finish_reason": "stop"} if finish else {}
    return messages.AIMessageChunk(content=text, response_metadata=metadata)


def tokens_of(text: str) -> list[str]:
    """Cut a text as OpenAI's tokens do; those that end within a letter come with the next."""
    encoding = pytest.importorskip("litellm").encoding
    pieces: list[str] = []
    rest = b""
    for token in encoding.encode(text):
        rest += encoding.decode_single_token_bytes(token)
        try:
            pieces.append(rest.decode())
        except UnicodeDecodeError:
            continue
        rest = b""
    return pieces


# What the next model says of a text, with its beginning before it.
GOES_ON: dict[str, Callable[[str, str], str]] = {
    "follows": lambda text, partial: text.removeprefix(partial),
    "repeats": lambda text, partial: partial[-25:] + text.removeprefix(partial),
    "begins again": lambda text, _: text,
}
# Made once for each text: nobody changes what an SDK has read.
CHUNKS = [*map(cache, (chat_chunk, claude_chunk, gemini_chunk, responses_chunk, langchain_chunk))]
CHAT_CHUNK, CLAUDE, GEMINI, RESPONSES, _ = CHUNKS
SHAPES = [(one, one) for one in CHUNKS]
SHAPES += [(CHAT_CHUNK, CLAUDE), (CLAUDE, GEMINI), (RESPONSES, CHAT_CHUNK)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", GOES_ON)
@pytest.mark.parametrize(("shape", "others"), SHAPES)
@pytest.mark.parametrize("name", TEXTS)
def test_no_cut_loses_or_doubles_a_word(
    name: str,
    shape: Callable[..., Any],
    others: Callable[..., Any],
    how: str,
) -> None:
    """Wherever it breaks, whether the model follows, repeats its last words or begins again."""
    text = TEXTS[name]
    pieces, goes_on = tokens_of(text), GOES_ON[how]
    targets = [Target("primary"), Target("able", prefill=True)]
    policy = FallbackPolicy(targets, FallbackConfig(wait=0))

    def ask(attempt: Attempt) -> Iterator[Any]:
        if attempt.position == 0:
            yield from map(shape, pieces[:cut])
            raise ConnectionResetError
        yield from map(others, tokens_of(goes_on(text, attempt.partial)))
        yield others("", "stop")

    for cut in range(1, len(pieces)):
        before = "".join(pieces[:cut])
        # A few letters that come again may be meant so: they are left where they are.
        if how != "follows" and len(before.rstrip()) < 25:
            continue
        chunks = [*policy.stream(ask, partial="continue")]
        whole = "".join(str(read_answer([one]).content or "") for one in chunks)
        # Cells that come again may be meant so: in doubt nothing is dropped.
        kept = before + goes_on(text, before.rstrip()) if name == "a table" else text
        assert whole in {text, kept}, (cut, before[-30:])


# What the SDKs' stream helpers return: managers to enter, and events that say a text twice.

MESSAGE: Any = [{"role": "user", "content": "Tell me of the harbor."}]
TEXT = "The harbor was quiet. Two boats came in before noon. "


def body_of(events: Iterable[str | Callable[[], None]]) -> Iterator[bytes]:
    """Write a stream of events, of which some stand for what happens between two."""
    for event in events:
        if isinstance(event, str):
            yield f"{event}\n\n".encode()
        else:
            event()


def lose() -> None:
    raise ConnectionResetError(104, "reset")


def client_of(sdk: Any, events: Iterable[str | Callable[[], None]]) -> Any:
    bases = [base.__module__.partition(".")[0] for base in sdk.DefaultHttpxClient.__mro__]
    library = sys.modules["httpx2" if "httpx2" in bases else "httpx"]
    headers = {"content-type": "text/event-stream"}

    def answer(_: object) -> Any:
        return library.Response(200, headers=headers, content=body_of(events))

    client = sdk.DefaultHttpxClient(transport=library.MockTransport(answer))
    return sdk.Client(api_key="k", max_retries=0, http_client=client)


def chat_helper(client: Any) -> Any:
    return client.chat.completions.stream(model="m", messages=MESSAGE)


def responses_helper(client: Any) -> Any:
    return client.responses.stream(model="m", input="hi")


def messages_helper(client: Any) -> Any:
    return client.messages.stream(model="m", max_tokens=9, messages=MESSAGE)


def raw_response(client: Any) -> Any:
    return client.chat.completions.with_streaming_response.create(model="m", messages=MESSAGE)


HELPERS = [
    *((openai, one) for one in (chat_helper, responses_helper, raw_response)),
    (anthropic, messages_helper),
]


@pytest.mark.parametrize(("sdk", "helper"), HELPERS)
@pytest.mark.parametrize("verb", ["call", "acall", "stream", "astream"])
def test_a_manager_that_nobody_entered_is_no_answer(sdk: Any, helper: Any, verb: str) -> None:
    """It has asked nobody: a success without a request is refused, with what to write."""
    is_async = verb in {"acall", "astream"}
    make = sdk.AsyncClient if is_async else sdk.Client
    policy = FallbackPolicy([Target("m", client=make(api_key="k", max_retries=0))])
    run = policy.start()
    fix = "write `async with" if is_async else "write `with"
    with pytest.raises(FallbackConfigError, match=f"a manager .* to policy.{verb}; {fix}"):
        asked_by(verb, policy, lambda attempt: helper(attempt.target.client), run=run)
    assert run.record.outcome == "rejected"


def events_of(sdk: Any, text: str) -> list[Any]:
    form = CHAT if sdk is openai else MESSAGES
    return [*form.events(form.answer(text, "m", True), {}, None)]


def said_by(event: Any) -> str:
    """Read a helper's event as its users do."""
    if event.type == "content.delta":
        return str(event.delta)
    return str(event.text) if event.type == "text" else ""


STREAMS = pytest.mark.parametrize(
    ("sdk", "helper"),
    [(openai, chat_helper), (anthropic, messages_helper)],
    ids=["openai", "anthropic"],
)
READERS = pytest.mark.parametrize("reads", [bool, said_by], ids=["all", "texts"])


def asks(helper: Any, reads: Any) -> Any:
    """Hand on a helper's events, or those alone that say a text."""

    def ask(attempt: Attempt) -> Any:
        with helper(attempt.target.client) as events:
            yield from filter(reads, events)

    return ask


@STREAMS
@READERS
def test_a_helpers_text_that_breaks_off_goes_on(sdk: Any, helper: Any, reads: Any) -> None:
    """What its events say twice is one text; what the next model repeats is dropped of both."""
    cut = client_of(sdk, [*events_of(sdk, TEXT)[:7], lose])
    whole = client_of(sdk, events_of(sdk, TEXT + "Then it rained."))
    policy = FallbackPolicy(
        [Target("primary", client=cut), Target("able", client=whole, prefill=True)]
    )
    run = policy.start()
    events = [*policy.stream(asks(helper, reads), partial="continue", run=run)]
    assert "".join(map(said_by, events)) == TEXT + "Then it rained."
    assert run.record.answered_by == "able"
    assert 10 < (run.record.attempts[0].received or 0) < len(TEXT)


@STREAMS
@READERS
def test_a_helpers_stream_that_trickles_is_left(
    sdk: Any, helper: Any, reads: Any, clock: Clock
) -> None:
    """min_rate counts each word once, whoever says it twice; a fast one stays."""
    events = events_of(sdk, TEXT)
    asked = asks(helper, reads)

    def after(seconds: float) -> FallbackPolicy:
        slow = chain.from_iterable([one, lambda: clock.advance(seconds)] for one in events)
        return FallbackPolicy([Target("m", client=client_of(sdk, slow))], min_rate=2.0)

    assert "".join(map(said_by, after(1.0).stream(asked))) == TEXT
    with pytest.raises(StreamInterrupted, match="timeout") as caught:
        list(after(6.0).stream(asked))
    assert "fewer than min_rate=2" in str(caught.value.__cause__)
