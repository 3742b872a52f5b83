"""Honcho's call path as examples/honcho_adoption.py has it, and every way in which a call ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FailureKind, FallbackConfig, FallbackExhausted
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from types import ModuleType

    from honcho_fallback.testing import Clock

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
P, F = "openai/gpt-5.4-mini", "anthropic/claude-haiku-4-5"
METADATA = {"workspace": "acme", "run_id": "r-17", "purpose": "dialectic.answer"}
MESSAGES = [{"role": "user", "text": "Good morning"}]
ANSWER: dict[str, Any] = {"text": "hello", "usage": {"input_tokens": 9, "output_tokens": 4}}
OVERLOADED = StatusError(503)


MakeHoncho = Callable[..., "Honcho"]


class Honcho:
    """Drive the example's call path with a script for each transport.

    Args:
        adoption: The example's module.
        script: What is done in turn by transport; the last step stays. An exception is raised, a
            function is awaited, anything else is the answer.
    """

    def __init__(self, adoption: ModuleType, script: dict[str, list[Any]]) -> None:
        self.adoption = adoption
        self.script = script
        self.began = asyncio.Event()
        self.requests: list[str] = []
        self.parameters: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    @property
    def event(self) -> dict[str, Any]:
        """Return the only event."""
        (event,) = self.events
        return event

    def model(self, *, fallback: bool = True, **values: Any) -> Any:
        """Make a configuration, with values for the primary."""
        config = self.adoption.ModelConfig
        second = config("claude-haiku-4-5", "anthropic", thinking_budget_tokens=1024)
        return config("gpt-5.4-mini", "openai", second if fallback else None, **values)

    async def execute(self, config: Any, messages: list[Any], **parameters: Any) -> Any:
        self.began.set()
        self.requests.append(f"{config.transport}/{config.model}")
        self.parameters.append(parameters)
        steps = self.script[config.transport]
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        if isinstance(step, BaseException):
            raise step
        return await step() if callable(step) else step

    async def call(self, model_config: Any = None, **options: Any) -> Any:
        options = {"metadata": METADATA} | options
        return await self.adoption.call_llm(model_config or self.model(), MESSAGES, **options)


@pytest.fixture
def honcho(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> MakeHoncho:
    """Put a script and a list of events where the example has its stand-ins."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import honcho_adoption  # noqa: PLC0415 # found by now

    def with_script(**script: list[Any]) -> Honcho:
        scripted = Honcho(honcho_adoption, script)
        monkeypatch.setattr(honcho_adoption, "execute", scripted.execute)
        monkeypatch.setattr(honcho_adoption, "emit", scripted.events.append)
        return scripted

    return with_script


NEVER = [AssertionError("nobody asks it")]


async def hang() -> None:
    await asyncio.Event().wait()


async def test_the_primary_answers(honcho: MakeHoncho, clock: Clock) -> None:
    """HON-001: one request, no wait, no log line, and an event that says so."""
    path = honcho(openai=[ANSWER], anthropic=NEVER)
    assert await path.call() == ANSWER
    assert (path.requests, clock.slept) == ([P], [])
    event = path.event
    assert (event["outcome"], event["answered_by"], event["was_fallback"]) == ("success", P, False)


@pytest.mark.parametrize(
    "error", [OVERLOADED, StatusError(429, retry_after=30), TimeoutError(), ConnectionResetError()]
)
async def test_the_first_failure_switches(
    honcho: MakeHoncho, clock: Clock, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """HON-002, HON-016, HON-072: one request to the primary, no wait, one WARNING, its answer."""
    path = honcho(openai=[error], anthropic=[ANSWER])
    assert await path.call() == ANSWER
    assert (path.requests, clock.slept) == ([P, F], [])
    event = path.event
    assert (event["outcome"], event["answered_by"], event["was_fallback"]) == ("success", F, True)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"agent=dialectic.answer primary={P} failed={P} fallback={F} reason=")


async def test_an_event_holds_the_call(honcho: MakeHoncho, clock: Clock) -> None:
    """HOM-070: whose call it was, each request and what came of it, the time, what it cost."""

    async def slow_failure() -> None:
        clock.advance(2)
        raise OVERLOADED

    path = honcho(openai=[slow_failure], anthropic=[ANSWER])
    await path.call()
    event = path.event
    assert (event["agent"], event["metadata"]) == ("dialectic.answer", METADATA)
    attempts = [(one["target"], one["number"], one["kind"]) for one in event["attempts"]]
    assert attempts == [(P, 1, "overloaded"), (F, 2, None)]
    assert [one["seconds"] for one in event["attempts"]] == [2, 0]
    assert event["seconds"] == 2
    assert event["usage"] == {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}


async def test_both_fail(honcho: MakeHoncho, clock: Clock) -> None:
    """HON-003, HON-004, HON-043: P, F, F; the providers' own errors come out, in order."""
    second, third = StatusError(529), TimeoutError("no answer")
    path = honcho(openai=[OVERLOADED], anthropic=[second, third])
    with pytest.raises(FallbackExhausted, match="no answer from") as raised:
        await path.call()
    assert raised.value.exceptions == (OVERLOADED, second, third)
    assert (path.requests, len(clock.slept)) == ([P, F, F], 1)
    event = path.event
    assert (event["outcome"], event["answered_by"], event["was_fallback"]) == (
        "exhausted",
        None,
        False,
    )


@pytest.mark.parametrize("status", [400, 401])
async def test_what_is_not_in_honchos_table_comes_out_bare(
    honcho: MakeHoncho, clock: Clock, status: int
) -> None:
    """HON-025, HON-042: at once, as the provider raised it; nobody is asked again."""
    error = StatusError(status)
    path = honcho(openai=[error], anthropic=NEVER)
    with pytest.raises(StatusError, match=f"HTTP {status}") as raised:
        await path.call()
    assert raised.value is error
    assert (path.requests, clock.slept, path.event["outcome"]) == ([P], [], "rejected")


MAIN = FallbackConfig(switch_after=4, max_attempts=5)


@pytest.mark.parametrize("config", [None, MAIN])
async def test_without_retry_nobody_else_is_asked(
    honcho: MakeHoncho, config: FallbackConfig | None
) -> None:
    """HON-045: one request, and its own error."""
    path = honcho(openai=[OVERLOADED], anthropic=NEVER)
    with pytest.raises(StatusError, match="HTTP 503") as raised:
        await path.call(enable_retry=False, retry_attempts=5, config=config)
    assert raised.value is OVERLOADED
    assert (path.requests, path.event["outcome"]) == ([P], "exhausted")


@pytest.mark.parametrize("config", [None, MAIN, MAIN.replace(max_attempts=1)])
async def test_a_single_attempt_is_the_primarys(
    honcho: MakeHoncho, config: FallbackConfig | None
) -> None:
    """HON-046: with one attempt the first is also the last; Honcho would never ask the primary."""
    path = honcho(openai=[ANSWER], anthropic=NEVER)
    assert await path.call(retry_attempts=1, config=config) == ANSWER
    assert path.requests == [P]


async def test_without_a_fallback_the_primary_is_asked_again(honcho: MakeHoncho) -> None:
    """HON-005, HON-043: three requests, and the provider's last error bare."""
    path = honcho(openai=[OVERLOADED])
    with pytest.raises(StatusError, match="HTTP 503"):
        await path.call(path.model(fallback=False))
    assert path.requests == [P, P, P]


async def test_a_cancelled_call_stays_cancelled(honcho: MakeHoncho) -> None:
    """HON-031: the primary hangs, the caller leaves: no fallback, one event that says so."""
    path = honcho(openai=[hang], anthropic=NEVER)
    task = asyncio.create_task(path.call())
    await path.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError, match=r"^$"):
        await task
    assert task.cancelled()
    assert path.requests == [P]
    assert (path.event["outcome"], path.event["was_fallback"]) == ("cancelled", False)


async def test_thinking_is_the_primarys_and_sampling_everybodys(honcho: MakeHoncho) -> None:
    """HON-009, HON-010, HON-011: only the caller's thinking stays with the primary."""
    path = honcho(openai=[OVERLOADED], anthropic=[ANSWER])
    model = path.model(temperature=0.9, thinking_effort="low", stop_sequences=["configured"])
    caller = {"temperature": 0.5, "stop_sequences": ["end"], "thinking_effort": "high"}
    await path.call(model, max_tokens=300, **caller)
    primary, fallback = path.parameters
    for parameters in (primary, fallback):
        assert parameters["max_tokens"] == 300
        assert (parameters["temperature"], parameters["stop_sequences"]) == (0.5, ["end"])
    thinking = ("thinking_effort", "thinking_budget_tokens")
    assert [primary[name] for name in thinking] == ["high", None]
    assert [fallback[name] for name in thinking] == [None, 1024]


async def test_a_second_request_is_not_made_at_zero(honcho: MakeHoncho) -> None:
    """HON-013: from the second request of a call on, a temperature of 0.0 is 0.2."""
    path = honcho(openai=[OVERLOADED], anthropic=[OVERLOADED, ANSWER])
    await path.call(temperature=0.0)
    assert [one["temperature"] for one in path.parameters] == [0.0, 0.2, 0.2]


async def test_an_attempt_may_take_as_long_as_the_longest_timeout(honcho: MakeHoncho) -> None:
    """HON-051: 180 s, or what a configuration says, if that is longer."""
    path = honcho(openai=[OVERLOADED], anthropic=[ANSWER])
    await path.call()
    await path.call(path.model(provider_params={"timeout": 600.0}))
    assert [one["timeout"] for one in path.parameters] == [180, 180, 600, 600]


async def test_each_iteration_begins_on_the_primary(honcho: MakeHoncho) -> None:
    """HON-014: a loop's iterations are calls of their own, with an event each."""
    tool = {"tool": "clock"}
    path = honcho(openai=[OVERLOADED, OVERLOADED], anthropic=[tool, ANSWER])
    assert await path.adoption.tool_loop(path.model(), "How late is it?") == ANSWER
    assert path.requests == [P, F, P, F]
    assert [event["metadata"]["iteration"] for event in path.events] == [1, 2]


AT_ONCE = FallbackConfig(fallback_on={*FailureKind} - {FailureKind.CANCELLED})


class JunkError(ValueError):
    """What Honcho raises about an answer that is no JSON."""


NAMED = FallbackConfig.honcho(provider_errors=(JunkError,))


@pytest.mark.parametrize(
    ("config", "error", "requests"),
    [
        (None, JunkError(), [P]),
        (NAMED, JunkError(), [P, F]),
        (NAMED, KeyError("bug"), [P]),
        (AT_ONCE, JunkError(), [P, F]),
        (AT_ONCE, KeyError("bug"), [P, F]),
        (AT_ONCE, StatusError(401), [P, F]),
    ],
)
async def test_what_else_switches(
    honcho: MakeHoncho,
    clock: Clock,
    config: FallbackConfig | None,
    error: Exception,
    requests: list[str],
) -> None:
    """What the page says of errors beyond Honcho's table, at once or not at all."""
    path = honcho(openai=[error], anthropic=[ANSWER])
    if F in requests:
        assert await path.call(config=config) == ANSWER
    else:
        with pytest.raises(type(error)):
            await path.call(config=config)
    assert (path.requests, clock.slept) == (requests, [])
