"""LiteLLM fails on schedule by its own HTTP client: no part of the kit knows LiteLLM."""

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


@pytest.mark.parametrize("asynchronous", [False, True])
def test_requests_fail_in_litellms_own_http_client(
    monkeypatch: pytest.MonkeyPatch,
    fallback_records: Records,
    providers: ProviderServer,
    asynchronous: bool,
) -> None:
    """LiteLLM maps the error as ever, and the strategy switches on it."""
    faults = FaultTransport().on(1, status=429, retry_after=5)
    # LiteLLM keeps clients by their address and key; these two are nobody else's.
    params = {"api_base": providers.new("openai").url, "api_key": "none"}
    chain: list[Any] = [
        {
            "model_name": "deriver",
            "litellm_params": {"model": f"openai/m{rank}", **params},
            "model_info": {"id": f"number {rank}", "fallback_rank": rank},
        }
        for rank in range(2)
    ]
    router = Router(chain, disable_cooldowns=True)
    FallbackRoutingStrategy().register(router)
    with httpx.Client(transport=faults) as client:
        monkeypatch.setattr(litellm, "client_session", client)
        # An event loop of its own for each test: no connection may outlive one.
        aclient = httpx.AsyncClient(transport=faults, headers={"connection": "close"})
        monkeypatch.setattr(litellm, "aclient_session", aclient)
        if asynchronous:
            answer: Any = asyncio.run(router.acompletion("deriver", MESSAGES))
        else:
            answer = router.completion("deriver", MESSAGES)
    assert answer.model == "m1"
    record = fallback_records.one
    assert_switched(record, from_="number 0", to="number 1", kind="rate_limit")
    assert (record.attempts[0].error, record.attempts[0].retry_after) == ("RateLimitError", 5)
    assert (faults.requests, faults.failed) == (2, 1)
