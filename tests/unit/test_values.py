"""Targets, options and errors: what they refuse, what they show, what survives a copy."""

from __future__ import annotations

import asyncio
import copy
import pickle
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
import tenacity

from honcho_fallback import (
    ApiKey,
    Cooldown,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackError,
    FallbackExhausted,
    FallbackPolicy,
    StreamInterrupted,
    Target,
    TransportRecovery,
)
from honcho_fallback.testing import StatusError
from tests.helpers.own_rules import of_program, of_provider
from tests.helpers.scripted import repeating

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
        (lambda: FallbackConfig(timeout=-1), "timeout: got -1; pass seconds as a number above 0"),
        (lambda: FallbackConfig(timeout=float("nan")), "timeout: got nan; pass seconds"),
        (lambda: FallbackConfig(retry_after_cap=-1), "retry_after_cap: "),
        (
            lambda: FallbackConfig(wait=-1),
            "wait: got -1; pass a tenacity wait strategy, or seconds",
        ),
        (lambda: FallbackConfig(wait=None), "wait: got None; pass a tenacity wait"),  # type: ignore[arg-type] # the point
        (lambda: FallbackConfig(max_attempts=0), "max_attempts: "),
        (lambda: FallbackConfig(switch_after=0), "switch_after"),
        (lambda: FallbackConfig(switch_after={"nonsense": 2}), "switch_after"),
        (lambda: FallbackConfig(timeout="3"), r"timeout: got '3' \(str\); pass seconds"),  # type: ignore[arg-type] # the point
        (lambda: FallbackConfig(reset="turns"), "reset: .*; did you mean turn[?] pass"),  # type: ignore[arg-type] # the point
        (lambda: FallbackConfig(fallback_on={"cancelled"}), "fallback_on: .*without 'cancelled'"),
        (lambda: FallbackPolicy([Target("a")], agnet="x"), "agnet: .*; did you mean agent[?]"),  # type: ignore[call-arg] # the point
        (lambda: FallbackPolicy([Target("a")], nonsense=1), "runtime, classifier, fallback_on, "),  # type: ignore[call-arg] # the point
        (lambda: FallbackPolicy([Target("a")], confg=None), "confg: .*; did you mean config[?]"),  # type: ignore[call-arg] # the point
        (lambda: FallbackPolicy([Target("a")]).call(print, agnet="x"), "did you mean agent[?]"),  # type: ignore[call-arg] # the point
        (lambda: FallbackConfig(fallback_on={"timeouts"}), "did you mean timeout[?]"),
        (lambda: FallbackConfig(tries=3), "tries: no such option; choose from fallback_on,"),  # type: ignore[call-arg] # the point
        (lambda: FallbackConfig(timout=3), "timout: no such option; did you mean timeout[?]"),  # type: ignore[call-arg] # the point
        (lambda: FallbackPolicy([Target("m")], timout=3), "did you mean timeout[?]"),  # type: ignore[call-arg] # the point
        (lambda: FallbackPolicy([Target("m")]).start(agnt="x"), "did you mean agent[?]"),  # type: ignore[call-arg] # the point
        (lambda: FallbackPolicy(None), "targets: got a single NoneType; pass a list"),  # type: ignore[arg-type] # the point
        (lambda: FallbackConfig(cooldown=Cooldown), "cooldown: got a class; pass an object"),  # type: ignore[arg-type] # the point
        (lambda: ApiKey(None), "key: got None; pass the key; is the variable .* set[?]"),  # type: ignore[arg-type] # the point
        (lambda: TransportRecovery("x"), "rebuild: got a str; pass a function of a target"),  # type: ignore[arg-type] # the point
        (
            lambda: TransportRecovery(aggregators="openrouter"),  # type: ignore[arg-type] # the point
            "aggregators: got 'openrouter' .*; pass a set of names",
        ),
        (
            lambda: FallbackPolicy([Target("m")]).stream(print, has_content="x"),  # type: ignore[arg-type] # the point
            "has_content: got a str; pass a function of a chunk",
        ),
        (lambda: FallbackConfig(refine="os:system"), "refine: got 'os:system'"),  # type: ignore[arg-type] # the point
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
        policy.call(repeating(**{"p/m": [TimeoutError()], "n": [TimeoutError()]}).ask)
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
    assert run.fail(StatusError(503)).wait == 0.25
    assert run.fail(StatusError(500)).wait == 0.25
    assert seen == [(1, StatusError), (2, StatusError)]
    fixed = FallbackPolicy([Target("m")], FallbackConfig(wait=tenacity.wait_fixed(2))).start()
    assert fixed.fail(StatusError(503)).wait == 2


@pytest.mark.parametrize(
    ("error", "switches"),
    [
        (StatusError(408), True),
        (StatusError(429), True),
        (StatusError(429, code="insufficient_quota"), True),
        (StatusError(500), True),
        (StatusError(529), True),
        (StatusError(200, code="overloaded_error"), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (StatusError(400), False),
        (StatusError(401), False),
        (StatusError(402), False),
        (StatusError(403), False),
        (StatusError(404), False),
        (StatusError(413), False),
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
    script = repeating(primary=[StatusError(503)], fallback=[StatusError(503)])
    with pytest.raises(FallbackExhausted):
        FallbackPolicy([Target("primary"), Target("fallback")], config).call(script.ask)
    assert script.asked == ["primary", "fallback", "fallback"]


@pytest.mark.parametrize(
    ("options", "switches"),
    [({"rules": of_program(StatusError)}, False), ({"rules": of_provider(StatusError)}, True)],
)
def test_honcho_preset_obeys_the_other_options(options: Any, switches: bool) -> None:
    """A preset filters what the classifier says, and what it was told to look for stays told."""
    config = FallbackConfig.honcho(**options)
    run = FallbackPolicy([Target("primary"), Target("fallback")], config).start()
    if switches:
        assert run.fail(StatusError(0)).target.name == "fallback"
    else:
        with pytest.raises(StatusError):
            run.fail(StatusError(503))
        assert run.record.attempts[0].kind == "local"


def test_refine_sees_what_classify_said_and_has_the_last_word() -> None:
    """The classifier's failure and the exception go through it, but for a cancellation."""
    seen: list[Any] = []

    def refine(failure: Failure, error: BaseException) -> Failure:
        seen.append((failure.kind, error))
        return failure._replace(kind=FailureKind.OVERLOADED, switchable=True)

    config = FallbackConfig(refine=refine)
    run = FallbackPolicy([Target("primary"), Target("fallback")], config).start()
    error = StatusError(400)
    assert run.fail(error).target.name == "fallback"
    assert seen == [("invalid_request", error)]
    with pytest.raises(asyncio.CancelledError):
        run.fail(asyncio.CancelledError())
    assert len(seen) == 1


def test_resilient_is_what_it_says_and_can_be_varied() -> None:
    """The preset's values, each given a reason; options still count, memories are its own."""
    config = FallbackConfig.resilient(deadline=60)
    assert (config.reset, config.deadline, config.first_token_timeout) == ("turn", 60, 10)
    assert config.cooldown is not None
    assert config.retry_budget is not None
    assert FallbackConfig.resilient().cooldown is not config.cooldown
    assert config.replace(timeout=5).cooldown is config.cooldown


def test_no_text_of_pydantic_comes_out() -> None:
    """Whatever is wrong with whichever option, what is said is ours."""
    for name in FallbackConfig.model_fields:
        option = "validate" if name == "validate_answer" else name
        for wrong in (object(), -1, "nonsense", [()]):
            try:
                FallbackConfig(**{option: wrong})  # type: ignore[arg-type] # the point
            except FallbackConfigError as error:
                text = str(error)
                assert text.startswith(f"{option}: got "), text
                assert "; " in text
                assert "Input should" not in text
                assert "pydantic" not in text


def test_options_may_be_given_to_the_policy() -> None:
    """A single option needs no config; with one, it comes on top."""
    policy = FallbackPolicy([Target("m")], timeout=3)
    assert (policy.config.timeout, policy.config.max_attempts) == (3, None)
    config = FallbackConfig(timeout=9, max_attempts=2)
    both = FallbackPolicy([Target("m")], config, timeout=3)
    assert (both.config.timeout, both.config.max_attempts, config.timeout) == (3, 2, 9)


class Key:
    """A credential without a fingerprint."""

    def get(self) -> str:
        return "key"

    def refresh(self) -> None:
        """Fetch nothing."""


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, through_pickle])
@pytest.mark.parametrize("fields", [{}, {"credential": Key()}, {"identity": "ours"}])
def test_a_copy_is_the_same_target(again: Any, fields: dict[str, Any]) -> None:
    """Whatever is known of it, a copy has the identity of what was copied."""
    target = Target("m", provider="p", endpoint="https://x/v1", **fields)
    assert again(target).identity == target.identity


def test_a_target_shows_what_is_asked_and_not_how() -> None:
    """Parameters, client, credential and address may hold a secret: none of them is shown."""
    secret = "hunter2"
    target = Target(
        "m",
        provider="p",
        client=secret,
        params={"api_key": secret},
        context_window=9,
        endpoint=f"https://me:{secret}@x/v1?key={secret}",
        credential=Key(),
    )
    assert repr(target) == "Target(model='m', provider='p', name='p/m', context_window=9)"


def test_a_replaced_target_is_another_one() -> None:
    """dataclasses.replace does not carry a computed identity over to another model or name."""
    target = Target("m", provider="p")
    others = [replace(target, model="n"), replace(target, provider="q"), replace(target, name="x")]
    assert len({one.identity for one in (target, *others)}) == 4
    assert replace(target, params={"seed": 1}).identity == target.identity
    assert Target("m", identity="ours").identity == replace(target, identity="ours").identity


def test_parameters_are_copied_with_all_they_hold() -> None:
    """AN-002: what is changed later inside a parameter reaches no request."""
    params: dict[str, Any] = {"extra_body": {"stop": ["a"]}, "tools": [{"name": "x"}]}
    target = Target("m", params=params)
    params["extra_body"]["stop"].append("b")
    params["tools"][0]["name"] = "y"
    assert target.params == {"extra_body": {"stop": ["a"]}, "tools": [{"name": "x"}]}


def test_what_an_option_is_annotated_with_can_be_evaluated() -> None:
    """Pydantic up to 2.12 evaluates it for the first config, and fails where it cannot."""
    assert get_type_hints(TransportRecovery).keys() == {"rebuild", "aggregators"}
