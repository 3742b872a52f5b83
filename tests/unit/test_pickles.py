"""What crosses the border of a process: errors with strangers' errors in them, and policies."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackError,
    FallbackExhausted,
    FallbackObserver,
    FallbackPolicy,
    RetryBudget,
    StreamInterrupted,
    Target,
    classify,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import Attempt


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 # our own bytes


class Response:
    """Of an SDK: it holds what no pickle takes, and what nobody else may read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.body = "the prompt and sk-0123456789abcdef"


class StatusError(Exception):
    """As the SDKs write theirs: it can be pickled only as far as loading it."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status_code = status


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
    if attempt.target.name == "plain":
        raise TimeoutError("no answer")
    if attempt.target.name == "response":
        raise HoldsResponse
    if attempt.target.name == "transport":
        raise NoStatus("gone", "POST") from ConnectionResetError("reset by peer")
    try:
        raise KeyError("a context that is pickled by nobody", threading.Lock())
    except KeyError as cause:
        raise StatusError("the prompt and sk-0123456789abcdef", status=503) from cause


def chain() -> FallbackPolicy:
    targets = [Target(name) for name in ("status", "response", "transport", "plain")]
    return FallbackPolicy(targets, FallbackConfig(wait=0, max_attempts=4))


def exhaust(**options: Any) -> None:
    chain().call(ask, **options)


def failed(**options: Any) -> Any:
    with pytest.raises(FallbackError) as raised:
        exhaust(**options)
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
        ("StatusError (503)", 503),
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

    def chunks(_: Attempt) -> Generator[Any, None, None]:
        yield "hel"
        yield Response()
        raise StatusError("gone", status=500)

    with pytest.raises(StreamInterrupted) as interrupted:
        list(chain().stream(chunks))
    copied = through_pickle(interrupted.value)
    assert copied.partial == ("hel",)
    assert copied.record == interrupted.value.record


class Listener(FallbackObserver):
    """It knows nothing that a pickle would not take."""


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
