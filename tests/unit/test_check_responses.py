"""What the policy does about answers and streams that fail under HTTP 200."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from honcho_fallback import (
    AnswerRejected,
    FallbackConfig,
    FallbackPolicy,
    StreamInterrupted,
    Target,
    check_response,
    classify,
)
from tests.helpers.scripted import ask, pair, repeating

BUSY = {"error": {"message": "the cat sat", "code": "overloaded_error"}}
REFUSED = {"type": "message", "content": [], "stop_reason": "refusal"}
GOOD = {
    "type": "message",
    "content": [{"type": "text", "text": "well"}],
    "stop_reason": "end_turn",
}


def part(finish: str | None = None, **delta: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}


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
