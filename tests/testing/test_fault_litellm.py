"""LiteLLM fails on schedule by settings of its own: no part of the kit knows LiteLLM."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

pytest.importorskip("litellm")

import litellm
from litellm import Router

from honcho_fallback.testing import FaultTransport, assert_switched
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.litellm_runs import THEIRS

if TYPE_CHECKING:
    from honcho_fallback.testing import Records
    from tests.helpers.provider import ProviderServer

pytestmark = [pytest.mark.filterwarnings(warning) for warning in THEIRS]
MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]


def router(*deployments: dict[str, Any]) -> Router:
    """Make a Router under our strategy of deployments that have these parameters."""
    managed = Router(
        model_list=[
            {
                "model_name": "deriver",
                "litellm_params": {"model": f"openai/m{rank}", "api_key": "none", **params},
                "model_info": {"id": f"number {rank}", "fallback_rank": rank},
            }
            for rank, params in enumerate(deployments)
        ],
        disable_cooldowns=True,
    )
    FallbackRoutingStrategy().register(managed)
    return managed


def answers(managed: Router, *, asynchronous: bool) -> list[str]:
    """Ask twice."""
    if not asynchronous:
        given = [managed.completion(model="deriver", messages=MESSAGES) for _ in range(2)]
        return [str(answer.model) for answer in given]

    async def main() -> list[str]:
        given = [await managed.acompletion(model="deriver", messages=MESSAGES) for _ in range(2)]
        return [str(answer.model) for answer in given]

    return asyncio.run(main())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_requests_fail_in_litellms_own_http_client(
    monkeypatch: pytest.MonkeyPatch,
    fallback_records: Records,
    providers: ProviderServer,
    asynchronous: bool,
) -> None:
    """LiteLLM maps the error as ever, and the strategy switches on it."""
    faults = FaultTransport().on(1, status=429, retry_after=5)
    with httpx.Client(transport=faults) as client:
        monkeypatch.setattr(litellm, "client_session", client)
        # An event loop of its own for each test: no connection may outlive one.
        aclient = httpx.AsyncClient(transport=faults, headers={"connection": "close"})
        monkeypatch.setattr(litellm, "aclient_session", aclient)
        # LiteLLM keeps clients by their address and key; these two are nobody else's.
        where = {"api_base": providers.new("openai").url}
        managed = router(where, where)
        assert answers(managed, asynchronous=asynchronous) == ["m1", "m0"]
    record = fallback_records[0]
    assert_switched(record, from_="number 0", to="number 1", kind="rate_limit")
    assert (record.attempts[0].error, record.attempts[0].retry_after) == ("RateLimitError", 5)
    assert (faults.requests, faults.failed) == (3, 1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_deployment_fails_by_litellms_own_setting(
    fallback_records: Records, asynchronous: bool
) -> None:
    """``mock_response`` names an error of LiteLLM's, or what a healthy deployment says."""
    managed = router({"mock_response": "litellm.RateLimitError"}, {"mock_response": "hello"})
    answers(managed, asynchronous=asynchronous)
    for record in fallback_records:
        assert_switched(record, from_="number 0", to="number 1", kind="rate_limit")
