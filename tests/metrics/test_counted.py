"""What is counted of calls, by both observers alike, and what is either's own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics.export import Histogram
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics as names
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.parser import text_string_to_metric_families

from honcho_fallback import (
    Cooldown,
    DeadlineExceeded,
    FallbackConfigError,
    FallbackPolicy,
    RetryBudget,
    Target,
)
from honcho_fallback.measurements import METRICS
from honcho_fallback.testing import StatusError
from honcho_fallback_otel import OpenTelemetryMetrics
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.metrics import Counted
from tests.helpers.prometheus import prometheus_figures
from tests.helpers.records import CHAIN, EVERY_OUTCOME, with_attempts
from tests.helpers.scenarios import SCENARIOS, F, P, Scenario
from tests.helpers.scripted import DRIVERS, repeating
from tests.helpers.wire import CHAT_USAGE, chat_answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from honcho_fallback import Attempt
    from honcho_fallback.testing import Clock
    from tests.helpers.prometheus import Figures


DOWN = StatusError(503)
keeps_gauges = pytest.mark.skipif(
    tuple(map(int, version("opentelemetry-sdk").split(".")[:2])) < (1, 45),
    reason="OpenTelemetry's SDK before 1.45 forgets a gauge once it has been read",
)


def about(unix_time: float) -> Any:
    return pytest.approx(unix_time, rel=0, abs=0.001)


def failing(primary: Any = DOWN, fallback: Any = "hello") -> Any:
    return repeating(primary=[primary], fallback=[fallback]).ask


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_scenario_is_counted_as_its_record_tells(scenario: Scenario, driver: str) -> None:
    """Prometheus and OpenTelemetry agree, and what they say is what the call's record says."""
    counted = Counted(scenario.replies, **scenario.config)
    run = counted.policy.start()
    with nullcontext() if scenario.error is None else pytest.raises(scenario.error):
        DRIVERS[driver](counted.policy, repeating(**scenario.replies), run)
    record, figures = run.record, counted.figures()
    answered = scenario.order[-1] if scenario.error is None else "nobody"
    expected: dict[tuple[str, ...], Any] = {
        ("calls", "deriver", scenario.outcome, answered): 1,
        ("call.duration", "deriver", scenario.outcome): (1, record.seconds),
    }
    if answered not in {P, "nobody"}:
        expected["answers_by_fallback", "deriver", answered] = 1
    if "stream" in driver and scenario.error is None:
        first = record.time_to_first_token
        expected["time_to_first_token", "deriver", answered] = (1, first)
    for one, after in zip(record.attempts, [*record.attempts[1:], None], strict=True):
        kind = one.kind.value if one.kind else "answered"
        key = ("attempts", "deriver", one.target, kind, one.billed)
        expected[key] = expected.get(key, 0) + 1
        number, seconds = expected.get(("attempt.duration", one.target), (0, 0))
        expected["attempt.duration", one.target] = (number + 1, seconds + one.seconds)
        if after is not None and after.target != one.target:
            expected["switches", "deriver", one.target, kind] = 1
    assert figures == expected


def test_what_is_rare_is_shown_before_it_counts() -> None:
    """The first failure is an increase from 0; of a series that begins at 1 none is seen."""
    counted = Counted()
    counted.policy.call(lambda _: "hello")
    figures = figures_of(counted.registry)
    assert figures["calls", "deriver", "exhausted", "nobody"] == 0
    assert figures["calls", "deriver", "interrupted", "nobody"] == 0
    assert figures["calls_ended_by_limit", "deriver", "deadline"] == 0
    assert figures["calls_ended_by_limit", "deriver", "retry_budget"] == 0


# Tokens.


ANSWER = chat_answer("hello")
REPORTS: dict[str, tuple[Any, dict[str, int]]] = {
    # What a cache gave is no other input, and what was reasoned no other output.
    "all": (CHAT_USAGE, {"input": 8, "cache_read": 4, "output": 5, "reasoning": 2}),
    "core": ({"input_tokens": 3, "output_tokens": 2}, {"input": 3, "output": 2}),
    "openai": ({"prompt_tokens": 3, "completion_tokens": 2}, {"input": 3, "output": 2}),
    "anthropic": (
        {"input_tokens": 3, "output_tokens": 2, "cache_creation_input_tokens": 5},
        {"input": 3, "cache_write": 5, "output": 2},
    ),
    "odd": ({"input_tokens": "many", "output_tokens": 2}, {"output": 2}),
    "other": ({"price": 3}, {}),
}


def test_each_token_counts_under_one_type() -> None:
    """In whatever form a usage is reported; what is no count is left out."""
    counted = Counted()
    for agent, (usage, _) in REPORTS.items():
        counted.policy.start(agent=agent).succeed(usage=usage)
    assert counted.of("tokens") == {
        (agent, P, kind): count
        for agent, (_, counts) in REPORTS.items()
        for kind, count in counts.items()
    }


def test_an_answer_that_was_refused_has_cost_its_tokens() -> None:
    """Its request is wasted, and its tokens count for the target that sent it."""
    counted = Counted()
    refused = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    counted.policy.call(failing(refused, ANSWER))
    assert counted.of("attempts") == {
        ("deriver", P, "malformed_response", "yes"): 1,
        ("deriver", F, "answered", "yes"): 1,
    }
    tokens = counted.of("tokens")
    assert tokens["deriver", P, "input"] == 9
    assert tokens["deriver", F, "input"] == 8


# Streams, and calls that end otherwise.


OPENAI, ANTHROPIC, LOCAL = (target.name for target in CHAIN)
# Who answered, with the last attempt's target, kind and billing, and who sent a first token.
ENDED: dict[str, tuple[str, tuple[str, str, str], str | None]] = {
    "success": (ANTHROPIC, (ANTHROPIC, "answered", "yes"), None),
    "exhausted": ("nobody", (LOCAL, "authentication", "no"), None),
    "rejected": ("nobody", (OPENAI, "invalid_request", "no"), None),
    "cancelled": ("nobody", (ANTHROPIC, "cancelled", "unknown"), None),
    "interrupted": ("nobody", (ANTHROPIC, "overloaded", "unknown"), ANTHROPIC),
    "abandoned": (OPENAI, (OPENAI, "answered", "yes"), OPENAI),
}


@pytest.mark.parametrize("outcome", ENDED)
def test_every_outcome_is_counted(outcome: str) -> None:
    """A broken stream had a first token; one that was left was answered as far as it was let."""
    counted = Counted()
    for observer in counted.observers:
        observer.on_finish(EVERY_OUTCOME[outcome])
    answering, last, sender = ENDED[outcome]
    assert counted.of("calls") == {("greeter", outcome, answering): 1}
    assert counted.of("attempts")["greeter", *last] == 1
    assert counted.counts("time_to_first_token") == ({("greeter", sender): 1} if sender else {})


@pytest.mark.parametrize(("partial", "first"), [("replace", (F, 5.0)), ("continue", (P, 2.0))])
def test_a_stream_that_breaks_off_has_the_first_token_of_what_is_kept(
    clock: Clock, partial: Any, first: tuple[str, float]
) -> None:
    """What the reader drops is no first token; the beginning of a text that goes on is its own."""
    counted = Counted([P, Target(F, prefill=True)])

    def ask(attempt: Attempt) -> Iterator[str]:
        clock.advance(2)
        yield "a" if attempt.position == 0 else "b"
        clock.advance(1)
        if attempt.position == 0:
            raise DOWN

    assert list(counted.policy.stream(ask, partial=partial)) == ["a", "b"]
    target, seconds = first
    assert counted.of("time_to_first_token") == {("deriver", target): (1, seconds)}
    assert counted.of("attempt.duration") == {(P,): (1, 3.0), (F,): (1, 3.0)}


def test_a_turn_that_stays_on_the_fallback_is_answered_by_it() -> None:
    """Its second call switches no more, and a fallback answers it all the same."""
    counted = Counted(reset="turn")
    with counted.policy.turn():
        counted.policy.call(failing())
        counted.policy.call(failing())
    assert counted.of("answers_by_fallback") == {("deriver", F): 2}
    assert counted.of("switches") == {("deriver", P, "overloaded"): 1}
    assert counted.of("attempts")["deriver", P, "overloaded", "unknown"] == 1


# What limits a call.


def test_a_limit_that_ends_a_call_counts_under_its_name(clock: Clock) -> None:
    """A deadline, and a budget of retries."""

    def ask(_: Attempt) -> str:
        clock.advance(20)
        raise DOWN

    late = Counted(deadline=10)
    with pytest.raises(DeadlineExceeded):
        late.policy.call(ask)
    spent = Counted([P], retry_budget=RetryBudget(ratio=0, min_per_second=0))
    with pytest.raises(StatusError):
        spent.policy.call(failing())
    for counted, limit in ((late, "deadline"), (spent, "retry_budget")):
        assert counted.of("calls_ended_by_limit") == {("deriver", limit): 1}


# Cooldowns.


@keeps_gauges
def test_the_gauge_tells_a_rest_from_its_beginning_to_its_end(clock: Clock) -> None:
    """It says until when, does not change with time, and is 0 once the target has answered.

    Who stays away because another call probes leaves it alone. A target that rests, is asked as
    nobody else is left, and answers, rests no longer.
    """
    counted = Counted(cooldown=Cooldown(after=1, base=60))

    def gauge() -> dict[tuple[str, ...], float]:
        return counted.of("cooldown_until_timestamp")

    counted.policy.call(failing())
    assert gauge() == {}  # the first to be passed over tells
    until = clock.time() + 60
    clock.advance(25)
    counted.policy.call(failing())
    assert gauge() == {(P,): about(until)}
    clock.advance(35)
    probe = counted.policy.start()
    assert probe.attempt.position == 0
    clock.advance(1)
    counted.policy.call(failing())
    assert gauge() == {(P,): about(until)}
    probe.fail(DOWN)  # a probe that failed doubles the rest
    probe.succeed()
    counted.policy.call(failing())
    assert counted.of("probes") == {(P, "overloaded"): 1}
    assert gauge() == {(P,): about(clock.time() + 120)}
    clock.advance(120)
    counted.policy.call(lambda _: "back")
    assert gauge() == {(P,): 0}
    counted.policy.call(failing())
    counted.policy.call(failing())
    assert gauge() == {(P,): about(clock.time() + 60)}
    counted.policy.call(failing("back", DOWN))
    assert gauge() == {(P,): 0}
    assert counted.of("probes") == {(P, "overloaded"): 1, (P, "answered"): 1}


@keeps_gauges
def test_a_rest_that_is_seen_early_in_a_call_ends_when_it_ends(clock: Clock) -> None:
    """What the call does after it has gone past the target adds nothing to its rest."""
    counted = Counted([P, F, "third"], cooldown=Cooldown(after=1, base=60))
    counted.policy.call(failing())
    until = clock.time() + 60

    def ask(attempt: Attempt) -> str:
        clock.advance(20)
        if attempt.target.name == F:
            raise DOWN
        return "hello"

    counted.policy.call(ask)
    assert counted.of("cooldown_until_timestamp") == {(P,): about(until)}


SECRET = "sk-hunter2"


def test_agents_and_targets_are_bounded() -> None:
    """Agents that are made per user, and targets per deployment, end up under other."""
    counted = Counted(most_labels=2)
    for number in range(5):
        counted.policy.call(lambda _: "hello", agent=f"user-{number}")
    assert counted.of("calls") == {
        ("user-0", "success", "primary"): 1,
        ("user-1", "success", "primary"): 1,
        ("other", "success", "primary"): 3,
    }
    chain = Counted(["one", "two", "three", "four"], most_labels=2)
    script: dict[str, Any] = {one: [StatusError(503)] for one in ("one", "two", "three")}
    chain.policy.call(repeating(**script, four=["hello"]).ask)
    assert {target for (target,) in chain.of("attempt.duration")} == {"four", "one", "other"}
    assert {target for _, target, _ in chain.of("switches")} == {"one", "other"}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (f"https://me:{SECRET}@host:8000/v1", "https://[redacted]@host:8000/v1"),
        (f"https://host/v1?api_key={SECRET}", "https://host/v1?api_key=[redacted]"),
        ("claude@20260101", "claude@20260101"),
        ("lone \ud800", "lone ?"),
        ('new\nline "quoted" \\', 'new\nline "quoted" \\'),
    ],
)
def test_a_label_shows_no_credentials_and_can_be_encoded(name: str, label: str) -> None:
    """Whatever a user calls a target or an agent."""
    counted = Counted([Target("model", name=name), Target("two")])
    counted.policy.call(lambda _: "hello", agent=name)
    assert counted.of("calls") == {(label, "success", label): 1}


def test_nothing_but_names_is_a_label() -> None:
    """No metadata, no prompt, no answer, no text of an error, no key."""
    target = Target(
        f"https://me:{SECRET}@host/model", f"https://me:{SECRET}@host", name="one",
        params={"api_key": SECRET}, endpoint=f"https://me:{SECRET}@host",
    )  # fmt: skip
    counted = Counted([target])
    run = counted.policy.start(metadata={"user": SECRET})
    run.report(input=SECRET, output=SECRET)
    with pytest.raises(RuntimeError):
        counted.policy.call(repeating(one=[RuntimeError(SECRET)]).ask, run=run)
    assert SECRET not in generate_latest(counted.registry).decode()
    exported = [*counted.instruments()]
    assert exported
    assert SECRET not in repr(exported)


@pytest.mark.parametrize("value", [0, 2.5])
def test_a_bound_that_is_none_is_refused(value: Any) -> None:
    """Both observers say which argument is wrong."""
    with pytest.raises(FallbackConfigError, match="most_labels"):
        PrometheusObserver(CollectorRegistry(), most_labels=value)
    with pytest.raises(FallbackConfigError, match="most_labels"):
        OpenTelemetryMetrics(most_labels=value)


of_the_conventions = pytest.mark.skipif(
    not hasattr(names, "GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK"),
    reason="this release of the conventions has no such name yet",
)


OPERATION = {
    attributes.GEN_AI_OPERATION_NAME: "chat",
    attributes.GEN_AI_REQUEST_MODEL: "gpt-5.5",
}


@of_the_conventions
def test_a_fallback_is_one_operation() -> None:
    """Asked of the primary's model, answered by the fallback's, with the tokens of the answer."""
    counted = Counted(CHAIN)
    run = counted.policy.start()
    said: dict[str, Any] = {OPENAI: [StatusError(503)], ANTHROPIC: [ANSWER]}
    counted.policy.call(repeating(**said).ask, run=run)
    answered = OPERATION | {
        attributes.GEN_AI_PROVIDER_NAME: "anthropic",
        attributes.GEN_AI_RESPONSE_MODEL: "claude-sonnet-5",
    }
    (duration,) = counted.points(names.GEN_AI_CLIENT_OPERATION_DURATION)
    assert (duration.attributes, duration.count) == (answered, 1)
    assert duration.sum == run.record.seconds
    kind = attributes.GEN_AI_TOKEN_TYPE
    tokens = {one.attributes[kind]: one for one in counted.points(names.GEN_AI_CLIENT_TOKEN_USAGE)}
    # The conventions' input holds what came from a cache.
    assert {name: one.sum for name, one in tokens.items()} == {"input": 12, "output": 7}
    assert all(one.attributes == answered | {kind: name} for name, one in tokens.items())


# Whose operation it was in the end, and whether it failed.
OPERATIONS = {
    "exhausted": ("lmstudio", True),
    "rejected": ("openai", True),
    "interrupted": ("anthropic", True),
    "cancelled": ("anthropic", False),  # who leaves is no error
    "abandoned": ("openai", False),
}


@of_the_conventions
@pytest.mark.parametrize("outcome", OPERATIONS)
def test_an_operation_that_failed_names_its_error(outcome: str) -> None:
    """The class of the last error; a stream's first chunk, from the call's start, has none."""
    counted, record = Counted(), EVERY_OUTCOME[outcome]
    for one in (record, with_attempts(record, provider=None)):
        counted.observers[1].on_finish(one)
    provider, has_failed = OPERATIONS[outcome]
    answer: dict[str, str] = {**OPERATION, attributes.GEN_AI_PROVIDER_NAME: provider}
    if record.answered_by is not None:
        answer[attributes.GEN_AI_RESPONSE_MODEL] = "gpt-5.5"
    nobodys = answer | {attributes.GEN_AI_PROVIDER_NAME: "_OTHER"}
    error = {ERROR_TYPE: "StatusError"} if has_failed else {}
    durations = counted.points(names.GEN_AI_CLIENT_OPERATION_DURATION)
    assert [one.attributes for one in durations] == [answer | error, nobodys | error]
    first = counted.points(names.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK)
    seconds = record.time_to_first_token
    assert [(one.attributes, one.sum) for one in first] == (
        [] if seconds is None else [(answer, seconds), (nobodys, seconds)]
    )


@of_the_conventions
def test_units_and_buckets_are_those_of_the_conventions() -> None:
    """The advised buckets, also for the package's own durations, which go on to five minutes."""
    counted = Counted()
    counted.policy.call(failing())
    counted.policy.start().succeed(usage={"input_tokens": 1, "output_tokens": 1})
    list(counted.policy.stream(lambda _: iter("a")))
    seconds = tuple(round(0.01 * 2**power, 2) for power in range(14))
    exported = {one.name: one for one in counted.instruments()}
    buckets = {
        name: one.data.data_points[0].explicit_bounds
        for name, one in exported.items()
        if isinstance(one.data, Histogram)
    }
    assert buckets == {
        names.GEN_AI_CLIENT_OPERATION_DURATION: seconds,
        names.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK: seconds,
        names.GEN_AI_CLIENT_TOKEN_USAGE: tuple(4**power for power in range(14)),
        "honcho_fallback.call.duration": (*seconds, 163.84, 327.68),
        "honcho_fallback.attempt.duration": (*seconds, 163.84, 327.68),
        "honcho_fallback.time_to_first_token": (*seconds, 163.84, 327.68),
    }
    assert exported[names.GEN_AI_CLIENT_OPERATION_DURATION].unit == "s"
    assert exported[names.GEN_AI_CLIENT_TOKEN_USAGE].unit == "{token}"
    for metric in METRICS:
        one = exported.get(metric.opentelemetry_name)
        if one is not None:
            assert (one.unit, one.description) == (metric.unit, metric.help)


def test_without_a_provider_nothing_breaks(caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody has set OpenTelemetry up, its API takes the measurements and drops them."""
    policy = FallbackPolicy(CHAIN, observers=[OpenTelemetryMetrics()])
    assert policy.call(lambda _: "hello") == "hello"
    assert caplog.records == []


def test_two_observers_on_one_provider_add_up(caplog: pytest.LogCaptureFixture) -> None:
    """One per policy counts together, without a warning of the SDK's."""
    counted = Counted()
    provider = counted.provider
    first, second = OpenTelemetryMetrics(provider), OpenTelemetryMetrics(provider)
    record = counted.policy.start().record
    first.on_finish(record)
    second.on_finish(record)
    assert sum(point.value for point in counted.points("honcho_fallback.calls")) == 2
    assert caplog.records == []


def figures_of(registry: CollectorRegistry) -> Figures:
    return prometheus_figures(generate_latest(registry).decode())


def test_the_list_is_what_a_fresh_registry_shows() -> None:
    """METRICS names every metric with its type and help, before the first call.

    Counters end in total, seconds in seconds; labels are those that are bounded.
    """
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    shown = {
        family.name: (family.type, family.documentation)
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }
    assert shown == {
        metric.prometheus_name.removesuffix("_total"): (metric.kind, metric.help)
        for metric in METRICS
    }
    for metric in METRICS:
        assert metric.prometheus_name.endswith("_total") == (metric.kind == "counter")
        assert ("_seconds" in metric.prometheus_name) == (metric.unit == "s")
        bounded = {"agent", "target", "outcome", "kind", "billed", "limit", "type"}
        assert bounded.issuperset(metric.labels)


def test_observers_on_one_registry_share_its_metrics() -> None:
    """One per policy counts together, and their labels are bounded together."""
    registry = CollectorRegistry()
    for number in range(4):
        observers = [PrometheusObserver(registry, most_labels=2)]
        policy = FallbackPolicy([Target("one")], agent=f"user-{number}", observers=observers)
        policy.call(lambda _: "hello")
    figures = figures_of(registry)
    calls = {key[1]: count for key, count in figures.items() if key[0] == "calls"}
    assert calls == {"user-0": 1, "user-1": 1, "other": 2}


@pytest.mark.parametrize("name", ["honcho_fallback_calls", "honcho_fallback_tokens"])
def test_a_registry_with_other_metrics_of_the_name_is_refused(name: str) -> None:
    """Nothing is counted on what somebody else made, and once that is gone all is counted."""
    registry = CollectorRegistry()
    other = Counter(name, "Calls", ["agent"], registry=registry)
    for _ in range(2):
        with pytest.raises(FallbackConfigError, match="registry: it has other metrics"):
            PrometheusObserver(registry)
        assert list(registry.collect()) == list(other.collect())
    registry.unregister(other)
    PrometheusObserver(registry)


# Calls as it is told by its arguments, in an outage or not.
WORKER = """
import os, sys
from honcho_fallback import Cooldown, FallbackPolicy, Target
from honcho_fallback.testing import Clock, StatusError
from honcho_fallback_prometheus import PrometheusObserver

def ask(attempt):
    if told == "down" and attempt.position == 0:
        raise StatusError(503)
    return "hello"

with Clock().installed() as clock:
    policy = FallbackPolicy([Target("primary"), Target("fallback")], agent="deriver",
                            observers=[PrometheusObserver()], cooldown=Cooldown(after=1, base=60))
    for told in sys.argv[1:]:
        clock.advance(60 if told == "later" else 0)
        policy.call(ask)
print(os.getpid())
"""


def test_the_figures_of_processes_add_up(tmp_path: Path) -> None:
    """Counters are sums, also over the dead; of a cooldown what was seen last counts."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call] # untyped
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    def work(*told: str) -> int:
        command = [sys.executable, "-c", WORKER, *told]
        return int(subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE).stdout)

    for _ in range(2):
        work("up", "down", "down")
    figures: dict[tuple[str, ...], Any] = figures_of(registry)
    assert figures["calls", "deriver", "success", "primary"] == 2
    assert figures["calls", "deriver", "success", "fallback"] == 4
    assert figures["call.duration", "deriver", "success"][0] == 6
    assert figures["cooldown_until_timestamp", "primary"] > 1e9
    dead = work("down", "down", "later")
    assert figures_of(registry)["cooldown_until_timestamp", "primary"] == 0
    mark_process_dead(dead, path=str(tmp_path))  # type: ignore[no-untyped-call] # untyped
    assert figures_of(registry)["calls", "deriver", "success", "primary"] == 3
