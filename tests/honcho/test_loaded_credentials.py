"""Credentials that a program passes, and the example that keeps a key of the Nous portal."""

from __future__ import annotations

import json
import os
import runpy
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from werkzeug import Response

from honcho_fallback import ApiKey, CredentialError, FallbackConfigError
from honcho_fallback_honcho import load_chat_models, load_policies
from tests.helpers.observers import Listener
from tests.honcho.chat_models import settings

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer
    from werkzeug import Request

    from tests.helpers.provider import ProviderServer


# ruff: noqa: E501 # one row of a table is one line

REFRESH = "rt-secret-"  # before the number of a token


class Portal:
    """Exchange ``rt-secret-N`` for ``at-N+1`` and ``rt-secret-N+1``, and that for keys.

    Attributes:
        token_requests: The refresh tokens that were sent, in order.
        number: Of the refresh token that is good.
        minted: How many keys were given out; the last is ``key-N``.
        min_ttl: The seconds that a key may be asked for.
    """

    def __init__(self, server: HTTPServer) -> None:
        self.url = server.url_for("").rstrip("/")
        self.token_requests: list[str] = []
        self.number, self.minted, self.min_ttl = 0, 0, 7200
        server.expect_request("/api/oauth/token").respond_with_handler(self._token)
        server.expect_request("/api/oauth/agent-key").respond_with_handler(self._mint)

    def _token(self, request: Request) -> Response:
        (refresh_token,) = parse_qs(request.get_data(as_text=True))["refresh_token"]
        self.token_requests.append(refresh_token)
        if refresh_token != f"{REFRESH}{self.number}":
            refusal = {"error": "invalid_grant", "error_description": f"{refresh_token} is spent"}
            return Response(json.dumps(refusal), 400)
        self.number += 1
        answer = {"access_token": f"at-{self.number}", "expires_in": 3600}
        return Response(json.dumps({**answer, "refresh_token": f"{REFRESH}{self.number}"}))

    def _mint(self, request: Request) -> Response:
        if request.headers["Authorization"] != f"Bearer at-{self.number}":
            return Response(json.dumps({"error": "invalid_token"}), 401)
        if request.get_json() != {"min_ttl_seconds": self.min_ttl}:
            return Response(json.dumps({"error": "invalid_request"}), 400)
        self.minted += 1
        return Response(json.dumps({"api_key": f"key-{self.minted}", "expires_in": 7200}))


NOUS_HOST = "https://inference-api.nousresearch.com/v1"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "nous_key.py"
NousKey: Any = runpy.run_path(str(EXAMPLE))["NousKey"]


@pytest.fixture
def portal(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> Portal:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NOUS_REFRESH_TOKEN", f"{REFRESH}0")
    return Portal(httpserver)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "nous.json"


@pytest.fixture
def nous_key(portal: Portal, state: Path) -> Any:
    return NousKey(str(state), portal.url)


def test_a_401_refreshes_once_and_the_same_target_is_asked_again(
    portal: Portal, providers: ProviderServer, nous_key: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """HON-077, HON-080: the key is the credential's; no secret shows; HON-086: nothing is set.

    It is minted when the first request needs it, and kept until it is refused.
    """
    caplog.set_level("DEBUG")
    listener, environ = Listener(), settings(providers, "nous", "anthropic")
    before = {**environ}, {**os.environ}
    options: Any = {"credentials": {"nous": nous_key}, "observers": [listener]}
    model = load_chat_models(environ, **options)["deriver"]
    for key in ("key-1", "key-2"):  # the first one is revoked before its end
        providers["nous"].key = key
        assert model.invoke("hi").text == "hello from nous"
    assert {*providers.order} == {"nous"}
    assert [request.key for request in providers["nous"].requests] == ["key-1", "key-1", "key-2"]
    assert (portal.token_requests, portal.minted) == ([f"{REFRESH}0", f"{REFRESH}1"], 2)
    record = listener.records[1]
    assert record.attempts[1].note == "after a refresh of its credential"
    assert ({**environ}, {**os.environ}) == before
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("honcho_fallback")]
    shown = (
        f"{ours} {record.explain()} {record.to_dict()} {model.candidates} {model.policy.targets}"
    )
    assert not any(secret in shown for secret in (REFRESH, "key-1", "key-2", "at-1", "at-2"))


def test_a_kind_of_key_may_give_another_with_each_request(providers: ProviderServer) -> None:
    """A program's own may rotate by itself; Gemini's model keeps one key, and says so at once."""

    class Rotating(ApiKey):
        def get(self) -> str:
            return f"key-{len(providers.order)}"

    environ = settings(providers, "nous", "anthropic")
    model = load_chat_models(environ, credentials={"nous": Rotating("first")})["deriver"]
    for _ in range(2):
        model.invoke("hi")
    assert [request.key for request in providers["nous"].requests] == ["key-0", "key-1"]
    with pytest.raises(FallbackConfigError, match=r"^credentials\['gemini'\]: .* pass an ApiKey"):
        load_chat_models(
            settings(providers, "nous", "gemini"), credentials={"gemini": Rotating("first")}
        )


def test_an_unreachable_portal_is_explained_where_there_was_no_key_yet(
    providers: ProviderServer, portal: Portal, state: Path
) -> None:
    """HON-087: no request is sent without a key, and what comes out carries the reason."""
    nowhere = NousKey(str(state), "http://127.0.0.1:1")
    environ = settings(providers, "nous", "anthropic")
    model = load_chat_models(environ, credentials={"nous": nowhere})["deriver"]
    with pytest.raises(CredentialError, match="there is no valid key at hand") as caught:
        model.invoke("hi")
    (note,) = caught.value.__notes__
    assert "its refresh failed: ConnectError" in note
    assert (portal.minted, providers.order) == (0, [])


NOUS = {"TRANSPORT": "nous", "MODEL": "m"}


@pytest.mark.parametrize(
    ("model", "environ", "key"),
    [
        (NOUS, {}, "passed"),
        (NOUS, {"LLM_NOUS_API_KEY": "default"}, "passed"),
        (NOUS, {"LLM_NOUS_BASE_URL": "https://nous.example/v1"}, "passed"),
        (NOUS | {"OVERRIDES__BASE_URL": NOUS_HOST}, {}, "passed"),
        (NOUS | {"OVERRIDES__BASE_URL": "https://other.example/v1"}, {}, "missing"),
        (NOUS | {"OVERRIDES__BASE_URL": NOUS_HOST.replace("https", "http")}, {}, "missing"),
        (NOUS | {"OVERRIDES__API_KEY": "own"}, {}, "own"),
        (NOUS | {"OVERRIDES__API_KEY_ENV": "MINE"}, {"MINE": "own"}, "own"),
        (NOUS | {"API_KEY": "own"}, {}, "own"),
        (NOUS | {"TRANSPORT": "openai", "OVERRIDES__BASE_URL": NOUS_HOST}, {}, "missing"),
        (NOUS | {"TRANSPORT": "openai_compatible", "OVERRIDES__BASE_URL": NOUS_HOST}, {"LLM_OPENAI_COMPATIBLE_API_KEY": "default"}, "missing"),
    ],
)  # fmt: skip
def test_whose_key_is_the_passed_one(
    model: dict[str, str], environ: dict[str, str], key: str
) -> None:
    """HON-079: targets of its transport at that one's host, unless they have a key of their own."""
    named = {f"DERIVER_MODEL_CONFIG__FALLBACK__{name}": value for name, value in model.items()}
    passed = ApiKey("passed")
    policies = load_policies({**environ, **named}, credentials={"nous": passed})
    credential = policies["deriver"].targets[-1].credential
    assert credential is not None
    assert (credential is passed) == (key == "passed")
    if key == "missing":
        with pytest.raises(CredentialError):
            credential.get()
    else:
        assert credential.get() == key


def test_a_credential_of_no_transport_is_refused() -> None:
    """The error says which transports there are, and which one may be meant."""
    with pytest.raises(FallbackConfigError, match=r"nuos: .*did you mean nous"):
        load_policies({}, credentials={"nuos": ApiKey("k")})


# --- the example -------------------------------------------------------------------------------


def test_the_file_is_private_and_nothing_else_is_written(nous_key: Any, state: Path) -> None:
    """HON-083, HON-084: for the owner alone, in a folder for the owner alone."""
    nous_key.refresh()
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    kept = json.loads(state.read_text())
    assert (kept["refresh_token"], kept["key"]) == (f"{REFRESH}1", "key-1")
    assert {path.name for path in state.parent.iterdir()} == {"nous.json", "nous.json.lock"}


def test_what_a_process_left_is_newer_than_the_variable(portal: Portal, state: Path) -> None:
    """HON-083: the next process takes even its key over, and refreshes with its token."""
    first, second = NousKey(str(state), portal.url), NousKey(str(state), portal.url)
    first.refresh()
    assert second.get() == "key-1"
    second.refresh()  # the first key was refused
    assert first.get() == "key-2"
    assert portal.token_requests == [f"{REFRESH}0", f"{REFRESH}1"]


def test_those_who_wait_for_another_process_take_its_key(portal: Portal, state: Path) -> None:
    """A lock file lets one refresh at a time; the refresh token is spent once."""
    processes = [NousKey(str(state), portal.url) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(NousKey.refresh, processes))
    assert {one.get() for one in processes} == {"key-1"}
    assert portal.token_requests == [f"{REFRESH}0"]


def test_a_key_that_was_not_minted_costs_no_refresh_token(
    portal: Portal, nous_key: Any, state: Path
) -> None:
    """HON-085: the successor is kept before the key is asked for."""
    portal.min_ttl = 1
    with pytest.raises(CredentialError, match="the portal answered 400"):
        nous_key.refresh()
    assert json.loads(state.read_text()) == {"refresh_token": f"{REFRESH}1"}
    portal.min_ttl = 7200
    nous_key.refresh()
    assert nous_key.get() == "key-1"
