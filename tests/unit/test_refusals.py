"""A model that refuses: whom a policy asks then, where it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    AnswerRejected,
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    StreamInterrupted,
    Target,
    has_content,
)
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import repeating
from tests.unit.test_check_responses import GOOD, REFUSED, WHOLE, ask, part

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS = FallbackConfig().fallback_on
WITH_REFUSALS = DEFAULTS | {"refusal"}
CHAIN = [Target("primary"), Target("cheap"), Target("opus", labels={"opus"})]


def policy(chain: Any = CHAIN, **options: Any) -> FallbackPolicy:
    options.setdefault("fallback_on", WITH_REFUSALS)
    return FallbackPolicy(chain, FallbackConfig(wait=0, **options))


def claude(*events: Mapping[str, Any], stop: str = "refusal") -> list[Any]:
    """Make a stream of Anthropic's events that ends for a reason."""
    begun = {"type": "message_start", "message": {"type": "message", "content": []}}
    end = {"type": "message_delta", "delta": {"stop_reason": stop}}
    return [begun, *events, end, {"type": "message_stop"}]


def text_of_claude(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}


def gemini(finish: str, text: str | None = None) -> dict[str, Any]:
    parts = [{"text": text}] if text else []
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish}
    return {"candidates": [candidate]}


def responses(*content: Mapping[str, Any]) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [*content]}
    return {"object": "response", "status": "completed", "output": [message]}


REFUSAL = {"type": "refusal", "refusal": "I cannot help with that"}
CHAT = {"object": "chat.completion"}
ANSWERS: dict[str, Any] = {
    "anthropic": REFUSED,
    "anthropic, after some text": {**GOOD, "stop_reason": "refusal"},
    "openai": {
        **CHAT,
        "choices": [
            {"message": {"content": None, "refusal": "I cannot"}, "finish_reason": "stop"},
        ],
    },
    "openai, filtered after some text": {
        **CHAT,
        "choices": [{"message": {"content": "Take the"}, "finish_reason": "content_filter"}],
    },
    "responses": responses(REFUSAL),
    "gemini": gemini("SAFETY"),
    "gemini, after some text": gemini("SAFETY", "Take the"),
    "gemini, of a list": gemini("PROHIBITED_CONTENT"),
    "gemini, a blocked prompt": {"promptFeedback": {"blockReason": "SAFETY"}},
}
_ADDED = {"type": "response.refusal.delta", "delta": "I cannot help"}
STREAMS: dict[str, list[Any]] = {
    "anthropic": claude(),
    "openai": [part(role="assistant"), part(refusal="I can"), part(refusal="not"), part("stop")],
    "openai, filtered": [part(role="assistant"), part("content_filter")],
    "responses": [
        {"type": "response.created", "response": {**responses(), "status": "in_progress"}},
        {"type": "response.content_part.added", "part": {"type": "refusal", "refusal": ""}},
        _ADDED,
        {"type": "response.completed", "response": responses(REFUSAL)},
    ],
    "gemini": [gemini("SAFETY")],
}


@pytest.mark.parametrize("driver", ["call", "acall"])
@pytest.mark.parametrize("refused", ANSWERS.values(), ids=[*ANSWERS])
def test_a_refusal_in_an_answer_asks_the_next(driver: str, refused: Any) -> None:
    """Whatever its provider's form, and what was written before it is dropped."""
    script, refusing = repeating(primary=[refused], cheap=[GOOD]), policy()
    run = refusing.start()
    assert ask(refusing, script, driver, run=run) == GOOD
    assert script.asked == ["primary", "cheap"]
    assert run.record.attempts[0].kind == "refusal"


@pytest.mark.parametrize("driver", ["stream", "astream"])
@pytest.mark.parametrize("refused", STREAMS.values(), ids=[*STREAMS])
def test_a_refusal_in_a_stream_asks_the_next(driver: str, refused: list[Any]) -> None:
    """Nobody has read a word of it: the text of a refusal is held back, too."""
    script, refusing = repeating(primary=[refused], cheap=[WHOLE]), policy()
    run = refusing.start()
    assert ask(refusing, script, driver, run=run) == WHOLE
    assert run.record.attempts[0].kind == "refusal"


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_stream_that_refuses_after_some_text_is_its_readers(driver: str) -> None:
    """Somebody has read it: it ends as its provider ended it."""
    refused = claude(text_of_claude("Take the"))
    script = repeating(primary=[refused], cheap=[WHOLE])
    assert ask(policy(), script, driver) == refused
    assert script.asked == ["primary"]


def test_every_form_of_a_refusals_text_is_content() -> None:
    """By default it is handed out as it comes, whatever event brings it."""
    done = {"type": "response.content_part.done", "part": REFUSAL}
    for chunk in (part(refusal="no"), _ADDED, done, responses(REFUSAL)):
        assert has_content(chunk)


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_text_after_a_refusal_comes_with_it(driver: str) -> None:
    """What was held back comes out in its order when the model answers all the same."""
    hesitant = [part(role="assistant"), part(refusal="No"), part(content="yes"), part("stop")]
    script = repeating(primary=[hesitant])
    assert ask(policy(), script, driver) == hesitant


@pytest.mark.parametrize("driver", ["call", "acall", "stream", "astream"])
def test_without_the_option_a_refusal_comes_out(driver: str) -> None:
    """Nobody else is asked, the text of a refusal is streamed, and a torn answer is one."""
    plain = policy(fallback_on=DEFAULTS)
    if "stream" in driver:
        script = repeating(primary=[STREAMS["openai"]], cheap=[WHOLE])
        assert ask(plain, script, driver) == STREAMS["openai"]
    else:
        script = repeating(primary=[ANSWERS["gemini, after some text"], REFUSED], cheap=[GOOD])
        assert ask(plain, script, driver) == ANSWERS["gemini, after some text"]
        with pytest.raises(AnswerRejected, match="the model refused to answer"):
            ask(plain, script, driver)
    assert {*script.asked} == {"primary"}


def test_where_all_refuse_the_error_says_who() -> None:
    """There is no answer to hand out, so that nobody takes a refusal for one."""
    script = repeating(primary=[REFUSED], cheap=[REFUSED], opus=[REFUSED])
    with pytest.raises(FallbackExhausted) as caught:
        policy().call(script.ask)
    assert [one.kind for one in caught.value.record.attempts] == ["refusal"] * 3
    assert script.asked == ["primary", "cheap", "opus"]


@pytest.mark.parametrize("driver", ["call", "acall", "stream", "astream"])
def test_a_refusal_goes_to_those_with_a_label(driver: str) -> None:
    """The others are passed over with the reason; after an outage they are asked as ever."""
    refused, good = (STREAMS["anthropic"], WHOLE) if "stream" in driver else (REFUSED, GOOD)
    restricted = policy(refusal_require={"opus"})
    script = repeating(primary=[refused], cheap=[good], opus=[good])
    run = restricted.start()
    assert ask(restricted, script, driver, run=run) == good
    assert script.asked == ["primary", "opus"]
    assert run.record.untried == (("cheap", "it lacks the label 'opus'"),)

    script = repeating(primary=[StatusError(503)], cheap=[good], opus=[good])
    assert ask(restricted, script, driver) == good
    assert script.asked == ["primary", "cheap"]


def test_nobody_with_the_label_is_up() -> None:
    """The boundary holds: who lacks it is not asked, and the refusal comes out."""
    script = repeating(primary=[REFUSED], cheap=[GOOD], opus=[StatusError(503)])
    with pytest.raises(FallbackExhausted):
        policy(refusal_require={"opus"}).call(script.ask)
    assert script.asked[:2] == ["primary", "opus"]
    assert "cheap" not in script.asked


def test_a_label_that_nobody_has_is_refused() -> None:
    """Before any request, with the name of the option."""
    with pytest.raises(FallbackConfigError, match="refusal_require: nobody may be asked: primary"):
        policy(refusal_require={"sonnet"})
    with pytest.raises(FallbackConfigError, match=r"pass a set of texts"):
        policy(refusal_require="opus")


def test_a_turn_stays_with_who_answered() -> None:
    """Its next call is about the same matter."""
    script = repeating(primary=[REFUSED, GOOD], cheap=[GOOD])
    loyal = policy(reset="turn")
    with loyal.turn():
        loyal.call(script.ask)
        loyal.call(script.ask)
    with loyal.turn():
        loyal.call(script.ask)
    assert script.asked == ["primary", "cheap", "cheap", "primary"]


def test_nobody_rests_for_a_refusal() -> None:
    """It has answered: its health is better than that of one who is silent."""
    cooldown = Cooldown(after=1)
    script = repeating(primary=[REFUSED], cheap=[GOOD])
    careful = policy(cooldown=cooldown)
    for _ in range(3):
        assert careful.call(script.ask) == GOOD
    assert script.asked == ["primary", "cheap"] * 3


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_replaceable_text_is_replaced(driver: str) -> None:
    """A reader that can forget what it has read gets another model's whole answer."""
    refused = claude(text_of_claude("Take the"))
    script = repeating(primary=[refused], cheap=[WHOLE])
    read = ask(policy(), script, driver, partial="replace")
    assert read == [*refused, *WHOLE]


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_broken_stream_of_a_refusal_was_never_read(driver: str) -> None:
    """Its text was held back, so that the next is asked and nothing is torn."""
    torn = [part(role="assistant"), part(refusal="I can")]
    script = repeating(primary=[torn], cheap=[WHOLE])
    assert ask(policy(), script, driver) == WHOLE
    with pytest.raises(StreamInterrupted):
        ask(policy(fallback_on=DEFAULTS), script, driver)
