"""OAuth credentials: one refresh for many callers, a private file, and nothing shown."""

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

import pytest
from filelock import FileLock
from pytest_httpserver import HTTPServer
from werkzeug import Response

from honcho_fallback import (
    CredentialError,
    FallbackConfig,
    FallbackConfigError,
    FallbackError,
    FallbackPolicy,
    Target,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import KeyMint, OAuthCredential
from tests.helpers.forked import FORKS, in_child
from tests.helpers.pairwise import in_turn
from tests.helpers.portal import REFRESH, Portal

if TYPE_CHECKING:
    from pathlib import Path

    from werkzeug import Request

    from honcho_fallback import Attempt


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def portal(httpserver: HTTPServer) -> Portal:
    return Portal(httpserver)


def credential_at(portal: Portal, store: Path | None = None, **options: Any) -> OAuthCredential:
    return OAuthCredential(portal.token_url, "client", f"{REFRESH}0", store, **options)


def policy_with(credential: OAuthCredential) -> FallbackPolicy:
    chain = [Target("primary", credential=credential), Target("fallback")]
    return FallbackPolicy(chain, FallbackConfig(wait=0))


def ask(attempt: Attempt) -> str:
    """Ask a provider that takes any token that is there."""
    if attempt.is_fallback:
        return "from the fallback"
    assert attempt.target.credential is not None
    return str(attempt.target.credential.get())


def worker(program: str, portal: Portal, store: Path, **options: Any) -> subprocess.Popen[str]:
    """Run a program with a credential ``c`` in a process of its own."""
    begin = (
        "from honcho_fallback import CredentialError\n"
        "from honcho_fallback_honcho import OAuthCredential\n"
        f"c = OAuthCredential({portal.token_url!r}, 'client', {REFRESH + '0'!r}, {str(store)!r})\n"
    )
    command = [sys.executable, "-W", "error", "-c", begin + program]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, **options)


REFRESHES = "try:\n    c.get()\nexcept CredentialError:\n    c.refresh()\nprint(c.get())\n"


async def test_five_tasks_with_a_401_refresh_once(portal: Portal) -> None:
    """HON-081: five concurrent 401s, one refresh, five answers; refresh tokens are single-use."""
    credential = credential_at(portal)
    credential.refresh()
    refused, barrier = credential.get(), asyncio.Barrier(5)

    async def ask_together(attempt: Attempt) -> str:
        token = credential.get()
        if attempt.number == 1:
            await barrier.wait()
        if token == refused:
            raise StatusError(401)
        return token

    policy = policy_with(credential)
    answers = await asyncio.gather(*(policy.acall(ask_together) for _ in range(5)))
    assert answers == ["at-2"] * 5
    assert portal.token_requests == [f"{REFRESH}0", f"{REFRESH}1"]


def test_eight_threads_without_a_policy_refresh_once(portal: Portal) -> None:
    """HON-081, HON-082: who waited for the lock uses the token that came, and fetches none."""
    credential = credential_at(portal)
    portal.hold.clear()

    def refresh_and_get(_: int) -> str:
        credential.refresh()
        return credential.get()

    def number_of_waiters() -> int:
        code = OAuthCredential.refresh.__code__
        frames = [one for one in sys._current_frames().values() if one.f_code is code]
        return sum("refused" in frame.f_locals for frame in frames)

    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(refresh_and_get, range(8))
        while number_of_waiters() < 7:  # the eighth is in a frame below, at the portal
            assert portal.token_requests in ([], [f"{REFRESH}0"])
        portal.hold.set()
        assert [*answers] == ["at-1"] * 8
    assert portal.token_requests == [f"{REFRESH}0"]


def test_processes_with_a_401_refresh_once(portal: Portal, tmp_path: Path) -> None:
    """HON-081: one process refreshes under the lock file; the others adopt what it wrote."""
    store = tmp_path / "state" / "oauth.json"
    workers = [worker(REFRESHES, portal, store) for _ in range(3)]
    assert [one.communicate()[0].strip() for one in workers] == ["at-1"] * 3
    assert portal.token_requests == [f"{REFRESH}0"]


def test_a_token_that_another_process_fetched_takes_the_place_of_a_refused_one(
    portal: Portal, tmp_path: Path
) -> None:
    """HON-082: a token may be refused long before its end; the store's is asked for first."""
    ours, theirs = (credential_at(portal, tmp_path / "oauth.json") for _ in range(2))
    ours.refresh()
    assert theirs.get() == "at-1"
    theirs.refresh()
    ours.refresh()
    assert (ours.get(), theirs.get()) == ("at-2", "at-2")
    assert portal.token_requests == [f"{REFRESH}0", f"{REFRESH}1"]


def test_the_first_call_fetches_a_token_and_the_record_shows_it(portal: Portal) -> None:
    """A token that is not there yet costs no request at the provider: get() raises."""
    policy = policy_with(credential_at(portal))
    run = policy.start()
    assert policy.call(ask, run=run) == "at-1"
    assert run.record.attempts[1].note == "after a refresh of its credential"


def test_a_refusal_by_the_portal_is_clear_and_shows_no_token(
    portal: Portal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """HON-078, HON-087: the record quotes the portal's word, what to do, and nothing secret."""
    portal.number = 7
    store = tmp_path / "oauth.json"
    policy = policy_with(credential_at(portal, store))
    run = policy.start()
    assert policy.call(ask, run=run) == "from the fallback"
    assert run.record.attempts[0].note == (
        f"its refresh failed: localhost:{portal.server.port}/api/oauth/token answered 400 "
        "invalid_grant: the refresh token was revoked, or spent by a process that died before it "
        f"had the answer; log in again, move {store} away, pass the new refresh token"
    )
    assert REFRESH not in run.record.explain() + caplog.text + repr(policy.targets)
    assert issubclass(CredentialError, FallbackError)


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, "", "200 without access_token"),
        (200, "[]", "200 without access_token"),
        (200, '{"access_token": 7}', "200 without access_token"),
        (200, '{"error": "slow_down"}', "200 slow_down"),
        (400, '{"error": "the rt-secret-0 is odd"}', "400 without access_token"),
        (400, '{"error": {"code": "rt-secret-0"}}', "400 without access_token"),
        (401, '{"error": "invalid_client", "error_description": "rt-secret-0"}', "invalid_client"),
        (502, "<html>rt-secret-0</html>", "502 without access_token"),
    ],
)
def test_of_an_answer_but_a_plain_word_is_shown(
    httpserver: HTTPServer, status: int, body: str, problem: str
) -> None:
    """An error's description may quote what was sent."""
    httpserver.expect_request("/token").respond_with_data(body, status)
    credential = OAuthCredential(httpserver.url_for("/token"), "client", f"{REFRESH}0")
    with pytest.raises(CredentialError, match=f"/token answered .*{problem}$") as caught:
        credential.refresh()
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@FORKS[0]
@FORKS[1]
def test_a_child_that_is_forked_during_a_refresh_makes_its_own() -> None:
    """The thread that has the lock is not in the child: nobody there would ever open it."""
    entered, answer = threading.Event(), threading.Event()
    answers = iter(["first", "second"])

    def give(_: Request) -> Response:
        token = next(answers)
        if token == "first":
            entered.set()
            answer.wait(30)
        return Response(json.dumps({"access_token": token, "expires_in": 3600}))

    def refresh() -> str:
        credential.refresh()
        return credential.get()

    with HTTPServer(threaded=True) as server:
        server.expect_request("/token").respond_with_handler(give)
        credential = OAuthCredential(server.url_for("/token"), "client", f"{REFRESH}0")
        thread = threading.Thread(target=refresh)
        thread.start()
        assert entered.wait(10)
        try:
            assert in_child(refresh) == "second"
        finally:
            answer.set()
            thread.join()
        assert credential.get() == "first"


@in_turn(status=[302, 307], moved=["token", "key"])
def test_no_redirect_is_followed_with_a_token(
    portal: Portal, httpserver: HTTPServer, status: int, moved: str
) -> None:
    """Whoever can answer for the portal once must not learn where else the token is good."""
    requested: list[str] = []

    def elsewhere(request: Request) -> Response:
        requested.append(request.headers.get("Authorization", ""))
        return Response('{"access_token": "stolen", "api_key": "stolen"}')

    redirect = {"Location": httpserver.url_for("/elsewhere")}
    httpserver.expect_request("/moved").respond_with_data("", status, redirect)
    httpserver.expect_request("/elsewhere").respond_with_handler(elsewhere)
    moved_url = httpserver.url_for("/moved")
    token_url = moved_url if moved == "token" else portal.token_url
    credential = OAuthCredential(token_url, "client", f"{REFRESH}0", mint=KeyMint(moved_url))
    field = "access_token" if moved == "token" else "api_key"
    with pytest.raises(CredentialError, match=f"/moved answered {status} without {field}"):
        credential.refresh()
    assert requested == []


def test_an_unreachable_portal_is_clear() -> None:
    """A refused connection is a CredentialError with its class, and shows no query."""
    url = "http://127.0.0.1:1/token?key=query-secret"
    credential = OAuthCredential(url, "client", f"{REFRESH}0")
    with pytest.raises(
        CredentialError, match=r"to 127\.0\.0\.1:1/token failed: ConnectionRefusedError; check"
    ) as caught:
        credential.refresh()
    assert "secret" not in f"{caught.value} {credential!r}"
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "url", ["", "portal/token", "file:///etc/passwd", "https://me:pw-secret@portal/token"]
)
def test_an_address_that_cannot_be_asked_is_refused(url: str) -> None:
    """A file is no portal, and urllib would look a user up as part of the host's name."""
    with pytest.raises(FallbackConfigError, match="token_url: it is no address, or") as caught:
        OAuthCredential(url, "client", REFRESH)
    assert "secret" not in str(caught.value)


def test_a_silent_portal_is_given_up(silent_url: str) -> None:
    """The timeout is the request's own; a policy has none for a refresh in a thread."""
    credential = OAuthCredential(f"{silent_url}/token", "client", f"{REFRESH}0", timeout=0.05)
    with pytest.raises(CredentialError, match="/token failed: TimeoutError"):
        credential.refresh()


def test_the_nous_flow_mints_a_key(portal: Portal) -> None:
    """HON-077: refresh token, access token, agent key for two hours; client and scope as named."""
    credential = OAuthCredential.nous(f"{REFRESH}0", portal=f"{portal.url}/")
    with pytest.raises(CredentialError, match="no valid token"):
        credential.get()
    credential.refresh()
    assert credential.get() == "key-1"
    request = portal.server.log[0][0]
    assert request.form.to_dict() == {
        "grant_type": "refresh_token",
        "client_id": "hermes-cli",
        "refresh_token": f"{REFRESH}0",
        "scope": "inference:mint_agent_key",
    }
    assert "urllib" not in request.headers["User-Agent"]


def test_a_key_that_was_not_minted_costs_no_refresh_token(portal: Portal, tmp_path: Path) -> None:
    """The successor is kept at once: the next try begins with it, in any process."""
    store, url = tmp_path / "oauth.json", portal.server.url_for("/nowhere")
    with pytest.raises(CredentialError, match="/nowhere answered 500 without api_key"):
        credential_at(portal, store, mint=KeyMint(url)).refresh()
    portal.server.clear_log()
    mint = KeyMint(portal.server.url_for("/api/oauth/agent-key"))
    credential = credential_at(portal, store, mint=mint)
    credential.refresh()
    assert credential.get() == "key-1"
    assert portal.token_requests == [f"{REFRESH}0", f"{REFRESH}1"]


@pytest.mark.parametrize(("lifetime", "usable"), [(3600, 3540), (30, 15)])
def test_a_token_that_runs_out_is_refreshed_before_it_is_refused(
    portal: Portal, monkeypatch: pytest.MonkeyPatch, lifetime: int, usable: int
) -> None:
    """A minute before its end it counts as expired; a short one after half of its life."""
    now = time.time()
    monkeypatch.setattr("honcho_fallback_honcho._oauth.time.time", lambda: now)
    portal.fields = {"expires_in": lifetime}
    credential = credential_at(portal)
    credential.refresh()
    now += usable - 1
    assert credential.get() == "at-1"
    now += 1
    with pytest.raises(CredentialError, match="no valid token"):
        credential.get()


def test_a_lifetime_that_is_none_leaves_the_end_to_the_provider(portal: Portal) -> None:
    """A token without a known end is used until it is refused."""
    credential = credential_at(portal)
    lifetimes: list[Any] = [None, "3600", -1, 10**400, float("nan"), {}]
    for number, lifetime in enumerate(lifetimes, start=1):
        portal.fields = {"expires_in": lifetime}
        credential.refresh()
        assert credential.get() == f"at-{number}"


def test_a_refresh_token_that_stays_is_used_again(portal: Portal) -> None:
    """A provider that does not rotate sends no successor."""
    portal.fields = {"refresh_token": None}
    credential = credential_at(portal)
    credential.refresh()
    portal.number = 0
    credential.refresh()
    assert portal.token_requests == [f"{REFRESH}0"] * 2


def test_the_file_is_private_from_its_first_byte(
    portal: Portal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HON-085: directory 0700, files 0600 when they are opened, replaced as a whole, synced."""
    store = tmp_path / "state" / "oauth.json"
    modes: list[int] = []
    fsync = os.fsync

    def watch(handle: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        fsync(handle)

    monkeypatch.setattr("os.fsync", watch)
    before = os.umask(0)
    try:
        portal.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            refresh = pool.submit(credential_at(portal, store).refresh)
            assert portal.arrived.wait(10)
            paths = [store.parent, *store.parent.iterdir()]
            names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
            portal.hold.set()
            refresh.result(10)
    finally:
        os.umask(before)
    private = {"oauth.json": 0o600, "oauth.json.lock": 0o600}
    assert names == {"state": 0o700} | private
    assert modes == [0o600, 0o600]
    left = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.parent.iterdir()}
    assert left == private
    assert json.loads(store.read_text())["refresh_token"] == f"{REFRESH}1"
    assert credential_at(portal, store).get() == "at-1"


def test_nothing_is_written_without_a_store(
    portal: Portal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HON-084, G-44: no file, no .env, nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    credential_at(portal).refresh()
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_refused(portal: Portal, tmp_path: Path) -> None:
    """A state that cannot be read is no reason to guess; it stays as it is."""
    store = tmp_path / "oauth.json"
    broken = '{"refresh_token": "r", "expires_at": "x"}'
    for state in ("", "[]", "{}", '{"refresh_token": 7}', broken):
        store.write_text(state)
        with pytest.raises(CredentialError, match=r"oauth\.json: it holds no .* log in again"):
            credential_at(portal, store).refresh()
        assert store.read_text() == state
    assert portal.token_requests == []


def test_a_file_that_cannot_be_read_is_clear(portal: Portal, tmp_path: Path) -> None:
    """Here it is a directory; the class of the error is shown."""
    with pytest.raises(CredentialError, match=f"{tmp_path}: IsADirectoryError; move it away"):
        credential_at(portal, tmp_path).refresh()


def test_without_any_refresh_token_nothing_is_sent(portal: Portal, tmp_path: Path) -> None:
    """HON-083: a store that has not been written yet, and no token beside it."""
    credential = OAuthCredential(portal.token_url, "client", store=tmp_path / "oauth.json")
    with pytest.raises(CredentialError, match="there is no refresh token; log in again"):
        credential.refresh()
    assert portal.token_requests == []
    with pytest.raises(FallbackConfigError, match="refresh_token: there is none, and no store"):
        OAuthCredential(portal.token_url, "client")


@pytest.mark.parametrize("full_at", [1, 2])
def test_a_full_disk_keeps_the_old_state(
    portal: Portal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    """The state is written before a token is spent; what was spent nonetheless stays in memory."""
    store = tmp_path / "oauth.json"
    credential = credential_at(portal, store)
    credential.refresh()
    old, synced = store.read_text(), list[int]()

    def sync(handle: int) -> None:
        synced.append(handle)
        if len(synced) == full_at:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", sync)
        with pytest.raises(CredentialError, match=r"oauth\.json: No space left .*; free space"):
            credential.refresh()
    assert credential.get() == f"at-{full_at}"
    assert json.loads(store.read_text())["refresh_token"] == json.loads(old)["refresh_token"]
    assert {path.name for path in tmp_path.iterdir()} == {"oauth.json", "oauth.json.lock"}
    credential.refresh()
    assert portal.token_requests == [f"{REFRESH}{number}" for number in range(full_at + 1)]


def test_what_a_process_left_that_was_killed_while_it_wrote_is_in_nobodys_way(
    portal: Portal, tmp_path: Path
) -> None:
    """HON-085: a new file is made in its place, private from its first byte."""
    left = tmp_path / "oauth.json.new"
    left.write_text("half a sta")
    left.chmod(0o644)
    store = tmp_path / "oauth.json"
    credential_at(portal, store).refresh()
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert not left.exists()


def test_a_lock_that_is_never_given_back_is_waited_for_in_vain(
    portal: Portal, tmp_path: Path
) -> None:
    """A process that hangs takes no others along: they wait for twice the time of a refresh."""
    store = tmp_path / "oauth.json"
    credential = credential_at(portal, store, timeout=0.01)
    with (
        FileLock(f"{store}.lock"),
        pytest.raises(
            CredentialError, match=r"json\.lock: Timeout; look for a process that hangs"
        ),
    ):
        credential.refresh()
    assert portal.token_requests == []


def test_a_directory_that_cannot_be_made_is_clear(portal: Portal, tmp_path: Path) -> None:
    """A file stands where the directory should; nothing is sent."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CredentialError, match=r"oauth\.json.*: NotADirectoryError; "):
        credential_at(portal, tmp_path / "file" / "sub" / "oauth.json").refresh()
    assert portal.token_requests == []


def test_the_lock_is_imported_for_a_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra tokens are still refreshed in memory; with a store the error names it."""
    monkeypatch.setitem(sys.modules, "filelock", None)
    OAuthCredential("http://localhost/token", "client", REFRESH)
    with pytest.raises(ImportError, match=r"filelock is not installed.*honcho-fallback\[honcho\]"):
        OAuthCredential("http://localhost/token", "client", store=tmp_path / "oauth.json")


def test_two_accounts_are_told_apart_without_showing_them() -> None:
    """What tells targets apart in a shared cooldown differs by client, token and file."""
    url = "http://localhost/token"
    credentials = [
        OAuthCredential(url, "one", REFRESH),
        OAuthCredential(url, "two", REFRESH),
        OAuthCredential(url, "one", f"{REFRESH}1"),
        OAuthCredential(url, "one", REFRESH, "/oauth.json"),
    ]
    assert len({credential.fingerprint for credential in credentials}) == 4
    assert OAuthCredential(url, "one", REFRESH).fingerprint == credentials[0].fingerprint
    assert REFRESH not in repr(credentials)
