"""What the policy does about answers and streams that fail under HTTP 200."""

from __future__ import annotations

import pickle
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
    check_response,
    classify,
)
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import ask, pair, repeating
from tests.helpers.wire import part

if TYPE_CHECKING:
    from collections.abc import Mapping

BUSY = {"error": {"message": "the cat sat", "code": "overloaded_error"}}
REFUSED = {"type": "message", "content": [], "stop_reason": "refusal"}
GOOD = {
    "type": "message",
    "content": [{"type": "text", "text": "well"}],
    "stop_reason": "end_turn",
}


WHOLE = [part(role="assistant"), part(content="well"), part("stop")]


@pytest.mark.parametrize("driver", ["call", "acall"])
def test_an_error_in_an_answer_switches(driver: str) -> None:
    """An answer that failed is a failure of its kind, as if it had been raised."""
    script, policy = repeating(primary=[BUSY], fallback=[GOOD]), pair()
    run = policy.start()
    assert ask(policy, script, driver, run=run) == GOOD
    first = run.record.attempts[0]
    assert (first.kind, first.error) == ("overloaded", "AnswerRejected")


@pytest.mark.parametrize("driver", ["call", "acall"])
def test_a_refusal_comes_out_with_its_reason(driver: str) -> None:
    """Nobody else is asked what one provider refused; the message is ours, not the provider's."""
    script = repeating(primary=[REFUSED], fallback=[GOOD])
    with pytest.raises(AnswerRejected) as caught:
        ask(pair(), script, driver)
    assert script.asked == ["primary"]
    assert str(caught.value) == "the model refused to answer"
    assert caught.value.failure == check_response(REFUSED)


def test_no_word_of_the_provider_comes_out() -> None:
    """What an answer's error says is in the failure, redacted, and not in the message."""
    script, policy = repeating(only=[BUSY]), FallbackPolicy([Target("only")])
    with pytest.raises(AnswerRejected) as caught:
        policy.call(script.ask, max_attempts=1)
    assert "cat" not in str(caught.value)
    assert caught.value.failure is not None
    assert caught.value.failure.provider_message == "the cat sat"


@pytest.mark.parametrize("driver", ["stream", "astream"])
@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([part(role="assistant")], "malformed_response"),
        ([part(role="assistant"), BUSY], "overloaded"),
    ],
)
def test_a_stream_that_fails_before_content_switches(
    driver: str, chunks: list[Any], kind: str
) -> None:
    """None of its chunks is seen, and it is closed."""
    script, policy = repeating(primary=[chunks], fallback=[WHOLE]), pair()
    run = policy.start()
    assert ask(policy, script, driver, run=run) == WHOLE
    assert run.record.attempts[0].kind == kind
    assert script.closed == {"primary": 1, "fallback": 1}


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_stream_cut_after_content_is_interrupted(driver: str) -> None:
    """A stream that ends without its finish reason is half an answer, and says so."""
    script, policy = repeating(primary=[WHOLE[:2]], fallback=[WHOLE]), pair()
    run = policy.start()
    with pytest.raises(StreamInterrupted) as caught:
        ask(policy, script, driver, run=run)
    assert caught.value.partial == tuple(WHOLE[:2])
    assert str(caught.value.__cause__) == "the stream ended without a finish reason"
    assert run.record.outcome == "interrupted"
    assert script.closed == {"primary": 1}


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_server_that_never_says_its_end_keeps_its_answers(driver: str) -> None:
    """Its target has a label for that; a stream of it that holds nothing still switches."""
    cut, nothing = WHOLE[:2], WHOLE[:1]
    targets = [Target("primary", labels={"no_finish_reason"}), Target("fallback")]
    policy = FallbackPolicy(targets, FallbackConfig(wait=0))
    script = repeating(primary=[cut, nothing], fallback=[WHOLE])
    assert ask(policy, script, driver) == cut
    assert ask(policy, script, driver) == WHOLE


@pytest.mark.parametrize("driver", ["call", "acall"])
def test_thinking_that_spent_the_budget_switches(driver: str) -> None:
    """Alone, too: the same question would spend the same target's budget again."""
    spent = {**GOOD, "content": [{"type": "thinking", "thinking": "hm"}]} | {
        "stop_reason": "max_tokens"
    }
    script = repeating(primary=[spent], fallback=[GOOD])
    assert ask(pair(), script, driver) == GOOD
    alone = FallbackPolicy([Target("primary")], FallbackConfig(wait=0))
    script = repeating(primary=[spent])
    with pytest.raises(AnswerRejected):
        ask(alone, script, driver)
    assert script.asked == ["primary"]


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_stream_of_thinking_alone_settles_nothing(driver: str) -> None:
    """Nobody has seen a chunk of it when the next target is asked."""
    spent = [part(role="assistant"), part(reasoning_content="hm"), part("length")]
    script = repeating(primary=[spent], fallback=[WHOLE])
    assert ask(pair(), script, driver) == WHOLE


@pytest.mark.parametrize("driver", ["call", "acall", "stream", "astream"])
def test_check_responses_false_hands_out_whatever_came(driver: str) -> None:
    """The option switches it off, for the policy or one call."""
    entry: Any = [part(role="assistant")] if "stream" in driver else BUSY
    script = repeating(primary=[entry], fallback=[GOOD])
    assert ask(pair(), script, driver, check_responses=False) == entry
    assert ask(pair(check_responses=False), script, driver) == entry


def test_what_ask_raises_after_checking_keeps_its_kind() -> None:
    """An ask that takes the answer apart can check it first: classify returns that failure."""
    failure = check_response(BUSY)
    assert failure is not None
    error = AnswerRejected(failure)
    assert classify(error) == failure._replace(error="AnswerRejected")
    assert classify(pickle.loads(pickle.dumps(error))).kind == "overloaded"  # noqa: S301 # our own
    assert classify(AnswerRejected("too short")).kind == "malformed_response"


# --- refusals: whom a policy asks then, where it says so

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
