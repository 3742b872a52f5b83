"""What the SDKs' stream helpers return: managers to enter, and events that say a text twice."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from honcho_fallback import FallbackConfigError, FallbackPolicy, StreamInterrupted, Target
from tests.helpers.scripted import asked_by
from tests.helpers.wire import CHAT, MESSAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from honcho_fallback import Attempt
    from honcho_fallback.testing import Clock

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
