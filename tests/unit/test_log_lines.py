"""What an outage leaves in the log: few lines that say enough, however many calls it meets."""

from __future__ import annotations

import io
import logging
from collections import Counter
from contextlib import redirect_stderr, suppress
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    Runtime,
    Target,
)
from honcho_fallback.stores import CooldownChoice
from honcho_fallback.testing import StatusError
from tests.helpers.processes import python
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from honcho_fallback.testing import Clock


def provider(**failing: Exception) -> Any:
    """Answer with a failure by target, where there is one, else with its name."""
    names = ("primary", "second", "third", "fallback", *failing)
    return repeating(**{name: [failing.get(name, name)] for name in names}).ask


def facts(line: str) -> dict[str, str]:
    """Return what stands in a line."""
    return dict(part.split("=", 1) for part in line.split(" "))


class Log:
    """This package's lines: an exporter of another test may still write its own."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog

    @property
    def records(self) -> list[logging.LogRecord]:
        return [record for record in self.caplog.records if record.name == "honcho_fallback"]

    def with_fact(self, fact: str) -> list[dict[str, str]]:
        """Return the lines that say something of this kind."""
        lines = (facts(record.getMessage()) for record in self.records)
        return [line for line in lines if fact in line]


@pytest.fixture
def log(clock: Clock, caplog: pytest.LogCaptureFixture) -> Log:
    caplog.set_level(logging.INFO, "honcho_fallback")
    return Log(caplog)


CHAIN = (Target("primary"), Target("fallback"))


def policy(agent: str = "chat", **options: Any) -> FallbackPolicy:
    return FallbackPolicy(CHAIN, FallbackConfig(wait=0, **options), agent=agent)


def test_a_storm_of_switches_is_a_few_lines(clock: Clock, log: Log) -> None:
    """1,000 switches in a second: the first ten, and a minute later one that counts the others."""
    asked, down = policy(), provider(primary=StatusError(503))
    for _ in range(1000):
        clock.advance(0.001)
        asked.call(down)
    assert len(log.records) == 10
    assert log.with_fact("left_out") == []
    # In the middle of it a key that dies has its line, whichever agent meets it.
    policy("rare").call(provider(primary=StatusError(401)))
    (rare,) = log.with_fact("failed")[10:]
    assert rare["reason"] == "authentication,StatusError,401"
    clock.advance(60)
    asked.call(down)
    (summary,) = log.records[11:]
    assert facts(summary.getMessage())["left_out"] == "990"
    assert vars(summary)["left_out"] == "990"
    assert summary.levelno == logging.WARNING


def test_each_switch_is_written_for_who_looks_at_debug(log: Log) -> None:
    """The level of the logger switches the rule off: nothing is lost, it is only quieter."""
    log.caplog.set_level(logging.DEBUG, "honcho_fallback")
    for _ in range(25):
        policy().call(provider(primary=StatusError(503)))
    assert len(log.with_fact("failed")) == 25
    assert Counter(record.levelname for record in log.records) == {"WARNING": 10, "DEBUG": 15}


def test_a_call_that_nobody_answered_always_has_its_line(log: Log) -> None:
    """An error: who failed with what, how long it took, and the id, which the caller's has."""
    asked, ids = policy(max_attempts=2), list[str]()
    for _ in range(50):
        with pytest.raises(FallbackExhausted) as caught:
            asked.call(provider(primary=StatusError(429), fallback=TimeoutError()))
        ids.append(caught.value.record.call_id)
    lines = log.with_fact("outcome")
    assert [line.pop("call_id") for line in lines] == ids
    assert lines[0] == facts(
        "agent=chat primary=primary outcome=exhausted "
        "attempts=primary:rate_limit,fallback:timeout seconds=0.000"
    )
    assert Counter(one.levelname for one in log.records)["ERROR"] == 50


def test_a_rest_has_one_line_at_its_beginning_and_one_at_its_end(clock: Clock, log: Log) -> None:
    """Who, why, until when, met by which agent; then that it is over, and how many it met."""
    cooldown = Cooldown(base=30)
    chat, judge = policy("chat", cooldown=cooldown), policy("judge", cooldown=cooldown)
    dead, up = provider(primary=StatusError(401)), provider()
    chat.call(dead)
    for _ in range(58):
        judge.call(dead)
        chat.call(dead)
    (line,) = log.with_fact("resting")
    assert line.pop("call_id")
    until = datetime.fromtimestamp(int(clock.time() + 30), UTC)
    assert datetime.fromisoformat(line.pop("until")) == until
    assert line == facts(
        "agent=judge primary=primary resting=primary fallback=fallback "
        "reason=authentication,StatusError,401"
    )
    clock.advance(31)
    chat.call(up)
    assert log.records[-1].levelno == logging.INFO
    last = facts(log.records[-1].getMessage())
    assert last.pop("call_id")
    assert last == facts("agent=chat primary=primary restored=primary left_out=115")
    log.caplog.clear()
    chat.call(up)
    assert log.records == []


def test_a_longer_rest_has_a_line_of_its_own(clock: Clock, log: Log) -> None:
    """A probe failed, and the rest is twice as long as the one before."""
    asked, dead = policy(cooldown=Cooldown(base=30)), provider(primary=StatusError(401))
    for _ in range(2):
        asked.call(dead)
        asked.call(dead)
        clock.advance(31)
    first, second = (datetime.fromisoformat(one["until"]) for one in log.with_fact("resting"))
    assert (second - first).total_seconds() == pytest.approx(61, abs=1)


def test_a_fallback_that_rests_has_its_lines_too(clock: Clock, log: Log) -> None:
    """Why it rests, also where it was the last to fail; and that it is back."""
    chain = [Target("primary"), Target("second"), Target("third")]
    asked = FallbackPolicy(chain, FallbackConfig(wait=0, cooldown=Cooldown(after=1, base=30)))
    for _ in range(2):
        asked.call(provider(primary=StatusError(503), second=StatusError(429)))
    rests = {one["resting"]: one["reason"] for one in log.with_fact("resting")}
    assert rests == {
        "primary": "overloaded,StatusError,503",
        "second": "rate_limit,StatusError,429",
    }
    clock.advance(31)
    asked.call(provider(primary=StatusError(503)))
    assert [one["restored"] for one in log.with_fact("restored")] == ["second"]


def test_a_rest_after_one_that_ended_early_has_its_own_line(log: Log) -> None:
    """An answer ends a rest before its time, and what the first line said is over."""
    asked = policy(cooldown=Cooldown(after=1, base=1000))
    dead, other = provider(primary=StatusError(401)), provider(fallback=StatusError(503))
    asked.call(dead)
    asked.call(dead)
    with suppress(StatusError, FallbackExhausted):
        asked.call(other)
    assert asked.call(other) == "primary"  # all rest, and one answers
    assert [asked.call(dead) for _ in range(3)] == ["fallback"] * 3
    assert len(log.with_fact("resting")) == 2


def test_where_all_rest_nobody_is_said_to_be_passed_over(log: Log) -> None:
    """They are asked all the same, one after the other: each failure has its line."""
    asked = policy(cooldown=Cooldown(after=1, base=30))
    for _ in range(2):
        with pytest.raises(FallbackExhausted):
            asked.call(provider(primary=StatusError(503), fallback=StatusError(503)))
    assert log.with_fact("resting") == []
    assert len(log.with_fact("outcome")) == len(log.with_fact("failed")) == 2


class Elsewhere:
    """A store of one's own, which knows that the primary rests, for as long as it was told."""

    shared = None

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def update_and_select(self, _: Any, offered: Any, *__: Any) -> CooldownChoice:
        return CooldownChoice(len(offered) - 1, None, ((0, self.seconds),) if offered else ())


def test_what_others_learned_has_a_line_without_their_reason(log: Log) -> None:
    """Another process met the failure; and a store's endless rest breaks no call.

    A rest that is over while others probe is nothing new.
    """
    policy(cooldown=Elsewhere(0)).call(provider())
    assert log.records == []
    asked = policy(cooldown=Elsewhere(inf))
    assert [asked.call(provider()) for _ in range(3)] == ["fallback"] * 3
    (line,) = log.with_fact("resting")
    assert line["reason"] == "elsewhere"


def test_targets_without_number_fill_no_memory(clock: Clock) -> None:
    """A target that is made for each request is forgotten again."""
    down = StatusError(503)
    for number in range(2500):
        chain = [Target(f"m{number}"), Target("fallback")]
        FallbackPolicy(chain).call(provider(**{f"m{number}": down}))
    assert len(Runtime.current()._lines) <= 1000  # pyright: ignore[reportPrivateUsage] # the bound is what is asked


SERVICE = """
from honcho_fallback import Cooldown, FallbackConfig, FallbackPolicy, Target
from honcho_fallback.testing import Clock, StatusError

down = [StatusError(401)]

def ask(attempt):
    if attempt.position == 0 and down:
        raise down[0]
    return "hello"

config = FallbackConfig(cooldown=Cooldown(base=30))
policy = FallbackPolicy([Target("primary"), Target("fallback")], config, agent="chat")
with Clock().installed() as clock:
    policy.call(ask)
    policy.call(ask)
    down.clear()
    clock.advance(40)
    policy.call(ask)
"""


def test_a_service_that_configured_nothing_sees_when_and_how_bad(tmp_path: Any) -> None:
    """Python writes bare messages then: lines bring their time and level, and the end shows."""
    result = python("-c", SERVICE, cwd=tmp_path, check=True)
    lines = [*map(facts, result.stderr.splitlines())]
    for line, fact in zip(lines, ("failed", "resting", "restored"), strict=True):
        assert {"failed", "resting", "restored"} & {*line} == {fact}
        assert [*line][:2] == ["time", "level"]
        assert line["level"] == "WARNING"
        assert line["time"].endswith("+00:00")


def test_who_has_a_format_has_no_time_twice(clock: Clock) -> None:
    """Time and level are the handler's matter, where there is one."""
    configured = io.StringIO()
    handler = logging.StreamHandler(configured)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("honcho_fallback")
    logger.addHandler(handler)
    try:
        with redirect_stderr(io.StringIO()) as stderr:
            policy().call(provider(primary=StatusError(503)))
    finally:
        logger.removeHandler(handler)
    assert configured.getvalue().startswith("WARNING agent=chat primary=primary failed=")
    assert stderr.getvalue() == ""
