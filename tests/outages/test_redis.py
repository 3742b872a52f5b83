"""A cooldown that processes share, on a real redis-server."""

from __future__ import annotations

import asyncio
import copy
import gc
import socket
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import repeat
from multiprocessing import get_context
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

from honcho_fallback import (
    ApiKey,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    Target,
)
from honcho_fallback.redis import RedisCooldown
from honcho_fallback.testing import StatusError
from tests.helpers.redis_server import free_port, redis_server
from tests.helpers.scripted import DRIVERS, asked_by, repeating

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback.testing import Script

PREFIX = "{honcho_fallback:cooldown}:"
DOWN = StatusError(503)
KEYS = [("x",)]  # of a target
Make = Callable[..., FallbackPolicy]


def target(name: str, key: str = "k") -> Target:
    return Target(name, "p", name, endpoint="http://x", credential=ApiKey(key))


def chain() -> list[Target]:
    return [target("primary"), target("fallback")]


@pytest.fixture(autouse=True)
def _nothing_is_left_to_others() -> Iterator[None]:
    """Collect what redis-py leaves open where a caller or a loop is gone."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """An empty database."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def policy(redis_url: str, redis_client: redis.Redis) -> Iterator[Make]:
    """Make policies as different processes would have them: each with a store of its own."""
    made: list[RedisCooldown] = []

    def make(
        *targets: Target,
        server: Any = redis_url,
        after: int = 1,
        aclient: Any = None,
        **options: Any,
    ) -> FallbackPolicy:
        made.append(RedisCooldown(server, after=after, base=60, aclient=aclient, timeout=5.0))
        config = FallbackConfig(wait=0, cooldown=made[-1], **options)
        return FallbackPolicy(targets or chain(), config)

    yield make
    for store in made:
        asyncio.run(store.aclose())


def store_of(policy: FallbackPolicy) -> RedisCooldown:
    store = policy.config.cooldown
    assert isinstance(store, RedisCooldown)
    return store


def drive(driver: str, policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    """Drive a call; in a task, close that loop's connection after it, as a program would."""
    if driver in {"call", "stream"}:
        return DRIVERS[driver](policy, script, run)

    async def ask() -> Any:
        try:
            if driver == "acall":
                return await policy.acall(script.aask, run=run)
            (answer,) = [chunk async for chunk in policy.astream(script.astream, run=run)]
            return answer
        finally:
            await store_of(policy).aclose()

    return asyncio.run(ask())


async def pull(store: RedisCooldown, driver: str, times: int) -> None:
    """Ask Redis so often at once."""
    await asyncio.gather(
        *(
            store.apull(KEYS) if driver == "acall" else asyncio.to_thread(store.pull, KEYS)
            for _ in range(times)
        )
    )


PRIMARY = PREFIX + target("primary").identity


def make_due(client: redis.Redis) -> None:
    """Let a rest be over, on the server's clock."""
    client.hset(PRIMARY, "until", 0)


def held(client: redis.Redis) -> Any:
    return client.hgetall(PRIMARY)


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_one_process_learns_the_others_know(
    policy: Make, redis_client: redis.Redis, driver: str
) -> None:
    """AILA#142: one failure, and nobody else asks; one probe, and everybody is back."""
    one, two, three = policy(), policy(), policy()
    script = repeating(primary=[DOWN, "back"], fallback=["hello"])
    for asked in (one, two, three, one):
        assert drive(driver, asked, script, asked.start()) == "hello"
    assert script.asked.count("primary") == 1
    make_due(redis_client)
    run = two.start()
    assert drive(driver, two, script, run) == "back"
    assert run.record.attempts[0].note == "a probe after its cooldown"
    assert held(redis_client) == {}
    assert drive(driver, three, script, three.start()) == "back"


def test_one_process_probes_and_the_others_stay(policy: Make, redis_client: redis.Redis) -> None:
    """Half-open over processes: the permit has one owner, and failure doubles for all."""
    one, two = policy(), policy()
    one.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
    make_due(redis_client)
    probe, other, sibling = one.start(), two.start(), one.start()
    for owner, run in ((one, probe), (two, other), (one, sibling)):
        owner.perform(run)
    assert [run.attempt.position for run in (probe, other, sibling)] == [0, 1, 1]
    assert other.record.untried[0][1].startswith("another call was probing it")
    probe.fail(DOWN)
    probe.succeed()
    one.perform(probe)
    assert held(redis_client)["failures"] == "1"
    script = repeating(fallback=["hello"])
    two.call(script.ask)
    assert script.asked == ["fallback"]


@pytest.mark.parametrize(
    ("probe_has", "positions"), [("failed", [1, 1]), ("answered", [0, 0]), ("begun", [1, 1])]
)
def test_a_late_reply_undoes_nothing_that_was_learned_since(
    policy: Make,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    probe_has: str,
    positions: list[int],
) -> None:
    """Replies overtake each other: one from before a probe began or ended allows no second one."""
    one = policy()
    one.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
    probe, late, other = one.start(), one.start(), one.start()

    def begin() -> None:
        make_due(redis_client)
        assert one.perform(probe).position == 0

    def end_and_tell() -> None:
        probe.fail(DOWN) if probe_has == "failed" else probe.succeed()
        one.perform(other)

    if probe_has != "begun":
        begin()
    client = store_of(one)._client
    ask_redis = client.eval

    def answer_late(*letter: Any) -> Any:
        reply = ask_redis(*letter)
        monkeypatch.undo()
        begin() if probe_has == "begun" else end_and_tell()
        return reply

    monkeypatch.setattr(client, "eval", answer_late)
    one.perform(late)
    one.perform(other)
    assert [run.attempt.position for run in (other, late)] == positions
    late.succeed()
    assert late.record.attempts[0].note is None


@pytest.mark.parametrize("how", ["cancel", "lost"])
def test_a_probe_that_ends_without_news_blocks_nobody(
    policy: Make, redis_client: redis.Redis, how: str
) -> None:
    """A cancelled probe gives its permit back; one whose process died loses it after a while."""
    one, two = policy(), policy()
    one.call(repeating(primary=[DOWN], fallback=["hello"]).ask)
    make_due(redis_client)
    probe = one.start()
    one.perform(probe)
    if how == "cancel":
        probe.cancel()
        one.perform(probe)
    else:
        redis_client.hset(PRIMARY, "leased", 0)
    assert two.call(repeating(primary=["back"]).ask) == "back"


def work(url: str, verb: str) -> None:
    """Be a process of a service: make ten calls, and count in Redis who was asked."""
    store = RedisCooldown(url, after=1, base=60, timeout=5.0)
    policy = FallbackPolicy(chain(), FallbackConfig(wait=0, cooldown=store))

    def ask(attempt: Attempt) -> str:
        client.incr(f"asked:{attempt.target.name}")
        if not attempt.is_fallback:
            raise DOWN
        return "hello"

    async def aask(attempt: Attempt) -> str:
        return ask(attempt)

    with redis.Redis.from_url(url) as client:
        client.incr("ready")
        client.blpop(["go"])
        for _ in range(10):
            asked_by(verb, policy, aask if verb == "acall" else ask)
    store.close()


def test_processes_send_one_probe_per_window(
    redis_url: str, redis_client: redis.Redis, policy: Make
) -> None:
    """Four processes with ten calls each ask a dead primary once per window, not four times."""
    policy().call(repeating(primary=[DOWN], fallback=["hello"]).ask)
    make_due(redis_client)
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        workers = [pool.submit(work, redis_url, verb) for verb in ("call", "acall") * 2]
        while redis_client.get("ready") != "4":
            assert not any(worker.done() for worker in workers)
            time.sleep(0.02)  # until all have been imported
        redis_client.rpush("go", *range(4))
        assert [worker.result() for worker in workers] == [None] * 4
    asked = [redis_client.get(f"asked:{name}") for name in ("primary", "fallback")]
    assert asked == ["1", "40"]


def test_the_servers_clock_counts_and_every_key_expires(
    policy: Make, redis_client: redis.Redis
) -> None:
    """The provider's own time is kept up to the cap, on the server, and nothing stays for ever."""
    policy().call(repeating(primary=[StatusError(429, retry_after=100)], fallback=["x"]).ask)
    (key,) = redis_client.keys("*")
    assert key == PRIMARY
    now: Any = redis_client.time()
    rest = int(held(redis_client)["until"]) - now[0] * 1000 - now[1] // 1000
    assert 0 < rest <= 100_000
    left: Any = redis_client.pttl(key)
    assert 14_400_000 < left <= 14_500_000


def test_targets_that_others_cannot_know_stay_here(
    policy: Make, redis_client: redis.Redis
) -> None:
    """Unknown is never equal: without endpoint and fingerprint nothing is sent to Redis."""
    one = policy(Target("primary"), Target("fallback"))
    script = repeating(primary=[DOWN], fallback=["hello"])
    for _ in range(3):
        one.call(script.ask)
    assert script.asked.count("primary") == 1
    assert redis_client.keys("*") == []


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("trouble", ["nobody listens", "silent"])
def test_without_redis_it_is_a_cooldown_in_memory_and_says_so_once(
    driver: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis down or slow: calls go on, the memory of this process decides, one line is logged."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if trouble == "silent":
            listener.listen()
        address = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        store = RedisCooldown(address, after=1, base=60)
        policy = FallbackPolicy(chain(), FallbackConfig(wait=0, cooldown=store))
        script = repeating(primary=[DOWN], fallback=["hello"])
        for _ in range(5):
            store._resting_until = 0.0  # ask Redis each time
            assert drive(driver, policy, script, policy.start()) == "hello"
        asyncio.run(store.aclose())
    assert script.asked.count("primary") == 1
    said = [message for message in caplog.messages if "Redis" in message]
    assert len(said) == 1
    assert "this process goes by its memory" in said[0]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.levelname for one in caplog.records if "in Redis" in one.message]


@pytest.mark.parametrize("driver", DRIVERS)
def test_redis_that_refuses_writes_is_as_good_as_none_and_never_worse(
    policy: Make,
    redis_client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    driver: str,
) -> None:
    """What this process knows no reply drops; one WARNING, and one INFO once Redis takes it.

    With nothing left to tell, a server that only answers reads is not back yet.
    """
    caplog.set_level("INFO", "honcho_fallback")
    one, script = policy(), repeating(primary=[DOWN], fallback=["hello"])
    store = store_of(one)

    def ask() -> None:
        store._resting_until = 0.0  # ask Redis each time
        assert drive(driver, one, script, one.start()) == "hello"

    # It answers reads and refuses writes, as a replica that was a master does.
    redis_client.config_set("min-replicas-to-write", 1)
    try:
        for _ in range(5):
            ask()
        untold = dict(store._outbox)
        store._outbox.clear()
        store._resting_until = 0.0
        store.pull(KEYS)
        store._outbox.update(untold)
    finally:
        redis_client.config_set("min-replicas-to-write", 0)
    assert script.asked.count("primary") == 1
    assert logged(caplog) == ["WARNING"]
    ask()
    assert logged(caplog) == ["WARNING", "INFO"]
    assert float(held(redis_client)["until"]) > time.time() * 1000


def test_single_failures_stay_with_their_process(policy: Make, redis_client: redis.Redis) -> None:
    """The store hears of rests: two blips here and two there are no outage."""
    script = repeating(primary=[DOWN], fallback=["hello"])
    told: list[bool] = []
    for one in [policy(after=3) for _ in range(2)] * 3:
        one.call(script.ask)
        told.append(redis_client.keys("*") != [])
    assert told == [False] * 4 + [True] * 2
    assert script.asked.count("primary") == 5


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_is_forced_ends_a_rest_for_all(policy: Make, driver: str) -> None:
    """An answer in a rest, which was asked for as nobody else was left, is news to everybody."""
    one, two = policy(), policy()
    drive(driver, one, repeating(primary=[DOWN], fallback=["hello"]), one.start())
    script = repeating(primary=["back"], fallback=[DOWN])
    assert drive(driver, two, script, two.start()) == "back"
    run = one.start()
    assert drive(driver, one, repeating(primary=["back"]), run) == "back"
    assert run.record.attempts[0].note is None


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kind", ["sync", "async", "both", "a function"])
def test_a_client_of_ones_own_takes_the_place_of_an_address(
    policy: Make, redis_url: str, redis_client: redis.Redis, driver: str, kind: str
) -> None:
    """Of a Sentinel's master, with a login of its own: whatever redis-py can be given."""

    def tasks() -> redis.asyncio.Redis:
        return redis.asyncio.Redis.from_url(redis_url)

    with redis.Redis.from_url(redis_url) as threads:
        aclient = {"both": tasks(), "a function": tasks}.get(kind)
        one = policy(server=tasks() if kind == "async" else threads, aclient=aclient)
        script = repeating(primary=[DOWN], fallback=["hello"])
        assert drive(driver, one, script, one.start()) == "hello"
    # An async client cannot be asked from a thread: that call goes by this process's memory.
    is_shared = not (driver in {"call", "stream"} and kind == "async")
    assert bool(held(redis_client)) == is_shared


def test_a_cluster_is_asked_in_one_slot(tmp_path: Path) -> None:
    """All keys of an exchange have one slot, so that a cluster's client may be passed."""
    port = free_port()
    with redis_server(tmp_path, port, "--cluster-enabled", "yes") as _:
        node: Any = redis.Redis(port=port)
        node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until = time.monotonic() + 20
        while b"cluster_state:ok" not in node.execute_command("CLUSTER", "INFO"):
            assert time.monotonic() < until
            time.sleep(0.05)  # until the node knows that it has all slots
        client = redis.RedisCluster(host="127.0.0.1", port=port)
        stores = [RedisCooldown(client, after=1, base=60) for _ in range(2)]
        script = repeating(primary=[DOWN], fallback=["hello"])
        for store in stores:
            FallbackPolicy(chain(), FallbackConfig(cooldown=store)).call(script.ask)
        assert script.asked == ["primary", "fallback", "fallback"]
        client.close()
        node.close()


# For six keys: of two targets each its model's, its credential's and its host's.
REPLIES: list[Any] = [
    LookupError("of another library's"), None, 0, b"x", [], [[]] * 5, [[]] * 7, [None] * 6,
    [[1, 1, 0]] * 6, [[1, 1, 0, "0", 1]] * 6, [["x", 1, 0, "0"]] * 6, repeat([]),
    *(
        [[*entry[:place], odd, *entry[place + 1 :]]] * 6
        for entry in ([1000, 1, 0, "0"], [0, 1, 1000, "1"])
        for place in range(4)
        for odd in (10**18, 10**5000, -(10**5000), float("nan"))
    ),
]  # fmt: skip


@pytest.mark.parametrize("driver", ["call", "acall"])
@pytest.mark.parametrize("reply", REPLIES, ids=range(len(REPLIES)))
def test_no_reply_of_any_client_costs_an_answer(reply: Any, driver: str) -> None:
    """Whatever stands in the place of a Redis, calls go on with what the process remembers."""

    def answer(*_: Any) -> Any:
        if isinstance(reply, Exception):
            raise reply
        return reply

    store = RedisCooldown(SimpleNamespace(eval=answer), after=1, base=1)
    policy = FallbackPolicy(chain(), FallbackConfig(cooldown=store, wait=0))
    script = repeating(primary=[DOWN], fallback=["hello"])
    for _ in range(3):
        assert DRIVERS[driver](policy, script, policy.start()) == "hello"
    with pytest.raises(FallbackConfigError, match="server: got a int; pass an address such as"):
        RedisCooldown(7)


@pytest.mark.parametrize("driver", ["call", "acall"])
async def test_while_redis_is_silent_one_call_looks_for_it(driver: str) -> None:
    """Ten calls at once: the first time each waits for it, later one does for all."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        listener.setblocking(False)
        store = RedisCooldown(f"redis://127.0.0.1:{listener.getsockname()[1]}/0")

        async def look(calls: int) -> int:
            store._resting_until = 0.0  # its pause is over
            await pull(store, driver, calls)
            connections = 0
            with suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    connections += 1
            return connections

        assert await look(1) == 1
        assert await look(10) == 1
        await store.aclose()


@pytest.mark.parametrize("driver", ["call", "acall"])
async def test_connections_from_before_a_restart_are_opened_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, driver: str
) -> None:
    """Redis was restarted while nobody asked it: nobody goes without it for that."""
    port = free_port()
    store = RedisCooldown(f"redis://127.0.0.1:{port}/0", after=1, base=60, timeout=5.0)

    with redis_server(tmp_path, port) as server:
        await pull(store, driver, times=5)
        server.kill()
        server.wait()
    with redis_server(tmp_path, port):
        await pull(store, driver, times=5)
        await store.aclose()
    assert caplog.messages == []


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # redis-py's and asyncio's
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_over_is_let_go(redis_url: str) -> None:
    """A worker with a loop for each job keeps the connections of the last one alone."""
    cooldown = RedisCooldown(redis_url, timeout=5.0)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def job() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await cooldown.apull(KEYS)

    for _ in range(3):
        asyncio.run(job())
    gc.collect()
    assert [one() is None for one in loops] == [True, True, False]
    cooldown.close()


def test_nothing_of_the_address_is_shown(redis_url: str) -> None:
    """A URL may hold a password."""
    store = RedisCooldown("redis://:secret@127.0.0.1:1/0", base=7, timeout=0.5)
    again = copy.deepcopy(store)
    assert "secret" not in f"{store!r} {again!r}"
    for name in ("base", "_server", "_timeout"):
        assert getattr(again, name) == getattr(store, name)
    with pytest.raises(FallbackConfigError, match="base"):
        RedisCooldown(redis_url, base=0)


# What several targets share: a key, or a host.


ELSEWHERE = Target("elsewhere", "p", "elsewhere", endpoint="http://y", credential=ApiKey("z"))


@pytest.mark.parametrize(
    ("failure", "free"),
    [(StatusError(401), "colleague"), (ConnectionRefusedError(111, "refused"), "elsewhere")],
)
def test_who_shares_what_failed_rests_in_every_process(
    policy: Make,
    redis_client: redis.Redis,
    failure: Exception,
    free: str,
) -> None:
    """A dead key rests all its models, a dead host all its keys; one process probes for all."""
    one = policy(target("primary"), target("colleague", "other"), ELSEWHERE)
    two = policy(target("sibling"), target("colleague", "other"), ELSEWHERE)
    script = repeating(primary=[failure], colleague=["hello"], elsewhere=["hello"])
    one.call(script.ask)
    run = two.start()
    two.perform(run)
    assert run.attempt.target.name == free
    assert dict(run.record.untried)["sibling"].startswith("it was cooling down")
    run.succeed()
    names: Any = redis_client.keys("*")
    (key,) = (name for name in names if "endpoint:" in name or "credential:" in name)
    redis_client.hset(key, "until", 0)
    probe, beside = one.start(), two.start()
    one.perform(probe)
    two.perform(beside)
    assert probe.record.attempts == ()
    assert [run.attempt.target.name for run in (probe, beside)] == ["primary", free]
    probe.succeed()
    one.perform(probe)
    assert redis_client.keys() == []
    assert two.perform(two.start()).target.name == "sibling"


def test_a_probe_looks_at_all_that_is_due(policy: Make, redis_client: redis.Redis) -> None:
    """A model that is due at a host that is not stays where it is, in every process."""
    one, two = policy(target("primary"), ELSEWHERE), policy(target("sibling"), ELSEWHERE)
    one.call(repeating(primary=[DOWN], elsewhere=["hello"]).ask)
    refused = ConnectionRefusedError(111, "refused")
    two.call(repeating(sibling=[refused], elsewhere=["hello"]).ask)
    model, host = sorted(redis_client.keys(), key=lambda key: "endpoint:" in key)
    redis_client.hset(model, "until", 0)
    run = one.start()
    assert one.perform(run).target.name == "elsewhere"
    assert redis_client.hget(model, "owner") == ""
    redis_client.hset(host, "until", 0)
    redis_client.hset(model, "until", str(int(time.time() * 1000) + 60_000))
    assert one.perform(one.start()).target.name == "elsewhere"
    assert redis_client.hget(host, "owner") == ""
    redis_client.hset(model, "until", 0)
    probe = one.start()
    assert one.perform(probe).target.name == "primary"
    assert redis_client.hget(model, "owner") == redis_client.hget(host, "owner") != ""


def test_a_lease_lasts_as_long_as_the_attempt(policy: Make, redis_client: redis.Redis) -> None:
    """Other processes stay away from a target that is being probed while that may take."""
    one = policy(target("primary"), ELSEWHERE, timeout=300.0)
    one.call(repeating(primary=[DOWN], elsewhere=["hello"]).ask)
    (key,) = redis_client.keys()
    redis_client.hset(key, "until", 0)
    run = one.start()
    assert one.perform(run).target.name == "primary"
    clock: Any = redis_client.time()
    leased: Any = redis_client.hget(key, "leased")
    left = int(leased) / 1000 - clock[0] - clock[1] / 1e6
    assert 240 < left <= 300
