"""What answers cost: with the attempt that brought them, and with the call if they were taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackExhausted
from honcho_fallback.testing import StatusError
from tests.helpers.answers import as_object
from tests.helpers.scripted import DRIVERS, pair, repeating
from tests.helpers.wire import chat_answer

if TYPE_CHECKING:
    from honcho_fallback.testing import Clock

DOWN = StatusError(503)


def completion(tokens: int) -> Any:
    """Return an answer of OpenAI's SDK that cost so many tokens."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    return as_object(chat_answer("hello", usage=usage))


@pytest.mark.parametrize("driver", ["call", "acall"])
def test_the_answer_itself_says_what_it_cost(driver: str) -> None:
    """No driver has to be told: the reader of answers finds the usage of an SDK's object."""
    policy, script = pair(), repeating(primary=[DOWN], fallback=[completion(5)])
    run = policy.start()
    DRIVERS[driver](policy, script, run)
    usage = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
    assert run.record.usage == usage
    assert [attempt.usage for attempt in run.record.attempts] == [None, usage]
    assert run.record.to_dict()["attempts"][1]["usage"] == usage


def test_the_usage_of_a_refused_answer_stays_with_its_attempt() -> None:
    """What the caller never got is not what the answer cost."""
    script = repeating(primary=[completion(99)], fallback=["no usage known"])
    policy = pair(validate=lambda answer: isinstance(answer, str))
    run = policy.start()
    assert policy.call(script.ask, run=run) == "no usage known"
    first, second = run.record.attempts
    assert first.usage == {"input_tokens": 99, "output_tokens": 1, "total_tokens": 100}
    assert (second.usage, run.record.usage) == (None, None)


def test_what_was_reported_before_a_failure_stays_with_the_attempt() -> None:
    """An adapter that reports usage before the answer is refused does not bill the fallback."""
    run = pair().start()
    run.report(usage={"input_tokens": 99})
    run.fail(DOWN)
    assert run.record.usage is None
    run.accept("hello", usage={"input_tokens": 3})
    assert [attempt.usage for attempt in run.record.attempts] == [
        {"input_tokens": 99},
        {"input_tokens": 3},
    ]
    assert run.record.usage == {"input_tokens": 3}


def test_a_call_that_nobody_answered_cost_nobody_an_answer() -> None:
    """Attempts keep theirs; the call has none."""
    policy = pair(validate=lambda _: False, max_attempts=2)
    script = repeating(primary=[completion(5)], fallback=[completion(7)])
    with pytest.raises(FallbackExhausted) as caught:
        policy.call(script.ask)
    record = caught.value.record
    spent = [attempt.usage and attempt.usage["input_tokens"] for attempt in record.attempts]
    assert (spent, record.usage) == ([5, 7], None)


def test_an_answer_that_is_looked_at_has_its_usage_and_its_time(clock: Clock) -> None:
    """What the caller says of it counts as for one that needs no look, refused or taken."""
    policy = pair(validate=lambda answer: answer != "bad", switch_after=2)
    start = clock.now
    run = policy.start()
    run.accept("bad", usage={"n": 1}, now=start + 1)
    assert run.accept("good", usage={"n": 2}, now=start + 3) is None
    record = run.record
    assert [attempt.usage for attempt in record.attempts] == [{"n": 1}, {"n": 2}]
    assert ([attempt.seconds for attempt in record.attempts], record.seconds) == ([1, 2], 3)
    plain = pair().start()
    plain.accept("hello", now=start + 5)
    assert plain.record.seconds == 5
