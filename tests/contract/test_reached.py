"""What became of a request, by real clients: who answered, was there a connection, a stream.

The table of ``docs/outages.md`` is made here. ``replay="safe"`` rests on it, so every client has
to agree or to stand in a row of its own.
"""

from __future__ import annotations

import json
from functools import cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.contract.test_reality import ALL, CLIENTS, LEFT_OPEN, Client, first_attempt, sdk
from tests.helpers.broken_server import WAYS, Connection, served, trusted
from tests.helpers.pages import assert_shown
from tests.helpers.wire import event, form_of, named_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.broken_server import Request

pytestmark = LEFT_OPEN

# One of each library and of each way to ask it.
NAMES = (
    "openai", "async openai", "openai, stream", "anthropic", "async anthropic, stream",
    "google-genai", "async google-genai", "httpx", "async httpx2", "aiohttp", "requests",
    "LiteLLM completion", "LiteLLM Router acompletion", "ChatOpenAI.invoke",
    "ChatAnthropic.astream",
)  # fmt: skip


def answer(status: int, body: bytes, kind: str = "text/html") -> bytes:
    phrases = {one.value: one.phrase for one in HTTPStatus}
    phrase = phrases.get(status, "Client Closed Request")
    head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {kind}\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def page(status: int, text: str, kind: str = "text/html") -> Callable[[Connection], None]:
    """Answer as somebody on the way does."""

    def serve(connection: Connection) -> None:
        connection.read()
        connection.send(answer(status, text.encode(), kind))

    return serve


def providers(status: int) -> Callable[[Connection], None]:
    """Answer as the provider does, in the form of the request."""

    def serve(connection: Connection) -> None:
        document = error_of(connection.read(), status)
        connection.send(answer(status, json.dumps(document).encode(), "application/json"))

    return serve


def error_of(request: Request, status: int) -> dict[str, Any]:
    form = form_of(request.path)
    return form.error("The provider says no.", form.errors.get(status, "overloaded_error"))


def stream(*, begins: bool) -> Callable[[Connection], None]:
    """Send an error in a stream: first of all, or after what a stream begins with."""

    def serve(connection: Connection) -> None:
        request = connection.read()
        error = error_of(request, 529)
        is_anthropics = error.get("type") == "error"
        text = named_event(**({"kind": "error"} | error)) if is_anthropics else event(error)
        data = f"{text}\n\n".encode()
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        connection.send(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        connection.send(request.events(content=False) if begins else b"")
        connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))

    return serve


def dies(connection: Connection) -> None:
    """Read a request and end, so that nobody listens for the next."""
    connection.read()
    connection.server.stop_listening()


def then_refuses(connection: Connection) -> None:
    """Lose the first request, and say no to the second."""
    request = connection.read()
    if connection.server.requests > 1:
        document = json.dumps(error_of(request, 429)).encode()
        connection.send(answer(429, document, "application/json"))


class Row(NamedTuple):
    """Say what is met, and what has to come of it.

    Args:
        connected: Was a connection made?
        began: Had a stream begun?
        retried: Does the client retry by itself? Then those that can are asked.
        reached: What every client has to say.
        others: Those that say something else, and what.
    """

    place: Callable[[], Any]
    reached: str
    connected: str = "yes"
    began: str = "no"
    retried: str = "no"
    others: dict[str, str] = {}  # noqa: RUF012 # never written to


# aiohttp says of its time for everything only that it is over, and never has an error's body.
WITHOUT_DETAIL = ("aiohttp", "async google-genai")
HEROKU = '<!DOCTYPE html><html><body><iframe src="//www.herokucdn.com/error-pages"></body></html>'
NGINX = "<html><head><title>503 Service Temporarily Unavailable</title></head></html>"
RETRYING: dict[str, Client] = {
    name: Client(partial(sdk, package=package, cls=cls, retries=1), package, "call")
    for name, package, cls in (
        ("openai", "openai", "OpenAI"),
        ("anthropic", "anthropic", "Anthropic"),
    )
}
ROWS = {
    "nobody: refused": Row(WAYS["port closed"], "no", "no"),
    "nobody: no such host": Row(WAYS["name unknown"], "no", "no"),
    "nobody: no connection in time": Row(
        WAYS["connecting is silent"], "no", "no", others=dict.fromkeys(WITHOUT_DETAIL, "unknown")
    ),
    "nobody: the proxy refused": Row(WAYS["proxy down"], "no", "no"),
    "the proxy: 502 to the tunnel": Row(WAYS["proxy says 502"], "unknown", "to the proxy"),
    "nobody: closed": Row(WAYS["closed without an answer"], "unknown"),
    "nobody: reset": Row(WAYS["reset in the status line"], "unknown"),
    "nobody: no answer in time": Row(WAYS["no answer"], "unknown"),
    "the provider: 400": Row(served(providers(400)), "refused"),
    "the provider: 401": Row(served(providers(401)), "refused"),
    "the provider: 429": Row(served(providers(429)), "refused"),
    "the provider: 503": Row(served(providers(503)), "refused", others={"aiohttp": "unknown"}),
    "the provider: 500": Row(served(providers(500)), "unknown"),
    "the provider: 408": Row(served(providers(408)), "unknown"),
    "the provider: 409": Row(served(providers(409)), "unknown"),
    "the provider: 424": Row(served(providers(424)), "unknown"),
    "the provider: 499": Row(served(providers(499)), "unknown"),
    "a gateway: 429 and a page": Row(served(page(429, NGINX)), "refused"),
    "a gateway: 503 and nginx's page": Row(served(page(503, NGINX)), "unknown"),
    "a gateway: 503 and Heroku's page": Row(served(page(503, HEROKU)), "unknown"),
    "a gateway: 503 and a line": Row(
        served(page(503, "upstream request timeout", "text/plain")), "unknown"
    ),
    "a gateway: 503 and a socket's words": Row(
        served(page(503, "socket closed", "text/plain")), "unknown"
    ),
    "a gateway: 503 and no code": Row(
        served(page(503, '{"message": "Service Unavailable"}', "application/json")), "unknown"
    ),
    "a gateway: 503 and nothing": Row(served(page(503, "")), "unknown"),
    "the provider: overloaded, in a stream": Row(
        served(stream(begins=False), streamed=True), "refused"
    ),
    "the provider: overloaded, in a stream that had begun": Row(
        served(stream(begins=True), streamed=True), "unknown", began="yes"
    ),
    "nobody: closed, then refused": Row(served(dies), "unknown", retried="yes"),
    "nobody, then the provider: 429": Row(served(then_refuses), "unknown", retried="yes"),
    "nobody: a stream that broke": Row(
        WAYS["reset in a stream, before content"], "unknown", began="yes"
    ),
}


@cache
def met(case: str) -> dict[str, str]:
    """Ask every client, and return what each says of its request."""
    reached: dict[str, str] = {}
    clients = RETRYING if ROWS[case].retried == "yes" else CLIENTS
    with trusted():
        for name, client in clients.items():
            if name not in NAMES:
                continue
            with ROWS[case].place() as place:
                if place.streamed and not client.stream:
                    continue
                reached[name] = str(first_attempt(client, place)[0].reached)
    return reached


@pytest.mark.parametrize("case", ROWS)
def test_a_request_has_become_the_same_whoever_made_it(case: str) -> None:
    """Each client's failure says what is certain of its request, and no more."""
    row = ROWS[case]
    assert met(case) == {name: row.others.get(name, row.reached) for name in met(case)}


HEAD = """| who answered, and what | a connection | the client retried | a stream had begun \
| `reached` | clients |
|---|---|---|---|---|---|
"""


@pytest.mark.skipif(CLIENTS != ALL, reason="not every client is installed")
def test_the_page_shows_what_was_met() -> None:
    """`docs/outages.md` shows the runs of today; `WRITE_TABLES=1` writes it anew."""
    rows = HEAD
    for case, row in ROWS.items():
        said = met(case)
        usual = [name for name, reached in said.items() if reached == row.reached]
        facts = f"{row.connected} | {row.retried} | {row.began} | `{row.reached}`"
        rows += f"| {case} | {facts} | {len(usual)} of {len(said)} |\n"
        for reached in dict.fromkeys(row.others.values()):
            names = ", ".join(name for name in said if said[name] == reached)
            rows += f"| | | | | `{reached}` | {names} |\n"
    assert_shown("outages.md", "reached", rows.strip())
