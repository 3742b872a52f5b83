"""What is counted of calls, by both observers alike, and what is either's own."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from honcho_fallback import (
    Cooldown,
    FallbackConfigError,
    FallbackPolicy,
    RetryBudget,
    StreamInterrupted,
    Target,
)
from honcho_fallback.measurements import METRICS
from honcho_fallback.testing import StatusError
from honcho_fallback_otel import OpenTelemetryMetrics
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.metrics import Counted
from tests.helpers.prometheus import prometheus_figures
from tests.helpers.scenarios import SCENARIOS, F, P, Scenario
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    figures = prometheus_figures(generate_latest(counted.registry).decode())
    assert figures["calls", "deriver", "exhausted", "nobody"] == 0
    assert figures["calls", "deriver", "interrupted", "nobody"] == 0
    assert figures["calls_ended_by_limit", "deriver", "deadline"] == 0
    assert figures["calls_ended_by_limit", "deriver", "retry_budget"] == 0


# Tokens.


USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
SAID = {"finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}


def test_each_token_counts_under_one_type() -> None:
    """What a cache gave is no other input, what was reasoned no other output.

    An answer that was refused has cost its tokens, too, and a report may have any form.
    """
    counted = Counted()
    refused = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": "many"}}
    counted.policy.call(failing(refused, {"choices": [SAID], "usage": USAGE}))
    reported = {"input_tokens": 3, "output_tokens": 2, "cache_creation_input_tokens": 5}
    counted.policy.start(agent="anthropic").succeed(usage=reported)
    assert counted.of("tokens") == {
        ("deriver", P, "input"): 9,
        ("deriver", F, "input"): 8,
        ("deriver", F, "cache_read"): 4,
        ("deriver", F, "output"): 5,
        ("deriver", F, "reasoning"): 2,
        ("anthropic", P, "input"): 3,
        ("anthropic", P, "cache_write"): 5,
        ("anthropic", P, "output"): 2,
    }


# Streams, and calls that end otherwise.


def broken_stream(attempt: Attempt) -> Iterator[str]:
    yield "a"
    raise DOWN


def is_left(counted: Counted) -> None:
    stream = counted.policy.stream(lambda _: iter("abc"))
    next(stream)
    stream.close()


def interrupts(_: Attempt) -> str:
    raise KeyboardInterrupt


# Outcome and target of the call; kind and bill of its attempt; the limit that ended it.
ENDINGS: dict[str, tuple[Callable[[Counted], object], tuple[str, str], tuple[str, str], Any]] = {
    "interrupted": (
        lambda counted: list(counted.policy.stream(broken_stream)),
        ("interrupted", "nobody"),
        ("overloaded", "yes"),
        {},
    ),
    "abandoned": (is_left, ("abandoned", P), ("answered", "yes"), {}),
    "cancelled": (
        lambda counted: counted.policy.call(interrupts),
        ("cancelled", "nobody"),
        ("cancelled", "unknown"),
        {},
    ),
    "out of budget": (
        lambda counted: counted.policy.call(failing(), retry_budget=RetryBudget(0, 0)),
        ("exhausted", "nobody"),
        ("overloaded", "unknown"),
        {("deriver", "retry_budget"): 1},
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_call_that_ends_without_an_answer(name: str) -> None:
    """How it ended, what became of its request, and the limit that ended it."""
    end, call, attempt, limits = ENDINGS[name]
    counted = Counted([P])
    with suppress(StreamInterrupted, KeyboardInterrupt, StatusError):
        end(counted)
    assert counted.of("calls") == {("deriver", *call): 1}
    assert counted.of("attempts") == {("deriver", P, *attempt): 1}
    assert counted.of("calls_ended_by_limit") == limits


def test_a_stream_that_is_replaced_has_the_first_token_of_the_answer(clock: Clock) -> None:
    """What the reader drops is no first token."""
    counted = Counted()

    def ask(attempt: Attempt) -> Iterator[str]:
        clock.advance(2)
        return broken_stream(attempt) if attempt.position == 0 else iter(["b"])

    assert list(counted.policy.stream(ask, partial="replace")) == ["a", "b"]
    assert counted.of("time_to_first_token") == {("deriver", F): (1, 4.0)}
    assert counted.of("attempt.duration") == {(P,): (1, 2.0), (F,): (1, 2.0)}


def test_a_text_that_goes_on_has_the_first_token_of_its_beginning(clock: Clock) -> None:
    """Its first content is that of the target that broke off, whoever ends it."""
    counted = Counted([P, Target(F, prefill=True)])

    def ask(attempt: Attempt) -> Iterator[str]:
        clock.advance(2)
        yield "a" if attempt.position == 0 else "b"
        clock.advance(1)
        if attempt.position == 0:
            raise DOWN

    assert list(counted.policy.stream(ask, partial="continue")) == ["a", "b"]
    assert counted.of("time_to_first_token") == {("deriver", P): (1, 2.0)}


def test_a_turn_that_stays_on_the_fallback_is_answered_by_it() -> None:
    """Its second call switches no more, and a fallback answers it all the same."""
    counted = Counted(reset="turn")
    with counted.policy.turn():
        counted.policy.call(failing())
        counted.policy.call(failing())
    assert counted.of("answers_by_fallback") == {("deriver", F): 2}
    assert counted.of("switches") == {("deriver", P, "overloaded"): 1}
    assert counted.of("attempts")["deriver", P, "overloaded", "unknown"] == 1


# Cooldowns.


@keeps_gauges
def test_a_target_rests_until_a_time_and_a_probe_ends_it(clock: Clock) -> None:
    """The gauge says until when, does not change with time, and is 0 once a probe was answered."""
    counted = Counted(cooldown=Cooldown(after=1, base=60))
    counted.policy.call(failing())
    assert counted.of("cooldown_until_timestamp") == {}  # the first to be passed over tells
    until = clock.time() + 60
    clock.advance(25)
    counted.policy.call(failing())
    assert counted.of("cooldown_until_timestamp") == {(P,): about(until)}
    clock.advance(35)
    counted.policy.call(failing())
    assert counted.of("probes") == {(P, "overloaded"): 1}
    clock.advance(1)
    counted.policy.call(failing())  # a probe that failed doubles the rest
    assert counted.of("cooldown_until_timestamp") == {(P,): about(until + 120)}
    clock.advance(119)
    counted.policy.call(lambda _: "back")
    assert counted.of("probes") == {(P, "overloaded"): 1, (P, "answered"): 1}
    assert counted.of("cooldown_until_timestamp") == {(P,): 0}
    counted.policy.call(lambda _: "hello")
    assert counted.of("cooldown_until_timestamp") == {(P,): 0}


@keeps_gauges
def test_an_answer_in_a_rest_ends_it_for_the_gauge(clock: Clock) -> None:
    """A target that rests, is asked as nobody else is left, and answers, rests no longer."""
    counted = Counted(cooldown=Cooldown(after=1, base=60))
    counted.policy.call(failing())
    clock.advance(25)
    counted.policy.call(failing())
    assert counted.of("cooldown_until_timestamp") == {(P,): about(clock.time() + 35)}
    counted.policy.call(failing("back", DOWN))
    assert counted.of("probes") == {}
    assert counted.of("cooldown_until_timestamp") == {(P,): 0}


@keeps_gauges
def test_a_probe_under_way_is_no_rest(clock: Clock) -> None:
    """Who stays away from a target because another call probes it leaves the gauge alone."""
    counted = Counted(cooldown=Cooldown(after=1, base=60))
    counted.policy.call(failing())
    counted.policy.call(failing())
    until = counted.of("cooldown_until_timestamp")
    clock.advance(60)
    probe = counted.policy.start()
    assert probe.attempt.position == 0
    clock.advance(1)
    counted.policy.call(failing())
    assert counted.of("cooldown_until_timestamp") == until
    probe.succeed()
    assert counted.of("cooldown_until_timestamp") == {(P,): 0}


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


CHAIN = [Target("one", "openai"), Target("two", "anthropic")]


def test_without_a_provider_nothing_breaks(caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody has set OpenTelemetry up, its API takes the measurements and drops them."""
    policy = FallbackPolicy(CHAIN, observers=[OpenTelemetryMetrics()])
    assert policy.call(lambda _: "hello") == "hello"
    assert caplog.records == []


def figures_of(registry: CollectorRegistry) -> Figures:
    return prometheus_figures(generate_latest(registry).decode())


def call_with(observer: PrometheusObserver, agent: str = "deriver") -> None:
    FallbackPolicy([Target("one")], agent=agent, observers=[observer]).call(lambda _: "hello")


def test_the_list_is_what_a_fresh_registry_shows() -> None:
    """METRICS names every metric with its type and help, before the first call."""
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    shown = {
        family.name: (family.type, family.documentation)
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }
    assert shown == {
        metric.prometheus_name.removesuffix("_total"): (
            metric.kind,
            metric.help,
        )
        for metric in METRICS
    }


def test_durations_have_buckets_of_up_to_five_minutes() -> None:
    """Both begin at a hundredth of a second, each twice as wide as the one before."""
    counted = Counted()
    counted.policy.call(lambda _: "hello")
    (point,) = counted.points("honcho_fallback.call.duration")
    assert point.explicit_bounds == tuple(0.01 * 2**power for power in range(16))
    assert 'le="327.68"' in generate_latest(counted.registry).decode()


def test_observers_on_one_registry_share_its_metrics() -> None:
    """One per policy counts together, and their labels are bounded together."""
    registry = CollectorRegistry()
    for number in range(4):
        call_with(PrometheusObserver(registry, most_labels=2), f"user-{number}")
    figures = figures_of(registry)
    calls = {key[1]: count for key, count in figures.items() if key[0] == "calls"}
    assert calls == {"user-0": 1, "user-1": 1, "other": 2}
