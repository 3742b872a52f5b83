"""One failed request, no wait, the next target: what a Router does under the strategy."""

from __future__ import annotations

import time
from typing import Any

import litellm
import pytest

MESSAGES = [{"role": "user", "content": "hello"}]

SWITCHING = {
    "rate limit": (429, {"error": {"message": "slow down", "type": "requests"}}, "rate_limit"),
    "quota": (
        429,
        {"error": {"message": "pay", "type": "insufficient_quota", "code": "insufficient_quota"}},
        "quota",
    ),
    "server": (500, {"error": {"message": "oops", "type": "server_error"}}, "server_error"),
    "unavailable": (503, {"error": {"message": "oops", "type": "server_error"}}, "overloaded"),
    "overloaded": (529, {"error": {"message": "oops", "type": "server_error"}}, "overloaded"),
    "timeout": (408, {"error": {"message": "oops"}}, "timeout"),
    "key": (401, {"error": {"message": "bad key", "code": "invalid_api_key"}}, "authentication"),
    "money": (402, {"error": {"message": "no credit"}}, "quota"),
    "region": (403, {"error": {"message": "not in your country"}}, "permission"),
    "gone": (404, {"error": {"message": "no model", "code": "model_not_found"}}, "model_unavailable"),
}


@pytest.mark.parametrize("name", SWITCHING)
def test_a_failure_that_another_target_may_help_with_costs_one_request(
    name: str, bench: Any, providers: Any, ask: Any, text: Any
) -> None:
    """(1) Exactly one request at the primary and one at the backup, and no retry sleep."""
    status, body, kind = SWITCHING[name]
    providers.fail("primary", status, body=body, headers={"retry-after": "7"})
    router, listener = bench.managed()

    began = time.monotonic()
    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from backup"
    assert providers.order == ["primary", "backup"]
    assert time.monotonic() - began < 7
    assert [(a.target, a.kind) for a in listener.record.attempts] == [
        ("primary", kind),
        ("backup", None),
    ]
    assert listener.record.attempts[1].wait == 0
    assert listener.record.is_fallback
    assert [switch.fallback.name for switch in listener.switches] == ["backup"]
