"""What became of a request that failed, and whether it may be made again."""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from honcho_fallback import (
    Attempt,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    OutcomeUnknown,
    StreamInterrupted,
    Target,
    classify,
)
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from honcho_fallback.testing import Clock

MESSAGES: Any = [{"role": "user", "content": "hello"}]
TIMEOUT, RESET = TimeoutError("too slow"), ConnectionResetError(104, "reset")
BROKEN, BARE = StatusError(500), StatusError(503)
BUSY = StatusError(503, code="overloaded")
UNKNOWN = [TIMEOUT, RESET, BROKEN, BARE]
SETTLED = [
    ConnectionRefusedError(111, "refused"),
    socket.gaierror(-2, "unknown"),
    StatusError(429),
    BUSY,
    StatusError(401),
    StatusError(404),
]


def pair(**options: Any) -> FallbackPolicy:
    return FallbackPolicy(
        [Target("primary"), Target("fallback")], FallbackConfig(wait=0, **options)
    )


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
def test_after_an_unknown_outcome_nobody_is_asked_again(driver: str, error: Exception) -> None:
    """replay="safe": one request, and an error that says so, with record and next step."""
    policy = pair(replay="safe")
    script = repeating(primary=[error], fallback=["never"])
    run = policy.start()
    with pytest.raises(OutcomeUnknown, match="may have had an effect and replay is 'safe'") as got:
        DRIVERS[driver](policy, script, run)
    assert script.asked == ["primary"]
    assert got.value.__cause__ is error
    assert got.value.errors == (error,)
    assert f"{run.record.call_id}-0" in str(got.value)
    record = got.value.record
    assert (record.outcome, record.limit) == ("exhausted", "replay")
    assert record.attempts[0].reached == "unknown"
    assert "replay is 'safe'" in record.explain()
    assert record.untried == (("fallback", record.why),)
    copy = pickle.loads(pickle.dumps(got.value))  # noqa: S301 # our own bytes
    assert (copy.record, str(copy)) == (record, str(got.value))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("error", SETTLED, ids=repr)
def test_what_had_no_effect_switches(driver: str, error: Exception) -> None:
    """A request that never arrived or was refused may be made again, under either option."""
    for replay in ("any", "safe"):
        policy = pair(replay=replay)
        script = repeating(primary=[error], fallback=["hello"])
        assert DRIVERS[driver](policy, script, policy.start()) == "hello"


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
def test_any_is_the_default(error: Exception) -> None:
    """Most requests to a model may be made twice: then the second model is asked at once."""
    script = repeating(primary=[error], fallback=["hello"])
    assert pair().call(script.ask) == "hello"


def test_it_is_an_option_of_a_call_too() -> None:
    """The one call of an agent that sends an order is careful, the others are not."""
    policy = pair()
    script = repeating(primary=[TIMEOUT], fallback=["hello"])
    with pytest.raises(OutcomeUnknown):
        policy.call(script.ask, replay="safe")
    assert policy.call(script.ask) == "hello"


def test_a_deadline_that_has_passed_is_not_what_matters(clock: Clock) -> None:
    """Time is over, too; but what the caller has to know is that the request may have worked."""

    def ask(_: Attempt) -> str:
        clock.advance(100)
        raise TIMEOUT

    with pytest.raises(OutcomeUnknown):
        pair(replay="safe", deadline=30).call(ask)


def test_no_repeat_either() -> None:
    """The same target is not asked twice: neither by switch_after nor at the chain's end."""
    for targets in ([Target("primary")], [Target("primary"), Target("fallback")]):
        config = FallbackConfig(wait=0, replay="safe", switch_after=3)
        script = repeating(primary=[BROKEN], fallback=["never"])
        with pytest.raises(OutcomeUnknown):
            FallbackPolicy(targets, config).call(script.ask)
        assert script.asked == ["primary"]


def test_an_answer_that_is_refused_had_its_effect() -> None:
    """validate says no to what the model did; asking another one would do it twice."""
    script = repeating(primary=["bad"], fallback=["good"])
    with pytest.raises(OutcomeUnknown):
        pair(replay="safe", validate=lambda answer: answer != "bad").call(script.ask)
    assert script.asked == ["primary"]


def test_a_bug_of_the_program_comes_out_as_it_is() -> None:
    """No provider failed, so there is nothing to be careful about."""
    with pytest.raises(KeyError):
        pair(replay="safe").call(repeating(primary=[KeyError("mine")]).ask)
    with pytest.raises(FallbackExhausted):
        pair(replay="safe").call(repeating(primary=[BUSY], fallback=[StatusError(401)]).ask)


def test_a_stream_that_broke_has_had_an_effect() -> None:
    """What the provider says after content is no refusal: the content was made, and is billed."""
    script = repeating(primary=[["hel", BUSY]], fallback=[["never"]])
    with pytest.raises(OutcomeUnknown) as got:
        list(pair(replay="safe").stream(script.stream, partial="replace"))
    assert got.value.record.attempts[0].reached == "unknown"
    script = repeating(primary=[["hel", BUSY]], fallback=[["never"]])
    with pytest.raises(StreamInterrupted) as cut:
        list(pair(replay="safe").stream(script.stream))
    assert cut.value.record.attempts[0].reached == "unknown"


def test_a_key_for_idempotent_requests() -> None:
    """The same for repeats at one target in one call, another for every target and call."""
    keys: list[str] = []

    def ask(attempt: Attempt) -> str:
        keys.append(attempt.idempotency_key)
        raise BROKEN

    policy = pair(switch_after=2, attempts_per_target=2)
    for _ in range(2):
        with pytest.raises(FallbackExhausted):
            policy.call(ask)
    first, second = keys[:4], keys[4:]
    assert first[0] == first[1] != first[2] == first[3]
    assert not {*first} & {*second}


@pytest.mark.parametrize("value", ["sometimes", True, "saf"])
def test_a_wrong_word_is_refused(value: Any) -> None:
    """The error says which words there are."""
    with pytest.raises(FallbackConfigError, match="pass 'any' or 'safe'"):
        FallbackConfig(replay=value)


# What a real client says of a real connection.


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen on a port, read a request, and do with it what ``answer`` does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


@contextmanager
def nobody() -> Iterator[str]:
    """Keep a port to which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


def hang_up(connection: socket.socket) -> None:
    """Close the connection after the request has come."""


def overloaded(connection: socket.socket, body: bytes = b"") -> None:
    head = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    connection.sendall(head + length + body)


def overloaded_with_body(connection: socket.socket) -> None:
    overloaded(connection, b'{"error": {"message": "busy", "code": "overloaded"}}')


def never(connection: socket.socket) -> None:
    """Wait until the client has gone."""
    connection.recv(1)


REAL = [(hang_up, "unknown"), (never, "unknown"), (overloaded, "unknown"),
        (overloaded_with_body, "refused"), (None, "no")]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "reached"), REAL, ids=lambda one: getattr(one, "__name__", one)
)
def test_what_real_clients_know_of_a_request(answer: Any, reached: str) -> None:
    """OpenAI's SDK and httpx, sync and async, at a server that does each of these."""
    with server(answer) if answer else nobody() as url:
        errors = _errors(url)
    failures = [classify(error) for error in errors]
    assert [failure.reached for failure in failures] == [reached] * 3
    scope = "endpoint" if answer is None else "model"
    assert {failure.scope for failure in failures} == {scope}


def _errors(url: str) -> list[BaseException]:
    """Ask with three clients, and return what each raised."""
    timeout = 0.3
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0, timeout=timeout)
    aclient = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0, timeout=timeout)

    def plain() -> None:
        httpx.post(url, json={}, timeout=timeout).raise_for_status()

    def sync() -> None:
        client.chat.completions.create(model="m", messages=MESSAGES)

    def in_task() -> None:
        asyncio.run(aclient.chat.completions.create(model="m", messages=MESSAGES))

    errors: list[BaseException] = []
    for ask in (plain, sync, in_task):
        with pytest.raises(Exception) as got:  # each client has its own
            ask()
        errors.append(got.value)
    return errors
