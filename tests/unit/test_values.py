"""Targets, options and errors: what they refuse, what they show, what survives a copy."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest
import tenacity
from scripted import ProviderError, Script

from honcho_fallback import (
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackError,
    FallbackExhausted,
    FallbackPolicy,
    StreamInterrupted,
    Target,
    classify,
)

SECRET = "sk-not-a-real-key"
NOBODY: Any = object()


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 # our own bytes


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Target(""), "model: got ''; name the model"),
        (lambda: Target(None), "model: got None; name the model"),  # type: ignore[arg-type] # the point
        (lambda: Target("m", provider=""), "provider: got ''"),
        (lambda: Target("m", context_window=0), "context_window: got 0; pass a positive number"),
        (lambda: Target("m", context_window=True), "context_window: got True"),
        (lambda: Target("m", params=[]), "params: got a list; pass a mapping"),  # type: ignore[arg-type] # the point
        (lambda: FallbackPolicy([]), "targets: the chain is empty; pass at least one Target"),
        (lambda: FallbackPolicy(Target("m")), "targets: got a single Target"),  # type: ignore[arg-type] # the point
        (lambda: FallbackPolicy(["m"]), r"targets\[0\]: got a str; pass a Target"),  # type: ignore[list-item] # the point
        (
            lambda: FallbackPolicy([Target("m"), Target("m")]),
            r"targets\[1\].name: 'm' is in the chain twice; give one of them another name=",
        ),
        (lambda: FallbackPolicy([Target("m")], {}), "config: got a dict"),  # type: ignore[arg-type] # the point
        (lambda: FallbackPolicy([Target("m")], agent=""), "agent: got ''"),
        (
            lambda: FallbackPolicy([Target("m")], observers=[NOBODY]),
            "observers: got a object",
        ),
        (lambda: FallbackConfig(timeout=-1), "timeout: Input should be greater than 0"),
        (lambda: FallbackConfig(timeout=float("nan")), "timeout: Input should be a finite number"),
        (lambda: FallbackConfig(retry_after_cap=-1), "retry_after_cap: "),
        (lambda: FallbackConfig(wait=-1), "wait: .*pass 0 or more seconds"),
        (lambda: FallbackConfig(wait=None), "wait: Input should be callable"),  # type: ignore[arg-type] # the point
        (lambda: FallbackConfig(max_attempts=0), "max_attempts: "),
        (lambda: FallbackConfig(switch_after=0), "switch_after"),
        (lambda: FallbackConfig(switch_after={"nonsense": 2}), "switch_after"),  # type: ignore[dict-item] # the point
        (lambda: FallbackConfig(reset="session"), "reset: .*'iteration' or 'turn'"),  # type: ignore[arg-type] # the point
        (lambda: FallbackConfig(fallback_on={"cancelled"}), "a cancelled call stays cancelled"),
        (lambda: FallbackConfig(retries=3), "retries: no such option; choose from fallback_on,"),  # type: ignore[call-arg] # the point
    ],
)
def test_bad_input_names_the_field_and_the_fix(build: Any, message: str) -> None:
    """What is wrong is said at construction, as a ValueError of this package."""
    with pytest.raises(FallbackConfigError, match=message) as caught:
        build()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FallbackError)


def test_no_secret_is_shown() -> None:
    """HON-095, HOM-076: a client, its parameters and a bad value are never shown."""
    target = Target("m", provider="p", client={"api_key": SECRET}, params={"api_key": SECRET})
    policy = FallbackPolicy([target], agent="deriver")
    with pytest.raises(FallbackConfigError) as caught:
        FallbackConfig(reset=SECRET)  # type: ignore[arg-type] # the point
    shown = f"{target!r} {policy!r} {policy.start()!r} {policy.start().attempt!r} {caught.value}"
    assert SECRET not in shown
    assert "p/m" in shown


def test_a_target_is_complete_and_its_own() -> None:
    """HON-009: parameters are copied in, cannot be changed, and belong to one target only."""
    params = {"temperature": 0.5}
    target = Target("m", provider="p", params=params)
    params["temperature"] = 1
    assert target.params == {"temperature": 0.5}
    with pytest.raises(TypeError):
        target.params["temperature"] = 2  # type: ignore[index] # the point
    with pytest.raises(AttributeError):
        target.model = "other"  # type: ignore[misc] # the point
    assert Target("m").params == {}
    assert Target("m").name == "m"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, through_pickle])
def test_values_survive_a_copy(again: Any) -> None:
    """Targets, options, records and errors can be copied and pickled."""
    target = Target("m", provider="p", params={"seed": 1}, context_window=5)
    assert again(target) == target
    assert again(target).params == target.params
    config = FallbackConfig(timeout=3, max_attempts=2, wait=0)
    assert again(config).timeout == 3
    policy = FallbackPolicy([target, Target("n")], config)
    with pytest.raises(FallbackExhausted) as caught:
        policy.call(Script(**{"p/m": [TimeoutError()], "n": [TimeoutError()]}).ask)
    error = again(caught.value)
    assert error.record == caught.value.record
    assert len(error.exceptions) == 2
    broken = again(StreamInterrupted("broke", ("a",), error.record))
    assert (broken.partial, broken.record) == (("a",), error.record)


def test_options_keep_what_was_set_and_take_the_rest_by_default() -> None:
    """replace() varies one option and validates it."""
    config = FallbackConfig(timeout=3, validate=len).replace(reset="turn")
    assert (config.timeout, config.reset, config.max_attempts) == (3, "turn", None)
    assert config.validate_answer is len
    with pytest.raises(FallbackConfigError):
        config.replace(timeout=0)


def test_any_tenacity_wait_will_do() -> None:
    """A strategy sees how often the target failed and with what; seconds do as well."""
    seen: list[Any] = []

    def strategy(state: tenacity.RetryCallState) -> float:
        assert state.outcome is not None
        seen.append((state.attempt_number, type(state.outcome.exception())))
        return 0.25

    run = FallbackPolicy([Target("m")], FallbackConfig(wait=strategy)).start()
    assert run.fail(ProviderError(503)).wait == 0.25
    assert run.fail(ProviderError(500)).wait == 0.25
    assert seen == [(1, ProviderError), (2, ProviderError)]
    fixed = FallbackPolicy([Target("m")], FallbackConfig(wait=tenacity.wait_fixed(2))).start()
    assert fixed.fail(ProviderError(503)).wait == 2


@pytest.mark.parametrize(
    ("error", "switches"),
    [
        (ProviderError(408), True),
        (ProviderError(429), True),
        (ProviderError(429, code="insufficient_quota"), True),
        (ProviderError(500), True),
        (ProviderError(529), True),
        (ProviderError(200, code="overloaded_error"), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (ProviderError(400), False),
        (ProviderError(401), False),
        (ProviderError(402), False),
        (ProviderError(403), False),
        (ProviderError(404), False),
        (ProviderError(413), False),
        (OSError("disk"), False),
        (ValueError("bug"), False),
    ],
)
def test_honcho_preset(error: Exception, switches: bool) -> None:
    """HON-020 to HON-028: the pull request's table and nothing else, whatever the error code."""
    policy = FallbackPolicy([Target("primary"), Target("fallback")], FallbackConfig.honcho())
    run = policy.start()
    if switches:
        assert run.fail(error).target.name == "fallback"
    else:
        with pytest.raises(type(error)):
            run.fail(error)


def test_honcho_preset_makes_three_attempts_in_all() -> None:
    """HON-002, HON-003, G-20: primary, fallback, fallback; options can still be given."""
    config = FallbackConfig.honcho(wait=0)
    script = Script(primary=[ProviderError(503)], fallback=[ProviderError(503)])
    with pytest.raises(FallbackExhausted):
        FallbackPolicy([Target("primary"), Target("fallback")], config).call(script.ask)
    assert script.asked == ["primary", "fallback", "fallback"]


@pytest.mark.parametrize(
    ("options", "switches"),
    [({"local_errors": (ProviderError,)}, False), ({"provider_errors": (ProviderError,)}, True)],
)
def test_honcho_preset_obeys_the_other_options(options: Any, switches: bool) -> None:
    """A preset filters what the classifier says, and what it was told to look for stays told."""
    config = FallbackConfig.honcho(**options)
    run = FallbackPolicy([Target("primary"), Target("fallback")], config).start()
    if switches:
        assert run.fail(ProviderError(0)).target.name == "fallback"
    else:
        with pytest.raises(ProviderError):
            run.fail(ProviderError(503))
        assert run.record.attempts[0].kind == "local"


def test_refine_sees_what_classify_said_and_has_the_last_word() -> None:
    """The classifier runs once; its failure and the exception go through the filter."""
    seen: list[Any] = []

    def judge(error: BaseException) -> Failure:
        return Failure.of(FailureKind.INVALID_REQUEST, error=type(error).__name__)

    def refine(failure: Failure, error: BaseException) -> Failure:
        seen.append((failure.kind, error))
        return failure._replace(kind=FailureKind.OVERLOADED, switchable=True)

    config = FallbackConfig(classify=judge, refine=refine)
    run = FallbackPolicy([Target("primary"), Target("fallback")], config).start()
    error = ProviderError(400)
    assert run.fail(error).target.name == "fallback"
    assert seen == [("invalid_request", error)]
    with pytest.raises(asyncio.CancelledError):
        run.fail(asyncio.CancelledError())
    assert len(seen) == 1


def test_resilient_is_what_it_says_and_can_be_varied() -> None:
    """The preset's values, each given a reason; options still count, memories are its own."""
    config = FallbackConfig.resilient(deadline=60)
    assert (config.reset, config.deadline, config.first_token_timeout) == ("turn", 60, 20)
    assert config.cooldown is not None
    assert config.retry_budget is not None
    assert FallbackConfig.resilient().cooldown is not config.cooldown
    assert config.replace(timeout=5).cooldown is config.cooldown


def test_a_function_may_be_named() -> None:
    """Where an option takes a function, its name does too: a file can hold the whole config."""
    named = FallbackConfig(classify="honcho_fallback:classify", wait="tenacity:wait_none")  # type: ignore[arg-type] # the point
    assert named.classify is classify
    with pytest.raises(FallbackConfigError, match="refine: Invalid python path"):
        FallbackConfig(refine="honcho_fallback.presets:nothing_like_it")  # type: ignore[arg-type] # the point
