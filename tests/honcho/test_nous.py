"""Agents at the Nous portal: Honcho's names, OAuth, and the key on the wire."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

import openai
import pytest

from honcho_fallback import CredentialError, FallbackConfigError
from honcho_fallback_honcho import Endpoint, OAuthCredential, load_policies
from tests.helpers.portal import REFRESH, Portal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_httpserver import HTTPServer

    from honcho_fallback import Attempt, FallbackPolicy, FallbackRun
    from tests.helpers.provider import Provider, ProviderServer

NOUS_HOST = "https://inference-api.nousresearch.com/v1"
MESSAGES: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def portal(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> Portal:
    monkeypatch.setenv("no_proxy", "*")
    return Portal(httpserver)


@pytest.fixture
def provider(providers: ProviderServer) -> Provider:
    return providers.new("nous", key="key-1")


@pytest.fixture
def environ(portal: Portal, provider: Provider, tmp_path: Path) -> dict[str, str]:
    """Name a deriver at the Nous host, with a fallback that is never needed."""
    return {
        "DERIVER_MODEL_CONFIG__TRANSPORT": "nous",
        "DERIVER_MODEL_CONFIG__MODEL": "hermes-4",
        "DERIVER_MODEL_CONFIG__FALLBACK__MODEL": "lmstudio/qwen",
        "DERIVER_MODEL_CONFIG__FALLBACK__OVERRIDES__BASE_URL": f"{provider.url}-fallback",
        "LLM_NOUS_BASE_URL": provider.url,
        "NOUS_REFRESH_TOKEN": f"{REFRESH}0",
        "NOUS_OAUTH_STATE_PATH": str(tmp_path / "state" / "nous.json"),
        "NOUS_PORTAL_BASE_URL": portal.url,
    }


def call(policy: FallbackPolicy, run: FallbackRun | None = None) -> str:
    """Ask with a client that is made of what an attempt names."""

    def ask(attempt: Attempt) -> str:
        endpoint, credential = attempt.target.client, attempt.target.credential
        assert isinstance(endpoint, Endpoint)
        assert credential is not None
        url, key = endpoint.base_url, str(credential.get())
        with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
            answer = client.chat.completions.create(model=attempt.target.model, messages=MESSAGES)
        return str(answer.choices[0].message.content)

    return policy.call(ask, run=run)


def keys(provider: Provider) -> list[str]:
    return [request.key for request in provider.requests]


def test_a_401_refreshes_once_and_the_same_target_is_asked_again(
    environ: dict[str, str],
    portal: Portal,
    provider: Provider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """HON-077, HON-080: the key is the credential's; no secret shows."""
    caplog.set_level("DEBUG")
    policies = load_policies(environ)
    policy = policies["deriver"]
    assert call(policy) == f"hello from {provider.name}"
    provider.key = "key-2"  # the first one is revoked before its end
    run = policy.start()
    assert call(policy, run) == f"hello from {provider.name}"
    assert keys(provider) == ["key-1", "key-1", "key-2"]
    assert portal.token_requests == [f"{REFRESH}0", f"{REFRESH}1"]
    assert run.record.attempts[1].note == "after a refresh of its credential"
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("honcho_fallback")]
    shown = f"{ours} {run.record.explain()} {run.record.to_dict()} {policies} {policy.targets}"
    assert not any(secret in shown for secret in (REFRESH, "key-1", "key-2", "at-1", "at-2"))


def test_where_a_refresh_brings_nothing_the_providers_own_401_comes_out(
    environ: dict[str, str], portal: Portal, provider: Provider
) -> None:
    """HON-078: the caller gets the SDK's exception; the record says why there is no new key."""
    policy = load_policies(environ)["deriver"]
    call(policy)
    provider.key = "key-2"
    portal.number = 7
    run = policy.start()
    with pytest.raises(openai.AuthenticationError, match="401"):
        call(policy, run)
    assert keys(provider) == ["key-1", "key-1"]
    note = run.record.attempts[0].note or ""
    assert note.startswith("its refresh failed: localhost:")
    assert "answered 400 invalid_grant" in note


def test_an_unreachable_portal_is_explained_where_there_was_no_key_yet(
    environ: dict[str, str], provider: Provider
) -> None:
    """HON-087: no request is sent without a key, and what comes out carries the reason."""
    policy = load_policies(environ | {"NOUS_PORTAL_BASE_URL": "http://127.0.0.1:1/"})["deriver"]
    with pytest.raises(CredentialError, match="there is no valid token at hand") as caught:
        call(policy)
    (note,) = caught.value.__notes__
    assert "its refresh failed: the request to 127.0.0.1:1/api/oauth/token failed: Conn" in note
    assert keys(provider) == []


def test_others_never_refresh(environ: dict[str, str], portal: Portal, provider: Provider) -> None:
    """HON-079: another transport's 401 is no matter of the portal."""
    environ["DERIVER_MODEL_CONFIG__TRANSPORT"] = "openai"
    environ |= {"LLM_OPENAI_BASE_URL": provider.url, "LLM_OPENAI_API_KEY": "stale"}
    run = (policy := load_policies(environ)["deriver"]).start()
    with pytest.raises(openai.AuthenticationError, match="401"):
        call(policy, run)
    assert (keys(provider), portal.token_requests) == (["stale"], [])
    assert run.record.attempts[0].note is None


NAMED = {"NOUS_REFRESH_TOKEN": REFRESH}
NOUS = {"TRANSPORT": "nous", "MODEL": "m"}


@pytest.mark.parametrize(
    ("model", "environ", "key"),
    [
        (NOUS, NAMED, "OAuth"),
        (NOUS, {"NOUS_OAUTH_STATE_PATH": "/state.json"}, "OAuth"),
        (NOUS, NAMED | {"LLM_NOUS_API_KEY": "default"}, "OAuth"),
        (NOUS, {"LLM_NOUS_API_KEY": "default"}, "default"),
        (NOUS, {"NOUS_PORTAL_BASE_URL": "http://p", "LLM_NOUS_API_KEY": "default"}, "default"),
        (NOUS, NAMED | {"LLM_NOUS_BASE_URL": "https://nous.example/v1"}, "OAuth"),
        (NOUS | {"OVERRIDES__BASE_URL": NOUS_HOST}, NAMED, "OAuth"),
        (NOUS | {"OVERRIDES__BASE_URL": "https://other.example/v1"}, NAMED, "missing"),
        (
            NOUS | {"OVERRIDES__BASE_URL": "http://inference-api.nousresearch.com"},
            NAMED,
            "missing",
        ),
        (NOUS | {"OVERRIDES__API_KEY": "own"}, NAMED, "own"),
        (NOUS | {"OVERRIDES__API_KEY_ENV": "MINE"}, NAMED | {"MINE": "own"}, "own"),
        (NOUS | {"API_KEY": "own"}, NAMED, "own"),
        (NOUS | {"TRANSPORT": "openai", "OVERRIDES__BASE_URL": NOUS_HOST}, NAMED, "missing"),
        (
            NOUS | {"TRANSPORT": "openai_compatible", "OVERRIDES__BASE_URL": NOUS_HOST},
            NAMED | {"LLM_OPENAI_COMPATIBLE_API_KEY": "default"},
            "missing",
        ),
    ],
)
def test_whose_key_is_oauths(model: dict[str, str], environ: dict[str, str], key: str) -> None:
    """Targets of transport nous at the Nous host, unless they have a key of their own."""
    named = {f"DERIVER_MODEL_CONFIG__FALLBACK__{name}": value for name, value in model.items()}
    target = load_policies({**environ, **named})["deriver"].targets[-1]
    assert target.credential is not None
    if key in {"OAuth", "missing"}:
        assert isinstance(target.credential, OAuthCredential) == (key == "OAuth")
    else:
        assert target.credential.get() == key


def test_nothing_is_read_or_written_before_a_key_is_needed(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: Provider
) -> None:
    """HON-083, HON-084: the state is below the home directory by default; no .env appears."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    del environ["NOUS_OAUTH_STATE_PATH"]
    policy = load_policies(environ)["deriver"]
    assert [*home.iterdir()] == []
    call(policy)
    state = home / ".honcho" / "nous_oauth_state.json"
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    kept = json.loads(state.read_text())
    assert (kept["refresh_token"], kept["token"]) == (f"{REFRESH}1", "key-1")
    written = {path.name for path in state.parent.iterdir()}
    assert written == {"nous_oauth_state.json", "nous_oauth_state.json.lock"}
    assert [path.name for path in home.iterdir()] == [".honcho"]
    assert [*here.iterdir()] == []
    state.write_text("broken")
    load_policies(environ)


def test_the_state_file_comes_before_the_variable(
    environ: dict[str, str], portal: Portal, provider: Provider
) -> None:
    """HON-083: what a process left is newer; the next one takes even its key over."""
    call(load_policies(environ)["deriver"])
    call(load_policies(environ)["deriver"])
    provider.key = "key-2"
    call(load_policies(environ)["deriver"])
    assert keys(provider) == ["key-1", "key-1", "key-1", "key-2"]
    assert portal.token_requests == [f"{REFRESH}0", f"{REFRESH}1"]


def test_a_refresh_changes_no_settings(
    environ: dict[str, str], provider: Provider, tmp_path: Path
) -> None:
    """HON-084, HON-086: mapping, process environment and .env are as they were."""
    dotenv = tmp_path / ".env"
    dotenv.write_text(f"NOUS_REFRESH_TOKEN={environ.pop('NOUS_REFRESH_TOKEN')}\n")
    before = {**environ}, {**os.environ}, dotenv.read_bytes(), dotenv.stat().st_mtime_ns
    policy = load_policies(environ, env_file=dotenv)["deriver"]
    targets = policy.targets
    call(policy)
    assert keys(provider) == ["key-1"]
    assert policy.targets == targets
    after = {**environ}, {**os.environ}, dotenv.read_bytes(), dotenv.stat().st_mtime_ns
    assert after == before


def test_all_agents_of_a_load_share_one_credential(environ: dict[str, str]) -> None:
    """Two loads have two, which take turns by the file and are one to a shared cooldown."""
    environ |= {
        "SUMMARY_MODEL_CONFIG__MODEL": "hermes-4",
        "SUMMARY_MODEL_CONFIG__TRANSPORT": "nous",
    }
    first, second = load_policies(environ), load_policies(environ)
    credential = first["deriver"].targets[0].credential
    assert credential is first["summary"].targets[0].credential
    assert credential is not second["deriver"].targets[0].credential
    assert first["deriver"].targets[0].identity == second["deriver"].targets[0].identity


@pytest.mark.parametrize(
    ("portal_url", "problem"),
    [
        ("portal-secret", "NOUS_PORTAL_BASE_URL: pass an address such as"),
        ("file:///etc/secret", "NOUS_PORTAL_BASE_URL: pass an address such as"),
        ("https://me:pw-secret@portal", "token_url: it is no address, or one with a user"),
    ],
)
def test_a_portal_without_an_address_is_refused(portal_url: str, problem: str) -> None:
    """The error says what to set, and does not show the value."""
    environ = NAMED | {"NOUS_PORTAL_BASE_URL": portal_url, "SUMMARY_MODEL_CONFIG__MODEL": "m"}
    environ["SUMMARY_MODEL_CONFIG__TRANSPORT"] = "nous"
    with pytest.raises(FallbackConfigError, match=problem) as caught:
        load_policies(environ)
    assert "secret" not in str(caught.value)
