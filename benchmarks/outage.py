"""What an outage costs: requests at the dead primary, time, failed calls; and late deadlines.

Ten calls one after the other while the primary answers every request with 503, per configuration.
The providers are in this process and take 2 ms for an answer. The deadline row hangs a whole chain
and tells by how much a call outlived its deadline. Milliseconds of wall time; loads shift them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import (
    Cooldown,
    DeadlineExceeded,
    FallbackConfig,
    FallbackPolicy,
    Target,
    TransportRecovery,
)
from honcho_fallback.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import Attempt

CALLS = 10
ANSWER = 0.002
DEADLINE = 0.1
OVERRUN_TARGET, HAPPY_TARGET, EXTRA_TARGET = 20.0, 10.0, 10.0


class OverloadedError(Exception):
    """Stand for an SDK's error."""

    status_code = 503


class Outage(NamedTuple):
    """Hold what ten calls cost."""

    at_primary: int
    failed: int
    total: float
    extra: float  # the most that a call took beyond its providers' own answers


def chain() -> list[Target]:
    return [
        Target(name, provider="p", endpoint="http://x", credential=ApiKey("k"))
        for name in ("big", "small")
    ]


async def outage(config: FallbackConfig, calls: int = CALLS) -> Outage:
    policy = FallbackPolicy(chain(), config, agent="bench")
    at_primary = failed = 0
    answering, extra = 0.0, [0.0]

    async def ask(attempt: Attempt) -> str:
        nonlocal at_primary, answering
        before = time.perf_counter()
        await asyncio.sleep(ANSWER)
        answering += time.perf_counter() - before
        if attempt.is_fallback:
            return "answer"
        at_primary += 1
        raise OverloadedError

    start = time.perf_counter()
    for _ in range(calls):
        before, answering = time.perf_counter(), 0.0
        try:
            await policy.acall(ask)
        except Exception:  # noqa: BLE001 # counted
            failed += 1
        extra.append(time.perf_counter() - before - answering)
    return Outage(at_primary, failed, (time.perf_counter() - start) * 1e3, max(extra) * 1e3)


async def overrun(calls: int) -> list[float]:
    policy = FallbackPolicy(chain(), FallbackConfig(deadline=DEADLINE, wait=0))

    async def hang(_: Attempt) -> None:
        await asyncio.Event().wait()

    late: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        try:
            await policy.acall(hang)
        except DeadlineExceeded:
            late.append((time.perf_counter() - start - DEADLINE) * 1e3)
    return late


def happy(targets: list[Target], config: FallbackConfig, calls: int) -> float:
    policy = FallbackPolicy(targets, config)
    spent: list[int] = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        policy.call(lambda _: "answer")
        spent.append(time.perf_counter_ns() - start)
    return statistics.median(spent) / 1e3


@contextmanager
def redis_url() -> Generator[str | None, None, None]:
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            try:
                yield f"redis://127.0.0.1:{port}/0"
            finally:
                server.terminate()


async def shared(url: str) -> Outage:
    from honcho_fallback.redis import RedisCooldown  # noqa: PLC0415 # only where there is a server

    store = RedisCooldown(url)
    await outage(FallbackConfig(cooldown=store), 1)  # connects, and waits until the server is up
    for _ in range(200):
        if not store.degraded:
            break
        await asyncio.sleep(0.05)
        await outage(FallbackConfig(cooldown=store), 1)
    store.forget(target.identity for target in chain())
    result = await outage(FallbackConfig(cooldown=store))
    await store.aclose()
    return result


def show(name: str, told: Outage, goal: str) -> None:
    print(
        f"  {name:<22}{told.at_primary:>12}{told.failed:>9}{told.total:>11.1f}{told.extra:>14.2f}"
        f"  {goal}"
    )


def main(calls: int = 20) -> None:
    logging.getLogger("honcho_fallback").addHandler(logging.NullHandler())
    logging.getLogger("honcho_fallback").propagate = False
    print(
        f"\nan outage: {CALLS} calls in a row, the primary answers 503 after {ANSWER * 1e3:g} ms"
    )
    print(
        f"  {'':<22}{'at primary':>12}{'failed':>9}{'total ms':>11}{'worst extra':>14}  to reach"
    )
    show("default", asyncio.run(outage(FallbackConfig())), "10, 0")
    goal = f"<= 2, 0, extra <= {EXTRA_TARGET:g} ms"
    show("cooldown", asyncio.run(outage(FallbackConfig(cooldown=Cooldown()))), goal)
    show("resilient()", asyncio.run(outage(FallbackConfig.resilient())), goal)
    with redis_url() as url:
        if url is None:
            print("  cooldown in Redis     no redis-server on this machine")
        else:
            show("cooldown in Redis", asyncio.run(shared(url)), goal)
    late = asyncio.run(overrun(calls))
    print(
        f"deadline of {DEADLINE * 1e3:g} ms, all hang, {len(late)} calls: late by "
        f"{statistics.median(late):.1f} ms (median), {max(late):.1f} ms (worst)"
        f"   to reach: <= {OVERRUN_TARGET:g} ms"
    )
    everything: dict[str, Any] = {"transport_recovery": TransportRecovery()}
    calm = ([Target("big"), Target("small")], FallbackConfig())
    watchful = (chain(), FallbackConfig.resilient(**everything))
    # In turns, and the quietest round of each: other programs run on the machine too.
    rounds = [(happy(*calm, 500), happy(*watchful, 500)) for _ in range(20)]
    off, on = (min(medians) for medians in zip(*rounds, strict=True))
    print(
        f"happy path with everything on: {on - off:.2f} us more than the {off:.2f} us without"
        f"   to reach: <= {HAPPY_TARGET:g} us"
    )


if __name__ == "__main__":
    main()
