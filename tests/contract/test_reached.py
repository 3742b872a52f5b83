"""What became of a request, by real clients: who answered, was there a connection, a stream.

The table of ``docs/outages.md`` is made here. ``replay="safe"`` rests on it, so every client has
to agree or to stand in a row of its own.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.contract.test_reality import ALL, CLIENTS, LEFT_OPEN, Client, first_attempt, sdk
from tests.helpers.broken_server import WAYS, Connection, Place, served, trusted
from tests.helpers.pages import assert_shown
from tests.helpers.provider import ProviderServer, Reply
from tests.helpers.wire import MESSAGE, event, form_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.helpers.provider import SeenRequest

pytestmark = LEFT_OPEN

# One of each library and of each way to ask it.
NAMES = (
    "openai", "async openai", "openai, stream", "anthropic", "async anthropic, stream",
    "google-genai", "async google-genai", "httpx", "async httpx2", "aiohttp", "requests",
    "LiteLLM completion", "LiteLLM Router acompletion", "ChatOpenAI.invoke",
    "ChatAnthropic.astream",
)  # fmt: skip


@contextmanager
def answered(*replies: Any, streamed: bool = False) -> Iterator[Place]:
    """Serve, for as long as the place is used: what is said in turn, the last again and again."""
    with ProviderServer(keep_alive=False) as server:
        provider = server.new("provider")
        *first, provider.standing = replies
        provider.reply(*first)
        yield Place(provider.url, streamed=streamed)


def page(status: int, text: str, kind: str = "text/html") -> Any:
    """Answer as somebody on the way does."""
    return partial(answered, Reply(status=status, body=text, headers={"content-type": kind}))


def no(status: int) -> Callable[[SeenRequest], Reply]:
    """Refuse as the provider does, in the form of the request."""

    def reply(request: SeenRequest) -> Reply:
        known = form_of(request.path).errors
        return Reply(status=status, error=known.get(status, "overloaded_error"))

    return reply


def overloaded_first_of_all(request: SeenRequest) -> Reply:
    error = form_of(request.path).error(MESSAGE, "overloaded_error")
    return Reply(events=[event(error, error.get("type"))])


def dies(connection: Connection) -> None:
    """Read a request and end, so that nobody listens for the next."""
    connection.read()
    connection.server.stop_listening()


class Row(NamedTuple):
    """Say what is met, and what has to come of it.

    Args:
        connected: Was a connection made?
        began: Had a stream begun?
        retried: Does the client retry by itself? Then those that can are asked.
        reached: What every client has to say; by default that nothing is certain.
        others: Those that say something else, and what.
    """

    place: Callable[[], Any]
    reached: str = "unknown"
    connected: str = "yes"
    began: str = "no"
    retried: str = "no"
    others: dict[str, str] = {}  # noqa: RUF012 # never written to


# aiohttp says of its time for everything only that it is over, and never has an error's body.
WITHOUT_DETAIL = ("aiohttp", "async google-genai")
HEROKU = '<!DOCTYPE html><html><body><iframe src="//www.herokucdn.com/error-pages"></body></html>'
NGINX = "<html><head><title>503 Service Temporarily Unavailable</title></head></html>"
RETRYING: dict[str, Client] = {
    package: Client(partial(sdk, package=package, cls=cls, retries=1), package, "call")
    for package, cls in (("openai", "OpenAI"), ("anthropic", "Anthropic"))
}
ROWS = {
    "nobody: refused": Row(WAYS["port closed"], "no", "no"),
    "nobody: no such host": Row(WAYS["name unknown"], "no", "no"),
    "nobody: no connection in time": Row(
        WAYS["connecting is silent"], "no", "no", others=dict.fromkeys(WITHOUT_DETAIL, "unknown")
    ),
    "nobody: the proxy refused": Row(WAYS["proxy down"], "no", "no"),
    "the proxy: 502 to the tunnel": Row(WAYS["proxy says 502"], connected="to the proxy"),
    "nobody: closed": Row(WAYS["closed without an answer"]),
    "nobody: reset": Row(WAYS["reset in the status line"]),
    "nobody: no answer in time": Row(WAYS["no answer"]),
    "the provider: 400": Row(partial(answered, no(400)), "refused"),
    "the provider: 401": Row(partial(answered, no(401)), "refused"),
    "the provider: 429": Row(partial(answered, no(429)), "refused"),
    "the provider: 503": Row(partial(answered, no(503)), "refused", others={"aiohttp": "unknown"}),
    "the provider: 500": Row(partial(answered, no(500))),
    "the provider: 408": Row(partial(answered, no(408))),
    "the provider: 409": Row(partial(answered, no(409))),
    "the provider: 424": Row(partial(answered, no(424))),
    "the provider: 499": Row(partial(answered, no(499))),
    "a gateway: 429 and a page": Row(page(429, NGINX), "refused"),
    "a gateway: 503 and nginx's page": Row(page(503, NGINX)),
    "a gateway: 503 and Heroku's page": Row(page(503, HEROKU)),
    "a gateway: 503 and a line": Row(page(503, "upstream request timeout", "text/plain")),
    "a gateway: 503 and a socket's words": Row(page(503, "socket closed", "text/plain")),
    "a gateway: 503 and no code": Row(
        page(503, '{"message": "Service Unavailable"}', "application/json")
    ),
    "a gateway: 503 and nothing": Row(page(503, "")),
    "the provider: overloaded, in a stream": Row(
        partial(answered, overloaded_first_of_all, streamed=True), "refused"
    ),
    "the provider: overloaded, in a stream that had begun": Row(
        partial(answered, Reply(text="", error="overloaded_error"), streamed=True), began="yes"
    ),
    "nobody: closed, then refused": Row(served(dies), retried="yes"),
    "nobody, then the provider: 429": Row(
        partial(answered, Reply(drop=True), no(429)), retried="yes"
    ),
    "nobody: a stream that broke": Row(WAYS["reset in a stream, before content"], began="yes"),
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
