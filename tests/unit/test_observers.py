"""What is told: events, records, the one log line."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from honcho_fallback import (
    Attempt,
    CallContent,
    CallRecord,
    CallStart,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
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
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback.testing import Script

PROMPT = "what the provider wrote"


class Notebook(FallbackObserver):
    """Write down what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_start(self, call: CallStart, /) -> None:
        self.heard.append(call)

    def on_switch(self, switch: Switch, /) -> None:
        self.heard.append(switch)

    def on_finish(self, record: CallRecord, /) -> None:
        self.heard.append(record)


class Broken(FallbackObserver):
    """Raise at everything."""

    def on_start(self, _: CallStart, /) -> None:
        raise RuntimeError(PROMPT)

    def on_switch(self, _: Switch, /) -> None:
        raise RuntimeError(PROMPT)

    def on_finish(self, _: CallRecord, /) -> None:
        raise RuntimeError(PROMPT)


def policy(*observers: FallbackObserver, targets: int = 3) -> FallbackPolicy:
    chain = [Target("one", "openai"), Target("two", "anthropic"), Target("three", "local")]
    return FallbackPolicy(
        chain[:targets], FallbackConfig(wait=0), agent="deriver", observers=observers
    )


def failing_twice() -> Script:
    said: dict[str, Any] = {
        "openai/one": [StatusError(429)],
        "anthropic/two": [TimeoutError(PROMPT)],
        "local/three": ["hello"],
    }
    return repeating(**said)


@pytest.mark.parametrize("driver", DRIVERS)
def test_observers_hear_start_switches_and_end_in_order(driver: str) -> None:
    """Each call is told once from start to end, by the same name, on every driver."""
    notebook = Notebook()
    asked = policy(notebook)
    run = asked.start()
    DRIVERS[driver](asked, failing_twice(), run)
    start, first, second, record = notebook.heard
    assert start.chain == asked.targets
    assert (first.failed.name, first.fallback.name) == ("openai/one", "anthropic/two")
    assert (second.failed.name, second.primary.name) == ("anthropic/two", "openai/one")
    assert record == run.record
    assert {event.call_id for event in notebook.heard} == {record.call_id}
    assert {event.agent for event in notebook.heard} == {"deriver"}


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
    """No value has a space in it, and the record carries the same facts as attributes."""
    chain = [Target("my model", name="my model"), Target("two")]
    said: dict[str, Any] = {"my model": [StatusError(503)], "two": ["hello"]}
    script = repeating(**said)
    FallbackPolicy(chain, agent="my  agent").call(script.ask)
    (record,) = caplog.records
    facts = dict(part.split("=", 1) for part in record.getMessage().split(" "))
    assert facts["agent"] == "my_agent"
    assert facts["failed"] == "my_model"
    assert {name: getattr(record, name) for name in facts} == facts


def test_an_address_in_a_name_is_logged_without_who_logs_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A target that is named by its address does not bring a password into the log."""
    chain = [Target("m", name="https://user:hunter2@host/v1"), Target("two")]
    replies: dict[str, Any] = {chain[0].name: [StatusError(503)], "two": ["hello"]}
    FallbackPolicy(chain, agent="chat").call(repeating(**replies).ask)
    assert "hunter2" not in caplog.text
    assert caplog.records[0].__dict__["failed"] == "https://[redacted]@host/v1"


def test_a_call_that_nobody_answered_logs_one_error(caplog: pytest.LogCaptureFixture) -> None:
    """Who failed with what, how long it took, which call: one line, and no text of anybody's."""
    said: dict[str, Any] = {
        "openai/one": [StatusError(429)],
        "anthropic/two": [TimeoutError(PROMPT)],
    }
    script = repeating(**said)
    asked = policy(targets=2)
    run = asked.start(max_attempts=2)
    with pytest.raises(FallbackExhausted):
        asked.call(script.ask, run=run)
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert line.startswith("agent=deriver primary=openai/one outcome=exhausted ")
    assert " attempts=openai/one:rate_limit,anthropic/two:timeout seconds=0." in line
    assert line.endswith(f" call_id={run.record.call_id}")
    assert PROMPT not in caplog.text


def test_a_callers_own_bug_is_no_outage_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """What no other target could help with goes to the caller and not into the log."""
    with pytest.raises(StatusError):
        policy().call(repeating(**{"openai/one": [StatusError(400)]}).ask)
    assert caplog.records == []


def test_a_happy_call_and_a_repeat_log_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """HON-001: without a switch there is no line."""
    script = repeating(**{"openai/one": ["hello"]})
    policy(targets=1).call(script.ask)
    script = repeating(**{"openai/one": [StatusError(503), "hello"]})
    policy(targets=1).call(script.ask)
    assert caplog.records == []


class Sleeper(Notebook):
    """Listen when awake."""

    is_listening = False


def test_an_observer_that_does_not_listen_hears_nothing_of_a_call() -> None:
    """Asked at each call's start; nothing is told or built for it, and the others hear all."""
    sleeper, notebook = Sleeper(), Notebook()
    alone, both = policy(sleeper), policy(sleeper, notebook)
    for asked in (alone, both):
        run = asked.start()
        sleeper.is_listening = True  # too late for this call
        asked.call(failing_twice().ask, run=run)
        sleeper.is_listening = False
    assert sleeper.heard == []
    assert len(notebook.heard) == 4
    sleeper.is_listening = True
    alone.call(failing_twice().ask)
    assert len(sleeper.heard) == 4


def test_an_observer_that_raises_is_logged_once_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broken observer neither breaks the call nor the other observers, nor floods the log."""
    notebook = Notebook()
    asked = policy(Broken(), notebook)
    for _ in range(2):
        assert asked.call(failing_twice().ask) == "hello"
    assert len(notebook.heard) == 8
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "observer Broken raised RuntimeError in on_start" in errors[0]


def test_nothing_that_a_provider_wrote_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Logs, records and explanations carry kinds, classes and statuses, never message text."""
    notebook = Notebook()
    asked = policy(Broken(), notebook)
    run = asked.start()
    asked.call(failing_twice().ask, run=run)
    told = f"{caplog.text} {run.record} {run.record.explain()} {notebook.heard[1].reason}"
    assert PROMPT not in told


def test_the_record_says_who_answered_and_who_was_never_tried() -> None:
    """HOM-070, HON-063: is_fallback where another target than the primary answered."""
    asked = policy()
    run = asked.start()
    said: dict[str, Any] = {"openai/one": [StatusError(503)], "anthropic/two": ["hello"]}
    script = repeating(**said)
    asked.call(script.ask, run=run)
    record = run.record
    assert (record.answered_by, record.is_fallback, record.primary) == (
        "anthropic/two",
        True,
        "openai/one",
    )
    assert record.untried == (("local/three", "another target answered first"),)
    first, second = record.attempts
    assert (first.model, first.provider, first.status, first.kind) == (
        "one",
        "openai",
        503,
        "overloaded",
    )
    assert (second.kind, second.error, second.is_fallback) == (None, None, True)


def test_to_dict_is_plain_json() -> None:
    """A record can be written as JSON and read back equal to itself."""
    asked = policy()
    run = asked.start()
    asked.call(failing_twice().ask, run=run)
    told = run.record.to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["attempts"][0]["kind"] == "rate_limit"
    assert told["untried"] == []


def test_explain_tells_the_story() -> None:
    """A person reads who was asked, what each said, how long it took, and what to do."""
    asked = policy()
    run = asked.start()
    said: dict[str, Any] = {"openai/one": [StatusError(429)], "anthropic/two": [KeyError()]}
    with pytest.raises(KeyError):
        asked.call(repeating(**said).ask, run=run)
    lines = run.record.explain().splitlines()
    assert "of agent deriver: Nobody answered" in lines[0]
    assert lines[1].startswith("  1. openai/one: rate_limit (429, StatusError) in ")
    assert lines[2].startswith("     What to do: Send fewer requests")
    assert lines[3].startswith("  2. anthropic/two: local (KeyError) in ")
    assert lines[5].startswith("  -. local/three: never asked, ")
    asked.call(failing_twice().ask, run=(run := asked.start()))
    assert "the fallback local/three answered after" in run.record.explain()
    assert "still running" in asked.start().record.explain()


def test_a_cancelled_run_tells_the_attempt_that_was_in_flight() -> None:
    """The record of a cancelled call names whom it was waiting for."""
    run = policy().start()
    run.cancel()
    (attempt,) = run.record.attempts
    assert (attempt.target, attempt.kind) == ("openai/one", "cancelled")
    assert "The caller cancelled the call." in run.record.explain()


class Reader(Notebook):
    """Want to hear what is asked and answered, too."""

    def on_content(self, content: CallContent, /) -> None:
        self.heard.append(content)


def outputs(reader: Reader) -> list[Any]:
    return [heard.output for heard in reader.heard if isinstance(heard, CallContent)]


def test_content_reaches_only_those_who_ask_for_it() -> None:
    """An observer without on_content never sees a prompt or an answer, and nothing shows one."""
    reader, notebook = Reader(), Notebook()
    asking = policy(reader, notebook)
    run = asking.start()
    assert asking.wants_content
    run.report(input=PROMPT, parameters={"temperature": 0.5})
    asking.call(lambda _: PROMPT, run=run)
    told = [heard for heard in reader.heard if isinstance(heard, CallContent)]
    assert [(one.input, one.output) for one in told] == [(PROMPT, None), (None, PROMPT)]
    assert {one.call_id for one in told} == {run.record.call_id}
    assert told[0].parameters == {"temperature": 0.5}
    assert not any(isinstance(heard, CallContent) for heard in notebook.heard)
    assert PROMPT not in repr(told) + repr(run.record)
    assert not policy(notebook).wants_content
    assert isinstance(reader.heard[-1], CallRecord)


@pytest.mark.parametrize("drive", DRIVERS)
def test_every_driver_tells_the_answer_before_the_end(drive: str) -> None:
    """Streams tell all their chunks at once, calls their answer; failed attempts nothing."""
    reader = Reader()
    asking = policy(reader)
    said: dict[str, list[Any]] = {"openai/one": [StatusError(503)], "anthropic/two": ["ab"]}
    script = repeating(**said)
    DRIVERS[drive](asking, script, asking.start())
    assert outputs(reader) in (["ab"], [("ab",)])
    assert isinstance(reader.heard[-1], CallRecord)


def test_metadata_of_a_call_is_in_its_start_and_its_record() -> None:
    """HON-062: what the caller says of a call is with it from start to end, and of no other."""
    reader = Reader()
    asking, metadata = policy(reader), {"workspace": "acme", "iteration": 3}
    run = asking.start(metadata=metadata)
    metadata["workspace"] = "changed since"
    run.succeed()
    asking.call(lambda _: "ab", metadata={"run_id": None})
    list(asking.stream(lambda _: ["ab"], metadata={"purpose": "answer"}))
    asking.call(lambda _: "ab")
    events = [event for event in reader.heard if isinstance(event, CallStart | CallRecord)]
    each = [
        {"workspace": "acme", "iteration": 3},
        {"run_id": None},
        {"purpose": "answer"},
        None,
    ]
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
        policy(Reader()).call(lambda _: "ab", metadata=metadata)


def test_metadata_belongs_to_the_start_of_a_run() -> None:
    """With run= it comes too late, as the other options of a call do."""
    asking = policy(Reader())
    with pytest.raises(FallbackConfigError, match="run: it came with options for the call"):
        asking.call(lambda _: "ab", run=asking.start(), metadata={"a": "b"})


def test_what_another_attempt_replaced_is_no_output() -> None:
    """With partial="replace" the chunks of the attempt that answers are told, and no others."""

    def ask(attempt: Attempt) -> Any:
        yield f"from {attempt.target.name}"
        if not attempt.is_fallback:
            raise StatusError(503)

    reader = Reader()
    chunks = list(policy(reader).stream(ask, partial="replace"))
    assert len(chunks) == 2
    assert outputs(reader) == [tuple(chunks[1:])]


def test_a_stream_that_breaks_or_is_left_tells_what_it_handed_out() -> None:
    """The chunks that were seen are told before the call ends, whatever ends it."""

    def broken(_: Any) -> Any:
        yield "a"
        raise StatusError(503)

    reader = Reader()
    chunks = policy(reader).stream(broken)
    with pytest.raises(StreamInterrupted):
        list(chunks)
    left = policy(reader).stream(lambda _: iter("abc"))
    next(left)
    left.close()
    assert outputs(reader) == [("a",), ("a",)]


class Finishes(FallbackObserver):
    def __init__(self) -> None:
        self.records: list[CallRecord] = []

    def on_finish(self, record: CallRecord, /) -> None:
        self.records.append(record)


class Switches(FallbackObserver):
    def __init__(self) -> None:
        self.switches: list[Switch] = []

    def on_switch(self, switch: Switch, /) -> None:
        self.switches.append(switch)


@pytest.mark.parametrize("driver", DRIVERS)
def test_one_hook_suffices(driver: str) -> None:
    """An observer writes any one of the hooks; the others do nothing."""
    finishes, switches = Finishes(), Switches()
    observed = policy(finishes, switches)
    DRIVERS[driver](observed, failing_twice(), observed.start())
    assert len(finishes.records) == 1
    assert [switch.fallback.name for switch in switches.switches] == [
        "anthropic/two",
        "local/three",
    ]


class Duck:
    """Have a hook, and nothing to do with this package."""

    def __init__(self) -> None:
        self.records: list[CallRecord] = []

    def on_finish(self, record: CallRecord, /) -> None:
        self.records.append(record)


@pytest.mark.parametrize("where", ["policy", "process"])
def test_an_object_with_a_hook_observes(where: str) -> None:
    """Whatever its class; it may have its hook as a function that it holds, too."""
    duck, heard = Duck(), list[Switch]()
    observers: list[Any] = [duck, SimpleNamespace(on_switch=heard.append)]
    observed = policy(*observers if where == "policy" else ())
    set_observers(observers if where == "process" else None)
    try:
        DRIVERS["call"](observed, failing_twice(), observed.start())
    finally:
        set_observers(None)
    assert [record.outcome for record in duck.records] == ["success"]
    assert [switch.fallback.name for switch in heard] == ["anthropic/two", "local/three"]


class AsyncDuck:
    async def on_finish(self, _: CallRecord, /) -> None: ...


@pytest.mark.parametrize(
    ("observers", "message"),
    [
        (Finishes(), "observers: got a Finishes; pass a list of objects"),
        ([Finishes], "observers: got the class Finishes; pass an object of it"),
        ([object()], "observers: got a object; pass a list of objects of subclasses of FallbackO"),
        ([AsyncDuck()], "AsyncDuck.on_finish: it is async"),
        (Duck(), "observers: got a Duck; pass a list of objects"),
        ("log", "observers: got a str; pass a list of objects"),
        (3, "observers: got a int; pass a list of objects"),
    ],
)
@pytest.mark.parametrize("where", ["policy", "process"])
def test_what_cannot_observe_is_refused(where: str, observers: Any, message: str) -> None:
    """Nothing that would stay silent, or wait for a task that nobody awaits, is taken."""
    with pytest.raises(FallbackConfigError, match=message):
        if where == "policy":
            FallbackPolicy([Target("one")], observers=observers)
        else:
            set_observers(observers)
    assert policy(targets=1).observers == ()


@pytest.fixture
def everywhere() -> Iterator[Notebook]:
    """Observe every policy of the process."""
    notebook = Notebook()
    set_observers([notebook])
    yield notebook
    set_observers(None)


def test_observers_of_the_process_observe_every_policy(everywhere: Notebook) -> None:
    """Policies made before and after hear them too, and each policy keeps its own."""
    set_observers(None)
    own = Finishes()
    before = policy(own, targets=1)
    set_observers([everywhere])
    after = policy(targets=1)
    assert (before.observers, after.observers) == ((own, everywhere), (everywhere,))
    for observed in (before, after):
        observed.call(lambda _: "hello")
    assert len(own.records) == 1
    assert len([one for one in everywhere.heard if isinstance(one, CallRecord)]) == 2
    set_observers([])
    before.call(lambda _: "hello")
    assert policy(targets=1).observers == ()
    assert (len(own.records), len(everywhere.heard)) == (2, 4)


def test_who_observes_a_policy_and_the_process_observes_once(everywhere: Notebook) -> None:
    """One object given in both places is one observer."""
    policy(everywhere, targets=1).call(lambda _: "hello")
    assert [type(event) for event in everywhere.heard] == [CallStart, CallRecord]


def test_an_observer_of_the_process_may_want_content() -> None:
    """What is asked and answered reaches it as it would reach one of the policy's own."""
    reader = Reader()
    observed = policy(targets=1)
    assert not observed.wants_content
    set_observers([reader])
    try:
        assert observed.wants_content
        observed.call(lambda _: "hello")
    finally:
        set_observers(None)
    assert outputs(reader) == ["hello"]


def test_a_simulation_is_no_traffic(everywhere: Notebook) -> None:
    """What a policy does in a time of its own never reaches the process's observers."""
    chain = [Target("one"), Target("two")]
    observed = FallbackPolicy(chain, FallbackConfig(reset="turn"), runtime=Runtime())
    with observed.turn():
        observed.call(repeating(one=[StatusError(503)], two=["hello"]).ask)
    assert observed.observers == ()
    assert everywhere.heard == []


class Turns(FallbackObserver):
    """Note the turns of calls and their ends."""

    def __init__(self) -> None:
        self.calls: list[str | None] = []
        self.ends: list[TurnEnd] = []

    def on_start(self, call: CallStart, /) -> None:
        self.calls.append(call.turn_id)

    def on_turn_end(self, turn: TurnEnd, /) -> None:
        self.ends.append(turn)


@pytest.mark.parametrize("reset", ["iteration", "turn"])
def test_calls_and_records_name_their_turn(reset: Literal["iteration", "turn"]) -> None:
    """HON-071: whatever reset is, a tool loop's calls share the turn's id; others have none."""
    turns = Turns()
    config = FallbackConfig(reset=reset)
    observed = FallbackPolicy([Target("one")], config, agent="chat", observers=[turns])
    with observed.turn() as turn:
        run = observed.start()
        observed.call(lambda _: "hello", run=run)
        observed.call(lambda _: "hello", metadata={"step": 2})
        assert turns.ends == []
    assert run.record.turn_id == turn.turn_id
    assert turns.calls == [turn.turn_id] * 2
    assert turns.ends == [TurnEnd(turn.turn_id, "chat", "completed")]
    with (
        pytest.warns(UserWarning, match="outside of a turn") if reset == "turn" else nullcontext()
    ):
        observed.call(lambda _: "hello")
    assert turns.calls[-1] is None


def test_a_turn_that_breaks_says_so() -> None:
    """A turn that an error or a cancellation ends is told once, with how it ended."""
    turns = Turns()
    observed = FallbackPolicy([Target("one")], observers=[turns])
    with pytest.raises(KeyError), observed.turn("turn-1") as turn:
        raise KeyError
    turn.end()
    with pytest.raises(KeyboardInterrupt), observed.turn():
        raise KeyboardInterrupt
    assert turns.ends[0] == TurnEnd("turn-1", "unknown", "failed")
    assert [end.outcome for end in turns.ends] == ["failed", "cancelled"]


def test_a_switch_outlasts_a_call_only_with_reset_turn() -> None:
    """A turn that only names its calls moves none of them off the primary."""
    observed = policy()
    with observed.turn():
        observed.call(failing_twice().ask)
        assert observed.start().attempt.target.name == "openai/one"


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
        ({"api_key": "a", "x-auth-token": "b", "Password": "c", "cookie": "d"}, None),
        ({"auth": "a", "db_pwd": "b", "jwt": "c", "x.sig": "d", "bearer": "e"}, None),
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


def test_who_makes_policies_later_checks_observers_now() -> None:
    """The check of the policy, and what it takes: each in order, whatever holds them."""
    one, other = Finishes(), Finishes()
    assert check_observers(iter([one, other])) == (one, other)
    with pytest.raises(FallbackConfigError, match="observers: got a Finishes"):
        check_observers(one)
