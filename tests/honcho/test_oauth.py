"""Credentials that are refreshed: one refresh for many callers, and a file that nobody reads."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from werkzeug import Response

from honcho_fallback import Credential, FallbackConfig, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.credentials import ApiKey, CredentialError, OAuthCredential
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_httpserver import HTTPServer
    from werkzeug import Request

    from honcho_fallback import Attempt

REFRESH = "rt-secret-"


class Portal:
    """An OAuth provider whose refresh tokens are spent by being used."""

    def __init__(self, server: HTTPServer) -> None:
        self.server = server
        self.number = 0
        self.minted = 0
        self.asked: list[str] = []
        self.lock = threading.Lock()
        server.expect_request("/api/oauth/token").respond_with_handler(self.token)
        server.expect_request("/api/oauth/agent-key").respond_with_handler(self.mint)

    def token(self, request: Request) -> Response:
        form = parse_qs(request.get_data(as_text=True))
        with self.lock:
            self.asked.append(form["refresh_token"][0])
            if form["refresh_token"] != [f"{REFRESH}{self.number}"]:
                return Response(
                    json.dumps({"error": "invalid_grant", "error_description": REFRESH}), 400
                )
            self.number += 1
            return Response(
                json.dumps(
                    {
                        "access_token": f"at-{self.number}",
                        "refresh_token": f"{REFRESH}{self.number}",
                        "expires_in": 3600,
                    }
                )
            )

    def mint(self, request: Request) -> Response:
        assert request.headers["Authorization"] == f"Bearer at-{self.number}"
        assert request.get_json() == {"min_ttl_seconds": 7200}
        self.minted += 1
        return Response(json.dumps({"api_key": f"key-{self.minted}", "expires_in": 7200}))

    def accepts(self, token: str) -> bool:
        return token in {f"at-{self.number}", f"key-{self.minted}"}

    def credential(self, store: Path | None = None) -> OAuthCredential:
        url = self.server.url_for("/api/oauth/token")
        return OAuthCredential(url, "client", f"{REFRESH}0", store)


@pytest.fixture
def portal(httpserver: HTTPServer) -> Portal:
    return Portal(httpserver)


def asking(portal: Portal, credential: Any) -> FallbackPolicy:
    chain = [Target("primary", credential=credential), Target("fallback")]
    return FallbackPolicy(chain, FallbackConfig(wait=0))


def ask_with(portal: Portal) -> Any:
    def ask(attempt: Attempt) -> str:
        assert attempt.target.credential is not None
        token = attempt.target.credential.get()
        if not portal.accepts(token):
            raise StatusError(401)
        return str(token)

    return ask


async def test_five_tasks_with_a_401_refresh_once(portal: Portal) -> None:
    """HON-081: five concurrent 401s, one refresh, five answers; refresh tokens are single-use."""
    credential = portal.credential()
    credential.refresh()
    portal.asked.clear()
    policy, gate = asking(portal, credential), asyncio.Event()
    refused = credential.get()

    async def ask(attempt: Attempt) -> str:
        token = credential.get()
        await gate.wait()
        if token == refused:
            raise StatusError(401)
        return str(token)

    tasks = [asyncio.create_task(policy.acall(ask)) for _ in range(5)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*tasks) == ["at-2"] * 5
    assert portal.asked == [f"{REFRESH}1"]


def test_eight_threads_with_a_401_refresh_once(portal: Portal) -> None:
    """HON-081, HON-082: those who waited take the new generation."""
    policy, barrier = asking(portal, portal.credential()), threading.Barrier(8)

    def one(_: int) -> str:
        barrier.wait()
        return str(policy.call(ask_with(portal)))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == ["at-1"] * 8
    assert portal.asked == [f"{REFRESH}0"]


def test_processes_with_a_401_refresh_once(portal: Portal, tmp_path: Path) -> None:
    """The lock file lets one process refresh; the others adopt what it wrote."""
    url, store = portal.server.url_for("/api/oauth/token"), tmp_path / "state" / "oauth.json"
    program = (
        "from honcho_fallback.credentials import OAuthCredential, CredentialError\n"
        f"c = OAuthCredential({url!r}, 'client', {REFRESH + '0'!r}, {str(store)!r})\n"
        "try:\n    c.get()\nexcept CredentialError:\n    c.refresh()\n"
        "print(c.get())\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    said = [worker.communicate()[0].strip() for worker in workers]
    assert said == ["at-1"] * 5
    assert portal.asked == [f"{REFRESH}0"]


def test_the_first_call_fetches_and_the_record_tells(portal: Portal) -> None:
    """A token that is not there yet costs no request at the provider: get() says so."""
    policy = asking(portal, portal.credential())
    run = policy.start()
    assert policy.call(ask_with(portal), run=run) == "at-1"
    assert run.record.attempts[1].note == "after a refresh of its credential"


def test_a_refusal_by_the_portal_is_clear_and_shows_no_token(
    portal: Portal, caplog: pytest.LogCaptureFixture
) -> None:
    """HON-078, HON-087: the record says what the portal said, and nothing of what was sent."""
    portal.number = 7
    policy = asking(portal, portal.credential())
    run = policy.start()

    def ask(attempt: Attempt) -> str:
        if attempt.is_fallback:
            return "hello"
        return str(ask_with(portal)(attempt))

    assert policy.call(ask, run=run) == "hello"
    note = run.record.attempts[0].note
    assert note is not None
    assert note.startswith("its refresh failed: http")
    assert note.endswith("/api/oauth/token answered 400 invalid_grant")
    assert REFRESH not in run.record.explain() + caplog.text + repr(portal.credential())


def test_an_unreachable_portal_is_clear(tmp_path: Path) -> None:
    """A refused connection is a CredentialError of this package."""
    credential = OAuthCredential("http://127.0.0.1:1/token", "client", REFRESH, tmp_path / "x")
    with pytest.raises(CredentialError, match=r"127\.0\.0\.1:1/token: URLError") as caught:
        credential.refresh()
    assert REFRESH not in str(caught.value)
    assert caught.value.__suppress_context__


def test_the_nous_flow_mints_a_key(portal: Portal) -> None:
    """HON-077: refresh token, access token, agent key for two hours; client and scope as named."""
    credential = OAuthCredential.nous(f"{REFRESH}0", portal=portal.server.url_for("")[:-1])
    with pytest.raises(CredentialError, match="no valid token"):
        credential.get()
    credential.refresh()
    assert credential.get() == "key-1"
    request = portal.server.log[0][0]
    form = parse_qs(request.get_data(as_text=True))
    assert form["client_id"] == ["hermes-cli"]
    assert form["scope"] == ["inference:mint_agent_key"]


def test_a_token_that_runs_out_is_refreshed_before_it_is_refused(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute before its end a token counts as expired."""
    credential = portal.credential()
    credential.refresh()
    later = time.time() + 3600 - 59
    monkeypatch.setattr("honcho_fallback.credentials._oauth.time.time", lambda: later)
    with pytest.raises(CredentialError):
        credential.get()


def test_the_file_is_private_from_its_first_byte(
    portal: Portal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HON-085: directory 0700, file 0600 when it is opened, replaced as a whole."""
    store = tmp_path / "state" / "oauth.json"
    opened: list[int] = []
    fdopen = os.fdopen

    def watch(handle: int, *args: Any, **options: Any) -> Any:
        opened.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return fdopen(handle, *args, **options)

    monkeypatch.setattr("os.fdopen", watch)
    before = os.umask(0)
    try:
        portal.credential(store).refresh()
    finally:
        os.umask(before)
    assert opened == [0o600]
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in store.parent.iterdir()) == [
        "oauth.json",
        "oauth.json.lock",
    ]
    assert json.loads(store.read_text())["refresh_token"] == f"{REFRESH}1"
    assert portal.credential(store).get() == "at-1"


def test_nothing_is_written_without_a_store(
    portal: Portal, monkeypatch: Any, tmp_path: Path
) -> None:
    """HON-084, G-44: no file, no .env, nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    portal.credential().refresh()
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_said(tmp_path: Path) -> None:
    """A state that cannot be read is no reason to guess."""
    path = tmp_path / "oauth.json"
    path.write_text("{")
    with pytest.raises(CredentialError, match="is unreadable: JSONDecodeError"):
        OAuthCredential("http://x", "client", store=path).refresh()
    path.write_text("[]")
    with pytest.raises(CredentialError, match="holds no JSON object"):
        OAuthCredential("http://x", "client", store=path).refresh()
    with pytest.raises(FallbackConfigError, match="refresh_token: there is none, and no store"):
        OAuthCredential("http://x", "client")


class Slow:
    """An async credential whose refreshes wait for a gate."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.refreshed = 0

    def get(self) -> int:
        return self.refreshed

    async def refresh(self) -> None:
        self.begun.set()
        await self.gate.wait()
        self.refreshed += 1


async def test_where_the_one_who_led_is_cancelled_the_next_leads() -> None:
    """AN-021: a cancelled refresh cancels nobody else, and leaves nothing behind."""
    slow = Slow()
    policy = FallbackPolicy([Target("primary", credential=slow)])

    async def ask(_: Attempt) -> int:
        if not slow.refreshed:
            raise StatusError(401)
        return slow.refreshed

    tasks = [asyncio.create_task(policy.acall(ask)) for _ in range(3)]
    await slow.begun.wait()
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    slow.gate.set()
    assert await asyncio.gather(*tasks[1:]) == [1, 1]
    assert slow.refreshed == 1


def test_a_static_key_says_that_it_has_no_refresh() -> None:
    """A key is told apart by its fingerprint and never shown."""
    key = ApiKey("sk-secret")
    assert isinstance(key, Credential)
    assert key.get() == "sk-secret"
    assert ApiKey("sk-secret").fingerprint == key.fingerprint != ApiKey("other").fingerprint
    with pytest.raises(CredentialError, match="no refresh"):
        key.refresh()
    assert "sk-secret" not in f"{key!r} {Target('m', credential=key)!r}"
