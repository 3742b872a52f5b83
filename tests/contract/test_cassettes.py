"""The real SDKs, LangChain's models and a Router at the providers' real addresses, from cassettes.

Each way to fail costs one request and no wait: a second one would be refused by the cassette, and
the SDKs in LangChain and LiteLLM keep their default retries.
"""

from __future__ import annotations

import os
import re
import tomllib
from functools import reduce
from importlib.util import find_spec
from inspect import isawaitable
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
from anthropic.types import Message
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import BaseModel
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from honcho_fallback import FallbackExhausted, FallbackPolicy, Target, read_answer
from honcho_fallback_langchain import FallbackChatModel
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcr.cassette import Cassette

    from honcho_fallback import Attempt

SAY = "Answer with the one word: harbor"
WEATHER = "What is the weather in Oslo? Use the tool."
# Of each provider: its model, and where it is.
PROVIDERS = {
    "openai": ("gpt-5.5", "https://api.openai.com/v1"),
    "anthropic": ("claude-sonnet-5", "https://api.anthropic.com"),
    "local": ("tiny-local", "http://localhost:1234/v1"),
}
HOSTS = {name: urlsplit(url).netloc for name, (_, url) in PROVIDERS.items()}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Weather(BaseModel):
    """Name the city whose weather is asked for."""

    city: Literal["Oslo", "Lima"]


def get_weather(city: Literal["Oslo", "Lima"]) -> str:
    """Tell the weather of a city."""
    return city


class Place(NamedTuple):
    """Say who is asked, and with what.

    Args:
        provider: Of ``PROVIDERS``.
        is_trusted: Whether its key is a real one while a cassette is recorded.
        max_tokens: How long an answer may be, where that is not as ever.
        target: Of the core's target.
    """

    provider: str
    is_trusted: bool = True
    max_tokens: int | None = None
    target: dict[str, Any] = {}  # noqa: RUF012 # never written to

    @property
    def key(self) -> str:
        given = os.environ.get(f"{self.provider.upper()}_API_KEY") or "none"
        return given if self.is_trusted else "not-a-key"


class Core:
    """OpenAI's and Anthropic's SDKs behind a policy."""

    folder = "test_cassettes"
    rejects: dict[str, Any] = {  # noqa: RUF012 # never written to
        "openai": openai.BadRequestError,
        "anthropic": anthropic.BadRequestError,
    }

    @staticmethod
    def target(place: Place, *, is_async: bool) -> Target:
        model, url = PROVIDERS[place.provider]
        sdk: Any = anthropic if place.provider == "anthropic" else openai
        make = sdk.AsyncClient if is_async else sdk.Client
        client = make(api_key=place.key, base_url=url, max_retries=0)
        # A local one would talk on and on.
        most = 16 if place.provider == "local" else place.max_tokens
        params = {} if most is None else {"max_tokens": most}
        given: dict[str, Any] = {"model": model, "params": params, **place.target}
        return Target(provider=place.provider, client=client, **given)

    async def ask(self, places: list[Place], what: str, heard: Listener, *, is_async: bool) -> Any:
        targets = [self.target(place, is_async=is_async) for place in places]
        policy = FallbackPolicy(targets, observers=[heard])
        verb = "stream" if what == "stream" else "call"
        try:
            answer = getattr(policy, "a" * is_async + verb)(lambda attempt: create(attempt, what))
            return await read(answer, what, is_async=is_async)
        finally:
            for target in targets:
                await read(target.client.close(), "", is_async=is_async)


def create(attempt: Attempt, what: str) -> Any:
    """Ask for a word, a stream of it, the call of a tool, or a word of Responses."""
    target, is_tool = attempt.target, what == "tools"
    client: Any = target.client
    messages: Any = [{"role": "user", "content": WEATHER if is_tool else SAY}]
    if what == "responses" and target.provider == "openai":
        return client.responses.create(model=target.model, input=messages)
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


async def read(answer: Any, what: str, *, is_async: bool) -> Any:
    """Wait for an answer, or read a stream to its end."""
    if isawaitable(answer):
        answer = await answer
    if what != "stream":
        return answer
    return [chunk async for chunk in answer] if is_async else [*answer]


class LangChain:
    """Integrations' own models behind a FallbackChatModel."""

    folder, rejects = "test_langchain", Core.rejects

    @staticmethod
    def model(place: Place) -> Any:
        most = 64 if place.max_tokens is None else place.max_tokens
        model, url = PROVIDERS[place.provider]
        given: Any = {"model": model, "base_url": url, "api_key": place.key, "timeout": 30}
        if place.provider == "anthropic":
            return ChatAnthropic(max_tokens=most, stop=None, **given)
        return ChatOpenAI(max_completion_tokens=most, stream_usage=True, **given)

    async def ask(self, places: list[Place], what: str, heard: Listener, *, is_async: bool) -> Any:
        model: Any = FallbackChatModel(*map(self.model, places), observers=[heard])
        if what == "tools":
            model = model.bind_tools([get_weather], tool_choice="any")
        if what == "structured":
            model = model.with_structured_output(Weather, include_raw=True)
        verb = "stream" if what == "stream" else "invoke"
        asked = WEATHER if what in {"tools", "structured"} else SAY
        answer = getattr(model, "a" * is_async + verb)(asked)
        return await read(answer, what, is_async=is_async)


class LiteLLM:
    """A Router with the strategy: sync on httpx, async on aiohttp."""

    folder = "test_litellm"
    rejects = dict.fromkeys(PROVIDERS, openai.BadRequestError)  # LiteLLM's own is one

    async def ask(self, places: list[Place], what: str, heard: Listener, *, is_async: bool) -> Any:
        import litellm  # noqa: PLC0415 # may be missing
        from litellm.llms.custom_httpx import async_client_cleanup  # noqa: PLC0415

        from honcho_fallback_litellm import FallbackRoutingStrategy  # noqa: PLC0415
        from tests.helpers.litellm_runs import deployment  # noqa: PLC0415

        models = []
        for rank, place in enumerate(places):
            model, url = PROVIDERS[place.provider]
            api = {"local": "lm_studio"}.get(place.provider, place.provider)
            most = {} if place.provider == "openai" else {"max_tokens": 16}
            given = {"api_key": place.key, **most}
            models.append(
                deployment("chain", f"{api}/{model}", url, rank, place.provider, **given)
            )
        router: Any = litellm.Router(model_list=models)
        FallbackRoutingStrategy(observers=[heard]).register(router)
        messages: Any = [{"role": "user", "content": SAY}]
        given = {"model": "chain", "messages": messages, "stream": what == "stream"}
        answer: Any = router.acompletion(**given) if is_async else router.completion(**given)
        try:
            return await read(answer, what, is_async=is_async)
        finally:
            await async_client_cleanup.close_litellm_async_clients()
            litellm.in_memory_llm_clients_cache.flush_cache()


WAYS: dict[str, Any] = {"core": Core(), "langchain": LangChain()}
if find_spec("litellm"):  # the lowest versions of some frameworks exclude others
    WAYS["litellm"] = LiteLLM()


class Failing(NamedTuple):
    """Say what an error has to be taken for, and of which class it is in LangChain."""

    status: int | None
    kind: str
    retry_after: float | None = None
    error: str = ""


# What is recorded, and who is asked for it.
TABLES: Any = tomllib.loads(Path(__file__).with_name("cassettes.toml").read_text("utf-8"))
FAILING = {name: Failing(**fields) for name, fields in TABLES["failing"].items()}
SHAPES = ("text", "tools", "structured", "stream")


def told(way: str, what: str, *says: str, values: tuple[Any, ...] = (), name: bool = True) -> Any:
    """Make one case, say what is recorded for it, and name its cassette.

    Sync and async share one, and an error is the same whatever LangChain is asked for.
    """
    parts = [*([what] if way == "langchain" and name else []), *says]
    # LangChain's integrations share asynchronous clients between models, so they share a loop.
    loop = pytest.mark.asyncio(loop_scope="module")
    marks = [pytest.mark.upstream(*says), pytest.mark.vcr, loop]
    marks.append(pytest.mark.default_cassette(f"{WAYS[way].folder}/{'-'.join(parts)}"))
    if way == "litellm":
        from tests.helpers.litellm_runs import THEIRS  # noqa: PLC0415 # it imports LiteLLM

        marks += map(pytest.mark.filterwarnings, THEIRS)
    return pytest.param(way, what, *values, marks=marks, id="-".join([way, what, *says]))


def rows(table: str) -> Iterator[tuple[str, ...]]:
    """Yield the way in and the words of each row for whoever is installed."""
    for way in WAYS:
        for row in TABLES[table][way]:
            what, *words = row.split()
            for shape in SHAPES if what == "each" else (what,):
                yield (way, shape, *words)


def cases() -> Iterator[Any]:
    for way, what, *failing, answering in rows("cases"):
        says = TABLES["says"].get(what, {}).get(answering, f"{answering}_{what}")
        yield told(way, what, *failing, says, values=(failing, answering))


@pytest.fixture(scope="module")
def vcr_cassette_dir() -> str:
    """Have a folder for each way in, which stands in the cassettes' names."""
    return str(CASSETTES)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    """Ask in both ways; both are to send the same."""
    return bool(request.param)


def assert_asked(cassette: Cassette, *providers: str) -> None:
    """Compare who was asked, each request of which the guards know to be played."""
    asked = [urlsplit(request.uri).netloc for request in cassette.requests]
    assert asked == [HOSTS[provider] for provider in providers]


@pytest.mark.parametrize(("way", "what", "failing", "answering"), [*cases()])
async def test_the_first_failure_of_each_switches(
    way: str, what: str, failing: list[str], answering: str, is_async: bool, vcr: Cassette
) -> None:
    """Each is asked once, in its own format; its error is told by its kind, its answer is whole.

    What is sent is what was recorded, tools and schemas included, or the cassette refuses it.
    Where the primary answers, nobody else sees anything.
    """
    asked = [*(one.partition("_")[0] for one in failing), answering]
    spare = [] if failing else [{"openai": "anthropic", "anthropic": "openai"}[answering]]
    places = [Place(name) for name in (*asked, *spare)]
    if failing:
        model = {"model": "gpt-nonesuch"} if "openai_no_model" in failing else {}
        places[0] = Place(asked[0], not failing[0].endswith("bad_key"), target=model)
    heard = Listener()
    answer = await WAYS[way].ask(places, what, heard, is_async=is_async)

    assert_asked(vcr, *asked)
    record = heard.record
    *failed, last = record.attempts
    expected = [FAILING[one] for one in failing]
    if way == "litellm":  # it makes a status of what is told inside HTTP 200
        expected = [
            one._replace(status=500 if one.status == 200 else one.status) for one in expected
        ]
    facts = [(one.status, one.kind, one.retry_after) for one in failed]
    assert facts == [(one.status, one.kind, one.retry_after) for one in expected]
    assert [one.wait for one in record.attempts] == [0] * len(asked)
    assert (record.outcome, last.kind, record.answered_by) == ("success", None, last.target)
    said = read_answer(answer["raw"] if what == "structured" else answer)
    if what in {"text", "stream"}:
        assert said.content if answering == "local" else "harbor" in str(said.content).lower()
    if way != "litellm" or answering == "anthropic":  # which sends it unasked
        assert said.usage is not None
        assert said.usage["output_tokens"] > 0
    if way == "core":
        assert_of_the_sdk(answer, what, answering)
    elif way == "langchain":
        told = assert_of_langchain(answer, what, answering).response_metadata["fallback"]
        *before, _ = told["attempts"]
        said_of = [(one["status"], one["kind"], one["error"]) for one in before]
        assert said_of == [(one.status, one.kind, one.error) for one in expected]
        assert [one["target"] for one in told["attempts"]] == [*map(target_of, asked)]
        assert (told["is_fallback"], told["model"]) == (bool(failing), PROVIDERS[answering][0])


def assert_of_the_sdk(answer: Any, what: str, provider: str) -> None:
    """The answer is as its own SDK made it."""
    is_anthropics = provider == "anthropic"
    if what == "stream" and is_anthropics:
        assert [answer[0].type, answer[-1].type] == ["message_start", "message_stop"]
    elif what == "stream":
        assert all(isinstance(chunk, ChatCompletionChunk) for chunk in answer)
    else:
        other = Response if what == "responses" else ChatCompletion
        assert isinstance(answer, Message if is_anthropics else other)
    if what == "tools":
        assert "get_weather" in str(answer)
        assert "Oslo" in str(answer)


def assert_of_langchain(answer: Any, what: str, provider: str) -> Any:
    """Look at what a FallbackChatModel gave, and return its message."""
    is_local = provider == "local"  # it says what it likes
    if what == "structured":
        assert answer["parsing_error"] is None
        assert isinstance(answer["parsed"], Weather)
        assert is_local or answer["parsed"].city == "Oslo"
        return answer["raw"]
    if what == "tools":
        (call, *others) = answer.tool_calls
        assert call["name"] == "get_weather"
        assert call["args"] in ({"city": "Oslo"}, {"city": "Lima"})
        assert call["id"]
        assert is_local or (call["args"]["city"] == "Oslo" and not others)
    if what == "stream":
        assert all(isinstance(chunk, AIMessageChunk) for chunk in answer)
        assert len({chunk.id for chunk in answer}) == 1
        marked = ["fallback" in chunk.response_metadata for chunk in answer]
        assert marked == [False] * (len(marked) - 1) + [True]
        return reduce(add, answer)
    return answer


def target_of(provider: str) -> str:
    """Name a target as LangChain's chains do: who serves it is not known, but for its API."""
    return f"{provider.replace('local', 'openai')}/{PROVIDERS[provider][0]}"


@pytest.mark.parametrize(
    ("way", "what", "says"),
    [told(way, what, says, values=(says,)) for way, what, says in rows("rejected")],
)
async def test_what_nobody_else_can_mend_comes_back_as_the_callers_own_error(
    way: str, what: str, says: str, is_async: bool, vcr: Cassette
) -> None:
    """A 400 surfaces at once and untouched; the fallback is not asked to make up for it."""
    provider = says.partition("_")[0]
    (other,) = {"openai", "anthropic"} - {provider}
    small = {"context_window": 8_192} if says == "openai_too_long" else {}
    most = None if small else 0
    heard = Listener()

    with pytest.raises(WAYS[way].rejects[provider]) as caught:
        await WAYS[way].ask(
            [Place(provider, max_tokens=most, target=small), Place(other, target=small)],
            what,
            heard,
            is_async=is_async,
        )

    assert caught.value.status_code == 400
    if way == "langchain":
        assert target_of(provider) in caught.value.__notes__[0]
    kind = "context_overflow" if small else "invalid_request"
    assert (heard.record.outcome, heard.kinds) == ("rejected", [kind])
    assert_asked(vcr, provider)


@pytest.mark.parametrize(
    ("way", "what"),
    [
        told(way, "text", "openai_overloaded", "anthropic_bad_key", name=False)
        for way in ("core", "langchain")
    ],
)
async def test_a_call_that_nobody_answers_carries_both_providers_errors(
    way: str, what: str, is_async: bool, vcr: Cassette
) -> None:
    """The group holds the exceptions that the SDKs or integrations raised, in their order."""
    heard = Listener()
    places = [Place("openai"), Place("anthropic", is_trusted=False)]
    with pytest.raises(FallbackExhausted) as caught:
        await WAYS[way].ask(places, what, heard, is_async=is_async)
    overloaded, refused = caught.value.exceptions
    assert isinstance(overloaded, openai.InternalServerError)
    assert isinstance(refused, anthropic.AuthenticationError)
    assert caught.value.record == heard.record
    assert_asked(vcr, "openai", "anthropic")


@pytest.mark.parametrize(
    ("way", "what"), [told("core", "text", "openai_too_long", "anthropic_message")]
)
async def test_a_prompt_too_long_goes_to_the_target_with_a_larger_window(
    way: str, what: str, is_async: bool, vcr: Cassette
) -> None:
    """A context overflow passes by a target that could not take the prompt either."""
    windows = {"openai": 8_192, "local": 8_192, "anthropic": 200_000}
    places = [Place(name, target={"context_window": size}) for name, size in windows.items()]
    heard = Listener()
    await WAYS[way].ask(places, what, heard, is_async=is_async)
    first = heard.record.attempts[0]
    assert (first.kind, first.code) == ("context_overflow", "context_length_exceeded")
    assert_asked(vcr, "openai", "anthropic")


# What may stand in a cassette, whoever recorded it.

CASSETTES = Path(__file__).resolve().parents[2] / "cassettes"
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
    assert hosts <= {*HOSTS.values()}
    first = text.splitlines()[0]
    assert first.startswith("# Recorded through mitmproxy ")
    assert all(f"{host} is " in first for host in hosts)
    kept = [request.headers for request in requests] + [answer["headers"] for answer in responses]
    assert {name.lower() for headers in kept for name in headers} <= HEADERS
