"""`partial="continue"`: a plain text that breaks off goes on at another model, ungarbled."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    FallbackConfig,
    FallbackPolicy,
    StreamInterrupted,
    Target,
    read_answer,
)
from honcho_fallback._classify._answers import plain_text
from honcho_fallback._classify._content import without_start
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import ask
from tests.helpers.wire import part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback.testing import Script, Scripted

CUT = ConnectionResetError(104, "reset")
TEXT = "The harbor was quiet. Two boats came in before noon, and the gulls went with them."
CHAIN = [Target("primary"), Target("deaf"), Target("able", prefill=True)]


def said(text: str, *, size: int = 7, end: bool = True) -> list[Any]:
    """Make the chunks of a stream that says a text."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    chunks = [part(role="assistant"), *(part(content=piece) for piece in pieces)]
    return [*chunks, part("stop")] if end else chunks


def after(count: int) -> list[Any]:
    """Make the stream of who goes on with what follows so many characters."""
    return said(TEXT[count:], size=5)


def broken(count: int, error: BaseException = CUT) -> list[Any]:
    """Make a stream that breaks after so many characters."""
    return [*said(TEXT[:count], end=False), error]


def policy_of(*targets: Target, **options: Any) -> FallbackPolicy:
    return FallbackPolicy(targets or CHAIN, FallbackConfig(wait=0, max_attempts=4, **options))


def read(policy: FallbackPolicy, script: Script, driver: str = "stream", **options: Any) -> str:
    """Read a stream as its reader does."""
    options = {"partial": "continue", **options}
    return "".join(map(text_of, ask(policy, script, driver, **options)))


def text_of(chunk: Any) -> str:
    if isinstance(chunk, dict):
        chunk = chunk["choices"][0]["delta"].get("content", "")
    return str(chunk)


DRIVERS = pytest.mark.parametrize("driver", ["stream", "astream"])


@DRIVERS
@pytest.mark.parametrize("count", [1, 4, 21, 22, 40, len(TEXT) - 1])
def test_a_text_that_breaks_off_goes_on(scripted: Scripted, driver: str, count: int) -> None:
    """The reader has one text; who takes no beginning is not asked; the record has the seam."""
    begun = TEXT[:count].rstrip()
    policy, script = policy_of(), scripted(primary=[broken(count)], able=[after(len(begun))])
    run = policy.start()
    assert read(policy, script, driver, run=run) == TEXT
    assert script.asked == ["primary", "able"]
    assert [one.attempt.partial for one in script.requests] == ["", begun]
    record = run.record
    assert (record.outcome, record.answered_by, record.is_fallback) == ("success", "able", True)
    assert record.attempts[0].received == count
    assert record.attempts[1].note == f"it went on after {count} characters"
    assert record.time_to_first_token is not None
    # What a model wrote stays out of logs of attempts; how much there is of it does not.
    second = script.requests[1].attempt
    for shown in (repr(second), str(second)):
        assert "harbor" not in shown
        assert f"partial='<{len(begun)} characters>'" in shown


ROW = "| --- | --- | --- | --- "
ROLE = part(role="assistant")


@DRIVERS
@pytest.mark.parametrize(
    ("cut", "answer", "text"),
    [
        # The last words come twice, or all of them; in one chunk or in many.
        (broken(40), after(19), TEXT),
        (broken(40), after(6), TEXT),
        (broken(40), said(TEXT), TEXT),
        (broken(40), said(TEXT, size=500), TEXT),
        # The last words again, or none, and an end: they may be the whole of the answer.
        (broken(39), said(TEXT[14:39]), TEXT[:39]),
        (broken(len(TEXT)), [ROLE, part("stop")], TEXT),  # the last chunk alone was lost
        # What repeats itself may be meant so.
        ([*said(f"Three: {ROW}", end=False), CUT], said(ROW + "|"), f"Three: {ROW}{ROW}|"),
        # A stream of one's own, of plain strings.
        (["The ", "harbor ", CUT], ["harbor was ", "quiet."], "The harbor harbor was quiet."),
        (["The ", "harbor ", CUT], ["The harbor ", "was quiet."], "The harbor was quiet."),
    ],
)
def test_what_comes_twice_is_dropped_and_nothing_else(
    scripted: Scripted, driver: str, cut: Any, answer: Any, text: str
) -> None:
    """Whoever goes on may begin with words that its reader has.

    A validator sees the text put together from both, as its reader has it.
    """
    seen: list[Any] = []
    policy = policy_of(validate=seen.append)
    assert read(policy, scripted(primary=[cut], able=[answer]), driver) == text
    assert seen == [text]


@DRIVERS
@pytest.mark.parametrize(
    ("second", "length"),
    [
        ([*said(TEXT[30:60], end=False), CUT], 60),
        ([part(role="assistant"), StatusError(503)], 30),  # what it had sent was never seen
    ],
)
def test_it_goes_on_more_than_once(
    scripted: Scripted, driver: str, second: Any, length: int
) -> None:
    """Each is sent all that the reader has, also where the one before it said no word."""
    targets = [Target("primary"), *(Target(name, prefill=True) for name in ("second", "third"))]
    script = scripted(primary=[broken(30)], second=[second], third=[after(length)])
    policy = policy_of(*targets)
    run = policy.start()
    assert read(policy, script, driver, run=run) == TEXT
    assert [one.attempt.partial for one in script.requests] == ["", TEXT[:30], TEXT[:length]]
    received = [30, length - 30 or None, None]
    assert [one.received for one in run.record.attempts] == received


@DRIVERS
@pytest.mark.parametrize(
    "answer",
    [
        [StatusError(400)],
        [part(role="assistant")],
        broken(0),
        broken(10, StatusError(503)),  # what may come twice is held back
    ],
)
@pytest.mark.parametrize("cut", [broken(30), said(TEXT[:30], end=False)])
def test_where_nobody_goes_on_the_reader_hears_of_the_cut(
    scripted: Scripted, driver: str, answer: Any, cut: list[Any]
) -> None:
    """Not of the refusal: the error is that of the first, with all that was handed out.

    Also behind a gateway, where a cut is a clean end.
    """
    policy, script = policy_of(), scripted(primary=[cut], able=[answer])
    run = policy.start()
    with pytest.raises(StreamInterrupted, match=r"^primary broke off .*, and nobody") as caught:
        read(policy, script, driver, run=run)
    assert (caught.value.__cause__ is CUT) is (cut[-1] is CUT)
    assert "".join(map(text_of, caught.value.partial)) == TEXT[:30]
    assert run.record.outcome == "interrupted"
    first, _ = run.record.attempts
    assert first.received == 30


@DRIVERS
def test_a_call_that_goes_on_with_a_text_comes_at_once(scripted: Scripted, driver: str) -> None:
    """It repeats no word, so that nothing is waited for."""
    call: list[Any] = [part(tool_calls=[CALL]), CUT]
    script = scripted(primary=[broken(30)], able=[call])
    with pytest.raises(StreamInterrupted) as caught:
        read(policy_of(), script, driver)
    assert caught.value.partial[-1] == call[0]


CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}
PLAIN = said(TEXT[:30], end=False)
FINAL: dict[str, tuple[list[Any], Sequence[Target], dict[str, Any]]] = {
    # Half a call, half a document or half a thought is nobody's to finish.
    "a tool call": ([part(content="Let me look."), part(tool_calls=[CALL])], CHAIN, {}),
    "thinking": ([part(reasoning_content="hm"), part(content="Well, ")], CHAIN, {}),
    "a document": ([part(content=' {"a": ')], CHAIN, {}),
    "a list": ([part(content="[1, ")], CHAIN, {}),
    "a refusal": ([part(refusal="I can")], CHAIN, {}),
    "an image": ([part(content="Look: "), part(images=[{"image_url": "data:"}])], CHAIN, {}),
    "a stranger's chunks": ([7], CHAIN, {}),
    # Nobody takes a beginning, or a promise forbids it.
    "nobody": (PLAIN, [Target("primary"), Target("able")], {}),
    "safe": (PLAIN, CHAIN, {"replay": "safe"}),
    "final": (PLAIN, CHAIN, {"partial": "final"}),
    "no other": (PLAIN, CHAIN, {"must_not_degrade": True}),
    "no lost connection": (PLAIN, CHAIN, {"fallback_on": {"rate_limit"}}),
}


@DRIVERS
@pytest.mark.parametrize(("began", "targets", "options"), FINAL.values(), ids=[*FINAL])
def test_else_it_is_final(
    scripted: Scripted, driver: str, began: list[Any], targets: Sequence[Target], options: Any
) -> None:
    """Only plain text goes on, and only where somebody can and may."""
    script = scripted(primary=[[*began, CUT]], able=[after(30)])
    with pytest.raises(StreamInterrupted) as caught:
        read(policy_of(*targets), script, driver, **options)
    assert [*map(text_of, caught.value.partial)] == [*map(text_of, began)]
    assert script.asked == ["primary"]


def test_a_cancelled_call_stays_cancelled(scripted: Scripted) -> None:
    """Whoever pressed Ctrl-C wants nobody to go on."""
    script = scripted(primary=[broken(30, KeyboardInterrupt())], able=[after(30)])
    with pytest.raises(KeyboardInterrupt):
        read(policy_of(), script)
    assert script.asked == ["primary"]


@DRIVERS
@pytest.mark.parametrize("partial", ["continue", "replace"])
def test_a_deadline_ends_with_the_first_content(
    scripted: Scripted, driver: str, partial: str
) -> None:
    """As for content that is final: who has read for longer than that gets a whole answer."""
    late = [scripted.after(39, part(role="assistant")), scripted.after(39, CUT)]
    answer = after(30) if partial == "continue" else said(TEXT)
    script = scripted(primary=[[*said(TEXT[:30], end=False), *late]], able=[answer])
    text = read(policy_of(CHAIN[0], CHAIN[2], deadline=60.0), script, driver, partial=partial)
    assert text == (TEXT if partial == "continue" else TEXT[:30] + TEXT)


def gemini(*texts: str) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": text} for text in texts]}
    return {"candidates": [{"content": content, "finishReason": "STOP"}]}


@pytest.mark.parametrize(
    "chunk",
    [
        "hello world",
        part(content="hello world"),
        gemini("hello ", "world"),
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello world"}},
        {"type": "response.output_text.delta", "delta": "hello world"},
    ],
)
def test_a_chunk_of_each_shape_can_be_shortened(chunk: Any) -> None:
    """And the one that its SDK made stays what it was."""
    (shorter,) = without_start([chunk], 8)
    assert read_answer([shorter]).content == "rld"
    assert read_answer([chunk]).content == "hello world"
    assert without_start([chunk, chunk], 11)[1] is chunk


def test_a_text_that_is_said_again_is_read_once(scripted: Scripted) -> None:
    """Twice the chunks are twice the work; it is counted, as no clock can be trusted."""

    def calls_for(count: int) -> int:
        text = "".join(f"word{number} " for number in range(count))
        whole, cut = said(f"{text}The end."), [*said(text, end=False), CUT]
        script = scripted(primary=[cut], able=[whole])
        policy = FallbackPolicy([CHAIN[0], CHAIN[2]])
        made = 0

        def count_call(_frame: Any, event: str, _: object) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(count_call)
        try:
            chunks = list(policy.stream(script.stream, partial="continue"))
        finally:
            sys.setprofile(None)
        assert plain_text(chunks) == f"{text}The end."
        return made

    assert calls_for(200) < 2.5 * calls_for(100)
