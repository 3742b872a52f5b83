"""What became of a request that failed, and whether it may be made again."""

from __future__ import annotations

import copy
import socket
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import botocore.config
import botocore.exceptions
import botocore.session
import httpx
import openai
import pytest
import requests
import tenacity

from honcho_fallback import (
    Attempt,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    OutcomeUnknown,
    StreamInterrupted,
    Target,
    classify,
)
from honcho_fallback._values.tracebacks import shorten
from honcho_fallback.testing import StatusError
from tests.helpers.broken_server import WAYS, BrokenServer
from tests.helpers.errors import EXAMPLES, REQUEST, raised_from
from tests.helpers.scripted import DRIVERS, pair, repeating
from tests.helpers.wire import message_answer, message_start

if TYPE_CHECKING:
    from types import FrameType

    from honcho_fallback.testing import Clock
    from tests.helpers.broken_server import Connection

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


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("error", SETTLED, ids=repr)
def test_what_had_no_effect_switches(driver: str, error: Exception) -> None:
    """A request that never arrived or was refused may be made again, under either option."""
    for replay in ("any", "safe"):
        policy = pair(replay=replay)
        script = repeating(primary=[error], fallback=["hello"])
        assert DRIVERS[driver](policy, script, policy.start()) == "hello"


def test_it_is_an_option_of_a_call_too() -> None:
    """The one call of an agent that sends an order is careful, the others are not."""
    policy = pair()
    script = repeating(primary=[TIMEOUT], fallback=["hello"])
    with pytest.raises(OutcomeUnknown):
        policy.call(script.ask, replay="safe")
    assert policy.call(script.ask) == "hello"


CAREFUL: list[tuple[Any, dict[str, Any]]] = [
    (BROKEN, {"switch_after": 3}),
    ("bad", {"validate": lambda answer: answer != "bad"}),  # what the model did is done
]


@pytest.mark.parametrize(("reply", "options"), CAREFUL)
@pytest.mark.parametrize("targets", [1, 2])
def test_no_repeat_either(reply: Any, options: Any, targets: int) -> None:
    """The same target is not asked twice, nor another one about an answer that was refused."""
    policy = FallbackPolicy(pair().targets[:targets], wait=0, replay="safe", **options)
    script = repeating(primary=[reply], fallback=["never"])
    with pytest.raises(OutcomeUnknown):
        policy.call(script.ask)
    assert script.asked == ["primary"]


def test_a_deadline_that_has_passed_is_not_what_matters(clock: Clock) -> None:
    """Time is over, too; but what the caller has to know is that the request may have worked."""

    def ask(_: Attempt) -> str:
        clock.advance(100)
        raise TIMEOUT

    with pytest.raises(OutcomeUnknown):
        pair(replay="safe", deadline=30).call(ask)


def test_a_bug_of_the_program_comes_out_as_it_is() -> None:
    """No provider failed, so there is nothing to be careful about."""
    with pytest.raises(KeyError):
        pair(replay="safe").call(repeating(primary=[KeyError("mine")]).ask)
    with pytest.raises(FallbackExhausted):
        pair(replay="safe").call(repeating(primary=[BUSY], fallback=[StatusError(401)]).ask)


def test_a_stream_that_broke_has_had_an_effect() -> None:
    """What the provider says after content is no refusal: the content was made, and is billed.

    Also to a policy around it, though what cut it looks like a refusal.
    """
    endings: list[tuple[Any, type[Any]]] = [
        ("replace", OutcomeUnknown),
        ("final", StreamInterrupted),
    ]
    for partial, error in endings:
        script = repeating(primary=[["hel", BUSY]], fallback=[["never"]])
        with pytest.raises(error) as got:
            list(pair(replay="safe").stream(script.stream, partial=partial))
        assert got.value.record.attempts[0].reached == "unknown"
        assert classify(got.value).reached == "unknown"


def test_a_key_for_idempotent_requests() -> None:
    """The same for repeats at one target in one call, another for every target and call."""
    policy = pair(switch_after=2, attempts_per_target=2)
    script = repeating(primary=[BROKEN], fallback=[BROKEN])
    for _ in range(2):
        with pytest.raises(FallbackExhausted):
            policy.call(script.ask)
    keys = [request.attempt.idempotency_key for request in script.requests]
    first, second = keys[:4], keys[4:]
    assert first[0] == first[1] != first[2] == first[3]
    assert not {*first} & {*second}


# What an answer, a group, a retry or a nested call proves.


@pytest.mark.parametrize("row", EXAMPLES["reached"]["answers"], ids=str)
def test_an_answer_is_a_refusal_only_where_it_says_so(row: dict[str, Any]) -> None:
    """A page under 503 may be anybody's; a provider's document, and most of the 400s, say no."""
    answer: Any = httpx.Response(row["status"], text=row["body"], request=REQUEST)
    error = openai.OpenAI(api_key="k")._make_status_error_from_response(answer)
    assert classify(error).reached == row["reached"]


def test_words_alone_are_no_refusal() -> None:
    """A text that a program raises proves nothing of a request."""
    failure = classify(RuntimeError("rate limit reached for this model"), only_models=True)
    assert (failure.kind, failure.reached) == ("rate_limit", "unknown")


REFUSED_TO_CONNECT = httpx.ConnectError("refused")
LOST = [httpx.ReadTimeout("too slow"), httpx.ReadError("cut"), RESET, StatusError(500)]


@pytest.mark.parametrize("lost", LOST, ids=repr)
def test_a_group_is_its_worst_member(lost: Exception) -> None:
    """In either order, also inside another group or under another error."""
    for members in (
        [REFUSED_TO_CONNECT, lost],
        [lost, REFUSED_TO_CONNECT],
        [StatusError(429), lost],
    ):
        group = ExceptionGroup("x", members)
        outer = raised_from(RuntimeError("wrapped"), group)
        for error in (group, ExceptionGroup("y", [StatusError(429), group]), outer):
            assert classify(error).reached == "unknown", error
    both = ExceptionGroup("x", [REFUSED_TO_CONNECT, StatusError(429)])
    assert (classify(both).reached, classify(both).scope) == ("refused", "model")
    alone = classify(ExceptionGroup("x", [REFUSED_TO_CONNECT]))
    assert (alone.reached, alone.scope) == ("no", "endpoint")


@pytest.mark.parametrize("last", [REFUSED_TO_CONNECT, StatusError(429)], ids=repr)
@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_an_earlier_request_below_the_last_error_counts(last: Exception, link: str) -> None:
    """Whoever asks again in an except block has both errors in one chain."""
    error = copy.copy(last)
    setattr(error, link, httpx.ReadTimeout("too slow"))
    assert classify(error).reached == "unknown"


@pytest.mark.parametrize("options", [{}, {"on_exhausted": "group"}, {"replay": "safe"}])
def test_a_nested_call_knows_of_all_its_requests(options: Any) -> None:
    """The last error of the inner policy is a refusal; one of its requests may have acted."""
    inner = FallbackPolicy([Target("slow"), Target("busy")], wait=0, **options)
    script = repeating(slow=[TIMEOUT], busy=[StatusError(429)])
    asked: list[str] = []

    def ask(attempt: Attempt) -> Any:
        asked.append(attempt.target.model)
        return inner.call(script.ask, max_attempts=2)

    with pytest.raises(OutcomeUnknown):
        pair(replay="safe").call(ask)
    assert asked == ["primary"]
    script = repeating(slow=[StatusError(401)], busy=[BUSY])  # nothing came of either
    with pytest.raises(FallbackExhausted):
        pair(replay="safe").call(ask)
    assert asked == ["primary", "primary", "fallback"]


def test_many_causes_are_no_proof_and_cost_little() -> None:
    """Who raises from ten thousand errors has lost count; each is looked at once at most."""
    error: Exception = httpx.ConnectError("refused")
    for number in range(10_000):
        error = raised_from(ConnectionError(str(number)), error)
    assert classify(error).reached == "unknown"
    looked = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal looked
        looked += event == "call" and frame.f_code.co_name == "is_of_the_same_call"

    sys.setprofile(count)
    try:
        shorten([error])
    finally:
        sys.setprofile(None)
    assert looked == 10_000


def test_a_nested_policy_whose_requests_were_refused_may_have_lost_one_outside_of_itself() -> None:
    """Its record knows its own attempts; who retried around it knows of more."""
    refused = SimpleNamespace(attempts=(SimpleNamespace(reached="refused"),))
    headers = {"x-stainless-retry-count": "1"}
    once, twice = (
        type("NestedError", (Exception,), {"status_code": 429})("slow down") for _ in range(2)
    )
    for error, sent in ((once, {}), (twice, headers)):
        vars(error).update(record=refused, request=SimpleNamespace(headers=sent))
    assert (classify(once).reached, classify(twice).reached) == ("refused", "unknown")


def test_a_client_that_retries_knows_less_than_its_last_error() -> None:
    """OpenAI's SDK counts its retries in a header, tenacity and botocore in what they raise."""
    headers = {"x-stainless-retry-count": "1"}
    request: Any = httpx.Request("POST", "https://x.test/v1", headers=headers)
    response: Any = httpx.Response(429, request=request)
    retried = openai.RateLimitError("x", response=response, body=None)
    assert classify(retried).reached == "unknown"
    assert classify(openai.APIConnectionError(request=request)).reached == "unknown"
    meta = {"HTTPStatusCode": 429, "RetryAttempts": 2}
    throttled = {
        "Error": {"Code": "ThrottlingException", "Message": "x"},
        "ResponseMetadata": meta,
    }
    error = botocore.exceptions.ClientError(throttled, "Converse")
    assert classify(error).reached == "unknown"
    meta["RetryAttempts"] = 0
    assert classify(error).reached == "refused"


@pytest.mark.parametrize("reraise", [True, False])
@pytest.mark.parametrize(("times", "reached"), [(1, "refused"), (2, "unknown")])
def test_tenacitys_attempts_count(reraise: bool, times: int, reached: str) -> None:
    """With reraise=True nothing but the frame that raises still knows of the first one."""
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(times), wait=tenacity.wait_none(), reraise=reraise
    )
    with pytest.raises((StatusError, tenacity.RetryError)) as got:
        retrying(
            repeating(one=[StatusError(429)]).ask,
            pair().start().attempt._replace(target=Target("one")),
        )
    assert classify(got.value).reached == reached


@pytest.mark.parametrize(("attempts", "reached"), [(1, "no"), (2, "unknown")])
def test_botocores_attempts_count_where_nobody_answered(attempts: int, reached: str) -> None:
    """Its connection errors have no metadata; a refused host alone is proof all the same."""
    retries = {"total_max_attempts": attempts, "mode": "standard"}
    config = botocore.config.Config(retries=retries, connect_timeout=1)
    session = botocore.session.Session()
    session.set_credentials("a", "b")
    with (
        WAYS["port closed"]() as gone,
        pytest.raises(botocore.exceptions.EndpointConnectionError) as got,
    ):
        client = session.create_client(
            "bedrock-runtime", region_name="us-east-1", endpoint_url=gone.url, config=config
        )
        client.converse(modelId="m", messages=[])
    failure = classify(got.value)
    assert (failure.reached, failure.scope) == (reached, "endpoint")


def test_urllib3s_own_retries_count() -> None:
    """requests hands on the last error; the session's adapter had asked before."""
    with WAYS["port closed"]() as gone, requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=1))
        with pytest.raises(requests.exceptions.ConnectionError) as got:
            session.post(f"{gone.url}/chat/completions")
        assert classify(got.value).reached == "unknown"
        with pytest.raises(requests.exceptions.ConnectionError) as got:
            requests.post(f"{gone.url}/chat/completions", timeout=1)
        assert classify(got.value).reached == "no"


def test_a_proxy_is_no_proof_unless_it_was_not_there() -> None:
    """A proxy takes the whole request; what comes of that nobody knows where it hangs up."""

    def through(proxy: str) -> tuple[str, str, str]:
        with pytest.raises(requests.exceptions.ConnectionError) as got:
            requests.post("http://llm.invalid/v1", proxies={"http": proxy}, timeout=1)
        failure = classify(got.value)
        return failure.kind.value, failure.reached, failure.scope

    def hang_up(connection: Connection) -> None:
        connection.read()

    with BrokenServer(hang_up) as server:
        assert through(f"http://127.0.0.1:{server.port}") == ("connection", "unknown", "model")
    with WAYS["port closed"]() as gone:
        assert through(gone.url) == ("connection", "no", "endpoint")


def test_a_name_of_the_users_changes_no_fact() -> None:
    """A rule or a hook may call a failure anything; what became of the request stays."""
    slow, gone = httpx.ReadTimeout("slow"), httpx.ConnectError("refused")
    wrapped = raised_from(RuntimeError("no more"), slow)
    for kind in ("rate_limit", "overloaded", "quota", "server_error"):
        for name, error, reached in (
            ("TransportError", slow, "unknown"),
            ("TransportError", gone, "no"),
            ("RuntimeError", wrapped, "unknown"),
        ):
            rules = FallbackConfig(rules={"kind": kind, "error": name}).rules
            failure = classify(error, rules=rules)
            assert (failure.kind, failure.by_rule, failure.reached) == (kind, True, reached)
            assert (failure.scope == "endpoint") is (error is gone)


BUSIER = FailureKind.OVERLOADED
NEW: list[tuple[Any, str]] = [
    (lambda failure, _: failure._replace(kind=BUSIER), "unknown"),
    (lambda _failure, _: Failure.of(BUSIER), "unknown"),
    (lambda failure, _: Failure.of(BUSIER, error=failure.error, reason="mine"), "unknown"),
    # Who knows better may say so: what a refine itself says of the request is believed.
    (lambda failure, _: failure._replace(kind=BUSIER, reached="refused"), "refused"),
]


@pytest.mark.parametrize(("refine", "slow"), NEW)
def test_a_failure_that_refine_makes_anew_has_the_facts_of_the_error(
    refine: Any, slow: str
) -> None:
    """Failure.of knows nothing of the request."""
    gone = "no" if slow == "unknown" else slow
    for error, reached in ((httpx.ReadTimeout("slow"), slow), (httpx.ConnectError("x"), gone)):
        run = pair(refine=refine).start()
        run.fail(error)
        first = run.record.attempts[0]
        assert (first.kind, first.reached) == ("overloaded", reached)
        run.succeed()


BEGUN = message_start(message_answer(usage={"input_tokens": 5000, "output_tokens": 1}))


@pytest.mark.parametrize("driver", ["stream", "astream"])
def test_a_stream_that_had_begun_is_unknown_and_keeps_its_usage(driver: str) -> None:
    """The provider read 5,000 tokens before it said that it is overloaded: they are billed."""
    policy = pair(replay="safe")
    run = policy.start()
    script = repeating(primary=[[BEGUN, BUSY]], fallback=[["never"]])
    with pytest.raises(OutcomeUnknown):
        DRIVERS[driver](policy, script, run)
    (failed,) = run.record.attempts
    assert (failed.kind, failed.reached, failed.billed) == ("overloaded", "unknown", "yes")
    assert failed.usage == {"input_tokens": 5000, "output_tokens": 1, "total_tokens": 5001}
    assert run.record.usage is None
    assert failed.received is None
    error = {"error": {"message": "busy", "type": "overloaded_error", "code": "overloaded"}}
    for nothing_before in (BUSY, error):  # it is refused as any answer is
        again = repeating(primary=[[nothing_before]], fallback=[["hello"]])
        assert DRIVERS[driver](policy, again, policy.start()) == "hello"
    script = repeating(primary=[[BEGUN, error]], fallback=[["never"]])
    with pytest.raises(OutcomeUnknown):
        DRIVERS[driver](policy, script, policy.start())
