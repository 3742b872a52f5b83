"""Labels are few, and tell nothing that is nobody's business."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from honcho_fallback import FallbackConfigError, Target
from honcho_fallback.testing import StatusError
from honcho_fallback_otel import OpenTelemetryMetrics
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.metrics import Counted
from tests.helpers.scripted import repeating

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
