"""What is tried once before a target is left, what is not tried too often, and what never is."""

from __future__ import annotations

import asyncio
import pickle
import ssl
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    ApiKey,
    Cooldown,
    Credential,
    CredentialError,
    DeadlineExceeded,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    RetryBudget,
    Target,
    TransportRecovery,
)
from honcho_fallback._core.recovery import _REFRESHES, refresh_of
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt
    from honcho_fallback.testing import Clock

DOWN = StatusError(503)
DENIED = StatusError(401)


class Key:
    """A credential that counts its refreshes, and does something before each."""

    def __init__(self, before: Callable[[], Any] = lambda: None) -> None:
        self.generation, self.before = 0, before

    def get(self) -> str:
        return f"token-{self.generation}"

    def refresh(self) -> Any:
        done = self.before()
        self.generation += 1
        return done


class AsyncKey(Key):
    async def refresh(self) -> None:
        await (self.before() or asyncio.sleep(0))
        self.generation += 1


def broken(*_: object) -> None:
    raise OSError("token-0 is in this text")


def asks_with(key: Key) -> Any:
    """Return an ``ask`` that is refused until its key has been refreshed."""

    async def ask(_: Attempt) -> str:
        token = key.get()
        await asyncio.sleep(0)
        if token == "token-0":
            raise DENIED
        return token

    return ask


def with_key(key: Any, **options: Any) -> FallbackPolicy:
    chain = [Target("primary", credential=key), Target("fallback")]
    return FallbackPolicy(chain, FallbackConfig(wait=0, **options))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kind", [Key, AsyncKey])
def test_a_refused_credential_is_refreshed_once_and_the_target_asked_again(
    driver: str, kind: type[Key]
) -> None:
    """HON-077, HON-080: 401, one refresh, the same target again, over all four drivers."""
    key = kind()
    policy, script = with_key(key), repeating(primary=[DENIED, "hello"], fallback=["other"])
    run = policy.start()
    if kind is AsyncKey and driver in {"call", "stream"}:
        assert DRIVERS[driver](policy, script, run) == "other"
        assert "its refresh failed: refresh: it is async" in run.record.explain()
        return
    assert DRIVERS[driver](policy, script, run) == "hello"
    assert (script.asked, key.generation) == (["primary", "primary"], 1)
    assert run.record.attempts[1].note == "after a refresh of its credential"
    assert "after a refresh of its credential" in run.record.explain()


def test_a_403_about_credentials_counts_and_another_one_does_not() -> None:
    """HRT-008, G-35: an expired token behind a 403 is refreshed, a closed region is not."""
    key = Key()
    expired = StatusError(403, code="token_expired")
    script = repeating(primary=[expired, "hello"], fallback=["no"])
    assert with_key(key).call(script.ask) == "hello"
    script = repeating(primary=[StatusError(403)], fallback=["hello"])
    assert with_key(key).call(script.ask) == "hello"
    assert key.generation == 1


@pytest.mark.parametrize("status", [500, 429, 400])
def test_other_failures_refresh_nothing(status: int) -> None:
    """HRT-011: a 500 is no matter of credentials. HON-079, HRT-010: without one nothing is."""
    key = Key()
    run = with_key(key).start()
    with pytest.raises(StatusError) if status == 400 else nullcontext():
        run.fail(StatusError(status))
    assert (run.pending, key.generation) == (None, 0)
    plain = with_key(None).start()
    assert plain.fail(DENIED).target.name == "fallback"
    assert plain.pending is None


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (Key(broken), "OSError"),
        (Key(AsyncKey().refresh), "refresh: it returned an awaitable; define it with async def"),
    ],
)
def test_a_refresh_that_fails_switches_and_tells_no_secret(
    key: Key, why: str, caplog: Any
) -> None:
    """HON-078: the record says clearly that it failed, and shows nothing of what was raised."""
    policy, script = with_key(key), repeating(primary=[DENIED], fallback=["hello"])
    run = policy.start()
    assert policy.call(script.ask, run=run) == "hello"
    assert script.asked == ["primary", "fallback"]
    assert run.record.attempts[0].note == f"its refresh failed: {why}"
    assert "token-0" not in run.record.explain() + caplog.text + str(run.record.to_dict())
    # On the only target the provider's own error comes out, with a note on the refresh.
    with pytest.raises(StatusError) as caught:
        FallbackPolicy([Target("only", credential=key)]).call(repeating(only=[DENIED]).ask)
    assert caught.value is DENIED
    assert caught.value.__notes__[-1].endswith(f"(its refresh failed: {why})")


def test_each_target_has_its_own_refresh() -> None:
    """HRT-001, HRT-003, HRT-008, HRT-009, hermes#53919: one each and per call, never a loop."""
    keys = [Key(), Key()]
    chain = [Target("primary", credential=keys[0]), Target("fallback", credential=keys[1])]
    policy = FallbackPolicy(chain, FallbackConfig(wait=0, max_attempts=2))
    script = repeating(primary=[DENIED], fallback=[DENIED, "hello", DENIED, "again"])
    run = policy.start()
    assert policy.call(script.ask, run=run) == "hello"
    # HRC-066: each recovery is on top of the two attempts.
    assert script.asked == ["primary", "primary", "fallback", "fallback"]
    assert [attempt.number for attempt in run.record.attempts] == [1, 2, 3, 4]
    assert policy.call(script.ask) == "again"
    assert [key.generation for key in keys] == [2, 2]


async def test_a_hanging_refresh_ends_with_the_attempts_time() -> None:
    """A refresh has the time of the attempt that it is for; then the next target is asked."""
    policy = with_key(AsyncKey(asyncio.Event().wait), timeout=0.02)
    script = repeating(primary=[DENIED], fallback=["hello"])
    assert await policy.acall(script.aask) == "hello"


def test_whoever_owns_the_loop_settles_errands() -> None:
    """An adapter's own loop does what run.pending says before it asks."""
    key = Key()
    policy = with_key(key)
    run = policy.start()
    run.fail(DENIED)
    assert (run.pending is not None, key.generation) == (True, 0)
    assert policy.perform(run) is run.attempt
    assert (run.pending, key.generation) == (None, 1)


def test_the_time_of_a_refresh_is_gone_from_the_deadline(clock: Clock) -> None:
    """The same target is asked with what the refresh has left of its share."""
    policy = with_key(Key(lambda: clock.advance(5)), deadline=30, timeout=None)
    script = repeating(primary=[DENIED, "hello"], fallback=["no"])
    policy.call(script.ask)
    assert [request.attempt.timeout for request in script.requests] == pytest.approx([20, 15])


def test_a_refresh_that_takes_all_the_time_leaves_a_time_that_clients_take(clock: Clock) -> None:
    """Time that is over is no mistake in a timeout: it ran out, and that is what is said."""
    policy = with_key(Key(lambda: clock.advance(31)), deadline=30)
    script = repeating(primary=[DENIED, TimeoutError()], fallback=["no"])
    with pytest.raises(DeadlineExceeded):
        policy.call(script.ask)
    assert script.asked == ["primary"] * 2
    assert all((request.attempt.timeout or 0) > 0 for request in script.requests)


def test_calls_that_wait_share_one_refresh() -> None:
    """HON-081, HON-082: of ten threads that were refused one refreshes, over two policies."""
    refused, refreshing = threading.Barrier(10), threading.Event()
    key = Key(lambda: refreshing.wait(5))
    chains = [[Target("primary", credential=key)], [Target("other", credential=key)]]
    policies = [FallbackPolicy(chain, wait=0) for chain in chains]

    def ask(attempt: Attempt) -> str:
        token = key.get()
        if token == "token-0":
            if attempt.number == 1:
                refused.wait(5)
                refreshing.set()
            raise DENIED
        return token

    with ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(policies[n % 2].call, ask) for n in range(10)]
        assert {answer.result(10) for answer in answers} == {"token-1"}
    assert key.generation == 1


@pytest.mark.parametrize("kind", [Key, AsyncKey])
async def test_tasks_that_wait_share_one_refresh(kind: type[Key]) -> None:
    """HON-081: the same for a hundred tasks, whether the refresh is sync or async."""
    key = kind()
    policy = FallbackPolicy([Target("primary", credential=key)], wait=0)
    answers = await asyncio.gather(*(policy.acall(asks_with(key)) for _ in range(100)))
    assert {*answers} == {"token-1"}
    assert key.generation == 1


@pytest.mark.parametrize("kind", [Key, AsyncKey])
async def test_a_refresh_that_fails_fails_for_all_who_waited(kind: type[Key]) -> None:
    """HON-078: of many calls that were refused together one tries, and none tries again."""
    gate, tries, refused = threading.Event(), list[int](), Counter[str]()

    def fail() -> None:
        gate.wait(5)
        tries.append(1)
        raise OSError

    key = kind(fail if kind is Key else lambda: asyncio.to_thread(fail))

    async def ask(attempt: Attempt) -> None:
        await asyncio.sleep(0)
        refused[attempt.target.name] += 1
        if refused["primary"] == 10:  # once this task waits as well, all of them do
            asyncio.get_running_loop().call_soon(gate.set)
        raise DENIED

    policy = FallbackPolicy([Target("primary", credential=key)], wait=0)
    calls = (policy.acall(ask) for _ in range(10))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results == [DENIED] * 10
    assert (len(tries), refused["primary"]) == (1, 10)


@pytest.mark.parametrize(
    ("errors", "notes"),
    [
        ((DENIED, DOWN), ["its refresh failed: OSError", None]),
        ((DOWN, DENIED), [None, "its refresh failed: OSError"]),
    ],
)
def test_a_refresh_that_failed_used_up_no_attempt(errors: Any, notes: Any) -> None:
    """HRC-066: the request that was meant to follow is not made, and no other in its place.

    What failed before stands in the record as it was.
    """
    chain = [Target(name, credential=Key(broken)) for name in ("primary", "fallback")]
    script, policy = repeating(primary=errors[:1], fallback=errors[1:]), FallbackPolicy(chain)
    with pytest.raises(FallbackExhausted) as caught:
        policy.call(script.ask, wait=0, max_attempts=2)
    assert script.asked == ["primary", "fallback"]
    assert [(one.number, one.note) for one in caught.value.attempts] == [*enumerate(notes, 1)]


def test_a_credential_is_known_for_as_long_as_it_lives() -> None:
    """By object: what is gone leaves nothing to the next at its place; what has slots is kept."""
    key = Key()
    refresh_of(key).generation = 7
    place = id(key)
    assert place in _REFRESHES
    del key
    assert place not in _REFRESHES

    like_a_key = {name: getattr(Key, name) for name in ("__init__", "get", "refresh")}
    slots = {"__slots__": ("before", "generation")}
    slotted = type("SlottedKey", (), like_a_key | slots)()
    policy = FallbackPolicy([Target("primary", credential=slotted)], wait=0)
    for count in (1, 2):
        assert policy.call(repeating(primary=[DENIED, "hello"]).ask) == "hello"
        assert slotted.generation == count


def test_a_static_key_is_told_apart_and_never_shown() -> None:
    """Its fingerprint stands for it; it is a credential like any other, without a refresh."""
    key = ApiKey("sk-secret")
    assert isinstance(key, Credential)
    assert key.get() == "sk-secret"
    assert ApiKey("sk-secret").fingerprint == key.fingerprint != ApiKey("other").fingerprint
    with pytest.raises(CredentialError, match="a static key has no refresh; replace it"):
        key.refresh()
    assert "sk-secret" not in f"{key!r} {Target('m', credential=key)!r}"


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_refused_static_key_is_no_reason_for_a_refresh(driver: str) -> None:
    """HON-079: a 401 switches at once; that a refresh failed would be news about nothing."""

    class Watched(ApiKey):
        refreshes = 0

        def refresh(self) -> None:
            self.refreshes += 1

    key = Watched("sk-secret")
    policy = FallbackPolicy([Target("primary", credential=key), Target("fallback")])
    script, run = repeating(primary=[DENIED], fallback=["hello"]), policy.start()
    assert DRIVERS[driver](policy, script, run) == "hello"
    assert (script.asked, key.refreshes) == (["primary", "fallback"], 0)
    assert [attempt.note for attempt in run.record.attempts] == [None, None]


async def test_where_the_leader_of_a_refresh_is_cancelled_the_next_one_leads() -> None:
    """AN-021: a cancelled refresh cancels nobody else, and leaves nothing behind."""
    begun, gate = asyncio.Event(), asyncio.Event()

    def wait() -> Any:
        begun.set()
        return gate.wait()

    key = AsyncKey(wait)
    policy = FallbackPolicy([Target("primary", credential=key)])
    tasks = [asyncio.create_task(policy.acall(asks_with(key))) for _ in range(3)]
    await begun.wait()
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError, match=r"^$"):
        await tasks[0]
    gate.set()
    assert await asyncio.gather(*tasks[1:]) == ["token-1"] * 2
    assert key.generation == 1


class Queue(ThreadPoolExecutor):
    """One thread, which is busy; it tells when something waits for it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.free, self.waits = threading.Event(), asyncio.Event()
        super().submit(self.free.wait)

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        job = super().submit(*args, **kwargs)
        self.waits.set()
        return job


async def test_a_refresh_that_was_given_up_before_a_thread_was_free_blocks_nobody() -> None:
    """It never began: the next call leads, in a task and in a thread."""
    key, queue = Key(), Queue()
    asyncio.get_running_loop().set_default_executor(queue)
    policy = FallbackPolicy([Target("primary", credential=key)])
    given_up = asyncio.create_task(policy.acall(asks_with(key)))
    await queue.waits.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    queue.free.set()
    async with asyncio.timeout(10):  # it would wait for ever
        assert await policy.acall(asks_with(key)) == "token-1"
    assert policy.call(repeating(primary=[DENIED, "hello"]).ask) == "hello"
    assert key.generation == 2


# Transport recovery


def recovering(rebuild: Any = None, facts: Any = None, **options: Any) -> FallbackPolicy:
    recovery = TransportRecovery(rebuild=rebuild)
    chain = [Target("primary", name="primary", **(facts or {})), Target("fallback")]
    config = FallbackConfig(wait=0, transport_recovery=recovery, **options)
    return FallbackPolicy(chain, config)


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError()])
@pytest.mark.parametrize("provider", ["custom", "zai", "anthropic", "ollama", None])
def test_a_lost_connection_gets_one_more_chance(clock: Clock, error: Any, provider: Any) -> None:
    """HRS-011, HRS-016, HRS-020: wait, rebuild, ask once more; then the switch."""
    rebuilt: list[Target] = []
    policy = recovering(rebuilt.append, {"provider": provider})
    script = repeating(primary=[error, "hello"], fallback=["no"])
    run = policy.start()
    assert policy.call(script.ask, run=run) == "hello"
    assert (clock.slept, [target.name for target in rebuilt]) == ([4.0], ["primary"])
    assert run.record.attempts[1].note == "after time for its transport"
    assert run.record.attempts[1].wait == 4.0
    script = repeating(primary=[error], fallback=["hello"])
    assert policy.call(script.ask) == "hello"
    assert script.asked == ["primary", "primary", "fallback"]


@pytest.mark.parametrize(("retries", "wait"), [(0, 3), (3, 6), (5, 8), (10, 8)])
def test_the_wait_grows_with_the_retries_up_to_eight_seconds(retries: int, wait: float) -> None:
    """HRS-012: min(3 + retries, 8) seconds, the failed request that led here counted."""
    failure = Failure.of(FailureKind.TIMEOUT)
    action = TransportRecovery().action(Target("gpt-5.5"), failure, retries)
    assert action is not None
    assert action.wait == wait


def test_recovery_comes_after_the_ordinary_retries(clock: Clock) -> None:
    """HRS-011: when the retries are used up, not before; the wait counts them."""
    policy = recovering(switch_after=3, max_attempts=4)
    script = repeating(primary=[TimeoutError()], fallback=["hello"])
    assert policy.call(script.ask) == "hello"
    assert script.asked == ["primary"] * 4 + ["fallback"]
    assert clock.slept == [6.0]


NO_RECOVERY: dict[str, tuple[Exception, dict[str, Any], dict[str, Any]]] = {
    "a status": (DOWN, {}, {}),
    "a rate limit": (StatusError(429), {}, {}),
    "a refused key": (DENIED, {}, {}),
    "a model that is not there": (StatusError(404), {}, {}),
    "a gateway's timeout": (StatusError(504), {}, {}),
    "a certificate": (ssl.SSLCertVerificationError(1, "certificate verify failed"), {}, {}),
    "an aggregator": (TimeoutError(), {"provider": "openrouter"}, {}),
    "another one": (TimeoutError(), {"provider": "nous"}, {}),
    "an aggregator in capitals": (TimeoutError(), {"provider": "OpenRouter"}, {}),
    "an aggregator's host": (TimeoutError(), {"endpoint": "https://openrouter.ai/api/v1"}, {}),
    "a host below it": (TimeoutError(), {"endpoint": "https://api.openrouter.ai"}, {}),
    "seconds that the fallback needs": (TimeoutError(), {}, {"deadline": 4}),
}


@pytest.mark.parametrize("case", NO_RECOVERY)
def test_only_a_lost_connection_of_ones_own_recovers(clock: Clock, case: str) -> None:
    """HRS-014, HRS-015: behind a status, a certificate or an aggregator there is none."""
    error, facts, options = NO_RECOVERY[case]
    script = repeating(primary=[error], fallback=["hello"])
    recovering(facts=facts, **options).call(script.ask)
    assert (script.asked, clock.slept) == (["primary", "fallback"], [])


def test_the_next_attempt_gets_the_client_that_a_rebuild_returned(clock: Clock) -> None:
    """A frozen target cannot be given a new client by hand; what stays is everything else."""
    old, new = object(), object()
    policy = recovering(lambda _: new, {"client": old, "params": {"seed": 1}})
    script = repeating(primary=[TimeoutError(), "hello"], fallback=["no"])
    assert policy.call(script.ask) == "hello"
    first, second = (request.attempt.target for request in script.requests)
    assert (first.client, second.client) == (old, new)
    assert (second.identity, second.params) == (first.identity, {"seed": 1})
    assert policy.targets[0].client is old


async def rebuilds_slowly(_: Any) -> str:
    await asyncio.sleep(0)
    return "client"


@pytest.mark.parametrize(
    ("rebuild", "why"),
    [
        (broken, "OSError"),
        (rebuilds_slowly, "rebuild: it is async; use acall or astream"),
    ],
)
def test_a_rebuild_that_fails_is_no_recovery(clock: Clock, rebuild: Any, why: str) -> None:
    """HRS-008, HRS-018: no exception escapes, the primary is not asked again, and why is said."""
    policy, script = recovering(rebuild), repeating(primary=[TimeoutError()], fallback=["hello"])
    run = policy.start()
    assert policy.call(script.ask, run=run) == "hello"
    assert script.asked == ["primary", "fallback"]
    assert run.record.attempts[0].note == f"its rebuild failed: {why}"


@pytest.mark.parametrize("rebuild", [None, lambda _: None, lambda _: "client", rebuilds_slowly])
async def test_a_task_recovers_with_any_rebuild(clock: Clock, rebuild: Any) -> None:
    """None at all, one that returns nothing or a client, in a thread or in a task: one chance."""
    policy, script = recovering(rebuild), repeating(primary=[TimeoutError(), "hello"])
    assert await policy.acall(script.aask) == "hello"
    client = rebuild and rebuild(None)
    if rebuild is rebuilds_slowly:
        client = await client
    assert script.requests[1].attempt.target.client == client


# The retry budget


def test_a_budget_refuses_repeats_and_the_record_says_why(clock: Clock) -> None:
    """Past the budget a call ends with the errors it has; a quiet service may repeat."""
    budget = RetryBudget(ratio=0.0, min_per_second=0.1, window=10)
    policy = FallbackPolicy([Target("only")], FallbackConfig(wait=0, retry_budget=budget))
    run = policy.start()
    with pytest.raises(StatusError):
        policy.call(repeating(only=[DOWN]).ask, run=run)
    assert len(run.record.attempts) == 2
    assert run.record.why == "the retry budget for only was used up"
    assert run.record.limit == "retry_budget"
    assert "It ended there because the retry budget for only was used up." in run.record.explain()
    clock.now += 11
    assert budget.repeat(policy.targets[0].identity, clock.now)


def test_a_switch_is_no_repeat(clock: Clock) -> None:
    """With no budget at all the fallback is asked, and switch_after is passed over.

    A limit that a switch went past is none of the call's: that nobody answered has other reasons.
    """
    budget = RetryBudget(ratio=0.0, min_per_second=0.0)
    chain = [Target("primary"), Target("fallback")]
    config = FallbackConfig(wait=0, retry_budget=budget, switch_after=3)
    policy = FallbackPolicy(chain, config)
    script = repeating(primary=[DOWN], fallback=["hello", StatusError(400)])
    assert policy.call(script.ask) == "hello"
    run = policy.start()
    with pytest.raises(FallbackExhausted):
        policy.call(script.ask, run=run)
    assert script.asked == ["primary", "fallback"] * 2
    assert (run.record.limit, run.record.why) == (None, None)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_an_outage_multiplies_the_load_by_at_most_1_1(clock: Clock, length: int) -> None:
    """SRE book: with every target down, each sees at most 1.1 requests per call, not 3."""
    config = FallbackConfig(wait=0, retry_budget=RetryBudget(), max_attempts=length + 2)
    script, calls = repeating(**{f"t{n}": [DOWN] for n in range(length)}), 2000
    policy = FallbackPolicy(script.targets, config)
    for _ in range(calls):
        clock.now += 0.01
        with pytest.raises((FallbackExhausted, StatusError)):
            policy.call(script.ask)
    seen = Counter(script.asked)
    assert max(seen.values()) <= 1.1 * calls
    assert min(seen.values()) >= calls
    if length == 1:
        assert seen["t0"] > 1.05 * calls  # what is allowed is used


def test_a_budget_forgets_what_has_left_its_window() -> None:
    """A service that never repeats, with a policy for each request, keeps no memory of them."""
    budget, kept = RetryBudget(ratio=1.0, min_per_second=0.0, window=10), list[int]()
    for second in range(2000):
        budget.first(f"target {second}", float(second))
        kept.append(len(pickle.dumps(budget.__dict__["_seen"])))
    assert max(kept[1000:]) < 2 * max(kept[:1000])
    assert budget.repeat("target 1999", 1999.0)
    assert not budget.repeat("target 1900", 1999.0)


# Calls that must not degrade


def test_a_call_that_must_not_degrade_never_asks_a_fallback(clock: Clock) -> None:
    """instar#991: judges and gates fail closed, with the record.

    The primary is asked even where a turn or a cooldown has everybody else past it.
    """
    config = FallbackConfig(wait=0, reset="turn", cooldown=Cooldown(after=1, base=60))
    policy = FallbackPolicy([Target("primary"), Target("fallback")], config)
    with policy.turn() as turn:
        assert policy.call(repeating(primary=[DOWN], fallback=["hello"]).ask) == "hello"
        for error in (DOWN, DENIED):
            script = repeating(primary=[error], fallback=["no"])
            with pytest.raises(FallbackExhausted) as caught:
                policy.call(script.ask, must_not_degrade=True)
            assert "fallback" not in script.asked
            assert caught.value.record.untried == (("fallback", "the call must not degrade"),)
        running = policy.start(must_not_degrade=True).record
        assert running.untried[0] == ("primary", "the call is still running")
        judged = repeating(primary=["judged"])
        assert policy.call(judged.ask, must_not_degrade=True) == "judged"
        assert turn.position == 1
