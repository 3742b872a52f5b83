"""Real clients at servers that are really broken: what each failure means, and that it switches.

No error is made up here. ``make test-clients`` asks the oldest and the newest clients the same.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from contextlib import nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from honcho_fallback import FallbackPolicy, Target
from tests.helpers.broken_server import WAYS, Place, trusted
from tests.helpers.observers import Listener
from tests.helpers.pages import assert_shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from honcho_fallback import Attempt, AttemptRecord
    from honcho_fallback._values.record import Outcome


# What the frameworks leave open, and what they warn of while they are imported.
pytestmark = LEFT_OPEN = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:pydantic"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

Opened: TypeAlias = "tuple[Any, Callable[[], Any]]"
SAY: Any = [{"role": "user", "content": "hello"}]
KEY = "none"
BACKUP = "the fallback answers"


class Cell(NamedTuple):
    """Say what became of one call, and what it cost.

    Args:
        kind: Of the first attempt's failure.
        transient: Of the same, or None where nobody else was asked.
        outcome: Of the call.
        requests: How many the broken server counted, or None where none could come.
        soon: Was the failure there at once, or only with a timeout of the client's?
    """

    kind: str | None
    transient: bool | None = True
    outcome: str = "success"
    requests: int | None = 1
    soon: bool = True


HEARD = Listener()


# --- the clients: each opens at a place, and gives what closes it and a function that asks once


def _then(answer: Any, read: Callable[[Any], Any]) -> Any:
    """Read an answer, or one that is waited for first."""
    if not isawaitable(answer):
        return read(answer)

    async def waited() -> Any:
        return read(await answer)

    return waited()


def _text(answer: Any) -> Any:
    """Read an answer as a program does; both SDKs return a page of HTML as a string."""
    parts = answer.content if hasattr(answer, "stop_reason") else answer.choices
    return parts[0]


def sdk(place: Place, package: str, cls: str, *, stream: bool = False, retries: int = 0) -> Opened:
    is_anthropic = package == "anthropic"
    base_url = place.url if is_anthropic else f"{place.url}/v1"
    make = getattr(import_module(package), cls)
    client = make(api_key=KEY, base_url=base_url, timeout=place.timeout, max_retries=retries)
    if is_anthropic:
        create = partial(client.messages.create, max_tokens=9)
    else:
        create = client.chat.completions.create
    ask = partial(create, model="m", messages=SAY, stream=stream)
    return client, ask if stream else lambda: _then(ask(), _text)


def genai(place: Place, *, is_async: bool) -> Opened:
    # Without options for retries its async client asks a dead server again after 1 to 10 s.
    once = {"attempts": 1}
    options = {
        "base_url": place.url,
        "timeout": int(place.timeout * 1000),
        "retry_options": once,
    }
    made = import_module("google.genai").Client(api_key=KEY, http_options=options)
    client = made.aio if is_async else made
    return client, partial(client.models.generate_content, model="m", contents="hello")


def _read(answer: Any) -> Any:
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]


def httpx(place: Place, package: str, cls: str) -> Opened:
    client = getattr(import_module(package), cls)(timeout=place.timeout)
    post = partial(client.post, f"{place.url}/v1/chat/completions", json={})
    return client, lambda: _then(post(), _read)


def aiohttp(place: Place) -> Opened:
    library = import_module("aiohttp")
    timeout = library.ClientTimeout(total=place.timeout)
    session = library.ClientSession(timeout=timeout, trust_env=True)

    async def ask() -> Any:
        async with session.post(f"{place.url}/v1/chat/completions", json={}) as answer:
            answer.raise_for_status()
            return (await answer.json())["choices"][0]["message"]["content"]

    return session, ask


def requests(place: Place) -> Opened:
    session = import_module("requests").Session()
    post = partial(session.post, json={}, timeout=place.timeout)
    return session, lambda: _read(post(f"{place.url}/v1/chat/completions"))


def litellm(place: Place, function: str) -> Opened:
    complete = getattr(import_module("litellm"), function)
    options = {"api_base": f"{place.url}/v1", "api_key": KEY, "timeout": place.timeout}
    ask = partial(complete, model="openai/m", messages=SAY, max_retries=0, **options)
    return nullcontext(), ask


# --- those that own the whole call


def langchain(place: Place, package: str, cls: str, method: str) -> Opened:
    from honcho_fallback_langchain import FallbackChatModel  # noqa: PLC0415  may be missing
    from tests.helpers.chat_models import ScriptedChat  # noqa: PLC0415

    make = getattr(import_module(package), cls)
    url = f"{place.url}/v1" if package == "langchain_openai" else place.url
    primary = make(model="m", api_key=KEY, base_url=url, max_retries=0, timeout=place.timeout)
    model = FallbackChatModel(primary, ScriptedChat(script=[[BACKUP]]), observers=[HEARD])
    return nullcontext(), partial(getattr(model, method), "hello")


def router(place: Place, function: str) -> Opened:
    library = import_module("litellm")
    from honcho_fallback_litellm import FallbackRoutingStrategy  # noqa: PLC0415  may be missing
    from tests.helpers.litellm_runs import deployment  # noqa: PLC0415

    patience: dict[str, Any] = {"timeout": place.timeout}
    primary = deployment("chat", "openai/m", f"{place.url}/v1", 0, **patience)
    elsewhere = "http://backup.invalid"  # where nobody is asked
    backup = deployment("chat", "openai/b", elsewhere, 1, mock_response=BACKUP, **patience)
    owner = library.Router(model_list=[primary, backup])
    FallbackRoutingStrategy(observers=[HEARD]).register(owner)
    return nullcontext(owner), partial(getattr(owner, function), model="chat", messages=SAY)


class Client(NamedTuple):
    """Say how one client is asked.

    Args:
        open: Opens it at a place.
        package: What has to be installed for it.
        verb: The policy's method that it is asked through; none where it owns the call.
        stream: Does it stream?
        is_async: Does it run in an event loop?
    """

    open: Callable[[Place], Opened]
    package: str
    verb: str = ""
    stream: bool = False
    is_async: bool = False


ALL: dict[str, Client] = {
    "google-genai": Client(partial(genai, is_async=False), "google.genai", "call"),
    "async google-genai": Client(
        partial(genai, is_async=True), "google.genai", "acall", is_async=True
    ),
    "aiohttp": Client(aiohttp, "aiohttp", "acall", is_async=True),
    "requests": Client(requests, "requests", "call"),
}
for package, cls in (("openai", "OpenAI"), ("anthropic", "Anthropic")):
    for stream, verb, name in ((False, "call", package), (True, "stream", f"{package}, stream")):
        opened = partial(sdk, package=package, cls=cls, stream=stream)
        ALL[name] = Client(opened, package, verb, stream)
        aopened = partial(sdk, package=package, cls=f"Async{cls}", stream=stream)
        ALL[f"async {name}"] = Client(aopened, package, f"a{verb}", stream, is_async=True)
for package in ("httpx", "httpx2"):
    ALL[package] = Client(partial(httpx, package=package, cls="Client"), package, "call")
    opened = partial(httpx, package=package, cls="AsyncClient")
    for verb, name in (("acall", f"async {package}"), ("trio", f"{package} in trio")):
        ALL[name] = Client(opened, package, verb, is_async=True)
for function, verb in (("completion", "call"), ("acompletion", "acall")):
    is_async = verb == "acall"
    made = partial(litellm, function=function)
    ALL[f"LiteLLM {function}"] = Client(made, "litellm", verb, is_async=is_async)
    owned = partial(router, function=function)
    ALL[f"LiteLLM Router {function}"] = Client(owned, "litellm", is_async=is_async)
for package, cls in (
    ("langchain_openai", "ChatOpenAI"),
    ("langchain_anthropic", "ChatAnthropic"),
    ("langchain_google_genai", "ChatGoogleGenerativeAI"),
):
    for method in ("invoke", "ainvoke", "astream"):
        model = partial(langchain, package=package, cls=cls, method=method)
        stream, is_async = method == "astream", method != "invoke"
        ALL[f"{cls}.{method}"] = Client(model, package, "", stream, is_async)


CLIENTS = {
    name: client
    for name, client in ALL.items()
    if find_spec(client.package.partition(".")[0]) and find_spec(client.package)
}


# --- one call of one client

POLICY = FallbackPolicy([Target("primary"), Target("fallback")], observers=[HEARD])


def _chooser(ask: Callable[[], Any], backup: Callable[[], Any]) -> Callable[[Attempt], Any]:
    return lambda attempt: backup() if attempt.is_fallback else ask()


def _call(client: Client, place: Place) -> None:
    owner, ask = client.open(place)
    with owner:
        if place.warm:
            ask()
        if client.verb == "call":
            POLICY.call(_chooser(ask, lambda: BACKUP))
        elif client.verb == "stream":
            for _ in POLICY.stream(_chooser(ask, lambda: iter([BACKUP]))):
                place.heard()
        else:
            ask()


async def _answer() -> str:
    return BACKUP


async def _chunks() -> AsyncIterator[str]:
    yield BACKUP


async def _acall(client: Client, place: Place) -> None:
    owner, ask = client.open(place)
    async with owner:
        if place.warm:
            await ask()
        if client.verb == "acall":
            await POLICY.acall(_chooser(ask, _answer))
        elif client.verb == "trio":
            await _driven(ask)
        elif client.stream:
            chunks = POLICY.astream(_chooser(ask, _chunks)) if client.verb else ask()
            async for chunk in chunks:
                if client.verb or chunk.text:
                    place.heard()
        else:
            await ask()


async def _driven(ask: Callable[[], Any]) -> None:
    """Drive the machine itself: `acall` belongs to asyncio."""
    run = POLICY.start()
    try:
        await ask()
    except Exception as error:  # noqa: BLE001  whatever it is, the machine judges it
        run.fail(error)
        run.succeed()


def first_attempt(client: Client, place: Place) -> tuple[AttemptRecord, Outcome]:
    """Ask once, and return the attempt that failed there and how the call ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the clients, about each other
        HEARD.switches.clear()
        HEARD.records.clear()
        with suppress(Exception):  # the record says what it was
            if client.verb == "trio":
                import_module("trio").run(_acall, client, place)
            elif client.is_async:
                asyncio.run(_acall(client, place))
            else:
                _call(client, place)
    record = HEARD.records[-1]
    return record.attempts[0], record.outcome


def cell(client: Client, way: str) -> Cell | None:
    """Ask once where something is broken; None where this client cannot meet it."""
    with WAYS[way]() as place:
        if (place.streamed and not client.stream) or (place.warm and client.stream):
            return None
        failed, outcome = first_attempt(client, place)
    transient = HEARD.switches[-1].failure.transient if HEARD.switches else None
    requests = place.server.requests - place.warm if place.server else None
    soon = failed.seconds < place.timeout
    return Cell(str(failed.kind), transient, outcome, requests, soon)


@cache
def cells(way: str) -> dict[str, Cell]:
    """Ask every client that can meet this way to break."""
    with trusted():
        asked = {name: cell(client, way) for name, client in CLIENTS.items()}
    return {name: one for name, one in asked.items() if one is not None}


# --- what has to come of it

LOST = Cell("connection")
UNREACHED = LOST._replace(requests=None)
DISTRUSTED = LOST._replace(transient=False)
SILENT = Cell("timeout", soon=False)
UNREADABLE = Cell("malformed_response")
NOBODY = (
    "port closed",
    "two addresses, both closed",
    "name unknown",
    "resolver says try again",
    "network unreachable",
    "no route to host",
    "proxy down",
)
EXPECTED = {
    **dict.fromkeys(WAYS, LOST),
    **dict.fromkeys(NOBODY, UNREACHED),
    "connecting is silent": SILENT._replace(requests=None),
    "reset in a stream, after content": LOST._replace(transient=None, outcome="interrupted"),
    **dict.fromkeys(("no answer", "no first token"), SILENT),
    **{way: DISTRUSTED for way in WAYS if way.startswith("certificate")},
    **{way: UNREADABLE for way in WAYS if way.startswith(("200 with", "gzip"))},
}
# aiohttp takes a body that it cannot unpack for a lost connection.
AIOHTTP = (
    "aiohttp",
    "async google-genai",
    "ChatGoogleGenerativeAI.ainvoke",
    "ChatGoogleGenerativeAI.astream",
)
LITELLM = ("LiteLLM completion", "LiteLLM acompletion")  # its own mapping, without a Router
EXCEPTIONS = {
    "gzip is broken": dict.fromkeys((*AIOHTTP, *LITELLM), LOST),
    # Its json() of an empty body is None, and the program fails on that.
    "200 with nothing": {"aiohttp": Cell("local", None, "rejected")},
    "200 with half a JSON": dict.fromkeys(LITELLM, Cell("server_error")),
    **{
        f"certificate {fault}": dict.fromkeys(LITELLM, LOST)
        for fault in ("expired", "signed by itself", "of another host")
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_real_failure_is_what_it_is_whoever_meets_it(way: str) -> None:
    """Each client's failure has the kind of its cause, costs one request and switches."""
    exceptions = EXCEPTIONS.get(way, {})
    unexpected = {
        name: met for name, met in cells(way).items() if met != exceptions.get(name, EXPECTED[way])
    }
    assert not unexpected


HEAD = """| what is broken | kind | transient | answered by | requests | seen | clients |
|---|---|---|---|---|---|---|
"""


def _row(way: str, met: Cell, clients: str) -> str:
    answered = "the fallback" if met.outcome == "success" else f"nobody: {met.outcome}"
    transient = {None: "-", True: "yes", False: "no"}[met.transient]
    requests = "-" if met.requests is None else met.requests
    seen = "at once" if met.soon else "at its timeout"
    return (
        f"| {way} | `{met.kind}` | {transient} | {answered} | {requests} | {seen} | {clients} |\n"
    )


@pytest.mark.skipif(CLIENTS != ALL, reason="not every client is installed")
def test_the_page_shows_what_was_met() -> None:
    """`docs/classification.md` shows the runs of today; `WRITE_TABLES=1` writes it anew."""
    rows = HEAD
    for way in WAYS:
        met = cells(way)
        usual, *others = [one for one, _ in Counter(met.values()).most_common()]
        rows += _row(way, usual, f"{len([*filter(usual.__eq__, met.values())])} of {len(met)}")
        for other in others:
            rows += _row("", other, ", ".join(name for name in met if met[name] == other))
    assert_shown("classification.md", "reality", rows.strip())
