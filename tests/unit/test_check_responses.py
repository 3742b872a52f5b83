"""What the policy does about answers and streams that fail under HTTP 200."""

from __future__ import annotations

import pickle
from operator import attrgetter
from typing import Any

import anthropic
import httpx
import openai
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
from tests.helpers.answers import ANSWERS, answered_in_turn, built
from tests.helpers.errors import requests_answer
from tests.helpers.scripted import DRIVERS, ask, pair, repeating
from tests.helpers.wire import chat_answer, message_answer, part

BUSY = {"error": {"message": "the cat sat", "code": "overloaded_error"}}
REFUSED = message_answer(stop="refusal")
GOOD = message_answer({"type": "text", "text": "well"})
WHOLE = [part(role="assistant"), part(content="well"), part("stop")]


def good_for(driver: str) -> Any:
    return WHOLE if "stream" in driver else GOOD


@pytest.mark.parametrize("driver", ["call", "acall"])
def test_a_refusal_comes_out_in_our_words(driver: str) -> None:
    """Nobody else is asked; what the provider says is in the failure, and not in the message."""
    script = repeating(primary=[REFUSED], fallback=[GOOD])
    with pytest.raises(AnswerRejected) as caught:
        ask(pair(), script, driver)
    assert (str(caught.value), script.asked) == ("the model refused to answer", ["primary"])
    assert caught.value.failure == check_response(REFUSED)
    with pytest.raises(AnswerRejected) as caught:
        ask(FallbackPolicy([Target("only")]), repeating(only=[BUSY]), driver, max_attempts=1)
    assert "cat" not in str(caught.value)
    assert caught.value.failure is not None
    assert caught.value.failure.provider_message == "the cat sat"


@pytest.mark.parametrize("driver", ["call", "acall"])
@pytest.mark.parametrize(
    "made", [lambda status, text: httpx.Response(status, text=text), requests_answer]
)
def test_a_status_that_nobody_raised_is_a_failure(made: Any, driver: str) -> None:
    """Who returns a client's response and forgets to raise its status is no worse off."""
    quota = made(429, '{"error": {"message": "no", "code": "insufficient_quota"}}')
    script = repeating(primary=[made(503, ""), quota], fallback=[made(200, "well")])
    policy = pair()
    for kind in ("overloaded", "quota"):
        run = policy.start()
        assert ask(policy, script, driver, run=run).text == "well"
        assert run.record.attempts[0].kind == kind
    wrong = made(400, '{"error": {"message": "temperature: expected a number"}}')
    with pytest.raises(AnswerRejected) as caught:
        ask(policy, repeating(primary=[wrong], fallback=["no"]), driver)
    assert caught.value.failure is not None
    assert caught.value.failure.provider_message == "temperature: expected a number"
    assert ask(policy, repeating(primary=[wrong]), driver, check_responses=False) is wrong


@pytest.mark.parametrize(
    ("sdk", "place", "good"),
    [
        (openai.OpenAI, "chat.completions", chat_answer("well")),
        (anthropic.Anthropic, "messages", GOOD),
    ],
)
def test_an_answer_that_an_sdk_holds_unparsed_is_looked_at(
    sdk: Any, place: str, good: Any
) -> None:
    """Who wants the headers, too, gets what the SDK's ``with_raw_response`` returns, as it is."""
    asked = attrgetter(place)(answered_in_turn(sdk, BUSY, good)).with_raw_response
    policy = pair()
    run = policy.start()
    answer = policy.call(lambda _: asked.create(model="m", messages=[], max_tokens=5), run=run)
    assert [attempt.kind for attempt in run.record.attempts] == ["overloaded", None]
    assert answer.parse().model_dump(exclude_unset=True) == good


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_server_that_never_says_its_end_keeps_its_answers(driver: str) -> None:
    """Its target has a label for that; a stream of it that holds nothing still switches."""
    cut, nothing = WHOLE[:2], WHOLE[:1]
    targets = [Target("primary", labels={"no_finish_reason"}), Target("fallback")]
    policy = FallbackPolicy(targets, FallbackConfig(wait=0))
    script = repeating(primary=[cut, nothing], fallback=[WHOLE])
    assert ask(policy, script, driver) == cut
    assert ask(policy, script, driver) == WHOLE


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_answer_that_failed_switches(driver: str) -> None:
    """It is a failure of its kind, as if it had been raised.

    Thinking that spent the budget is not asked for again, alone, too: the same question would
    spend the same target's again.
    """
    spent: Any = message_answer({"type": "thinking", "thinking": "hm"}, stop="max_tokens")
    if "stream" in driver:
        spent = [part(role="assistant"), part(reasoning_content="hm"), part("length")]
    good, failed = good_for(driver), [BUSY] if "stream" in driver else BUSY
    for answer, kind in ((failed, "overloaded"), (spent, "malformed_response")):
        script, run = repeating(primary=[answer], fallback=[good]), pair().start()
        assert ask(pair(), script, driver, run=run) == good
        first = run.record.attempts[0]
        assert (first.kind, first.error) == (kind, "AnswerRejected")
    script = repeating(primary=[spent])
    with pytest.raises(AnswerRejected):
        ask(FallbackPolicy([Target("primary")], FallbackConfig(wait=0)), script, driver)
    assert script.asked == ["primary"]


@pytest.mark.parametrize("driver", DRIVERS)
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
CHAIN = [Target("primary"), Target("cheap"), Target("opus", labels={"opus"})]
AFTER_TEXT = [
    built(ANSWERS["healthy"][name])
    for name in (
        "a filter after some text",
        "a Claude text that was stopped",
        "a Gemini text that was stopped",
    )
]
(KNOWN,) = (group["answers"] for group in ANSWERS["fails"] if group["kind"] == "refusal")
REFUSALS = [built(row) for name, row in KNOWN.items() if "LangChain" not in name]
STREAM = [part(role="assistant"), part(refusal="I can"), part(refusal="not"), part("stop")]
READ = [  # some text of Anthropic's, and then its refusal
    {"type": "message_start", "message": {"type": "message", "content": []}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Take the"}},
    {"type": "message_delta", "delta": {"stop_reason": "refusal"}},
    {"type": "message_stop"},
]


def policy(chain: Any = CHAIN, **options: Any) -> FallbackPolicy:
    options.setdefault("fallback_on", DEFAULTS | {"refusal"})
    return FallbackPolicy(chain, FallbackConfig(wait=0, **options))


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_refusal_asks_the_next(driver: str) -> None:
    """Whatever its provider's form; what was written before it is dropped, and nobody read it."""
    good, refusing = good_for(driver), policy()
    for refused in (*REFUSALS, *AFTER_TEXT):
        if isinstance(refused, list) is not ("stream" in driver):
            continue
        script, run = repeating(primary=[refused], cheap=[good]), refusing.start()
        assert ask(refusing, script, driver, run=run) == good
        assert script.asked == ["primary", "cheap"]
        assert run.record.attempts[0].kind == "refusal"


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_what_somebody_has_read_of_a_refusal_is_its_readers(driver: str) -> None:
    """It ends as its provider ended it; one who can forget it gets another's whole answer."""
    script = repeating(primary=[READ], cheap=[WHOLE])
    assert ask(policy(), script, driver) == READ
    assert script.asked == ["primary"]
    assert ask(policy(), script, driver, partial="replace") == [*READ, *WHOLE]


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_the_text_of_a_refusal_is_held_back(driver: str) -> None:
    """It comes in its order before an answer; where it breaks off, the next is asked."""
    hesitant = [part(role="assistant"), part(refusal="No"), part(content="yes"), part("stop")]
    assert ask(policy(), repeating(primary=[hesitant]), driver) == hesitant
    script = repeating(primary=[STREAM[:2]], cheap=[WHOLE])
    assert ask(policy(), script, driver) == WHOLE
    with pytest.raises(StreamInterrupted):
        ask(policy(fallback_on=DEFAULTS), script, driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_without_the_option_a_refusal_comes_out(driver: str) -> None:
    """Nobody else is asked, the text of a refusal is streamed, and a torn answer is one."""
    plain = policy(fallback_on=DEFAULTS)
    if "stream" in driver:
        script = repeating(primary=[STREAM], cheap=[WHOLE])
        assert ask(plain, script, driver) == STREAM
    else:
        script = repeating(primary=[AFTER_TEXT[2], REFUSED], cheap=[GOOD])
        assert ask(plain, script, driver) == AFTER_TEXT[2]
        with pytest.raises(AnswerRejected, match="the model refused to answer"):
            ask(plain, script, driver)
    assert {*script.asked} == {"primary"}


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_refusal_goes_to_those_with_a_label(driver: str) -> None:
    """The others are passed over, also where nobody else is up; an outage asks them as ever."""
    refused, good = (STREAM if "stream" in driver else REFUSED), good_for(driver)
    restricted = policy(refusal_require={"opus"})
    script = repeating(primary=[refused], cheap=[good], opus=[good])
    run = restricted.start()
    assert ask(restricted, script, driver, run=run) == good
    assert script.asked == ["primary", "opus"]
    assert run.record.untried == (("cheap", "it lacks the label 'opus'"),)

    script = repeating(primary=[StatusError(503)], cheap=[good], opus=[good])
    assert ask(restricted, script, driver) == good
    assert script.asked == ["primary", "cheap"]

    script = repeating(primary=[refused], cheap=[good], opus=[StatusError(503)])
    with pytest.raises(FallbackExhausted):
        ask(restricted, script, driver)
    assert {*script.asked} == {"primary", "opus"}

    # Where all refuse there is no answer to hand out, so that nobody takes a refusal for one.
    script = repeating(primary=[refused], cheap=[refused], opus=[refused])
    with pytest.raises(FallbackExhausted) as caught:
        ask(policy(), script, driver)
    assert [one.kind for one in caught.value.record.attempts] == ["refusal"] * 3
    assert script.asked == ["primary", "cheap", "opus"]


def test_a_label_that_nobody_has_is_refused() -> None:
    """Before any request, with the name of the option."""
    with pytest.raises(FallbackConfigError, match="refusal_require: nobody may be asked: primary"):
        policy(refusal_require={"sonnet"})
    with pytest.raises(FallbackConfigError, match=r"pass a set of texts"):
        policy(refusal_require="opus")


def test_a_turn_stays_with_who_answered_and_nobody_rests() -> None:
    """Its next call is about the same matter; who refuses is better than one who is silent."""
    script = repeating(primary=[REFUSED], cheap=[GOOD])
    loyal, careful = policy(reset="turn"), policy(cooldown=Cooldown(after=1))
    with loyal.turn():
        loyal.call(script.ask)
        loyal.call(script.ask)
    assert script.asked == ["primary", "cheap", "cheap"]
    for _ in range(3):
        assert careful.call(script.ask) == GOOD
    assert script.asked[3:] == ["primary", "cheap"] * 3
