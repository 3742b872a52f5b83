"""Honcho's call path as its page has it, over real SDKs and strict providers; its own objects.

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
from pydantic import BaseModel, ValidationError

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    check_response,
    classify,
    has_content,
    read_answer,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import policy_from, portable_history
from tests.helpers import honcho, wire
from tests.helpers.own_rules import of_program
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


# Honcho's own objects: its configurations as policies, its answers, chunks and histories.


def model(name: str, transport: str, fallback: Any = None, **options: Any) -> honcho.ModelConfig:
    """Make a configuration of the shape that a call gets."""
    return honcho.ModelConfig(model=name, transport=transport, fallback=fallback, **options)


def pair(**options: Any) -> honcho.ModelConfig:
    return model("gpt", "openai", model("claude", "anthropic"), **options)


def requests(policy: FallbackPolicy, *errors: Exception | None, **options: Any) -> list[str]:
    """Return who is asked, where the first answers in order are these errors."""
    left, order = [*errors], list[str]()

    def ask(attempt: Any) -> str:
        order.append(attempt.target.model)
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return "hello"

    policy.call(ask, **options)
    return order


def test_each_target_carries_the_object_that_it_was_made_of() -> None:
    """HON-009, HON-016: who executes a call gets the object complete; nothing is inherited."""
    config = pair(temperature=0.5, api_key="own", base_url="https://u:pw@llm.example/v1")
    primary, fallback = policy_from(config, agent="deriver").targets
    assert (primary.client, fallback.client) == (config, config.fallback)
    assert primary.params == {"temperature": 0.5}
    assert fallback.params == {}
    assert (primary.endpoint, fallback.endpoint) == ("https://llm.example", None)
    assert primary.credential is not None
    assert primary.credential.get() == "own"
    # Its key and its address are Honcho's registry's to know.
    assert fallback.credential is None
    assert "pw" not in repr(primary)


def test_the_settings_shape_is_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOM-001, HOM-008, HOM-009: overrides, a key by the name of its variable, both of them."""
    monkeypatch.setenv("SPARE_KEY", "from-the-variable")
    spare = honcho.ConfiguredModelSettings(
        model="claude",
        transport="anthropic",
        thinking_effort="low",
        stop_sequences=["a"],
        cache_policy=honcho.CachePolicy(mode="prefix"),
        overrides=honcho.Overrides(api_key_env="SPARE_KEY", provider_params={"timeout": 600}),
    )
    config = honcho.ConfiguredModelSettings(
        model="gpt", transport="openai", fallback=spare, cache_policy=honcho.CachePolicy()
    )
    policy = policy_from(config)
    primary, fallback = policy.targets
    assert primary.params == {}
    assert fallback.params == {
        "thinking_effort": "low",
        "stop_sequences": ["a"],
        "cache_policy": {"mode": "prefix", "ttl_seconds": None, "key_version": "v1"},
        "provider_params": {"timeout": 600},
    }
    assert fallback.credential is not None
    assert fallback.credential.get() == "from-the-variable"
    assert policy.config.timeout == 600
    monkeypatch.delenv("SPARE_KEY")
    assert policy_from(config).targets[1].credential is None


class LLMError(Exception):
    """Honcho's, of a response that Gemini blocked."""


class StructuredOutputError(ValueError):
    """Honcho's, of an answer that is no JSON object."""


def invalid(model: type[BaseModel], given: str | dict[str, Any]) -> Exception:
    read = model.model_validate_json if isinstance(given, str) else model.model_validate
    with pytest.raises(ValidationError) as caught:
        read(given)  # type: ignore[arg-type] # each its own
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        StructuredOutputError("Unsupported payload: list"),
        LLMError("blocked (finish_reason=SAFETY)"),
        invalid(Facts, "I cannot do that: context length exceeded"),
        invalid(Facts, '{"facts": "invalid api key"}'),
        TypeError("'NoneType' object is not subscriptable"),
        IndexError("list index out of range"),
    ],
)
@pytest.mark.parametrize("config", [None, FallbackConfig.honcho(), FallbackConfig()])
def test_junk_switches(error: Exception, config: FallbackConfig | None) -> None:
    """What Honcho raises for an answer that it cannot use engages the fallback, as it is meant to.

    What the answer says is not read as an error's words.
    """
    policy = policy_from(pair(), config=config)
    run = policy.start()
    assert requests(policy, error, run=run) == ["gpt", "claude"]
    assert run.record.attempts[0].kind == "malformed_response"


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (invalid(honcho.ModelConfig, {}), {}),
        (invalid(Facts, {}), {"config": FallbackConfig(rules=of_program(ValidationError))}),
    ],
)
def test_the_programs_own_validation_stays_local(error: Exception, options: Any) -> None:
    """A settings object that is wrong would be wrong for the fallback, too; options come first."""
    with pytest.raises(ValidationError):
        requests(policy_from(pair(), **options), error)
    assert classify(error).kind == "local"


def test_other_options_are_kept() -> None:
    """A config of one's own takes the place of the preset, and its own timeout stays."""
    config = FallbackConfig(fallback_on={"invalid_request"}, timeout=7)
    policy = policy_from(pair(provider_params={"timeout": 9}), config=config, retry_attempts=4)
    assert policy.config.timeout == 7
    assert requests(policy, StatusError(400)) == ["gpt", "claude"]


@pytest.mark.parametrize("key", [None, "own"])
def test_policies_made_for_each_call_share_a_cooldown(key: str | None) -> None:
    """HRC-042: equal objects are one target, although each call makes its policy anew."""
    config = FallbackConfig.honcho(cooldown=Cooldown(after=1, base=60))
    down = [StatusError(503)]
    assert requests(policy_from(pair(api_key=key), config=config), *down) == ["gpt", "claude"]
    assert requests(policy_from(pair(api_key=key), config=config)) == ["claude"]
    assert requests(policy_from(pair(api_key="another"), config=config)) == ["gpt"]
    elsewhere = pair(api_key=key, base_url="https://llm.example/v1")
    assert requests(policy_from(elsewhere, config=config)) == ["gpt"]


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ({"api_key": "second", "base_url": "https://llm.example/v1"}, "openai/gpt@llm.example"),
        ({"temperature": 0.2}, "openai/gpt#2"),
        ({"provider_params": {"extra_body": {}}}, "openai/gpt#2"),
    ],
)
def test_the_same_model_elsewhere_or_asked_otherwise_is_a_fallback(
    own: dict[str, Any], name: str
) -> None:
    """HRC-014: Honcho asks it, too; it may answer where the other did not, under its own name."""
    policy = policy_from(model("gpt", "openai", model("gpt", "openai", **own)))
    record = policy.start()
    assert requests(policy, StatusError(503), run=record) == ["gpt", "gpt"]
    assert [one.target for one in record.record.attempts] == ["openai/gpt", name]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "model_config: got None; pass Honcho's ModelConfig"),
        (model("gpt", "OpenAI"), "transport 'OpenAI' and model 'gpt'; name a model and one of"),
        (object(), "model_config: a object with transport None and model None"),
        (model("gpt", "openai", api_key="a b"), "the key of gpt: .*a sign no key has"),
    ],
)
def test_what_is_no_model_is_refused(config: Any, message: str) -> None:
    """Bad input is named at once, and no key is shown."""
    with pytest.raises(FallbackConfigError, match=message) as caught:
        policy_from(config)
    assert "a b" not in str(caught.value)


CALL = {"id": "call_1", "name": "search", "input": {"query": "tea"}}


def chunk(content: str = "", **fields: Any) -> honcho.HonchoLLMCallStreamChunk:
    return honcho.HonchoLLMCallStreamChunk(content=content, **fields)


def test_what_an_answer_says_is_read() -> None:
    """Text, tokens and the end; of an answer with calls, a message; of a stream, its text.

    An empty first chunk and the final one settle no target; dicts of the shape are read likewise.
    What an ending says of an answer stands in answers.json.
    """
    text = honcho.HonchoLLMCallResponse[str](
        content="tea", input_tokens=9, output_tokens=4, finish_reasons=["stop"]
    )
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    assert read_answer(text)[:3] == ("tea", usage, "stop")
    calls = honcho.HonchoLLMCallResponse[str](content="", tool_calls_made=[CALL])
    called = {"name": "search", "arguments": {"query": "tea"}}
    message = {"role": "assistant", "content": "", "tool_calls": [called]}
    assert read_answer(calls).content == message
    end = chunk(is_done=True, finish_reasons=["stop"], output_tokens=3)
    chunks: list[Any] = [chunk(), chunk("te"), chunk("a"), end]
    assert read_answer(chunks)[:3:2] == ("tea", "stop")
    for given in (chunks, [one.model_dump() for one in chunks]):
        assert [has_content(one) for one in given] == [False, True, True, False]


def test_other_classes_of_these_fields_are_left_alone() -> None:
    """A program's own class may use the same names for something else."""

    class Report(BaseModel):
        content: str
        finish_reasons: list[str]

    assert check_response(Report(content="", finish_reasons=["error"])) is None


SYSTEM = {"role": "system", "content": "Be kind."}
QUESTION = {"role": "user", "content": "What tea?"}


def called(transport: str) -> list[dict[str, Any]]:
    """Return a call and its result, as Honcho writes them."""
    if transport == "gemini":
        call = {"function_call": {"name": "search", "args": {"leaf": "green"}}}
        result = {"function_response": {"name": "search", "response": {"result": "much"}}}
        return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
    made = {"id": "call_1", "name": "search", "input": {"leaf": "green"}}
    turn = [honcho.format_assistant_tool_message(transport, "", [made], [])]
    honcho.append_tool_results(transport, [{"tool_id": "call_1", "result": "much"}], turn)
    return turn


TRANSPORTS = ["openai", "anthropic", "gemini"]


@pytest.mark.parametrize("made_by", TRANSPORTS)
@pytest.mark.parametrize("for_", TRANSPORTS)
def test_a_history_moves_with_its_system_message(made_by: str, for_: str) -> None:
    """Honcho's plain texts are read, whatever the transport; of the same one nothing changes."""
    history = [SYSTEM, QUESTION, *called(made_by)]
    moved = portable_history(history, made_by=made_by, for_=for_)
    if made_by == for_:
        assert moved == history
        return
    assert moved[0] == SYSTEM
    text = {"gemini": {"role": "user", "parts": [{"text": "What tea?"}]}}.get(for_, QUESTION)
    assert moved[1] in (text, {**QUESTION, "content": [{"type": "text", "text": "What tea?"}]})
    call, result = moved[2:]
    if for_ == "gemini":  # as Honcho names them, which looks for these
        assert call["parts"][0]["function_call"]["args"] == {"leaf": "green"}
        assert call["parts"][0]["thought_signature"] == b"skip_thought_signature_validator"
        assert result["parts"][0]["function_response"]["response"] == {"result": "much"}
    elif for_ == "openai":
        assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    else:
        assert call["content"][0]["id"] == result["content"][0]["tool_use_id"]


def test_calls_of_gemini_have_ids_of_their_own_in_each_turn() -> None:
    """Its format has none; Anthropic refuses a history in which one comes twice."""
    turns = [
        portable_history(called("gemini"), made_by="gemini", for_="anthropic") for _ in range(2)
    ]
    ids = {call["content"][0]["id"] for call, _ in turns}
    assert len(ids) == 2
    assert ids == {result["content"][0]["tool_use_id"] for _, result in turns}


def test_an_unknown_transport_is_named() -> None:
    """The kit's formats have other names than Honcho's transports."""
    with pytest.raises(FallbackConfigError, match="google: no such made_by"):
        portable_history([QUESTION], made_by="google", for_="openai")
    with pytest.raises(FallbackConfigError, match="claude: no such for_"):
        portable_history([QUESTION], made_by="openai", for_="claude")
