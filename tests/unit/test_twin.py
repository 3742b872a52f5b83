"""The core beside the core of before its rewrite: one history, driven through both.

``make twin`` builds the old package as ``honcho_fallback_before``; without it nothing here runs.
``TWIN_EXAMPLES=20000 pytest tests/unit/test_twin.py`` looks longer than ``make test`` does.

Whatever behaves otherwise on purpose stands in DIFFERENCES; whatever is merely called otherwise,
in Now.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from scripted import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TWIN = Path(__file__).resolve().parents[2] / "build" / "twin"
if not TWIN.is_dir():
    pytest.skip("the package of before is not here; make twin", allow_module_level=True)
if str(TWIN) not in sys.path:
    sys.path.append(str(TWIN))

pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

EXAMPLES = int(os.environ.get("TWIN_EXAMPLES", "300"))

Seen = dict[str, Any]


class History(NamedTuple):
    """What led here: the policy in plain values, every step, what both sides show after the last.

    A step is its name and its arguments; what the sides show is as ``Twin.look`` returns it.
    """

    chain: Sequence[Mapping[str, Any]]
    preset: str | None
    options: Mapping[str, Any]
    steps: Sequence[tuple[str, Mapping[str, Any]]]
    before: Seen
    now: Seen


class Difference(NamedTuple):
    """A change of behaviour that is wanted.

    applies: Looked at only where the two sides differ. If true, this history is compared no
        further: from there on the two sides may stand elsewhere.
    normalise: Given what either side shows, before it is compared; for what shows otherwise and
        leads nowhere else. Prefer it: the history is compared to its end. A few steps, such as
        the end of a turn, show less than the others.

    Such as::

        Difference(
            "a skip is told in short",
            "its reason stood in the record twice",
            normalise=lambda seen: seen | {"record": {**seen.get("record", {}), "untried": []}},
        ),
        Difference(
            "the last fallback but one keeps a reserve, too",
            "what it was given was all there was",
            applies=lambda history: "deadline" in history.options and len(history.chain) > 2,
        ),
    """

    name: str
    reason: str
    applies: Callable[[History], bool] = lambda _: False
    normalise: Callable[[Seen], Seen] = lambda seen: seen


def _attempts(history: History) -> list[Any]:
    return [
        attempt
        for seen in (history.before, history.now)
        for attempt in seen.get("record", {}).get("attempts", ())
    ]


def _given(history: History, *names: str) -> bool:
    """Tell whether one of these options was given, to the policy or to a call."""
    options = [history.options, *(step.get("overrides", {}) for _, step in history.steps)]
    return any(name in [*one] for one in options for name in names)


def _without_message(seen: Seen) -> Seen:
    raised = seen.get("raised")
    if raised and raised["class"] == "FallbackExhausted":
        return seen | {"raised": raised | {"text": ""}}
    return seen


def _without_guards_of_other_targets(seen: Seen) -> Seen:
    # They were set as soon as a recovery was thought of, now once it is made.
    return {name: value for name, value in seen.items() if name != "guards"}


def _one_identity(history: History) -> bool:
    return len([facts for facts in history.chain if facts["key"] == "shared"]) > 1


DIFFERENCES: tuple[Difference, ...] = (
    Difference("the message of FallbackExhausted", "it names kinds", normalise=_without_message),
    Difference(
        "guards", "set where a recovery is made", normalise=_without_guards_of_other_targets
    ),
    Difference(
        "G-22",
        "a fallback's invalid_request goes on",
        applies=lambda history: any(
            one["kind"] == "invalid_request" and one["position"] for one in _attempts(history)
        ),
    ),
    Difference(
        "HRC-042",
        "where all cool down one is asked once",
        applies=lambda history: history.now.get("all_cooling", False),
    ),
    Difference("HRC-013", "one identity is asked once per call", applies=_one_identity),
    Difference(
        "HRS-014",
        "transport recovery is not for a status, nor for what is not transient",
        applies=lambda history: (
            _given(history, "transport_recovery")
            and any(
                one["kind"] in {"timeout", "connection"}
                and (one["status"] or _given(history, "classify", "refine"))
                for one in _attempts(history)
            )
        ),
    ),
    Difference(
        "HON-008",
        "honcho asks one fallback",
        applies=lambda history: (
            history.preset in {"honcho", "honcho_main"} and len(history.chain) > 2
        ),
    ),
    Difference(
        "HON-025",
        "answers go through classify, refine and local_errors",
        applies=lambda history: (
            (_given(history, "classify", "refine", "local_errors") or history.preset is not None)
            and any(name in {"accept", "accept_answer"} for name, _ in history.steps)
        ),
    ),
    Difference(
        "F2",
        "usage of an answer that was not taken",
        applies=lambda history: (
            len(_attempts(history)) > 1
            and history.before["record"]["usage"] != history.now["record"]["usage"]
        ),
    ),
    Difference(
        "reserve",
        "one that eats the deadline is refused",
        applies=lambda history: "reserve: got" in str(history.now.get("raised")),
    ),
)


class Before:
    """The old package; every name of a policy, a run and a config is said here and nowhere else.

    Runs and turns are handed out and taken back unlooked at; all else goes in and comes out as
    plain values. Kinds are strings.
    """

    package = "honcho_fallback_before"

    def __init__(
        self,
        chain: Sequence[Mapping[str, Any]],
        preset: str | None,
        options: Mapping[str, Any],
        observer: str | None,
    ) -> None:
        self.lib = import_module(self.package)
        self.lines: list[Any] = []  # what was logged, observed and done as an errand, in order
        self.keys: dict[str, Any] = {}
        self.errors: dict[Any, BaseException] = {}
        self.calls: dict[str, str] = {}
        self.listen()
        self.clock = self.new_clock()
        targets = [self.target(**facts) for facts in chain]
        self.names = {target.identity: target.name for target in reversed(targets)}
        made = self.config(preset, **options)
        observers = [] if observer is None else [OBSERVERS[observer](self)]
        self.policy = self.lib.FallbackPolicy(targets, made, agent="twin", observers=observers)

    # What a policy is made of

    def new_clock(self) -> Any:
        clock: Any = import_module(f"{self.package}.testing._clock").Clock()
        return clock

    def target(self, *, key: str | None, **facts: Any) -> Any:
        if key is not None:
            key = self.keys.setdefault(key, KEYS[key](self.lines, key))
        return self.lib.Target("model", credential=key, **facts)

    def config(self, preset: str | None, **options: Any) -> Any:
        make = getattr(self.lib.FallbackConfig, preset) if preset else self.lib.FallbackConfig
        return make(**{name: self.option(name, value) for name, value in options.items()})

    def option(self, name: str, value: Any) -> Any:
        match name:
            case "cooldown":
                base, cap, shared = value
                store = self.lib.Cooldown(base=base, cap=cap)
                store.shared = Shared(self) if shared else None
                return store
            case "retry_budget":
                ratio, floor = value
                return self.lib.RetryBudget(ratio=ratio, min_per_second=floor)
            case "transport_recovery":
                rebuild = self.rebuild if value else None
                return self.transport_recovery(rebuild)
            case "classify":
                return lambda _: self.corrected(value, self.failure_of("overloaded"))
            case "refine":
                return lambda failure, _: self.corrected(value, failure)
            case _:
                return value

    def transport_recovery(self, rebuild: Any) -> Any:
        class OneStepLater(self.lib.TransportRecovery):  # type: ignore[name-defined, misc] # HRS-012
            def errand(self, target: Any, kind: Any, retries: int) -> Any:
                return super().errand(target, kind, retries + 1)

        return OneStepLater(rebuild=rebuild)

    def rebuild(self, target: Any) -> None:
        self.lines.append(f"rebuilt {target.name}")

    def failure_of(self, kind: str) -> Any:
        return self.lib.Failure.of(self.lib.FailureKind(kind))

    def corrected(self, how: str, failure: Any) -> Any:
        if how == "raises":
            raise ZeroDivisionError
        return None if how == "returns none" else failure._replace(transient=False)

    def config_error(self) -> Exception:
        error: Exception = self.lib.FallbackConfigError.about("refresh", "it is odd", "mend it")
        return error

    # The steps of a run

    def start(self, *, turn: Any = None, **options: Any) -> Any:
        with self.clock.installed():
            run = self.policy.start(turn=turn, **options)
        self.calls.setdefault(run.attempt.call_id, f"call {len(self.calls) + 1}")
        return run

    def fail(self, run: Any, *, error: Any, partial: Any = (), now: Any) -> Any:
        return run.fail(error, partial=partial, now=now)

    def reject(self, run: Any, *, error: Any, now: Any) -> Any:
        return run.reject(error, now=now)

    def accept(self, run: Any, *, answer: Any, usage: Any = None, now: Any) -> Any:
        return run.accept(answer, usage=usage, now=now)

    def check(self, run: Any, *, answer: Any, partial: Any = (), now: Any) -> Any:
        return run.check(answer, partial=partial, now=now)

    def succeed(self, run: Any, *, usage: Any = None, now: Any) -> Any:
        return run.succeed(usage=usage, now=now)

    def content(self, run: Any, *, now: Any) -> Any:
        return run.content(now=now)

    def tell(self, run: Any, **facts: Any) -> Any:
        return run.tell(**facts)

    def skip(self, run: Any, *, position: Any, among: Any, now: Any) -> Any:
        return run.skip(position, "out of rotation", among=among, now=now)

    def cancel(self, run: Any, *, now: Any) -> Any:
        return run.cancel(now=now)

    def abandon(self, run: Any, *, partial: Any = (), now: Any) -> Any:
        return run.abandon(partial=partial, now=now)

    def do_errand(self, run: Any) -> Any:
        run.errand.call()

    def resume(self, run: Any, *, now: Any) -> Any:
        return run.resume(now=now)

    # What a run shows

    def attempt(self, run: Any) -> Any:
        return self.plain(run.attempt)

    def latest(self, run: Any) -> Any:
        return self.plain(run.latest)

    def outcome(self, run: Any) -> str:
        return str(run.outcome)

    def record(self, run: Any) -> Seen:
        return {**self.plain(run.record.to_dict()), "text": self.plain(run.record.explain())}

    def failed(self, run: Any) -> Any:
        return [self.plain(one.result()) for one in run.failed]

    def silence(self, run: Any) -> Any:
        return self.plain([run.silence(run.latest), run.idle_timeout, run.wants_content])

    def guards(self, run: Any) -> Any:
        return dict(run.guards)

    def errand(self, run: Any) -> Any:
        errand = run.errand
        if errand is None:
            return None
        aside = errand.acall is not None
        return [errand.what, self.plain(errand.wait), errand.note, errand.blocks, aside]

    # A turn

    def turn(self) -> Any:
        return self.policy.turn()

    def end_turn(self, turn: Any, outcome: str) -> None:
        turn.end(outcome)

    def turn_shows(self, turn: Any) -> Any:
        return [turn.outcome, turn.position]

    # What all of it shows as

    def plain(self, value: Any) -> Any:
        """Return it in values that are the same on both sides."""
        for kind, show in self.shows:
            if isinstance(value, kind):
                return show(value)
        return value

    @property
    def shows(self) -> list[tuple[Any, Callable[[Any], Any]]]:
        """List how each type is shown; the first that fits counts."""
        lib = self.lib
        return [
            (Enum, lambda one: self.plain(one.value)),
            (str, self.plain_text),
            (float, lambda one: round(one, 6)),
            (BaseException, self.plain_error),
            (dict, lambda one: {name: self.plain(value) for name, value in one.items()}),
            ((lib.Attempt, lib.Switch, lib.Restore, lib.Failure), self.plain_tuple),
            ((list, tuple), lambda one: [self.plain(value) for value in one]),
            (lib.Target, lambda one: one.name),
            (lib.CallRecord, lambda one: self.plain(one.to_dict())),
            ((lib.CallStart, lib.CallContent), self.plain_slots),
        ]

    def plain_text(self, text: str) -> str:
        for call_id, name in self.calls.items():
            text = text.replace(call_id, name)
        return text.replace(self.package, "honcho_fallback")

    def plain_tuple(self, value: Any) -> Seen:
        return {name: self.plain(one) for name, one in value._asdict().items()}

    def plain_slots(self, value: Any) -> Seen:
        return {name: self.plain(getattr(value, name)) for name in type(value).__slots__}

    def plain_error(self, error: BaseException) -> Seen:
        cause = error.__cause__
        parts = ("exceptions", "errors", "partial", "record", "__notes__")
        return {
            "class": type(error).__name__,
            "text": self.plain(str(error)),
            "cause": cause and [type(cause).__name__, self.plain(str(cause))],
            **{name: self.plain(getattr(error, name, None)) for name in parts},
        }

    def listen(self) -> None:
        """Hear what is logged; nobody else does, or pytest would keep every line."""
        self.logger = logging.getLogger(self.package)
        self.handler = Lines(self)
        self.logger.addHandler(self.handler)
        self.kept = self.logger.propagate, self.logger.level
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)

    def close(self) -> None:
        self.logger.removeHandler(self.handler)
        self.logger.propagate, level = self.kept
        self.logger.setLevel(level)


class Now(Before):
    """The package of this source tree; what it calls otherwise than before is said here."""

    package = "honcho_fallback"

    def transport_recovery(self, rebuild: Any) -> Any:
        return self.lib.TransportRecovery(rebuild=rebuild)

    def reject(self, run: Any, *, error: Any, now: Any) -> Any:
        run._require_running("reject")
        reason, name = "the answer was not acceptable", type(error).__name__
        kind = self.lib.FailureKind("malformed_response")
        failure = self.lib.Failure.of(kind, reason=reason, error=name)
        return run.fail(error, failure=failure, now=now)

    def check(self, run: Any, *, answer: Any, partial: Any = (), now: Any) -> Any:
        failure = self.lib.check_response(answer) if run._call.policy.check else None
        if failure is None:
            return None
        run._require_running("check")
        error = self.lib.AnswerRejected(failure)
        failure = failure._replace(error="AnswerRejected")
        return run.fail(error, failure=failure, partial=partial, now=now)

    def content(self, run: Any, *, now: Any) -> Any:
        return run.commit(now=now)

    def tell(self, run: Any, **facts: Any) -> Any:
        return run.report(**facts)

    def abandon(self, run: Any, *, partial: Any = (), now: Any) -> Any:
        return run.cancel("abandoned", partial=partial, now=now)

    def do_errand(self, run: Any) -> Any:
        run.pending.call()

    def latest(self, run: Any) -> Any:
        return self.plain(run._call.attempt)

    def record(self, run: Any) -> Seen:
        record = super().record(run)
        for attempt in record["attempts"]:
            del attempt["usage"]
        return record

    def failed(self, run: Any) -> Any:
        failed = len(run._call.past)
        return [self.plain(one.result()) for one in run.record.attempts[:failed]]

    def silence(self, run: Any) -> Any:
        attempt, observers = run._call.attempt, run._observers
        wants_content = observers is not None and observers.wants_content()
        return self.plain([attempt.stream_timeout, attempt.idle_timeout, wants_content])

    def guards(self, run: Any) -> Any:
        call = run._call
        return {
            "credential_refresh": call.refreshed,
            "transport_recovery": call.transport_recovered,
        }

    def errand(self, run: Any) -> Any:
        action = run.pending
        if action is None:
            return None
        what = action.what
        return [what, self.plain(action.wait), action.note, what == "refresh", what == "cooldown"]

    def plain_tuple(self, value: Any) -> Seen:
        shown = super().plain_tuple(value)
        return {name: one for name, one in shown.items() if name not in NEW_FIELDS}

    def plain_error(self, error: BaseException) -> Seen:
        shown = super().plain_error(error)
        if shown["text"].startswith("commit: "):
            shown["text"] = shown["text"].replace("commit: ", "content: ")
        for attempt in (shown["record"] or {}).get("attempts", ()):
            attempt.pop("usage", None)
        return shown

    @property
    def shows(self) -> list[tuple[Any, Callable[[Any], Any]]]:
        def record(one: Any) -> Any:
            values = one.to_dict()
            for attempt in values["attempts"]:
                del attempt["usage"]
            return self.plain(values)

        return [(self.lib.CallRecord, record), *super().shows]


NEW_FIELDS = {"first_token_timeout", "idle_timeout"}


class Lines(logging.Handler):
    def __init__(self, side: Before) -> None:
        super().__init__()
        self.side = side

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "call_id"):
            if record.levelname != "WARNING":
                return  # the ERROR of a call that nobody answered, the INFO of a restored primary
            reason = record.reason.replace(",", " ")  # type: ignore[attr-defined] # of a switch
            head = record.getMessage().partition(" reason=")[0]
            line = f"WARNING {head} reason={reason}"
        else:
            line = f"{record.levelname} {record.getMessage()}"
        line = line.replace("it is still called,", "it is told again,")
        self.side.lines.append(self.side.plain(line))


class Observer:
    def __init__(self, side: Before) -> None:
        self.side = side

    def note(self, what: str, event: Any) -> None:
        call_id = getattr(event, "call_id", None)
        if call_id is not None:  # heard of before start() gives the call its name
            self.side.calls.setdefault(call_id, f"call {len(self.side.calls) + 1}")
        self.side.lines.append([what, self.side.plain(event)])

    def on_start(self, call: Any, /) -> None:
        self.note("start", call)

    def on_switch(self, switch: Any, /) -> None:
        self.note("switch", switch)
        self.note("reason", switch.reason)

    def on_finish(self, record: Any, /) -> None:
        self.note("finish", record)

    def on_restore(self, restore: Any, /) -> None:
        self.note("restore", restore)


class ContentObserver(Observer):
    def on_content(self, content: Any, /) -> None:
        self.note("content", content)


class BrokenObserver(Observer):
    def on_switch(self, switch: Any, /) -> None:
        raise ZeroDivisionError


OBSERVERS = {"plain": Observer, "content": ContentObserver, "broken": BrokenObserver}


class Key:
    """A credential that nobody knows in another process."""

    def __init__(self, lines: list[Any], name: str) -> None:
        self.lines = lines
        self.name = name

    def get(self) -> str:
        return "key"

    generation = 0

    def refresh(self) -> None:
        self.lines.append(f"refreshed {self.name}")

    def renew(self, generation: int) -> None:
        """Do by hand what the core does by itself now."""
        if self.generation == generation:
            self.refresh()
            self.generation += 1


class SharedKey(Key):
    """One that makes all targets that have it one target to their provider."""

    fingerprint = "fingerprint"


KEYS: dict[str, type[Key]] = {"own": Key, "shared": SharedKey}


class Shared:
    """Stand for other processes, and note what is exchanged with them."""

    def __init__(self, side: Before) -> None:
        self.side = side

    def pull(self, identities: Sequence[str], /) -> None:
        self.side.lines.append(["pulled", [self.side.names[one] for one in identities]])

    async def apull(self, identities: Sequence[str], /) -> None:
        self.pull(identities)

    def push(self) -> None:
        self.side.lines.append("pushed")

    async def apush(self) -> None:
        self.push()


# What is drawn: the policy

KINDS = [
    *("rate_limit", "overloaded", "server_error", "timeout", "connection", "malformed_response"),
    *("quota", "authentication", "permission", "model_unavailable", "context_overflow"),
    *("payload_too_large", "content_policy", "invalid_request", "local"),
]


def refuses_junk(answer: object) -> bool:
    if answer == "odd":
        raise ValueError(answer)
    if answer == "stop":
        raise asyncio.CancelledError
    return answer != "junk"


COUNTS = st.integers(1, 3)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "max_attempts": st.one_of(st.none(), st.integers(1, 6)),
    "switch_after": st.one_of(COUNTS, st.dictionaries(st.sampled_from(KINDS), COUNTS)),
    "attempts_per_target": COUNTS,
    "switch_wait": st.sampled_from([0.0, 0.5, 3.0]),
    "retry_after_cap": st.sampled_from([0.0, 5.0, 600.0]),
    "reset": st.sampled_from(["turn", "turn", "iteration"]),
    "fallback_on": st.one_of(
        st.frozensets(st.sampled_from(KINDS)), st.just(frozenset(KINDS) - {"local"})
    ),
    "deadline": st.sampled_from([2.0, 9.0, 30.0, 120.0]),
    "reserve": st.sampled_from([0.0, 1.0, 5.0]),
    "timeout": st.sampled_from([None, 4.0]),
    "connect_timeout": st.sampled_from([None, 2.0]),
    "first_token_timeout": st.sampled_from([1.0, 20.0]),
    "idle_timeout": st.just(6.0),
    "cooldown": st.tuples(
        st.sampled_from([10.0, 60.0]), st.sampled_from([35.0, 14400.0]), st.booleans()
    ),
    "retry_budget": st.tuples(st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([0.0, 0.1, 1.0])),
    "transport_recovery": st.booleans(),
    "must_not_degrade": st.booleans(),
    "on_exhausted": st.sampled_from(["last", "group"]),
    "check_responses": st.booleans(),
    "validate": st.just(refuses_junk),
    "local_errors": st.sampled_from([(ProviderError,), (TimeoutError,)]),
    "provider_errors": st.sampled_from([(LookupError,), (BaseException,)]),
    "classify": st.sampled_from(["raises", "returns none", "forbids to ask again"]),
    "refine": st.sampled_from(["raises", "returns none", "forbids to ask again"]),
}
PRESETS = [None, None, None, "honcho", "honcho_main", "hermes", "resilient"]


# What says little without the other, and what a single draw would find too seldom.
TOGETHER = [
    *(
        (),
        ("cooldown",),
        ("cooldown", "reset"),
        ("deadline", "reserve"),
        ("validate",),
        ("switch_after",),
    ),
    ("transport_recovery", "switch_after"),
    ("transport_recovery", "max_attempts"),
    ("max_attempts",),
    ("retry_budget", "switch_after", "max_attempts"),
    ("retry_budget", "deadline", "switch_after"),
]


@st.composite
def options(draw: Any, most: int) -> dict[str, Any]:
    # A few at a time: with half of them most histories would end after one step.
    alone = draw(st.lists(st.sampled_from(sorted(OPTIONS)), unique=True, max_size=most))
    names = dict.fromkeys([*draw(st.sampled_from(TOGETHER)), *alone])
    made = {name: draw(OPTIONS[name]) for name in names}
    if made.get("reserve", 0.0) >= made.get("deadline", 1000.0):
        del made["reserve"]  # refused now
    return made


@st.composite
def chains(draw: Any) -> list[dict[str, Any]]:
    chain: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        facts: dict[str, Any] = {
            "name": f"t{number}",
            "context_window": draw(st.sampled_from([None, None, 1, 2, 3])),
            "provider": draw(st.sampled_from([None, "openai", "openrouter"])),
            "key": draw(st.sampled_from([None, None, "own", "shared"])),
        }
        if facts["key"] == "shared":  # two of these are one to their provider
            facts |= {"provider": "openai", "endpoint": "http://one"}
        chain.append(facts)
    return chain


# What is drawn: what happens

CODES = [None, None, "context_length_exceeded", "token_expired", "insufficient_quota"]
ERRORS: dict[str, Callable[[], BaseException]] = {
    "timeout": TimeoutError,
    "connection": ConnectionError,
    "reset": lambda: ConnectionResetError("by peer"),
    "key": lambda: KeyError("x"),
    "file": lambda: FileNotFoundError("x"),
    "cancelled": asyncio.CancelledError,
    "closed": GeneratorExit,
}
STATUSES = st.sampled_from(
    [503, 429, 500, 401, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 503, 529]
)
ANSWERS = st.sampled_from(
    [
        "hello",
        "junk",
        "odd",
        "stop",
        {"error": {"message": "busy", "type": "overloaded_error"}},
        {},
        None,
    ]
)
USAGES = st.sampled_from([None, {"input": 3}])
CHUNKS = st.sampled_from([(), ("hel",), ("hel", "lo")])
# Eighths and whole seconds: the order of an addition must not decide. Some are as long as a rest,
# a deadline or a window, so that what ends in that very moment is looked at, too.
SECONDS = st.sampled_from([0.0, 0.0, 0.125, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0, 300.0])
WHICH = st.integers(0, 2)
NONE: Mapping[str, Any] = MappingProxyType({})


class Call:
    """One call on both sides."""

    def __init__(self, runs: Sequence[Any]) -> None:
        self.runs = runs
        self.wait = 0.0
        self.over = False
        self.pending = False


class Twin(RuleBasedStateMachine):
    """Random policies, failures and times; after every step both sides show the same."""

    def __init__(self) -> None:
        super().__init__()
        self.sides: list[Before] = []
        self.calls: list[Call] = []
        self.steps: list[tuple[str, dict[str, Any]]] = []
        self.turn: list[Any] = []  # on both sides; a history has one at a time
        self.entered = False
        self.diverged = False
        self.time = 1000.0

    @initialize(
        chain=chains(),
        preset=st.sampled_from(PRESETS),
        more=options(4),
        wait=st.sampled_from([0.0, 1.0, 4.0]),
        observer=st.sampled_from([None, None, *OBSERVERS]),
        entered=st.sampled_from([None, None, True, False]),
    )
    def make(
        self,
        chain: list[dict[str, Any]],
        preset: str | None,
        more: dict[str, Any],
        wait: float,
        observer: str | None,
        entered: bool | None,
    ) -> None:
        self.chain, self.preset, self.options = chain, preset, {"wait": wait, **more}
        for side in (Before, Now):
            self.sides.append(side(chain, preset, self.options, observer))
        if entered is not None:
            self.open_a_turn(entered=entered)

    def teardown(self) -> None:
        try:
            if not self.diverged:
                for call in self.calls:
                    self.compare([self.look(n, call, None, None) for n in range(2)])
        finally:
            if self.entered:
                for turn in reversed(self.turn):
                    turn.__exit__(None, None, None)
            for side in self.sides:
                side.close()

    # Comparing

    def both(self, name: str, step: Callable[[Before, int], Any], **arguments: Any) -> list[Any]:
        """Take one step on both sides; return what came back."""
        self.steps.append((name, arguments))
        returned: list[Any] = []
        self.raised: list[BaseException | None] = []
        for number, side in enumerate(self.sides):
            side.clock.now = self.time
            error: BaseException | None = None
            value: Any = None
            try:
                value = step(side, number)
            except BaseException as raised:  # a cancellation is one of the outcomes
                if isinstance(raised, KeyboardInterrupt):
                    raise
                error = raised
            returned.append(value)
            self.raised.append(error)
        return returned

    def step(self, call: Call, name: str, *, by_clock: bool = False, **arguments: Any) -> None:
        """Take one step of a call on both sides, and compare what both show then."""
        if self.diverged:
            return
        now = None if by_clock else self.time

        def take(side: Before, number: int) -> Any:
            given = dict(arguments)
            if "error" in given:
                given["error"] = self.error(side, given["error"])
            return getattr(side, name)(call.runs[number], **given, now=now)

        returned = self.both(name, take, by_clock=by_clock, **arguments)
        self.look_at_both(call, returned)

    def look_at_both(self, call: Call, returned: Sequence[Any]) -> None:
        if self.diverged:
            return
        shown = [self.look(n, call, returned[n], self.raised[n]) for n in range(2)]
        self.compare(shown)
        mine = shown[1]  # once they have diverged nobody looks at it any more
        call.over = mine["outcome"] != "running"
        call.pending = mine["errand"] is not None
        call.wait = mine["latest"]["wait"]

    def look(self, number: int, call: Call, returned: Any, raised: BaseException | None) -> Seen:
        """Return what one side shows."""
        side, run = self.sides[number], call.runs[number]
        attempt: Any
        try:
            attempt = side.attempt(run)
        except RuntimeError as error:
            attempt = side.plain(error)
        shown = {
            "raised": side.plain(raised),
            "returned": side.plain(returned),
            "attempt": attempt,
            "latest": side.latest(run),
            "outcome": side.outcome(run),
            "errand": side.errand(run),
            "record": side.record(run),
            "failed": side.failed(run),
            "silence": side.silence(run),
            "turn": side.turn_shows(self.turn[number]) if self.turn else None,
            "lines": side.lines[:],
        }
        side.lines.clear()
        # To look at them may make what holds them, which most calls never need.
        if shown["outcome"] != "running" or shown["failed"]:
            shown["guards"] = side.guards(run)
        return shown

    def compare(self, shown: Sequence[Seen]) -> None:
        if self.diverged:
            return
        before, now = shown
        cooling = any(call.runs[1]._call.all_cooling for call in self.calls)
        for difference in DIFFERENCES:
            before, now = difference.normalise(before), difference.normalise(now)
        if before == now:
            return
        seen = {**now, "all_cooling": cooling}
        history = History(self.chain, self.preset, self.options, self.steps, before, seen)
        for difference in DIFFERENCES:
            if difference.applies(history):
                event(f"difference: {difference.name}")
                self.diverged = True
                return
        pytest.fail("\n".join(["the twin does otherwise", *apart("", before, now)]))

    def nothing_was_raised(self) -> None:
        pairs = zip(self.sides, self.raised, strict=True)
        self.compare([{"raised": side.plain(error)} for side, error in pairs])
        assert self.diverged or self.raised == [None, None]

    def error(self, side: Before, facts: tuple[Any, ...]) -> BaseException:
        """Return one's own error; the same one again where it is given once more as the same."""
        kind, fresh, *rest = facts
        if fresh or facts not in side.errors:
            if kind == "status":
                status, code, retry_after = rest
                headers = {} if retry_after is None else {"retry_after": str(retry_after)}
                side.errors[facts] = ProviderError(status, code=code, **headers)
            elif kind == "config":
                side.errors[facts] = side.config_error()
            else:
                side.errors[facts] = ERRORS[kind]()
        return side.errors[facts]

    # Choosing: where no call of the kind that is wanted is there, one is made, so that no step is
    # lost.

    def calls_that(self, *, over: bool, pending: bool) -> list[Call]:
        return [call for call in self.calls if call.over == over and call.pending == pending]

    def one_open(self, which: int) -> Call:
        calls = [call for call in self.calls if not call.over] or [self.begin()]
        return calls[which % len(calls)]

    def one_to_ask(self, which: int) -> Call:
        """Choose one that has no errand."""
        calls = self.calls_that(over=False, pending=False)
        waiting = self.calls_that(over=False, pending=True)
        if not calls and waiting:
            self.settle(waiting[which % len(waiting)])
            calls = self.calls_that(over=False, pending=False)
        while not calls:
            call = self.begin()
            if call.pending:
                self.settle(call)
            calls = [] if call.over or call.pending else [call]
            if self.diverged:
                return call
        return calls[which % len(calls)]

    def settle(self, call: Call, *, by_clock: bool = False) -> None:
        self.both("do_errand", lambda side, number: side.do_errand(call.runs[number]))
        self.nothing_was_raised()
        self.step(call, "resume", by_clock=by_clock)

    def begin(
        self, *, handed: bool = True, overrides: Mapping[str, Any] = NONE, **given: Any
    ) -> Call:
        def take(side: Before, number: int) -> Any:
            own = {name: side.option(name, value) for name, value in overrides.items()}
            turn = self.turn[number] if handed and self.turn else None
            return side.start(turn=turn, **own, **given)

        runs = self.both("start", take, handed=handed, overrides=overrides, **given)
        self.nothing_was_raised()
        self.calls.append(Call(runs))
        self.look_at_both(self.calls[-1], (None, None))
        return self.calls[-1]

    def later(self, call: Call, seconds: float, *, patient: bool) -> None:
        self.time += seconds + (call.wait if patient else 0.0)
        call.wait = 0.0

    # The steps

    @rule(
        handed=st.booleans(),
        overrides=st.one_of(st.just({}), st.just({"must_not_degrade": True}), options(2)),
        agent=st.sampled_from([None, None, "deriver"]),
    )
    def start(self, handed: bool, overrides: dict[str, Any], agent: str | None) -> None:
        if not self.diverged and sum(not call.over for call in self.calls) < 3:
            given = {} if agent is None else {"agent": agent}
            self.begin(handed=handed, overrides=overrides, **given)

    @rule(
        which=WHICH,
        status=STATUSES,
        code=st.sampled_from(CODES),
        retry_after=st.sampled_from([None, None, 0, 1, 4, 30]),
        fresh=st.booleans(),
        partial=CHUNKS,
        seconds=SECONDS,
        patient=st.booleans(),
        by_clock=st.booleans(),
        settled=st.booleans(),
    )
    def fail(
        self,
        which: int,
        status: int,
        code: str | None,
        retry_after: int | None,
        fresh: bool,
        partial: tuple[str, ...],
        seconds: float,
        patient: bool,
        by_clock: bool,
        settled: bool,
    ) -> None:
        if self.diverged:
            return
        # What fails is the request, or what has to be done before it.
        call = self.one_to_ask(which) if settled else self.one_open(which)
        self.later(call, seconds, patient=patient)
        error = ("status", fresh, status, code, retry_after)
        self.step(call, "fail", error=error, partial=partial, by_clock=by_clock)

    @rule(
        which=WHICH,
        kind=st.sampled_from(["timeout", "connection", *sorted(ERRORS)]),
        fresh=st.booleans(),
        seconds=SECONDS,
        patient=st.booleans(),
        settled=st.booleans(),
    )
    def fail_without_a_status(
        self, which: int, kind: str, fresh: bool, seconds: float, patient: bool, settled: bool
    ) -> None:
        if self.diverged:
            return
        call = self.one_to_ask(which) if settled else self.one_open(which)
        self.later(call, seconds, patient=patient)
        self.step(call, "fail", error=(kind, fresh))

    @rule(
        which=WHICH,
        how=st.sampled_from(["accept", "accept", "succeed", "check", "reject"]),
        answer=ANSWERS,
        usage=USAGES,
        partial=CHUNKS,
        seconds=SECONDS,
        patient=st.booleans(),
        by_clock=st.booleans(),
    )
    def answer(
        self,
        which: int,
        how: str,
        answer: Any,
        usage: Any,
        partial: tuple[str, ...],
        seconds: float,
        patient: bool,
        by_clock: bool,
    ) -> None:
        if self.diverged:
            return
        call = self.one_to_ask(which)
        self.later(call, seconds, patient=patient)
        arguments: dict[str, dict[str, Any]] = {
            "accept": {"answer": answer, "usage": usage},
            "succeed": {"usage": usage},
            "check": {"answer": answer, "partial": partial},
            "reject": {"error": ("key", True)},
        }
        self.step(call, how, by_clock=by_clock, **arguments[how])

    @rule(which=WHICH, seconds=SECONDS, patient=st.booleans(), by_clock=st.booleans())
    def content(self, which: int, seconds: float, patient: bool, by_clock: bool) -> None:
        if self.diverged:
            return
        call = self.one_to_ask(which)
        self.later(call, seconds, patient=patient)
        self.step(call, "content", by_clock=by_clock)

    @rule(which=WHICH, output=st.booleans(), usage=USAGES)
    def tell(self, which: int, output: bool, usage: Any) -> None:
        if self.diverged:
            return
        call = self.one_open(which)
        facts = {"output": "hello"} if output else {"input": "hi", "parameters": {"top_p": 1}}

        def take(side: Before, number: int) -> Any:
            return side.tell(call.runs[number], usage=usage, **facts)

        self.look_at_both(call, self.both("tell", take, usage=usage, **facts))

    @rule(
        which=WHICH,
        further=st.sampled_from([None, 0, 1, 1, 2]),
        others=st.lists(st.integers(0, 3), max_size=2),
        narrow=st.booleans(),
        seconds=SECONDS,
    )
    def skip(
        self, which: int, further: int | None, others: list[int], narrow: bool, seconds: float
    ) -> None:
        if self.diverged:
            return
        call = self.one_open(which)
        self.later(call, seconds, patient=False)
        here = self.sides[1].latest(call.runs[1])["position"]
        position = None if further is None else here + further
        among: list[int] = []
        if position is not None and narrow:  # never back, as the adapters that use it
            reachable = {n for n in others if position < n < len(self.chain)}
            among = [position, *sorted(reachable)]
        self.step(call, "skip", position=position, among=among)

    @rule(
        which=WHICH, stream=st.booleans(), partial=CHUNKS, seconds=SECONDS, patient=st.booleans()
    )
    def leave(
        self, which: int, stream: bool, partial: tuple[str, ...], seconds: float, patient: bool
    ) -> None:
        if self.diverged:
            return
        call = self.one_open(which)
        self.later(call, seconds, patient=patient)
        if stream:
            self.step(call, "abandon", partial=partial)
        else:
            self.step(call, "cancel")

    @rule(
        which=WHICH,
        works=st.sampled_from([True, True, False]),
        odd=st.booleans(),
        seconds=SECONDS,
        by_clock=st.booleans(),
    )
    def errand(self, which: int, works: bool, odd: bool, seconds: float, by_clock: bool) -> None:
        calls = [call for call in self.calls if call.pending]
        if self.diverged or not calls:
            return
        call = calls[which % len(calls)]
        self.later(call, seconds, patient=True)
        if works or call.over:
            self.settle(call, by_clock=by_clock)
        else:
            error = ("config" if odd else "file", True)
            self.step(call, "fail", error=error, by_clock=by_clock)

    @rule(
        which=WHICH,
        how=st.sampled_from(["fail", "cancel", "abandon", "content", "accept", "reject", "skip"]),
    )
    def come_late(self, which: int, how: str) -> None:
        calls = [call for call in self.calls if call.over]
        if self.diverged or not calls:
            return
        arguments: dict[str, Any] = {}
        if how in {"fail", "reject"}:
            arguments["error"] = ("timeout", True)
        if how == "accept":
            arguments["answer"] = "late"
        if how == "skip":
            arguments |= {"position": 0, "among": ()}
        self.step(calls[-1 - which % len(calls)], how, **arguments)

    @rule(entered=st.booleans())
    def open_a_turn(self, entered: bool) -> None:
        if self.diverged or self.entered:
            return
        self.turn = self.both("turn", lambda side, _: side.turn(), entered=entered)
        self.entered = entered
        if entered:
            for turn in self.turn:
                turn.__enter__()

    @rule(how=st.sampled_from(["completed", "failed", "cancelled"]), early=st.booleans())
    def end_the_turn(self, how: str, early: bool) -> None:
        if self.diverged or not self.turn:
            return
        errors = {"failed": KeyError("x"), "cancelled": asyncio.CancelledError()}
        turn = self.turn
        if self.entered and not early:  # early: within its `with`
            error = errors.get(how)
            for one in reversed(turn):
                one.__exit__(type(error) if error else None, error, None)
            self.entered = False
            self.steps.append(("exit_turn", {"how": how}))
        else:
            self.both("end_turn", lambda side, n: side.end_turn(turn[n], how), how=how)
        shown = [side.turn_shows(one) for side, one in zip(self.sides, turn, strict=True)]
        lines = [side.plain(side.lines[:]) for side in self.sides]
        self.compare([{"turn": shown[n], "lines": lines[n]} for n in range(2)])
        for side in self.sides:
            side.lines.clear()
        # An ended turn may still be handed to a call, until the next one is opened.

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.time += seconds


def apart(where: str, before: Any, now: Any) -> list[str]:
    """List where two values differ, and nothing else of them."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [*before, *(name for name in now if name not in before)]
        pairs = [
            (name, before.get(name, "(lacking)"), now.get(name, "(lacking)")) for name in names
        ]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [(str(n), *pair) for n, pair in enumerate(zip(before, now, strict=True))]
    else:
        return [] if before == now else [f"{where}: before {before!r}, now {now!r}"]
    return [line for name, *pair in pairs for line in apart(f"{where}.{name}".strip("."), *pair)]


TestTwin = pytest.mark.timeout(60 + EXAMPLES)(Twin.TestCase)
TestTwin.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=set(Phase) - {Phase.explain},  # which takes longer than all the rest
)
