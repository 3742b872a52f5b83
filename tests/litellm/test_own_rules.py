"""The user's own rules under LiteLLM: on the provider's own error, and on LiteLLM's for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm
import pytest

from honcho_fallback import Failure, FailureKind, FallbackConfig
from honcho_fallback.testing import StatusError
from honcho_fallback_litellm._failures import classifier_for
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

MESSAGES = [{"role": "user", "content": "hello"}]
BODY = {"error": {"message": "team budget is used up", "code": "TEAM_BUDGET", "type": "budget"}}


def own(failure: Failure, _: BaseException) -> Failure:
    return failure if failure.by_rule else Failure.of(FailureKind.INVALID_REQUEST)


@pytest.mark.parametrize(
    "condition",
    [
        {"code": "TEAM_BUDGET", "status": 400},
        {"error": "litellm.BadRequestError", "status": 400},
        {"error": "openai.BadRequestError", "code": "TEAM_BUDGET"},
    ],
)
@pytest.mark.parametrize("refine", [None, own])
def test_a_rule_makes_a_bad_request_a_switch(
    condition: dict[str, Any],
    refine: Any,
    bench: Any,
    providers: ProviderServer,
    ask: Any,
    text: Any,
) -> None:
    """Users read LiteLLM's class in their logs, and the body is below it: both are looked at."""
    providers["primary"].fail(400, body=BODY)
    rules = {"kind": "quota", "reason": "ours", **condition}
    router, listener = bench.managed(FallbackConfig(rules=rules, refine=refine))
    answer = ask(router, "completion", model="deriver", messages=MESSAGES)
    assert text(answer) == "hello from backup"
    first = listener.record.attempts[0]
    assert (first.kind, first.note) == ("quota", "rule 1 given in Python: ours")


@pytest.mark.parametrize("refine", [None, own])
def test_a_rule_sees_the_status_that_litellm_replaces(refine: Any) -> None:
    """LiteLLM makes a 500 of Anthropic's 529; a rule is for what the provider sent."""
    error = litellm.InternalServerError("overloaded", "anthropic", "claude")
    error.__cause__ = StatusError(529)
    rules = {"kind": "quota", "status": 529}
    failure = classifier_for(FallbackConfig(rules=rules, refine=refine))(error)
    assert (failure.kind, failure.by_rule) == ("quota", True)


@pytest.mark.parametrize("is_broken", [False, True])
def test_refine_corrects_what_lies_below_litellms_error(
    is_broken: bool, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """A kind brings its answers with it, and a hook that breaks is passed over."""

    def refine(failure: Failure, _: BaseException) -> Failure:
        if is_broken:
            raise ZeroDivisionError
        return failure._replace(kind=FailureKind.QUOTA)

    # LiteLLM trips over a code that is a text, and raises a TypeError.
    error = {"message": "busy", "type": "overloaded_error", "code": "503"}
    providers["primary"].reply(Reply(body={"error": error}))
    router, listener = bench.managed(FallbackConfig(refine=refine))
    answer = ask(router, "completion", model="deriver", messages=MESSAGES)
    assert text(answer) == "hello from backup"
    switch = listener.switches[0].failure
    known = ("overloaded", True) if is_broken else ("quota", False)
    assert (switch.kind, switch.transient) == known


def test_a_rule_keeps_a_failure_with_the_program(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """A kind that LiteLLM's own troubles may have, too, is no reason to pass over a rule."""
    providers["primary"].fail(503, body=BODY)
    rules = {"kind": "local", "code": "TEAM_BUDGET"}
    router, listener = bench.managed(FallbackConfig(rules=rules))
    with pytest.raises(litellm.ServiceUnavailableError):
        ask(router, "completion", model="deriver", messages=MESSAGES)
    assert [attempt.kind for attempt in listener.record.attempts] == ["local"]
