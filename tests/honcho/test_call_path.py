"""Honcho's call path as its page has it: real SDKs, strict providers, and every way to end.

The page's code runs over stand-ins that have Honcho's shapes of today.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

from honcho_fallback import FallbackExhausted
from tests.helpers import honcho, wire
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ChatRules

if TYPE_CHECKING:
    from honcho_fallback.testing import Clock
    from tests.helpers.provider import ProviderServer

Json = dict[str, Any]
PAGE = Path(__file__).resolve().parents[2].joinpath("docs", "honcho.md").read_text("utf-8")
CODE: str = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What tea?"}]
TOOLS = [{"name": "search", "parameters": {"type": "object", "properties": {}}}]
FALLBACK = {"openai": "anthropic", "anthropic": "openai"}
RULES: dict[str, Any] = {"openai": ChatRules, "anthropic": AnthropicRules}


class Facts(BaseModel):
    """A structured answer."""

    facts: list[str]


class Honcho:
    """Drive the page's call path with a provider for each transport.

    Args:
        providers: Where they are served; each refuses what its API refuses.
        primary: The transport of the one that is asked first; the other one is the fallback's.
    """

    def __init__(self, providers: ProviderServer, primary: str = "openai") -> None:
        self.names = dict(vars(honcho))
        exec(compile(CODE, "honcho.md", "exec"), self.names)  # noqa: S102 # our own page
        self.telemetry = honcho.LLMTelemetryContext()
        self.served = {name: providers.new(name, rules=RULES[name]()) for name in FALLBACK}
        self.primary, self.fallback = self.served[primary], self.served[FALLBACK[primary]]
        self.urls = {name: provider.url for name, provider in self.served.items()}
        self.transport = primary
        self.providers = providers

    def model(self, *, fallback: bool = True, **values: Any) -> honcho.ModelConfig:
        """Make a configuration, with values for the primary."""
        second = FALLBACK[self.transport]
        common = {"api_key": "k", "provider_params": values.pop("provider_params", {})}
        spare = honcho.ResolvedFallbackConfig(
            model="second",
            transport=second,
            base_url=self.urls[second],
            thinking_budget_tokens=1024 if second == "anthropic" else None,
            **common,
        )
        return honcho.ModelConfig(
            model="first",
            transport=self.transport,
            base_url=self.urls[self.transport],
            fallback=spare if fallback else None,
            **common,
            **values,
        )

    async def call(self, model_config: Any = None, **options: Any) -> Any:
        given: Any = {"messages": MESSAGES, "telemetry": self.telemetry} | options
        return await self.names["honcho_llm_call"](
            model_config=model_config or self.model(), **given
        )

    @property
    def requests(self) -> tuple[int, int]:
        """Return how many requests the primary and the fallback got."""
        return len(self.primary.requests), len(self.fallback.requests)


@pytest.fixture
def path(providers: ProviderServer) -> Honcho:
    return Honcho(providers)


async def test_the_primary_answers(path: Honcho, caplog: pytest.LogCaptureFixture) -> None:
    """HON-001: one request, no log line, one event."""
    answer = await path.call()
    assert answer.content == f"hello from {path.primary.name}"
    assert path.requests == (1, 0)
    assert path.telemetry.events == [(1, False, "")]
    assert not caplog.records


FAULTS = {
    "400": Reply(status=400),
    "401": Reply(status=401),
    "filtered": Reply(body=wire.chat_answer("", finish="content_filter")),
    "503": Reply(status=503),
    "429": Reply(status=429, headers={"retry-after": "30"}),
    "drop": Reply(drop=True),
    "hang": Reply(hang=True),
    "junk": Reply(text="I cannot do that: context length exceeded"),
    "no choice": Reply(body={"error": {"message": "upstream", "code": 502}, "choices": None}),
    "empty choices": Reply(body={**wire.chat_answer("tea"), "choices": []}),
    "closed port": None,
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_first_failure_switches(
    path: Honcho, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """HON-002, HON-016, HON-072: one request to the primary, its answer, an event for each."""
    if fault == "closed port":
        path.urls["openai"] = "http://127.0.0.1:1"
    path.primary.standing = FAULTS[fault] or Reply()
    path.fallback.standing = Reply(text='{"facts": ["tea"]}')
    model = path.model(provider_params={"timeout": 1.0} if fault == "hang" else {})
    answer = await path.call(model, response_model=Facts)
    assert answer.content == Facts(facts=["tea"])
    assert path.requests == (0 if fault == "closed port" else 1, 1)
    (*failed, answered) = path.telemetry.events
    assert [event[:2] for event in failed] == [(1, False)]
    assert answered == (2, True, "")
    (line,) = [record.getMessage() for record in caplog.records]
    names = "primary=openai/first failed=openai/first fallback=anthropic/second"
    assert line.startswith(f"agent=dialectic.answer {names} reason=")


async def test_both_fail(path: Honcho, clock: Clock) -> None:
    """HON-003, HON-004, HON-043: P, F, F; the providers' own errors come out, in order."""
    path.primary.fail(503)
    path.fallback.fail(529)
    with pytest.raises(FallbackExhausted, match="no answer from") as raised:
        await path.call()
    statuses = [getattr(error, "status_code", None) for error in raised.value.exceptions]
    assert statuses == [503, 529, 529]
    assert isinstance(raised.value.exceptions[1], anthropic.APIStatusError)
    assert (path.requests, len(clock.slept)) == ((1, 2), 1)


@pytest.mark.parametrize(
    ("status", "fallback", "options", "error", "requests"),
    [
        (503, True, {"enable_retry": False}, openai.InternalServerError, 1),
        (503, True, {"retry_attempts": 1}, openai.InternalServerError, 1),
        (503, False, {}, openai.InternalServerError, 3),
        (400, True, {}, openai.BadRequestError, 1),
        (401, True, {}, openai.AuthenticationError, 1),
    ],
)
async def test_the_primarys_own_error_comes_out_bare(
    path: Honcho,
    clock: Clock,
    status: int,
    fallback: bool,
    options: Json,
    error: Any,
    requests: int,
) -> None:
    """HON-045, HON-046: of a single attempt; HON-005, HON-043: without a fallback, after waits.

    HON-025, HON-042: what is not in Honcho's table, at once, without the page's options.
    """
    path.primary.fail(status)
    if status != 503:
        path.names["CONFIG"] = None
    with pytest.raises(error):
        await path.call(path.model(fallback=fallback), **options)
    assert (path.requests, len(clock.slept)) == ((requests, 0), requests - 1)


async def test_a_cancelled_call_stays_cancelled(path: Honcho) -> None:
    """HON-031: the primary hangs, the caller leaves: no fallback, one event that says so."""
    asked = threading.Event()

    def hang(_: Any) -> Reply:
        asked.set()
        return Reply(hang=True)

    path.primary.standing = hang
    task = asyncio.create_task(path.call())
    assert await asyncio.to_thread(asked.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert path.requests == (1, 0)
    assert path.telemetry.events == [(1, False, "cancelled")]


async def test_thinking_is_the_primarys_and_sampling_everybodys(path: Honcho) -> None:
    """HON-009 to HON-011, HON-013: the caller's thinking stays; 0.0 is 0.2 in a second request."""
    path.primary.fail(503)
    await path.call(reasoning_effort="high", temperature=0.0)
    (first,), (second,) = path.primary.bodies, path.fallback.bodies
    assert (first["reasoning_effort"], first["temperature"]) == ("high", 0.0)
    assert (second["thinking"]["budget_tokens"], second["temperature"]) == (1024, 0.2)
    assert "reasoning_effort" not in second
    assert second["system"] == "Be kind."


async def test_settings_are_resolved_first(path: Honcho) -> None:
    """Of the settings' shape no client could be made; the policy gets what the registry gets."""
    path.primary.fail(503)
    first, second = (
        honcho.ConfiguredModelSettings(
            model="m",
            transport=name,
            overrides=honcho.Overrides(api_key="k", base_url=path.urls[name]),
        )
        for name in FALLBACK
    )
    await path.call(first.model_copy(update={"fallback": second}))
    assert path.requests == (1, 1)


async def test_retries_of_an_sdk_are_noticed_where_the_target_holds_a_config(
    path: Honcho, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What skips the registry's part of the diff asks a dead primary twice, and is told of it."""

    def with_retries(_: str, config: Any) -> Any:
        return openai.AsyncOpenAI(api_key="k", base_url=config.base_url, max_retries=1)

    path.primary.fail(503, headers={"retry-after-ms": "1"})
    monkeypatch.setattr(honcho, "client_for_model_config", with_retries)
    model = path.model(fallback=False)
    message = "openai/first: its client made 1 retries of its own"
    with pytest.raises(openai.InternalServerError), pytest.warns(UserWarning, match=message):
        await path.call(model, enable_retry=False)
    assert path.requests == (2, 0)


def says(transport: str, *, calls: bool) -> Reply:
    """Answer with two calls at once, or with a text."""
    inputs = {"green": {"leaf": "green"}, "black": {"leaf": "black"}}
    if transport == "openai":
        tools = [wire.chat_call(f"call:{id_}", "search", given) for id_, given in inputs.items()]
        return Reply(body=wire.chat_answer("" if calls else "tea", *(tools if calls else ())))
    uses = [wire.tool_use(f"toolu_{id_}", "search", given) for id_, given in inputs.items()]
    text = {"type": "text", "text": "tea"}
    return Reply(body=wire.message_answer(*(uses if calls else (text,))))


async def search(_: str, given: Json) -> str:
    return f"{given['leaf']}: much"


DOWN = Reply(status=503)
# Iteration by iteration: does the primary answer?
LOOPS = {
    "dead throughout": (False, False, False),
    "dies with tools in flight, and is back": (True, False, True),
    "back with tools in flight": (False, True, True),
    "dies for good": (True, False, False),
}


@pytest.mark.parametrize("primary", FALLBACK)
@pytest.mark.parametrize("answers", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_goes_on_over_two_transports(
    providers: ProviderServer, primary: str, answers: tuple[bool, ...], stream: bool
) -> None:
    """HON-014: each iteration begins on the primary, and a dead one costs one request in it.

    Neither provider is sent a message that it would refuse, and no thinking without its own.
    """
    path = Honcho(providers, primary)
    rounds = len(answers) - stream  # the last one is the stream's, of its own
    expected = 0
    for number, answered in enumerate(answers, start=1):
        calls = number < rounds
        path.primary.reply(says(primary, calls=calls) if answered else DOWN)
        if not answered:
            path.fallback.reply(says(FALLBACK[primary], calls=calls))
            expected += 1
    options: Json = {"tools": TOOLS, "tool_executor": search, "stream_final_only": stream}
    telemetry = honcho.LLMTelemetryContext(hash_memo={})
    result = await path.call(telemetry=telemetry, **options)
    text = "".join([one.content async for one in result]) if stream else result.content
    assert text == "tea"
    assert path.requests == (len(answers), expected)
    assert not path.primary.refused + path.fallback.refused
    # Telemetry knows messages by their id(), so it must not see copies, which are soon gone.
    history = [one for body in path.primary.bodies for one in (MESSAGES[0], *body["messages"])]
    memo: Any = telemetry.hash_memo
    assert {*memo.values()} <= {json.dumps(message) for message in history}


async def test_the_primarys_own_thinking_comes_back_to_it(providers: ProviderServer) -> None:
    """Anthropic thinks on in a loop only where its signed thoughts stand before its calls."""
    path = Honcho(providers, "anthropic")
    thought = {"type": "thinking", "thinking": "Green?", "signature": "signed"}
    use = wire.tool_use("toolu_1", "search", {"leaf": "green"})
    path.primary.reply(Reply(body=wire.message_answer(thought, use)))
    path.primary.reply(says("anthropic", calls=False))
    model = path.model(thinking_budget_tokens=1024)
    await path.call(model, tools=TOOLS, tool_executor=search)
    second = path.primary.bodies[1]
    assert second["thinking"]["budget_tokens"] == 1024
    assert second["messages"][1]["content"][0] == thought
    assert not path.primary.refused


async def test_a_loop_that_runs_out_of_iterations_asks_for_an_answer(path: Honcho) -> None:
    """The last request forbids further calls, at whoever is asked."""
    path.primary.reply(says("openai", calls=True), DOWN)
    path.fallback.reply(says("anthropic", calls=False))
    options: Json = {"tools": TOOLS, "tool_executor": search, "max_tool_iterations": 1}
    assert (await path.call(**options)).content == "tea"
    assert path.fallback.bodies[0]["tool_choice"] == {"type": "none"}
    assert not path.fallback.refused


async def test_a_stream_switches_until_its_first_content(path: Honcho) -> None:
    """HOM-051: Honcho's empty first chunk settles nothing, and a broken one is not shown."""
    empty = wire.chat_word("")
    path.primary.reply(Reply(events=[empty], cut=True))
    path.fallback.standing = Reply(text="tea")
    chunks = [chunk async for chunk in await path.call(stream=True)]
    assert "".join(chunk.content for chunk in chunks) == "tea"
    assert chunks[-1].is_done
    assert path.requests == (1, 1)
    assert [event[1] for event in path.telemetry.events] == [False, True]
