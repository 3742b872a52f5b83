"""What is told: events, records, the one log line."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from honcho_fallback import (
    CallContent,
    CallRecord,
    CallStart,
    FallbackConfig,
    FallbackConfigError,
    FallbackObserver,
    FallbackPolicy,
    Runtime,
    StreamInterrupted,
    Switch,
    Target,
    TurnEnd,
    call_metadata,
    check_observers,
    set_observers,
)
from honcho_fallback.records import read_records
from honcho_fallback.testing import StatusError
from tests.helpers.observers import Listener, Noting
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback.testing import Script

PROMPT = "what the provider wrote"


@pytest.fixture(autouse=True)
def nobody_observes_the_process_afterwards() -> Iterator[None]:
    yield
    set_observers(None)


class Notebook(Noting):
    """Write down what it hears while it listens, but for content."""

    is_listening = True
    on_content = FallbackObserver.on_content


class Broken(FallbackObserver):
    """Raise at everything."""

    def fail(self, _: Any, /) -> None:
        raise RuntimeError(PROMPT)

    on_start = on_switch = on_finish = fail


CHAIN = (Target("one", "openai"), Target("two", "anthropic"), Target("three", "local"))


def policy(*observers: FallbackObserver, targets: int = 3) -> FallbackPolicy:
    config = FallbackConfig(wait=0)
    return FallbackPolicy(CHAIN[:targets], config, agent="deriver", observers=observers)


def saying(*replies: Any) -> Script:
    """Make a script of what each target says."""
    return repeating(**{one.name: [reply] for one, reply in zip(CHAIN, replies, strict=False)})


def failing_twice() -> Script:
    return saying(StatusError(429), TimeoutError(PROMPT), "hello")


@pytest.mark.parametrize("driver", DRIVERS)
def test_observers_hear_start_switches_and_end_in_order(driver: str) -> None:
    """Each call is told once from start to end, by the same name, on every driver."""
    notebook = Notebook()
    asked = policy(notebook)
    run = asked.start()
    DRIVERS[driver](asked, failing_twice(), run)
    start, first, second, record = notebook.events
    assert start.chain == asked.targets
    assert (first.failed.name, first.fallback.name) == ("openai/one", "anthropic/two")
    assert (second.failed.name, second.primary.name) == ("anthropic/two", "openai/one")
    assert record == run.record
    assert {event.call_id for event in notebook.events} == {record.call_id}
    assert {event.agent for event in notebook.events} == {"deriver"}


def test_one_warning_per_switch_names_who_failed(caplog: pytest.LogCaptureFixture) -> None:
    """HON-072, HON-073, HON-074: agent, primary, the target that failed, the next one, and why."""
    asked = policy()
    asked.call(failing_twice().ask, run=(run := asked.start()))
    warnings = [r.getMessage() for r in caplog.records if r.name == "honcho_fallback"]
    head, call_id = "agent=deriver primary=openai/one", run.record.call_id
    assert warnings == [
        f"{head} failed={failed} fallback={fallback} reason={reason} call_id={call_id}"
        for failed, fallback, reason in (
            ("openai/one", "anthropic/two", "rate_limit,StatusError,429"),
            ("anthropic/two", "local/three", "timeout,TimeoutError"),
        )
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_log_line_can_be_split_at_its_spaces(caplog: pytest.LogCaptureFixture) -> None:
    """No value has a space or a login in it; the record has the same facts as attributes."""
    chain = [Target("m", name="my https://user:hunter2@host/v1"), Target("two")]
    replies: dict[str, Any] = {chain[0].name: [StatusError(503)], "two": ["hello"]}
    FallbackPolicy(chain, agent="my  agent").call(repeating(**replies).ask)
    (record,) = caplog.records
    facts = dict(part.split("=", 1) for part in record.getMessage().split(" "))
    assert (facts["agent"], facts["failed"]) == ("my_agent", "my_https://[redacted]@host/v1")
    assert {name: getattr(record, name) for name in facts} == facts


def test_what_is_no_outage_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """HON-001: neither a happy call, nor a repeat, nor the caller's own bug has a line."""
    for replies in (["hello"], [StatusError(503), "hello"]):
        policy(targets=1).call(repeating(**{"openai/one": replies}).ask)
    with pytest.raises(StatusError):
        policy().call(saying(StatusError(400)).ask)
    assert caplog.records == []


def test_an_observer_that_does_not_listen_hears_nothing_of_a_call() -> None:
    """Asked at each call's start; nothing is told or built for it, and the others hear all."""
    sleeper, notebook = Notebook(), Notebook()
    sleeper.is_listening = False
    alone, both = policy(sleeper), policy(sleeper, notebook)
    for asked in (alone, both):
        run = asked.start()
        sleeper.is_listening = True  # too late for this call
        asked.call(failing_twice().ask, run=run)
        sleeper.is_listening = False
    assert sleeper.events == []
    assert len(notebook.events) == 4
    sleeper.is_listening = True
    alone.call(failing_twice().ask)
    assert len(sleeper.events) == 4


def test_an_observer_that_raises_is_logged_once_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broken observer neither breaks the call nor the other observers, nor floods the log."""
    notebook = Notebook()
    asked = policy(Broken(), notebook)
    for _ in range(2):
        assert asked.call(failing_twice().ask) == "hello"
    assert len(notebook.events) == 8
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "observer Broken raised RuntimeError in on_start" in errors[0]
    assert PROMPT not in caplog.text


def test_the_record_says_who_answered_and_who_was_never_tried() -> None:
    """HOM-070, HON-063: is_fallback where another target than the primary answered."""
    asked = policy()
    run = asked.start()
    asked.call(saying(StatusError(503), "hello").ask, run=run)
    record = run.record
    assert (record.answered_by, record.is_fallback) == ("anthropic/two", True)
    assert (record.primary, record.untried) == (
        "openai/one",
        (("local/three", "another target answered first"),),
    )
    asked_for = [(one.model, one.provider, one.is_fallback) for one in record.attempts]
    assert asked_for == [("one", "openai", False), ("two", "anthropic", True)]
    failed = [(one.status, one.kind, one.error) for one in record.attempts]
    assert failed == [(503, "overloaded", "StatusError"), (None, None, None)]


def test_explain_tells_the_story() -> None:
    """A person reads who was asked, what each said, how long it took, and what to do."""
    asked = policy()
    run = asked.start()
    with pytest.raises(KeyError):
        asked.call(saying(StatusError(429), KeyError()).ask, run=run)
    lines = run.record.explain().splitlines()
    assert "of agent deriver: Nobody answered" in lines[0]
    assert lines[1].startswith("  1. openai/one: rate_limit (429, StatusError) in ")
    assert lines[2].startswith("     What to do: Send fewer requests")
    assert lines[3].startswith("  2. anthropic/two: local (KeyError) in ")
    assert lines[5].startswith("  -. local/three: never asked, ")
    asked.call(failing_twice().ask, run=(run := asked.start()))
    assert "the fallback local/three answered after" in run.record.explain()
    run = asked.start()
    assert "still running" in run.record.explain()
    run.cancel()
    (attempt,) = run.record.attempts  # whom it was waiting for
    assert (attempt.target, attempt.kind) == ("openai/one", "cancelled")
    assert "The caller cancelled the call." in run.record.explain()


def outputs(reader: Noting) -> list[Any]:
    return [heard.output for heard in reader.events if isinstance(heard, CallContent)]


def test_content_reaches_only_those_who_ask_for_it() -> None:
    """An observer without on_content never sees a prompt or an answer, and nothing shows one."""
    reader, notebook = Noting(), Notebook()
    asking = policy(reader, notebook)
    run = asking.start()
    assert asking.wants_content
    run.report(input=PROMPT, parameters={"temperature": 0.5})
    asking.call(lambda _: PROMPT, run=run)
    told = [heard for heard in reader.events if isinstance(heard, CallContent)]
    assert [(one.input, one.output) for one in told] == [(PROMPT, None), (None, PROMPT)]
    assert {one.call_id for one in told} == {run.record.call_id}
    assert told[0].parameters == {"temperature": 0.5}
    assert not any(isinstance(heard, CallContent) for heard in notebook.events)
    assert PROMPT not in repr(told) + repr(run.record)
    assert not policy(notebook).wants_content
    assert isinstance(reader.events[-1], CallRecord)


def test_metadata_of_a_call_is_in_its_start_and_its_record() -> None:
    """HON-062: what the caller says of a call is with it from start to end, and of no other."""
    reader = Noting()
    asking, metadata = policy(reader), {"workspace": "acme", "iteration": 3}
    run = asking.start(metadata=metadata)
    metadata["workspace"] = "changed since"
    run.succeed()
    asking.call(lambda _: "ab", metadata={"run_id": None})
    list(asking.stream(lambda _: ["ab"], metadata={"purpose": "answer"}))
    asking.call(lambda _: "ab")
    events = [event for event in reader.events if isinstance(event, CallStart | CallRecord)]
    said = {"workspace": "acme", "iteration": 3}
    each = [said, {"run_id": None}, {"purpose": "answer"}, None]
    assert [event.metadata for event in events] == [one for one in each for _ in range(2)]
    assert run.record.to_dict()["metadata"] == each[0]
    line = json.dumps(run.record.to_dict())
    assert list(read_records([line])) == [run.record]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("acme", "metadata: got a str; pass names with texts, numbers or booleans"),
        ({"key": object()}, r"metadata\['key'\]: got a object"),
        ({3: "x"}, "metadata: got a str"),
    ],
)
def test_metadata_that_no_record_could_be_saved_with_is_refused(
    metadata: Any, message: str
) -> None:
    """Bad input is refused before anybody is asked, and its value is not shown."""
    with pytest.raises(FallbackConfigError, match=message):
        policy(Noting()).call(lambda _: "ab", metadata=metadata)


def test_a_stream_tells_what_it_handed_out() -> None:
    """Also one that breaks or is left; of a replaced one only the chunks of who answers."""
    reader, ask = Noting(), saying(["one", StatusError(503)], ["two"]).stream
    with pytest.raises(StreamInterrupted):
        list(policy(reader).stream(ask))
    left = policy(reader).stream(lambda _: iter("abc"))
    next(left)
    left.close()
    assert list(policy(reader).stream(ask, partial="replace")) == ["one", "two"]
    assert outputs(reader) == [("one",), ("a",), ("two",)]


class Duck:
    """Have a hook, and nothing to do with this package."""

    def __init__(self) -> None:
        self.records: list[CallRecord] = []

    def on_finish(self, record: CallRecord, /) -> None:
        self.records.append(record)


@pytest.mark.parametrize("where", ["policy", "process"])
def test_an_object_with_a_hook_observes(where: str) -> None:
    """Whatever its class, and any one hook will do; it may be a function that it holds, too."""
    duck, sub, heard = Duck(), Listener(), list[Switch]()
    observers: list[Any] = [duck, sub, SimpleNamespace(on_switch=heard.append)]
    observed = policy(*observers if where == "policy" else ())
    set_observers(observers if where == "process" else None)
    DRIVERS["call"](observed, failing_twice(), observed.start())
    assert [record.outcome for record in duck.records + sub.records] == ["success"] * 2
    assert [switch.fallback.name for switch in heard] == ["anthropic/two", "local/three"]


class AsyncDuck:
    async def on_finish(self, _: CallRecord, /) -> None: ...


@pytest.mark.parametrize(
    ("observers", "message"),
    [
        (Listener(), "observers: got a Listener; pass a list of objects"),
        ([Listener], "observers: got the class Listener; pass an object of it"),
        ([object()], "observers: got a object; pass a list of objects of subclasses of FallbackO"),
        ([AsyncDuck()], "AsyncDuck.on_finish: it is async"),
        (Duck(), "observers: got a Duck; pass a list of objects"),
        ("log", "observers: got a str; pass a list of objects"),
        (3, "observers: got a int; pass a list of objects"),
    ],
)
@pytest.mark.parametrize(
    "take",
    [
        lambda them: FallbackPolicy([Target("one")], observers=them),
        set_observers,
        check_observers,  # for who makes policies later
    ],
)
def test_what_cannot_observe_is_refused(take: Any, observers: Any, message: str) -> None:
    """Nothing that would stay silent, or wait for a task that nobody awaits, is taken."""
    with pytest.raises(FallbackConfigError, match=message):
        take(observers)
    assert policy(targets=1).observers == ()
    both: list[Any] = [Duck(), Listener()]
    assert check_observers(iter(both)) == tuple(both)


def test_observers_of_the_process_observe_every_policy() -> None:
    """Policies made before and after hear them too, and each policy keeps its own.

    Who is given in both places observes once, and who wants content gets it here as well.
    """
    own, everywhere = Listener(), Notebook()
    before = policy(own, targets=1)
    set_observers([everywhere])
    after = policy(targets=1)
    assert (before.observers, after.observers) == ((own, everywhere), (everywhere,))
    assert policy(everywhere).observers == (everywhere,)
    for observed in (before, after):
        observed.call(lambda _: "hello")
    assert len(own.records) == 1
    assert len([one for one in everywhere.events if isinstance(one, CallRecord)]) == 2
    set_observers([])
    before.call(lambda _: "hello")
    assert policy(targets=1).observers == ()
    assert (len(own.records), len(everywhere.events)) == (2, 4)
    set_observers([reader := Noting()])
    assert before.wants_content
    before.call(lambda _: "hello")
    assert outputs(reader) == ["hello"]


def test_a_simulation_is_no_traffic() -> None:
    """What a policy does in a time of its own never reaches the process's observers."""
    set_observers([everywhere := Notebook()])
    chain = [Target("one"), Target("two")]
    observed = FallbackPolicy(chain, FallbackConfig(reset="turn"), runtime=Runtime())
    with observed.turn():
        observed.call(repeating(one=[StatusError(503)], two=["hello"]).ask)
    assert observed.observers == ()
    assert everywhere.events == []


@pytest.mark.parametrize("reset", ["iteration", "turn"])
def test_calls_and_records_name_their_turn(reset: Literal["iteration", "turn"]) -> None:
    """HON-071: whatever reset is, a tool loop's calls share the turn's id; others have none."""
    turns = Notebook()
    config = FallbackConfig(reset=reset)
    observed = FallbackPolicy([Target("one")], config, agent="chat", observers=[turns])
    with observed.turn() as turn:
        observed.call(lambda _: "hello")
        observed.call(lambda _: "hello", metadata={"step": 2})
    *calls, end = turns.events
    assert [type(event) for event in calls] == [CallStart, CallRecord] * 2
    assert {event.turn_id for event in calls} == {turn.turn_id}
    assert end == TurnEnd(turn.turn_id, "chat", "completed")
    with (
        pytest.warns(UserWarning, match="outside of a turn") if reset == "turn" else nullcontext()
    ):
        observed.call(lambda _: "hello")
    assert turns.events[-1].turn_id is None


class Loud(str):
    """Write itself otherwise than it is."""

    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        ([("a", 1)], None),
        ({}, None),
        ({"a": [1], 2: "b", "c": b"d"}, None),
        ({"a": "x", "b": 1, "c": 0.5, "d": True, "e": None}, ...),
        ({"a": Loud("quiet")}, {"a": "quiet"}),
        ({"id": "0123456789abcdef0123456789abcdef"}, ...),
        ({"id": "01234567-89ab-cdef-0123-456789abcdef"}, ...),
        ({"a": "x" * 31 + " " + "y z " * 60}, {"a": ("x" * 31 + " " + "y z " * 60)[:199] + "…"}),
        ({"a": "two\nlines"}, {"a": "two lines"}),
        ({"password": 12345678, "api-key": 1.5, "token": 7}, None),
        ({"has_secret": True, "author": "a", "tokens": 5}, ...),
        ({"max_tokens": 5, "token_count": "5", "monkey": "a", "keyword": "b"}, ...),
        ({"a": "sk-proj-0123456789abcdef"}, {"a": "[redacted]"}),  # gitleaks:allow
        ({"a": "a" * 64}, {"a": "[redacted]"}),
        ({"a": "redis://me:pw@host/0"}, {"a": "redis://[redacted]@host/0"}),
    ],
    ids=repr,
)
def test_a_frameworks_metadata_is_made_fit_for_a_record(given: Any, kept: Any) -> None:
    """Plain values stay, secrets and what cannot be saved do not, and nothing is refused."""
    metadata = call_metadata(given)
    assert metadata == (given if kept is ... else kept)
    policy(targets=1).call(lambda _: "hello", metadata=metadata)


def test_a_hook_that_is_misspelt_or_async_is_refused_where_it_is_written() -> None:
    """It would stay silent, or make a coroutine that nobody awaits."""
    with pytest.raises(FallbackConfigError, match=r"on_finished: .* did you mean on_finish"):

        class Misspelt(FallbackObserver):
            def on_finished(self, _: CallRecord, /) -> None: ...

    with pytest.raises(FallbackConfigError, match=r"Asynchronous.on_finish: it is async"):

        class Asynchronous(FallbackObserver):
            async def on_finish(self, _: CallRecord, /) -> None: ...  # type: ignore[override] # that is it

    with pytest.raises(FallbackConfigError, match=r"Generating.on_finish: it is async"):

        class Generating(FallbackObserver):
            async def on_finish(self, _: CallRecord, /) -> AsyncIterator[None]:  # type: ignore[override] # that is it
                yield


def test_the_hooks_of_another_framework_are_none_of_ours() -> None:
    """A class may be a handler of that framework, too, whatever its methods are called."""

    class Handler:
        def on_tool_end(self) -> None: ...

    class Both(Handler, FallbackObserver):
        def on_tool_end(self) -> None: ...

    assert policy(Both()).observers
