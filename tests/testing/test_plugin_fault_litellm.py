"""A healthy LiteLLM deployment fails on schedule, through LiteLLM's own handling of errors."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before the first import of LiteLLM
pytest.importorskip("litellm")

import litellm
from litellm import Router

from honcho_fallback import FallbackConfigError, classify
from honcho_fallback.testing import assert_switched
from honcho_fallback_litellm import FallbackRoutingStrategy

if TYPE_CHECKING:
    from honcho_fallback.testing import FaultInjector, Records

pytestmark = [
    pytest.mark.filterwarnings(warning)
    for warning in (
        "ignore::UserWarning:pydantic",
        "ignore::DeprecationWarning:litellm",
        "ignore:Router\\.:DeprecationWarning",
        "ignore::DeprecationWarning:aiohttp",
        "ignore:unclosed:ResourceWarning",
        "ignore::pytest.PytestUnraisableExceptionWarning",
    )
]
MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]


def router(provider: str = "openai", **options: Any) -> Router:
    """Make a Router of two healthy deployments, which LiteLLM plays itself."""

    def deployment(name: str, rank: int) -> dict[str, Any]:
        return {
            "model_name": "deriver",
            "litellm_params": {
                "model": f"{provider}/{name}",
                "api_key": "none",
                "mock_response": f"hello from {name}",
            },
            "model_info": {"id": name, "fallback_rank": rank},
        }

    other = {**deployment("lone", 0), "model_name": "other"}
    return Router(model_list=[deployment("first", 0), deployment("second", 1), other], **options)


def text(answer: Any) -> str:
    return str(answer.choices[0].message.content)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_deployment_fails_and_the_next_answers(
    fault: FaultInjector, fallback_records: Records, asynchronous: bool
) -> None:
    """Under our strategy the switch is made in the Router, on LiteLLM's own error."""
    managed = router()
    FallbackRoutingStrategy().register(managed)
    failing = fault(managed, "first").on(1, status=429, retry_after=5)
    said: list[str] = []

    async def main() -> None:
        for _ in range(2):
            said.append(text(await managed.acompletion(model="deriver", messages=MESSAGES)))

    if asynchronous:
        asyncio.run(main())
    else:
        said = [text(managed.completion(model="deriver", messages=MESSAGES)) for _ in range(2)]
    assert said[0] == "hello from second"
    record = fallback_records[0]
    assert_switched(record, from_="first", to="second", kind="rate_limit")
    assert record.attempts[0].error == "RateLimitError"
    assert record.attempts[0].retry_after == 5
    assert failing.subject is managed
    assert failing.failed == 1


@pytest.mark.parametrize(
    ("what", "provider", "expected", "kind"),
    [
        ({"status": 429, "retry_after": 5}, "openai", litellm.RateLimitError, "rate_limit"),
        ({"status": 429, "retry_after": 5}, "anthropic", litellm.RateLimitError, "rate_limit"),
        ({"status": 401}, "openai", litellm.AuthenticationError, "authentication"),
        ({"status": 503}, "openai", litellm.ServiceUnavailableError, "overloaded"),
        ({"status": 400}, "anthropic", litellm.BadRequestError, "invalid_request"),
        ({"error": "timeout"}, "openai", litellm.Timeout, "timeout"),
        ({"error": "timeout"}, "anthropic", litellm.Timeout, "timeout"),
        ({"error": "connection"}, "openai", litellm.InternalServerError, "connection"),
    ],
)
def test_errors_are_litellms(
    fault: FaultInjector, what: dict[str, Any], provider: str, expected: type[Exception], kind: str
) -> None:
    """Its own mapping makes the class, and keeps the headers."""
    plain = router(provider, num_retries=0, disable_cooldowns=True)
    fault(plain, "other").on(1, **what)
    with pytest.raises(expected) as caught:
        plain.completion(model="other", messages=MESSAGES)
    assert type(caught.value) is expected
    assert classify(caught.value).kind == kind
    assert classify(caught.value).retry_after == what.get("retry_after")
    assert text(plain.completion(model="other", messages=MESSAGES)) == "hello from lone"


def test_a_group_fails_as_a_whole_and_others_do_not(fault: FaultInjector) -> None:
    """A model_name stands for all its deployments."""
    plain = router(num_retries=0)
    failing = fault(plain, "deriver").every(1, status=500)
    with pytest.raises(litellm.InternalServerError):
        plain.completion(model="deriver", messages=MESSAGES)
    assert text(plain.completion(model="other", messages=MESSAGES)) == "hello from lone"
    assert (failing.requests, failing.failed) == (1, 1)


def test_two_faults_at_once(fault: FaultInjector) -> None:
    """Each deployment has a schedule of its own."""
    plain = router(num_retries=0)
    first, other = (
        fault(plain, "deriver").on(1, status=500),
        fault(plain, "other").on(1, status=401),
    )
    with pytest.raises(litellm.InternalServerError):
        plain.completion(model="deriver", messages=MESSAGES)
    with pytest.raises(litellm.AuthenticationError):
        plain.completion(model="other", messages=MESSAGES)
    assert (first.requests, other.requests) == (1, 1)


def test_the_end_of_the_test_is_the_end_of_the_fault() -> None:
    """What was replaced in LiteLLM is as it was."""
    from honcho_fallback.testing import Clock, fault_injector  # noqa: PLC0415 # only here

    before = litellm.completion, litellm.acompletion
    plain = router(num_retries=0)
    with fault_injector(Clock()) as fault:
        fault(plain, "other").every(1, status=500)
        assert litellm.completion is not before[0]
    assert (litellm.completion, litellm.acompletion) == before
    assert text(plain.completion(model="other", messages=MESSAGES)) == "hello from lone"


def test_unknown_deployments_are_refused(fault: FaultInjector) -> None:
    """A misspelt name would make a test that tests nothing."""
    with pytest.raises(FallbackConfigError, match="pass a model_name or an id: deriver, first"):
        fault(router(), "frist")
    with pytest.raises(FallbackConfigError, match="deployment: none was given"):
        fault(router())
    with pytest.raises(FallbackConfigError, match="after_chunks: this is no chat model"):
        fault(router(), "first").on(1, status=500, after_chunks=1)
