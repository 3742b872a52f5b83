"""What each provider's errors mean, and that the fallback answers after one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import anthropic
import openai
import pytest

from honcho_fallback import FailureKind, FallbackExhausted, FallbackPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.vcr


class Case(NamedTuple):
    """Say what a primary's error must be taken for."""

    says: str
    kind: FailureKind
    status: int
    retry_after: float | None = None
    model: str | None = None


CASES = [
    Case("openai_rate_limit", FailureKind.RATE_LIMIT, 429, 20.0),
    Case("openai_quota", FailureKind.QUOTA, 429),
    Case("openai_bad_key", FailureKind.AUTHENTICATION, 401),
    Case("openai_no_model", FailureKind.MODEL_UNAVAILABLE, 404, model="gpt-nonesuch"),
    Case("openai_overloaded", FailureKind.OVERLOADED, 503),
    Case("anthropic_rate_limit", FailureKind.RATE_LIMIT, 429, 30.0),
    Case("anthropic_overloaded", FailureKind.OVERLOADED, 529),
]

PARTNERS = {"openai": ("anthropic", "anthropic_message"), "anthropic": ("openai", "openai_chat")}


def _told(case: Case) -> Any:
    answer = PARTNERS[case.says.partition("_")[0]][1]
    return pytest.param(case, marks=pytest.mark.upstream(case.says, answer), id=case.says)


@pytest.mark.parametrize("case", [_told(case) for case in CASES])
async def test_the_fallback_answers_after_one_request_to_the_failing_primary(
    sdk: Any, case: Case, text: Callable[[Any], str]
) -> None:
    """Each error is told by its kind, and costs one request and no wait."""
    provider = case.says.partition("_")[0]
    fallback = PARTNERS[provider][0]
    policy = FallbackPolicy([sdk.target(provider, case.model), sdk.target(fallback)])

    answer = await sdk.call(policy, sdk.asks.answer)

    assert "harbor" in text(answer).lower()
    failed, answered = sdk.record.attempts
    assert (failed.kind, failed.status, failed.wait) == (case.kind, case.status, 0)
    if case.retry_after is not None:
        assert failed.retry_after == case.retry_after
    assert (answered.kind, answered.wait) == (None, 0)
    assert sdk.asks.asked == [target.name for target in policy.targets]
    assert sdk.record.answered_by == policy.targets[1].name
    assert sdk.record.outcome == "success"


@pytest.mark.upstream("openai_too_long", "anthropic_message")
async def test_a_prompt_too_long_goes_to_the_target_with_a_larger_window(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """A context overflow passes by a target that could not take the prompt either."""
    small = sdk.target("openai", context_window=8_192)
    same = sdk.target("local", context_window=8_192)
    large = sdk.target("anthropic", context_window=200_000)

    answer = await sdk.call(FallbackPolicy([small, same, large]), sdk.asks.answer)

    assert "harbor" in text(answer).lower()
    assert sdk.record.attempts[0].kind is FailureKind.CONTEXT_OVERFLOW
    assert sdk.record.attempts[0].code == "context_length_exceeded"
    assert sdk.asks.asked == [small.name, large.name]


@pytest.mark.upstream("openai_too_long")
async def test_a_prompt_too_long_for_all_comes_back_as_the_sdks_own_error(sdk: Any) -> None:
    """Without a larger window a context overflow surfaces at once, after one request."""
    small = sdk.target("openai", context_window=8_192)
    same = sdk.target("anthropic", context_window=8_192)

    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.call(FallbackPolicy([small, same]), sdk.asks.answer)

    assert caught.value.code == "context_length_exceeded"
    assert sdk.asks.asked == [small.name]
    assert sdk.record.outcome == "rejected"


@pytest.mark.upstream("anthropic_bad_request")
async def test_a_callers_mistake_comes_back_as_the_sdks_own_error(sdk: Any) -> None:
    """An invalid request surfaces at once, untouched, after one request."""
    wrong = sdk.target("anthropic", params={"max_tokens": 0})
    policy = FallbackPolicy([wrong, sdk.target("openai")])

    with pytest.raises(anthropic.BadRequestError) as caught:
        await sdk.call(policy, sdk.asks.answer)

    assert caught.value.status_code == 400
    assert [attempt.kind for attempt in sdk.record.attempts] == [FailureKind.INVALID_REQUEST]
    assert sdk.asks.asked == [wrong.name]
    assert sdk.record.outcome == "rejected"


@pytest.mark.upstream("openai_quota", "anthropic_overloaded", "local_chat")
async def test_a_chain_of_three_ends_at_the_model_on_this_machine(
    sdk: Any, text: Callable[[Any], str]
) -> None:
    """Both clouds refuse, each after one request, and the local server answers."""
    policy = sdk.policy("openai", "anthropic", "local")

    answer = await sdk.call(policy, sdk.asks.answer)

    assert text(answer)
    kinds = [attempt.kind for attempt in sdk.record.attempts]
    assert kinds == [FailureKind.QUOTA, FailureKind.OVERLOADED, None]
    assert sdk.asks.asked == [target.name for target in policy.targets]


@pytest.mark.upstream("openai_overloaded", "anthropic_bad_key")
async def test_a_call_that_nobody_answers_carries_both_sdks_errors(sdk: Any) -> None:
    """The group holds the SDKs' own exceptions in the order they came."""
    policy = sdk.policy("openai", "anthropic")

    with pytest.raises(FallbackExhausted) as caught:
        await sdk.call(policy, sdk.asks.answer)

    overloaded, refused = caught.value.exceptions
    assert isinstance(overloaded, openai.InternalServerError)
    assert isinstance(refused, anthropic.AuthenticationError)
    assert caught.value.record == sdk.record
    assert sdk.asks.asked == [target.name for target in policy.targets]
