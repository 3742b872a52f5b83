"""The real SDKs at the providers' real addresses, played from cassettes, and what may be in one.

Each way to fail costs one request and no wait: a second one would be refused by the cassette.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from honcho_fallback import FallbackExhausted, FallbackPolicy, Target, read_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from honcho_fallback import Attempt

MODELS = {"openai": "gpt-5.5", "anthropic": "claude-sonnet-5", "local": "tiny-local"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SAY: Any = [{"role": "user", "content": "Answer with the one word: harbor"}]
WEATHER: Any = [{"role": "user", "content": "What is the weather in Oslo? Use the tool."}]


@pytest.fixture
def default_cassette_name(request: pytest.FixtureRequest) -> str:
    """Name a cassette by what was said in it, so that sync and async share one."""
    return "-".join(request.node.get_closest_marker("upstream").args)


class Sdk:
    """Ask chains of real clients, sync or async; both give answers or awaitables of them."""

    def __init__(self, *, is_async: bool, bad_key: str = "") -> None:
        self.is_async = is_async
        made: Any = openai.AsyncOpenAI if is_async else openai.OpenAI
        anthropics: Any = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
        # Keys matter while recording only.
        keys = {name: os.environ.get(f"{name.upper()}_API_KEY") or "none" for name in MODELS}
        keys[bad_key] = "not-a-key"
        self.clients: dict[str, Any] = {
            name: make(api_key=keys[name], base_url=url, max_retries=0)
            for name, make, url in (
                ("openai", made, "https://api.openai.com/v1"),
                ("anthropic", anthropics, "https://api.anthropic.com"),
                ("local", made, "http://localhost:1234/v1"),
            )
        }
        self.asked: list[str] = []
        self.record: Any = None

    def target(self, provider: str, model: str | None = None, **options: Any) -> Target:
        if provider == "local":
            options["params"] = {"max_tokens": 16}  # it would talk on and on
        return Target(
            model or MODELS[provider], provider, client=self.clients[provider], **options
        )

    def ask(self, attempt: Attempt, what: str) -> Any:
        """Ask for a word, a stream of it, the call of a tool, or a word of Responses."""
        target = attempt.target
        self.asked.append(target.name)
        client: Any = target.client
        if what == "responses" and target.provider == "openai":
            return client.responses.create(model=target.model, input=SAY)
        is_tool, messages = what == "tool", WEATHER if what == "tool" else SAY
        request: dict[str, Any] = {"model": target.model, "messages": messages, **target.params}
        request |= {"stream": True} if what == "stream" else {}
        if target.provider == "anthropic":
            tool: Any = {"name": "get_weather", "input_schema": CITY}
            request = {"max_tokens": 64 if is_tool else 16, **request}
            return client.messages.create(**request, **({"tools": [tool]} if is_tool else {}))
        if is_tool:
            function = {"name": "get_weather", "parameters": CITY}
            request["tools"] = [{"type": "function", "function": function}]
        if what == "stream":
            request["stream_options"] = {"include_usage": True}
        return client.chat.completions.create(**request)

    async def call(self, policy: FallbackPolicy, what: str = "answer") -> Any:
        """Ask a chain, and keep the record, however it ends; of a stream return the chunks."""
        run = policy.start()

        def ask(attempt: Attempt) -> Any:
            return self.ask(attempt, what)

        try:
            if what == "stream":
                if self.is_async:
                    return [chunk async for chunk in policy.astream(ask, run=run)]
                return list(policy.stream(ask, run=run))
            if self.is_async:
                return await policy.acall(ask, run=run)
            return policy.call(ask, run=run)
        finally:
            self.record = run.record


@pytest.fixture(params=["sync", "async"])
async def sdk(request: pytest.FixtureRequest) -> AsyncIterator[Sdk]:
    """Ask in both ways; the last reply of a test may be to a key that is none."""
    said = request.node.get_closest_marker("upstream").args
    bad = [one.partition("_")[0] for one in said if one.endswith("_bad_key")]
    made = Sdk(is_async=request.param == "async", bad_key="".join(bad))
    yield made
    for client in made.clients.values():
        closed = client.close()
        if made.is_async:
            await closed


class Case(NamedTuple):
    """Say what a failure has to be taken for, and of which class the answer is.

    Args:
        says: What is said in turn, the answer last.
        kinds: Of the failures.
        answer: The class of the answer, or of each of its chunks.
        what: What is asked for.
        status: Of the first failure.
        retry_after: Of the same, in seconds.
        model: What the first target is asked for.
    """

    says: tuple[str, ...]
    kinds: tuple[str, ...]
    answer: Any
    what: str = "answer"
    status: int | None = None
    retry_after: float | None = None
    model: str | None = None


LIMITED, OVERLOADED = ("rate_limit",), ("overloaded",)
CASES = [
    Case(("openai_chat",), (), ChatCompletion),
    Case(("openai_rate_limit", "anthropic_message"), LIMITED, Message, "answer", 429, 20.0),
    Case(("openai_quota", "anthropic_message"), ("quota",), Message, "answer", 429),
    Case(("openai_bad_key", "anthropic_message"), ("authentication",), Message, "answer", 401),
    Case(
        ("openai_no_model", "anthropic_message"),
        ("model_unavailable",),
        Message,
        status=404,
        model="gpt-nonesuch",
    ),
    Case(("openai_overloaded", "anthropic_message"), OVERLOADED, Message, "answer", 503, 1.0),
    Case(("anthropic_rate_limit", "openai_chat"), LIMITED, ChatCompletion, "answer", 429, 30.0),
    Case(("anthropic_overloaded", "openai_chat"), OVERLOADED, ChatCompletion, "answer", 529, 1.0),
    Case(("openai_overloaded", "local_chat"), OVERLOADED, ChatCompletion),
    Case(
        ("openai_quota", "anthropic_overloaded", "local_chat"),
        ("quota", "overloaded"),
        ChatCompletion,
    ),
    Case(("openai_rate_limit", "anthropic_tool_use"), LIMITED, Message, "tool"),
    Case(("anthropic_overloaded", "openai_tool_call"), OVERLOADED, ChatCompletion, "tool"),
    Case(("anthropic_rate_limit", "openai_responses"), LIMITED, Response, "responses"),
    Case(("openai_stream",), (), ChatCompletionChunk, "stream"),
    Case(("openai_rate_limit", "anthropic_stream"), LIMITED, object, "stream"),
    Case(("anthropic_overloaded", "openai_stream"), OVERLOADED, ChatCompletionChunk, "stream"),
    # Told inside an HTTP 200, before any content.
    Case(("anthropic_stream_error", "openai_stream"), OVERLOADED, ChatCompletionChunk, "stream"),
    Case(("openai_overloaded", "local_stream"), OVERLOADED, ChatCompletionChunk, "stream"),
]


@pytest.mark.vcr
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, marks=pytest.mark.upstream(*one.says), id="-".join(one.says))
        for one in CASES
    ],
)
async def test_the_first_failure_of_each_switches(sdk: Sdk, case: Case) -> None:
    """Each error is told by its kind; the answer is as its own SDK made it, and whole."""
    hosts = [name.partition("_")[0] for name in case.says]
    targets = [sdk.target(hosts[0], case.model), *map(sdk.target, hosts[1:])]
    unasked = [sdk.target("anthropic")] if len(targets) == 1 else []
    answer = await sdk.call(FallbackPolicy([*targets, *unasked]), case.what)

    chunks = answer if case.what == "stream" else [answer]
    assert all(isinstance(one, case.answer) for one in chunks)
    if case.what == "tool":
        assert "get_weather" in str(answer)
        assert "Oslo" in str(answer)
    elif hosts[-1] != "local":
        assert "harbor" in str(read_answer(answer).content).lower()
    if case.answer is ChatCompletionChunk:
        assert chunks[-1].usage.completion_tokens > 0
    if case.answer is object:
        assert [chunks[0].type, chunks[-1].type] == ["message_start", "message_stop"]
    record = sdk.record
    *failed, answered = record.attempts
    assert tuple(one.kind for one in failed) == case.kinds
    assert [one.wait for one in record.attempts] == [0] * len(targets)
    if case.status is not None:
        assert (failed[0].status, failed[0].retry_after) == (case.status, case.retry_after)
    assert sdk.asked == [target.name for target in targets]
    assert (record.outcome, answered.kind) == ("success", None)
    assert record.answered_by == targets[-1].name


@pytest.mark.vcr
@pytest.mark.upstream("openai_too_long", "anthropic_message")
async def test_a_prompt_too_long_goes_to_the_target_with_a_larger_window(sdk: Sdk) -> None:
    """A context overflow passes by a target that could not take the prompt either."""
    small = sdk.target("openai", context_window=8_192)
    same = sdk.target("local", context_window=8_192)
    large = sdk.target("anthropic", context_window=200_000)
    await sdk.call(FallbackPolicy([small, same, large]))
    assert sdk.record.attempts[0].kind == "context_overflow"
    assert sdk.record.attempts[0].code == "context_length_exceeded"
    assert sdk.asked == [small.name, large.name]


@pytest.mark.vcr
@pytest.mark.parametrize(
    ("error", "first", "other"),
    [
        pytest.param(
            openai.BadRequestError,
            {"provider": "openai", "context_window": 8_192},
            {"provider": "anthropic", "context_window": 8_192},
            marks=pytest.mark.upstream("openai_too_long"),
            id="too long for all",
        ),
        pytest.param(
            anthropic.BadRequestError,
            {"provider": "anthropic", "params": {"max_tokens": 0}},
            {"provider": "openai"},
            marks=pytest.mark.upstream("anthropic_bad_request"),
            id="a caller's mistake",
        ),
    ],
)
async def test_what_nobody_else_can_mend_comes_back_as_the_sdks_own_error(
    sdk: Sdk, error: type[Exception], first: Any, other: Any
) -> None:
    """At once, untouched, after one request."""
    targets = [sdk.target(**first), sdk.target(**other)]
    with pytest.raises(error):
        await sdk.call(FallbackPolicy(targets))
    assert sdk.asked == [targets[0].name]
    assert sdk.record.outcome == "rejected"


@pytest.mark.vcr
@pytest.mark.upstream("openai_overloaded", "anthropic_bad_key")
async def test_a_call_that_nobody_answers_carries_both_sdks_errors(sdk: Sdk) -> None:
    """The group holds the SDKs' own exceptions in the order they came."""
    with pytest.raises(FallbackExhausted) as caught:
        await sdk.call(FallbackPolicy([sdk.target("openai"), sdk.target("anthropic")]))
    errors = [*map(type, caught.value.exceptions)]
    assert errors == [openai.InternalServerError, anthropic.AuthenticationError]
    assert caught.value.record == sdk.record
    assert len(sdk.asked) == 2


# What may stand in a cassette, whoever recorded it.

CASSETTES = Path(__file__).resolve().parents[2] / "cassettes"
HOSTS = {"api.openai.com", "api.anthropic.com", "localhost:1234"}
HEADERS = {
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
}
SECRETS = re.compile(
    r"\bsk-\w{4}|bearer |x-api-key|127\.0\.0\.1|/home/|/tmp/|/root/", re.IGNORECASE
)


@pytest.mark.parametrize("path", sorted(CASSETTES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_a_cassette_says_who_spoke_and_holds_no_secret(path: Path) -> None:
    """Its first line names the speaker of each host; no key, no machine, only listed headers."""
    text = path.read_text("utf-8")
    assert not SECRETS.search(text)
    requests, responses = deserialize(text, yamlserializer)
    hosts = {urlsplit(request.uri).netloc for request in requests}
    assert hosts <= HOSTS
    first = text.splitlines()[0]
    assert first.startswith("# Recorded through mitmproxy ")
    assert all(f"{host} is " in first for host in hosts)
    kept = [request.headers for request in requests] + [answer["headers"] for answer in responses]
    assert {name.lower() for headers in kept for name in headers} <= HEADERS
