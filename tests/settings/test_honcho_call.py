"""The worked example: what Honcho's own call does, on the real SDKs and simulated providers.

The providers refuse whatever the real one would refuse of a history in another one's form.
"""

# ruff: noqa: E501 # a strict provider is a list of what it refuses

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    StreamInterrupted,
    Target,
)
from honcho_fallback.settings import (
    Endpoint,
    Message,
    Reply,
    Tool,
    ToolCall,
    _clients,
    aclose_clients,
    ahoncho_call,
    ahoncho_stream,
    build_client,
    close_clients,
    honcho_call,
    honcho_stream,
    load_policies,
)
from honcho_fallback.testing import StatusError, fault_simulator, local_model_server
from tests.helpers import wire
from tests.helpers.provider import Reply as ProviderReply
from tests.helpers.strict import AnthropicRules, ChatRules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from honcho_fallback.testing import FaultSimulator, LocalModel
    from tests.helpers.provider import ProviderServer, SeenRequest
    from tests.helpers.wire import Json

F = "DERIVER_MODEL_CONFIG__FALLBACK"
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Which city is warm?"},
]
TOOLS = [Tool("thermometer", "Read one city.", {"type": "object", "properties": {"city": {"type": "string"}}})]  # fmt: skip


@pytest.fixture(scope="module")
def _simulator() -> Iterator[FaultSimulator]:
    with fault_simulator() as simulator:
        yield simulator


@pytest.fixture
def faults(_simulator: FaultSimulator) -> FaultSimulator:
    _simulator.reset()
    return _simulator


@pytest.fixture(scope="module")
def local_model() -> Iterator[LocalModel]:
    with local_model_server() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def _closed_clients() -> Iterator[None]:
    yield
    close_clients()


def simulated(faults: FaultSimulator, primary: str, fallback: str, **more: str) -> FallbackPolicy:
    """Load the deriver's policy with its providers on this machine."""
    environ = {
        "DERIVER_MODEL_CONFIG__TRANSPORT": primary,
        "DERIVER_MODEL_CONFIG__MODEL": "model-one",
        f"{F}__TRANSPORT": fallback,
        f"{F}__MODEL": "model-two",
        **{f"LLM_{name.upper()}_BASE_URL": faults.base_url(name) for name in WIRES},
        **{f"LLM_{name.upper()}_API_KEY": f"{name}-key" for name in WIRES},
        **more,
    }
    return load_policies(environ)["deriver"]


WIRES = ("openai", "anthropic", "gemini")
PAIRS = [(one, two) for one in WIRES for two in WIRES if one != two]
both_ways = pytest.mark.parametrize(("primary", "fallback"), PAIRS)


def ask(policy: FallbackPolicy, *, is_async: bool, **options: Any) -> Reply:
    async def in_a_task() -> Reply:
        try:
            return await ahoncho_call(policy, ASKED, **options)
        finally:
            await aclose_clients()

    return asyncio.run(in_a_task()) if is_async else honcho_call(policy, ASKED, **options)


@pytest.mark.parametrize("is_async", [False, True])
@both_ways
def test_text(faults: FaultSimulator, primary: str, fallback: str, is_async: bool) -> None:
    """HON-002, HON-016, HON-017: one request to the dead primary, then the fallback's own wire."""
    policy = simulated(faults, primary, fallback)
    faults.fail(503, times=None, provider=primary)
    faults.reply("Lima", provider=fallback)
    reply = ask(policy, is_async=is_async)
    assert (reply.text, reply.target) == ("Lima", f"{fallback}/model-two")
    assert reply.usage["output_tokens"] > 0
    assert [message.role for message in reply.history] == ["system", "user", "assistant"]
    assert [len(faults.requests(name)) for name in (primary, fallback)] == [1, 1]


class City(BaseModel):
    name: str


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("said", ['{"name": "Lima"}', '```json\n{"name": "Lima"}\n```'])
def test_json(faults: FaultSimulator, wire: str, said: str) -> None:
    """HOM-060: an answer is parsed into its model, however it is wrapped."""
    other = "gemini" if wire != "gemini" else "openai"
    faults.reply(said, provider=wire)
    assert ask(simulated(faults, wire, other), is_async=False, response_model=City).value == City(
        name="Lima"
    )
    faults.reply(said, provider=wire)
    assert ask(simulated(faults, wire, other), is_async=True, response_model=dict).value == {
        "name": "Lima"
    }


@pytest.mark.parametrize("junk", ["no JSON at all", '{"town": "Lima"}', "[1]"])
def test_junk_instead_of_json_goes_to_the_fallback(faults: FaultSimulator, junk: str) -> None:
    """HOM-060, G-17: what is not the wanted JSON is a malformed response, and the next is asked."""
    policy = simulated(faults, "openai", "anthropic")
    faults.reply(junk, times=None, provider="openai")
    faults.reply('{"name": "Lima"}', provider="anthropic")
    assert honcho_call(policy, ASKED, response_model=City).target == "anthropic/model-two"
    faults.reset()
    faults.reply(junk, times=None, provider="openai")
    faults.reply("", times=None, provider="anthropic")
    with pytest.raises(FallbackExhausted):
        honcho_call(
            policy.__class__(policy.targets, FallbackConfig(wait=0)), ASKED, response_model=City
        )


async def pieces(policy: FallbackPolicy) -> list[str]:
    try:
        return [piece async for piece in ahoncho_stream(policy, ASKED)]
    finally:
        await aclose_clients()


@pytest.mark.parametrize("is_async", [False, True])
@both_ways
def test_streams_switch_until_their_first_text(
    faults: FaultSimulator, primary: str, fallback: str, is_async: bool
) -> None:
    """HOM-051: a stream that breaks off before its first text is asked of the fallback."""
    policy = simulated(faults, primary, fallback)
    faults.cut_stream(after_chunks=0 if primary == "gemini" else 1, provider=primary)
    faults.reply("Lima is warm", provider=fallback)
    said = asyncio.run(pieces(policy)) if is_async else list(honcho_stream(policy, ASKED))
    assert "".join(said) == "Lima is warm"


def test_a_stream_that_breaks_after_text_says_so(faults: FaultSimulator) -> None:
    """HON-029: nobody else is asked once text was handed out."""
    faults.reply("one two three four five six seven eight", provider="openai")
    faults.cut_stream(after_chunks=3, provider="openai")
    with pytest.raises(StreamInterrupted):
        list(honcho_stream(simulated(faults, "openai", "anthropic"), ASKED))


def test_the_local_model_answers_where_the_provider_is_down(
    faults: FaultSimulator, local_model: LocalModel
) -> None:
    """HON-059: lmstudio is any local server of OpenAI's wire; the default key stays at home."""
    policy = load_policies(
        {
            "LLM_OPENAI_BASE_URL": faults.base_url("openai"),
            "LLM_OPENAI_API_KEY": "openai-key",
            "LLM_LMSTUDIO_BASE_URL": local_model.base_url,
            f"{F}__MODEL": f"lmstudio/{local_model.model}",
            f"{F}__MAX_OUTPUT_TOKENS": "8",
        }
    )["deriver"]
    faults.fail(429, retry_after=30, times=None)
    reply = honcho_call(policy, ASKED)
    assert reply.text
    assert reply.usage["output_tokens"] == 8
    called = honcho_call(policy, ASKED, tools=TOOLS, tool_choice="any", max_tokens=64)
    assert [call.name for call in called.calls] == ["thermometer"]
    assert "".join(honcho_stream(policy, ASKED))


# --- what a provider accepts -----------------------------------------------------------------


class Providers:
    """Two strict providers that call the tool as often as they are told, then answer."""

    def __init__(self, server: ProviderServer) -> None:
        self.server = server
        self.bodies: list[Json] = []
        self.down: dict[str, list[int]] = {"openai": [], "anthropic": []}
        self.rounds = 2
        server["openai"].rules, server["anthropic"].rules = ChatRules(), AnthropicRules()
        server["openai"].standing = self.openai
        server["anthropic"].standing = self.anthropic

    def _is_down(self, name: str, body: Json) -> bool:
        self.bodies.append(body)
        return bool(self.down[name] and self.down[name].pop(0))

    def _round(self, body: Json) -> int | None:
        """Return the number of the next call of the tool, or None where it is not called."""
        history = json.dumps(body["messages"])
        number = history.count('"city"') + history.count('\\"city\\"')
        return number if number < self.rounds else None

    def openai(self, request: SeenRequest) -> ProviderReply:
        body = request.body
        if self._is_down("openai", body):
            return ProviderReply(status=503)
        number = None if body.get("tool_choice") == "none" else self._round(body)
        if number is None:
            return ProviderReply(text="Lima")
        call = wire.chat_call(f"functions.thermometer:{number}", "thermometer", {"city": "c"})
        return ProviderReply(body=wire.chat_answer(None, call))

    def anthropic(self, request: SeenRequest) -> ProviderReply:
        body = request.body
        if self._is_down("anthropic", body):
            return ProviderReply(status=503)
        number = None if body.get("tool_choice", {}).get("type") == "none" else self._round(body)
        if number is None:
            return ProviderReply(text="Lima")
        call = wire.tool_use(f"toolu_{number}", "thermometer", {"city": "c"})
        thought = {"type": "thinking", "thinking": "hm", "signature": "signed-by-anthropic"}
        blocks = [thought, call] if body.get("thinking") else [call]
        return ProviderReply(body=wire.message_answer(*blocks))

    def policy(
        self,
        primary: str,
        fallback: str,
        config: FallbackConfig | None = None,
        thinks: str = "",
        **more: str,
    ) -> FallbackPolicy:
        environ = {
            "DERIVER_MODEL_CONFIG__TRANSPORT": primary,
            "DERIVER_MODEL_CONFIG__MODEL": "one",
            f"{F}__TRANSPORT": fallback,
            f"{F}__MODEL": "two",
            "LLM_OPENAI_BASE_URL": self.server["openai"].url,
            "LLM_ANTHROPIC_BASE_URL": self.server["anthropic"].url,
            "LLM_OPENAI_API_KEY": "openai-key",
            "LLM_ANTHROPIC_API_KEY": "anthropic-key",
            **({f"{thinks}__THINKING_BUDGET_TOKENS": "1024"} if thinks else {}),
            **more,
        }
        return load_policies(environ, config=config)["deriver"]

    @property
    def asked(self) -> list[str]:
        return self.server.order


@pytest.fixture
def providers(provider_server: ProviderServer) -> Providers:
    provider_server.reset()
    return Providers(provider_server)


def read(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} {len(arguments)}: 21 degrees"


async def aread(name: str, arguments: Mapping[str, Any]) -> str:
    return read(name, arguments)


TWO_WAYS = [("openai", "anthropic"), ("anthropic", "openai")]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("down", [[1], [0, 1], [1, 0, 1], [0, 1, 0]])
@pytest.mark.parametrize(("primary", "fallback"), TWO_WAYS)
def test_after_a_switch_in_a_tool_loop_the_primary_accepts_the_history(  # a table of all cases
    providers: Providers,
    primary: str,
    fallback: str,
    down: list[int],
    thinks: bool,
    is_async: bool,
) -> None:
    """HOM-046 to HOM-049, HON-014: each iteration starts on the primary, in its own form."""
    prefix = "DERIVER_MODEL_CONFIG" if primary == "anthropic" else F
    policy = providers.policy(primary, fallback, thinks=prefix if thinks else "")
    providers.down[primary] = list(down)
    reply = ask(policy, is_async=is_async, tools=TOOLS, execute=aread if is_async else read)
    assert reply.text == "Lima"
    # Two rounds of tools and the answer; each dead primary cost one more request, and no 400 any.
    pattern = [primary if not dead else None for dead in [*down, 0, 0, 0][:3]]
    expected = [who for one in pattern for who in ([primary] if one else [primary, fallback])]
    assert providers.asked == expected
    assert [message.role for message in reply.history[2:]] == ["assistant", "tool"] * 2 + [
        "assistant"
    ]


def test_the_turn_stays_where_it_works(providers: Providers) -> None:
    """HRS-010: with reset="turn" the loop goes on with the fallback."""
    policy = providers.policy("openai", "anthropic", FallbackConfig(reset="turn"))
    providers.down["openai"] = [1]
    with policy.turn():
        honcho_call(policy, ASKED, tools=TOOLS, execute=read)
    assert providers.asked == ["openai", *["anthropic"] * 3]


def test_thoughts_go_back_to_whom_they_came_from_and_nobody_else(providers: Providers) -> None:
    """HOM-049: Anthropic's thinking blocks return to Anthropic as they are, and OpenAI sees none."""
    policy = providers.policy("anthropic", "openai", thinks="DERIVER_MODEL_CONFIG")
    providers.down["anthropic"] = [0, 0, 1]
    honcho_call(policy, ASKED, tools=TOOLS, execute=read)
    assert providers.asked == ["anthropic"] * 3 + ["openai"]
    back, seen = json.dumps(providers.bodies[2]), json.dumps(providers.bodies[3])
    assert back.count("signed-by-anthropic") == 2
    assert "thinking" not in seen


def test_a_turns_own_form_is_for_its_own_endpoint() -> None:
    """HOM-049: another endpoint, even of the same wire, gets the neutral form."""
    message = Message("assistant", "hm", origin="anthropic https://one", native=[{"type": "text"}])
    assert message.native_for("anthropic https://one") == [{"type": "text"}]
    assert message.native_for("anthropic https://two") is None


def test_a_tools_error_is_the_models_business(providers: Providers) -> None:
    """HOM-044, G-18: a tool that fails like a provider switches nothing."""
    policy = providers.policy("openai", "anthropic")

    def broken(name: str, arguments: Mapping[str, Any]) -> str:
        raise StatusError(503)

    reply = honcho_call(policy, ASKED, tools=TOOLS, execute=broken)
    assert providers.asked == ["openai"] * 3
    results = [message for message in reply.history if message.role == "tool"]
    assert [(result.is_error, result.text) for result in results] == [(True, "The tool failed: StatusError: HTTP 503")] * 2  # fmt: skip


def test_a_models_failure_inside_a_tool_switches_there_only(providers: Providers) -> None:
    """A delegated call falls back by its own policy; the outer one stays on its primary."""
    outer = providers.policy("openai", "anthropic")
    records: list[Any] = []

    def delegate(name: str, arguments: Mapping[str, Any]) -> str:
        inner = FallbackPolicy([Target("one"), Target("two")])
        run = inner.start()

        def answer(attempt: Any) -> str:
            if attempt.target.name == "one":
                raise StatusError(503)
            return "21"

        said = inner.call(answer, run=run)
        records.append(run.record)
        return said

    honcho_call(outer, ASKED, tools=TOOLS, execute=delegate)
    assert providers.asked == ["openai"] * 3
    assert [record.answered_by for record in records] == ["two", "two"]


@pytest.mark.parametrize(("primary", "fallback"), TWO_WAYS)
def test_at_the_cap_the_model_answers_without_tools(
    providers: Providers, primary: str, fallback: str
) -> None:
    """HOM-040, HOM-045, HON-015: the last request starts on the primary, and may call nothing."""
    policy = providers.policy(primary, fallback)
    providers.rounds = 99
    reply = honcho_call(
        policy, ASKED, tools=TOOLS, tool_choice="required", execute=read, max_iterations=2
    )
    assert reply.text == "Lima"
    assert providers.asked == [primary] * 3
    choices = [str(body["tool_choice"]) for body in providers.bodies]
    assert [
        next(word for word in ("none", "auto", "any", "required") if word in choice)
        for choice in choices
    ] in (
        ["required", "auto", "none"],
        ["any", "auto", "none"],
    )


@pytest.mark.parametrize("cap", [0, 101, True])
def test_the_cap_is_1_to_100(providers: Providers, cap: int) -> None:
    """HOM-040: another number is refused, before anybody is asked."""
    with pytest.raises(FallbackConfigError, match="max_iterations: got"):
        honcho_call(providers.policy("openai", "anthropic"), ASKED, max_iterations=cap)
    assert not providers.asked


def test_what_the_caller_says_wins(providers: Providers) -> None:
    """HON-010 to HON-013: thinking only on the primary; temperature, stop and length on both."""
    config = FallbackConfig(max_attempts=2)
    policy = providers.policy("openai", "anthropic", config, **{f"{F}__TEMPERATURE": "0.9"})
    providers.down["openai"] = [1]
    honcho_call(
        policy, ASKED, temperature=0.0, stop=["END"], max_tokens=77,
        reasoning_effort="high", bump_temperature=True,
    )  # fmt: skip
    first, second = providers.bodies
    assert {
        "temperature": 0,
        "stop": ["END"],
        "max_tokens": 77,
        "reasoning_effort": "high",
    }.items() <= first.items()
    assert {
        "temperature": 0.2,
        "stop_sequences": ["END"],
        "max_tokens": 77,
    }.items() <= second.items()
    assert not second.keys() & {"output_config", "thinking"}


SENTINEL = "sk-sentinel-7f3a9c2e51"
STRAY = (
    "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "GEMINI_API_KEY",
)  # fmt: skip


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("transport", WIRES)
def test_nothing_of_the_environment_reaches_a_host(
    transport: str,
    is_async: bool,
    provider_server: ProviderServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HOM-021: the SDKs' own variables are for the SDKs' own hosts; a redirect gets no key."""
    for name in STRAY:
        monkeypatch.setenv(name, SENTINEL)
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(
            f"{name}_CUSTOM_HEADERS", f"Authorization: Bearer {SENTINEL}\nX-Own: {SENTINEL}"
        )
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    provider_server.reset()
    provider = provider_server.new("redirecting")
    location = {"location": f"{provider_server.url}/elsewhere"}
    provider.standing = ProviderReply(status=307, body="{}", headers=location)
    target = Target("m", transport, client=Endpoint(transport, f"{provider.url}/v1", "own-key"))
    with pytest.raises(Exception):  # noqa: B017 # whatever an SDK makes of a redirect
        ask(FallbackPolicy([target], FallbackConfig(max_attempts=1)), is_async=is_async)
    (only,) = provider.requests
    assert provider_server.order == [provider.name]
    assert "own-key" in repr(only)
    assert SENTINEL not in repr(only)


@pytest.mark.parametrize("wire", WIRES)
def test_clients_have_no_retries_and_the_targets_timeout(
    faults: FaultSimulator, wire: str
) -> None:
    """HON-044, HON-053, HOM-025, HOM-026: one request per attempt, and the timeout on every wire."""
    policy = simulated(faults, wire, "openai" if wire != "openai" else "gemini")
    one = FallbackPolicy(policy.targets[:1], FallbackConfig(max_attempts=1))
    for status in (408, 429, 500, 503):
        faults.reset()
        faults.fail(status, times=None, provider=wire)
        run = one.start()
        with pytest.raises(Exception) as caught:  # each SDK has its own
            honcho_call(one, ASKED)
        with pytest.raises(type(caught.value)):
            run.fail(caught.value)
        assert run.record.attempts[0].status == status
        assert len(faults.requests(wire)) == 1
    client = build_client(policy.targets[0])
    if wire == "gemini":
        assert client._api_client._http_options.timeout == 180_000
    else:
        assert (client.max_retries, client.timeout.read, client.timeout.connect) == (0, 180, 5)


def endpoint(**changes: Any) -> Target:
    given = {"base_url": "http://127.0.0.1:9", "api_key": "one", **changes}
    return Target("m", client=Endpoint("openai", **given))


def test_clients_are_cached_by_endpoint_and_credential() -> None:
    """HON-060: the same endpoint and key share a client, another key never does."""
    first = build_client(endpoint())
    assert build_client(endpoint()) is first
    for other in ({"api_key": "two"}, {"base_url": "http://127.0.0.1:8"}, {"timeout": 3.0}):
        assert build_client(endpoint(**other)) is not first

    async def in_a_loop() -> Any:
        one = build_client(endpoint(), asynchronous=True)
        assert build_client(endpoint(), asynchronous=True) is one
        await aclose_clients()
        assert build_client(endpoint(), asynchronous=True) is not one
        await aclose_clients()
        return one

    assert asyncio.run(in_a_loop()) is not asyncio.run(in_a_loop())
    close_clients()
    assert first.is_closed()
    assert build_client(endpoint()) is not first


def test_no_event_loop_is_kept_alive() -> None:
    """What was made for a loop that is gone goes at the next chance, however often."""

    async def in_a_loop() -> None:
        build_client(endpoint(), asynchronous=True)

    for _ in range(3):
        asyncio.run(in_a_loop())
    assert len([loop for loop in _clients._CLIENTS._kept if loop is not None]) == 1


def test_a_missing_key_asks_nobody_and_goes_to_the_fallback(providers: Providers) -> None:
    """HOM-023: to a policy it is a failed authentication; no request leaves without a key."""
    policy = providers.policy("openai", "anthropic", FallbackConfig(), LLM_OPENAI_API_KEY="")
    assert honcho_call(policy, ASKED).target == "anthropic/two"
    assert providers.asked == ["anthropic"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"response_model": 3}, "response_model: got 3"),
        ({"tools": [{}]}, "tools: one has no name"),
        ({"seed": 3}, "seed: no such option; choose from tools,"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    """What cannot be asked for is named before anybody is asked."""
    policy = FallbackPolicy([endpoint()])
    with pytest.raises(FallbackConfigError, match=message):
        honcho_call(policy, ASKED, **options)


@pytest.mark.parametrize(
    "message", [{"role": "robot", "content": "x"}, {"role": "user", "content": [1]}]
)
def test_bad_messages_are_refused(message: dict[str, Any]) -> None:
    """A message that no wire could carry is named by its place, its text is not shown."""
    with pytest.raises(FallbackConfigError, match=r"messages\[0\]: it has no role and text"):
        honcho_call(FallbackPolicy([endpoint()]), [message])


def test_a_target_without_an_endpoint_is_refused() -> None:
    """Whoever wrote the target by hand is told what it needs."""
    with pytest.raises(FallbackConfigError, match="pass client=Endpoint"):
        build_client(Target("m"))


def test_nothing_said_is_shown() -> None:
    """HON-075: neither a reply nor a message shows its text in a repr."""
    message = Message("user", SENTINEL, (ToolCall("1", "t", {"key": SENTINEL}),), native=SENTINEL)
    assert SENTINEL not in repr(message) + repr(Reply(message, {}, "t"))
