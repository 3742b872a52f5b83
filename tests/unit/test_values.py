"""Targets, options and errors: what they refuse, what they show, what a copy or a pickle keeps."""

from __future__ import annotations

import copy
import pickle
import threading
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from honcho_fallback import (
    ApiKey,
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackError,
    FallbackExhausted,
    FallbackPolicy,
    RetryBudget,
    StreamInterrupted,
    Target,
    TransportRecovery,
    classify,
)
from honcho_fallback.testing import StatusError
from tests.helpers.canaries import ProviderError
from tests.helpers.errors import raised_from
from tests.helpers.observers import Listener
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from honcho_fallback import Attempt

NOBODY: Any = object()


# A credential without a fingerprint.
KEY: Any = SimpleNamespace(get=str, refresh=str)


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 # our own bytes


# What is wrong with it for a type checker, too, is the point.
target: Any = Target
config: Any = FallbackConfig
policy: Any = FallbackPolicy
recovery: Any = TransportRecovery
key: Any = ApiKey


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: target(""), "model: got ''; name the model"),
        (lambda: target(None), "model: got None; name the model"),
        (lambda: target("m", provider=""), "provider: got ''"),
        (lambda: target("m", context_window=0), "context_window: got 0; pass a positive number"),
        (lambda: target("m", context_window=True), "context_window: got True"),
        (lambda: target("m", prefill="no"), "prefill: got a str; pass True or False"),
        (lambda: target("m", params=[]), "params: got a list; pass a mapping"),
        (lambda: policy([]), "targets: the chain is empty; pass at least one Target"),
        (lambda: policy(target("m")), "targets: got a single Target"),
        (lambda: policy(["m"]), r"targets\[0\]: got a str; pass a Target"),
        (
            lambda: policy([target("m"), target("m")]),
            r"targets\[1\].name: 'm' is in the chain twice; give one of them another name=",
        ),
        (lambda: policy([target("m")], {}), "config: got a dict"),
        (lambda: policy([target("m")], agent=""), "agent: got ''"),
        (lambda: policy([target("m")], observers=[NOBODY]), "observers: got a object"),
        (lambda: config(timeout=-1), "timeout: got -1; pass seconds as a number above 0"),
        (lambda: config(timeout=float("nan")), "timeout: got nan; pass seconds"),
        (lambda: config(retry_after_cap=-1), "retry_after_cap: "),
        (lambda: config(wait=-1), "wait: got -1; pass a tenacity wait strategy, or seconds"),
        (lambda: config(wait=None), "wait: got None; pass a tenacity wait"),
        (lambda: config(max_attempts=0), "max_attempts: "),
        (lambda: config(switch_after=0), "switch_after"),
        (lambda: config(switch_after={"nonsense": 2}), "switch_after"),
        (lambda: config(timeout="3"), r"timeout: got '3' \(str\); pass seconds"),
        (lambda: config(reset="turns"), "reset: .*; did you mean turn[?] pass"),
        *(
            (lambda word=word: config(replay=word), "replay: .* pass 'any' or 'safe'")
            for word in ("sometimes", True, "saf")
        ),
        (lambda: config(fallback_on={"cancelled"}), "fallback_on: .*without 'cancelled'"),
        (lambda: policy([target("a")], agnet="x"), "agnet: .*; did you mean agent[?]"),
        (lambda: policy([target("a")], nonsense=1), "runtime, classifier, fallback_on, "),
        (lambda: policy([target("a")], confg=None), "confg: .*; did you mean config[?]"),
        (lambda: policy([target("a")]).call(print, agnet="x"), "did you mean agent[?]"),
        (lambda: config(fallback_on={"timeouts"}), "did you mean timeout[?]"),
        (lambda: config(tries=3), "tries: no such option; choose from fallback_on,"),
        (lambda: config(timout=3), "timout: no such option; did you mean timeout[?]"),
        (lambda: policy([target("m")], timout=3), "did you mean timeout[?]"),
        (lambda: policy([target("m")]).start(agnt="x"), "did you mean agent[?]"),
        (lambda: policy([target("m")]).call(print, turn="t"), "turn: got a str; pass one from"),
        (lambda: policy([target("m")]).call(print, run="r"), "run: got a str; pass one from"),
        (lambda: policy(None), "targets: got a single NoneType; pass a list"),
        (lambda: config(cooldown=Cooldown), "cooldown: got a class; pass an object"),
        (lambda: key(None), "key: got None; pass the key; is the variable .* set[?]"),
        (lambda: recovery("x"), "rebuild: got a str; pass a function of a target"),
        (
            lambda: recovery(aggregators="openrouter"),
            "aggregators: got 'openrouter' .*; pass a set of names",
        ),
        (
            lambda: policy([target("m")]).stream(print, has_content="x"),
            "has_content: got a str; pass a function of a chunk",
        ),
        (lambda: RetryBudget(ratio=-1), "ratio: got -1"),
        (lambda: RetryBudget(min_per_second=-1), "min_per_second: got -1"),
        (lambda: RetryBudget(window=-1), "window: got -1"),
        (lambda: config(refine="os:system"), "refine: got 'os:system'"),
    ],
)
def test_bad_input_names_the_field_and_the_fix(build: Any, message: str) -> None:
    """What is wrong is said at construction, as a ValueError of this package."""
    with pytest.raises(FallbackConfigError, match=message) as caught:
        build()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FallbackError)


def test_a_target_is_complete_and_its_own() -> None:
    """HON-009, AN-002: parameters are copied with all they hold, and stay as they are."""
    params: dict[str, Any] = {"extra_body": {"stop": ["a"]}, "tools": [{"name": "x"}]}
    target = Target("m", provider="p", params=params)
    params["extra_body"]["stop"].append("b")
    params["tools"][0]["name"] = "y"
    assert target.params == {"extra_body": {"stop": ["a"]}, "tools": [{"name": "x"}]}
    with pytest.raises(TypeError):
        target.params["temperature"] = 2  # type: ignore[index] # the point
    with pytest.raises(AttributeError):
        target.model = "other"  # type: ignore[misc] # the point
    assert (Target("m").params, Target("m").name) == ({}, "m")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, through_pickle])
@pytest.mark.parametrize("fields", [{}, {"credential": KEY}, {"identity": "ours"}])
def test_values_survive_a_copy(again: Any, fields: dict[str, Any]) -> None:
    """A copy is the same target, whatever is known of it; and so are options."""
    endpoint, params = "https://x/v1", {"seed": 1}
    target = Target("m", "p", endpoint=endpoint, params=params, context_window=5, **fields)
    copied = again(target)
    assert copied == target
    assert (copied.params, copied.identity) == (target.params, target.identity)
    assert again(FallbackConfig(timeout=3, wait=0)).timeout == 3


def test_options_keep_what_was_set_and_take_the_rest_by_default() -> None:
    """replace() varies one option and validates it; given to a policy they need no config."""
    config = FallbackConfig(timeout=3, validate=len).replace(reset="turn")
    assert (config.timeout, config.reset, config.max_attempts) == (3, "turn", None)
    assert config.validate_answer is len
    with pytest.raises(FallbackConfigError):
        config.replace(timeout=0)
    chain = [Target("m")]
    alone, both = FallbackPolicy(chain, timeout=9), FallbackPolicy(chain, config, timeout=9)
    assert (alone.config.timeout, alone.config.reset) == (9, "iteration")
    assert (both.config.timeout, both.config.reset, config.timeout) == (9, "turn", 3)


SWITCHING = [
    *(StatusError(status) for status in (408, 429, 500, 529)),
    *(TimeoutError(), ConnectionResetError(), StatusError(429, code="insufficient_quota")),
    StatusError(200, code="overloaded_error"),
]
STAYING = [*map(StatusError, (400, 401, 402, 403, 404, 413)), OSError("disk"), ValueError("bug")]


@pytest.mark.parametrize("error", [*SWITCHING, *STAYING])
def test_honcho_preset_switches_on_its_table_and_nothing_else(error: Exception) -> None:
    """HON-020 to HON-028: the pull request's, whatever the error code; no caller's, no key's."""
    run = FallbackPolicy([Target("primary"), Target("fallback")], FallbackConfig.honcho()).start()
    with nullcontext() if error in SWITCHING else pytest.raises(type(error)):
        assert run.fail(error).target.name == "fallback"


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
                config(**{option: wrong})
            except FallbackConfigError as error:
                text = str(error)
                assert text.startswith(f"{option}: got "), text
                assert "; " in text
                assert "Input should" not in text
                assert "pydantic" not in text


def test_identity_is_all_that_is_known_and_unknown_is_never_equal() -> None:
    """HRC-014: provider, model, endpoint and key tell targets apart; a gap proves nothing."""

    def identity(**fields: Any) -> str:
        known: dict[str, Any] = {"provider": "openai", "endpoint": "https://x/v1"}
        return Target("m", **{**known, "credential": ApiKey("a"), **fields}).identity

    assert identity() == identity()
    assert identity() == identity(provider="OpenAI", endpoint="https://x/v1/")
    different = [
        identity(),
        identity(provider="other"),
        identity(endpoint="https://y/v1"),
        identity(credential=ApiKey("b")),
        *(identity(provider=None) for _ in range(2)),
        *(identity(endpoint=None) for _ in range(2)),
        *(identity(credential=None) for _ in range(2)),
        *(identity(credential=KEY) for _ in range(2)),
    ]
    assert len({*different}) == len(different)


def test_a_replaced_target_is_another_one() -> None:
    """dataclasses.replace does not carry a computed identity over to another model or name."""
    target = Target("m", provider="p")
    others = [replace(target, model="n"), replace(target, provider="q"), replace(target, name="x")]
    assert len({one.identity for one in (target, *others)}) == 4
    assert replace(target, params={"seed": 1}).identity == target.identity
    assert Target("m", identity="ours").identity == replace(target, identity="ours").identity


def test_what_an_option_is_annotated_with_can_be_evaluated() -> None:
    """Pydantic up to 2.12 evaluates it for the first config, and fails where it cannot."""
    assert get_type_hints(TransportRecovery).keys() == {"rebuild", "aggregators"}


# What crosses the border of a process: errors with strangers' errors in them, and policies.


class Response:
    """Of an SDK: it holds what no pickle takes, and what nobody else may read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.body = "the prompt and sk-0123456789abcdef"


class HoldsResponse(Exception):  # noqa: N818 # another SDK's
    """It cannot even be written."""

    status_code = 429

    def __init__(self) -> None:
        super().__init__("the prompt and sk-0123456789abcdef")
        self.response = Response()


class NoStatus(Exception):  # noqa: N818 # a transport's, known by what it is raised from
    """It has no status, and needs one argument more than it hands to its base."""

    def __init__(self, message: str, request: str) -> None:
        super().__init__(message)
        self.request = request


def ask(attempt: Attempt) -> str:
    said = ProviderError("the prompt and sk-0123456789abcdef", status=503, body=None, headers={})
    errors = {
        "status": raised_from(said, KeyError("pickled by nobody", threading.Lock())),
        "response": HoldsResponse(),
        "transport": raised_from(NoStatus("gone", "POST"), ConnectionResetError("reset by peer")),
        "plain": TimeoutError("no answer"),
    }
    raise errors[attempt.target.name]


def chain() -> FallbackPolicy:
    targets = [Target(name) for name in ("status", "response", "transport", "plain")]
    return FallbackPolicy(targets, FallbackConfig(wait=0, max_attempts=4))


def failed(**options: Any) -> Any:
    with pytest.raises(FallbackError) as raised:
        chain().call(ask, **options)
    return raised.value


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, through_pickle])
def test_an_exhausted_call_survives_whatever_it_holds(again: Any) -> None:
    """A member that can be pickled is itself; another is what it meant, and says nothing else.

    What ``except*`` leaves of a group finds its meaning by the class's name.
    """
    error = failed()
    copied = again(error)
    assert type(copied) is FallbackExhausted
    assert (str(copied), copied.record) == (str(error), error.record)
    assert [(str(one), getattr(one, "status_code", None)) for one in copied.exceptions] == [
        ("ProviderError (503)", 503),
        ("HoldsResponse (429)", 429),
        ("NoStatus (connection)", None),
        ("no answer", None),
    ]
    assert "sk-" not in repr(copied) + repr(vars(copied.exceptions[0]))
    meant = [classify(one) for one in copied.exceptions]
    assert [one.kind for one in meant] == [classify(one).kind for one in error.exceptions]
    assert [one.reached for one in meant] == [one.reached for one in error.record.attempts]
    assert through_pickle(copied).record == error.record  # and goes on to the next process
    rest = again(error.subgroup(lambda one: isinstance(one, HoldsResponse | TimeoutError)))
    assert [str(one) for one in rest.exceptions] == ["HoldsResponse (429)", "no answer"]


@pytest.mark.parametrize("options", [{"replay": "safe"}, {"deadline": 5.0}])
def test_its_siblings_survive(options: Any) -> None:
    """A deadline and an unknown outcome carry the same errors."""
    error = failed(**options)
    for again in (copy.deepcopy, through_pickle):
        copied = again(error)
        assert type(copied) is type(error)
        assert (copied.record, str(copied)) == (error.record, str(error))


def test_an_interrupted_stream_survives_its_chunks() -> None:
    """A chunk that no pickle takes is left behind; the text before it is not."""
    script = repeating(status=[["hel", Response(), StatusError(500)]])
    with pytest.raises(StreamInterrupted) as interrupted:
        list(chain().stream(script.stream))
    copied = through_pickle(interrupted.value)
    assert copied.partial == ("hel",)
    assert copied.record == interrupted.value.record


def test_a_policy_goes_to_another_process() -> None:
    """Its chain, options, label and observers are what they were; a cooldown starts anew."""
    policy = FallbackPolicy(
        [Target("a", params={"seed": 1}), Target("b", provider="p", endpoint="https://h")],
        FallbackConfig(wait=0, cooldown=Cooldown(), retry_budget=RetryBudget(), validate=bool),
        agent="worker",
        observers=[Listener()],
        rules={"status": 418, "kind": "quota"},
        require=frozenset(),
    )
    copied = through_pickle(policy)
    assert copied.targets == policy.targets
    assert [dict(one.params) for one in copied.targets] == [{"seed": 1}, {}]
    assert (copied.agent, repr(copied)) == (policy.agent, repr(policy))
    assert [type(one) for one in copied.observers] == [Listener]
    options = policy.config.model_fields_set
    assert copied.config.model_fields_set == options
    for name in options - {"wait", "cooldown", "retry_budget"}:
        assert getattr(copied.config, name) == getattr(policy.config, name)
    assert repr(copied.config.cooldown) == repr(policy.config.cooldown)
    assert copied.call(lambda attempt: attempt.target.name) == "a"
    with copied.turn() as turn:
        assert copied.start(turn=turn).outcome == "running"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_a_policy_within_a_process_is_shared(again: Any) -> None:
    """It is immutable: a copy of an object that holds one shares its clients and its cooldown."""
    policy = FallbackPolicy([Target("a", client=threading.Lock())])
    assert again(policy) is policy
    assert again({"policy": policy})["policy"] is policy
