"""Nothing of what a provider wrote is in what this package keeps, shows or adds."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import pickle
from typing import Any

import pytest

from honcho_fallback import (
    AnswerRejected,
    ApiKey,
    Cooldown,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Target,
    classify,
)
from honcho_fallback.records import JsonlObserver
from honcho_fallback.redaction import call_metadata, is_secret_name, label, redact
from honcho_fallback.testing import StatusError
from tests.helpers.canaries import KEY, PROMPT, canaries_in, provider_errors, run_into
from tests.helpers.observers import Listener


def test_no_key_and_no_prompt_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """In records, lines, logs, events, reprs, notes and pickles, whatever field it came in."""
    caplog.set_level(logging.DEBUG, "honcho_fallback")
    lines, events, count = io.StringIO(), Listener(), 0
    for run, raised in run_into(provider_errors(), [events, JsonlObserver(lines)]):
        count += 1
        shown = [repr(run), repr(run.record), json.dumps(run.record.to_dict())]
        if type(raised).__module__.startswith("honcho_fallback"):
            shown += [str(raised), repr(raised), *map(repr, getattr(raised, "args", ()))]
            shown.append(repr(pickle.dumps(raised)))
        notes = getattr(raised, "__notes__", ())
        shown += [note for note in notes if note.startswith("honcho_fallback: ")]
        assert canaries_in(shown) == []
    assert count > 3000
    shown = [repr((events.starts, events.switches, events.records))]
    for switch in events.switches:
        shown += [switch.reason, repr(pickle.dumps(switch.failure))]
    for record in events.records:
        shown += [record.explain(), record._repr_html_()]
    assert canaries_in(shown) == []
    assert canaries_in(lines.getvalue()) == []
    logged = [str(vars(record)) + record.getMessage() for record in caplog.records]
    assert logged
    assert canaries_in(logged) == []


@pytest.mark.parametrize(
    "code",
    [
        "X", "7", "1113", "003001", "rate_limit_exceeded", "invalid-argument", "NOT_FOUND",
        "APIG.0305", "Throttling.AllocationQuota", "InputImageContentDetected.PrivacyInformation",
        "key_model_access_denied", "AI_APICallError", "http_429", "model:not-found", "E1001",
    ],
)  # fmt: skip
def test_what_looks_like_a_code_is_kept(code: str) -> None:
    """Names that are joined, and numbers: it is how a failure is looked up.

    A sentence in one field does not hide the code in the next.
    """
    run = FallbackPolicy([Target("a"), Target("b")]).start()
    run.fail(StatusError(429, code=code))
    assert run.record.attempts[0].code == code
    error = StatusError(429)
    error.body = {"error": {"code": "Some resource has been exhausted", "type": code}}
    assert classify(error).code == code


@pytest.mark.parametrize(
    "code",
    [
        PROMPT, KEY, f"invalid key {KEY}", "Bad Request", "x" * 65, "", " ", "a b", "a\nb",
        "sk-ant-api03-AbCdEfGh01234567", "sk-abcdefghijkl", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.abc",
        "gsk_abcdefghijklmnop", "AKIAIOSFODNNEXAMPLE", "4111111111111111", "0041791234567",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "someone@example.com", "10.0.0.17", "2026-11-25",
        "b5bb9d8014a0f9b1d61e21e796d78dcc", "req_011CSHoEeqs5C35K2UUqR7Fy", "code_", "_code",
        "c\u00f6de", "\u0661\u0662", "code\n", "\x1b[31m", "a--b",
    ],
)  # fmt: skip
def test_what_does_not_look_like_a_code_is_not(code: str) -> None:
    """A sentence, a key, an id, a number of somebody's: the failure means the same without it."""
    failure = classify(StatusError(429, code=code))
    assert failure.code is None
    assert failure.kind is FailureKind.RATE_LIMIT
    # A classifier of the user's own may have put it there.
    run = FallbackPolicy([Target("a"), Target("b")]).start()
    run.fail(ValueError("no"), failure=Failure.of(FailureKind.RATE_LIMIT, code=code))
    assert run.record.attempts[0].code is None
    assert repr(code) not in repr(run.record)
    assert "code=None" in repr(Failure.of(FailureKind.RATE_LIMIT, code=code))


@pytest.mark.parametrize("grouped", [True, False], ids=["chain", "one target"])
def test_a_call_says_no_login_of_an_address(*, grouped: bool) -> None:
    """Its record, its error, the error's note and a saved line name such a target without it.

    HON-095, HOM-076: what a target is asked with, how, and a bad value are never shown either.
    """
    address = f"https://me:{KEY}@host/v1?api_key={KEY}"
    hidden: Any = {"client": KEY, "params": {"key": KEY}, "credential": ApiKey(KEY)}
    hidden["endpoint"] = address
    chain = [Target(address, **hidden), Target("m", address), Target("n", name=f"{address}&n=1")]
    lines = io.StringIO()
    config = FallbackConfig(cooldown=Cooldown(after=1, base=60), deadline=60)
    targets = chain if grouped else chain[:1]
    policy = FallbackPolicy(targets, config, observers=[JsonlObserver(lines)], wait=0)
    named = policy.labelled(f"https://me:{KEY}@host")
    run = named.start()
    reprs = [repr(one) for one in (chain[0], named, run, run.attempt)]
    assert canaries_in(reprs) == []
    assert all("host" in one for one in reprs)
    bad: Any = KEY
    with pytest.raises(FallbackConfigError) as refused:
        FallbackConfig(reset=bad)
    assert canaries_in(refused.value) == []

    def fail(_: object) -> None:
        raise ConnectionResetError

    for _ in range(2):
        run = named.start()
        with pytest.raises(FallbackExhausted if grouped else ConnectionResetError) as caught:
            named.call(fail, run=run)
        record, error = run.record, caught.value
        shown = [repr(record), record.explain(), json.dumps(record.to_dict()), str(error)]
        shown += [repr(error), *getattr(error, "__notes__", ())]
        assert canaries_in(shown) == []
        assert all("host" in one for one in shown[:3])
    policy.call(lambda _: "hello", run=(run := policy.start()))
    assert canaries_in([repr(run.record), lines.getvalue()]) == []


@pytest.mark.parametrize("options", [{"validate": bool}, {"timeout": 0.01}])
async def test_an_answer_of_an_address_is_refused_without_its_login(options: Any) -> None:
    """What stands for an answer that is none, or came too late, names its target without it."""
    policy = FallbackPolicy([Target(f"https://me:{KEY}@host")], wait=0, **options)

    async def ask(_: object) -> str:
        if "timeout" in options:
            await asyncio.Event().wait()  # for ever
        return ""

    with pytest.raises(Exception, match="host") as caught:
        await policy.acall(ask)
    assert canaries_in([str(caught.value), repr(caught.value)]) == []


def test_what_is_wrong_with_an_answer_says_nothing_of_it() -> None:
    """An error under HTTP 200 stands in an error of ours, also once it was pickled."""
    answer = {"error": {"message": PROMPT, "type": "server_error", "code": PROMPT}}
    policy = FallbackPolicy([Target("a"), Target("b")])
    with pytest.raises(FallbackExhausted) as caught:
        policy.call(lambda _: answer, max_attempts=2)
    (first, _) = caught.value.exceptions
    assert isinstance(first, AnswerRejected)
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 # its own bytes
    for error in (caught.value, first, copied, *copied.exceptions):
        assert canaries_in([str(error), repr(error), repr(vars(error)), pickle.dumps(error)]) == []


# One answer for the whole package to what a secret is.

SECRETS = (
    "api_key", "apikey", "X-API-Key", "key", "Ocp-Apim-Subscription-Key", "authorization",
    "cookie", "Set-Cookie", "bearer", "token", "sessionToken", "client_secret", "password",
    "db_pass", "db_pwd", "sig", "x.sig", "X-Amz-Signature", "X-Amz-Credential", "x-auth-token",
    "Password", "jwt", "auth",
)  # fmt: skip
PUBLIC = ("monkey", "keyboard", "token_count", "author", "compass", "region", "model", "workspace")


def test_a_name_is_a_secrets_or_it_is_none() -> None:
    """A header, a parameter of an address and a name in metadata are judged alike."""
    assert [name for name in SECRETS if not is_secret_name(name)] == []
    assert [name for name in PUBLIC if is_secret_name(name)] == []
    for name in SECRETS:
        assert label(f"https://host/v1?{name}=hunter2") == f"https://host/v1?{name}=[redacted]"
        assert "hunter2" not in redact(f"refused https://host/v1?{name}=hunter2")
        assert call_metadata({name: "hunter2", "run": "r-17"}) == {"run": "r-17"}
    for name in PUBLIC:
        address = f"https://host/v1?{name}=eu"
        assert label(address) == redact(address) == address
        assert call_metadata({name: "eu"}) == {name: "eu"}


def test_an_address_has_one_form_without_its_login() -> None:
    """Who reads a log beside a trace finds the same text in both."""
    address = "https://me:hunter2@host/v1?max_tokens=5&sig=abc"
    shown = "https://[redacted]@host/v1?max_tokens=5&sig=[redacted]"
    assert label(address) == redact(address) == shown
    assert call_metadata({"base_url": address}) == {"base_url": shown}
