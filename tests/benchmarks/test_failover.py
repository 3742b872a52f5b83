"""What is read out of the providers' notes, and what is said of it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import openai
import pytest

from benchmarks.competitors import Client, ask_sdk, core, policy, sdk
from benchmarks.failover import HANG, HEALTHY, MODES, Round, ask, contract
from benchmarks.measure import Interval
from benchmarks.outage import CALLS, outage
from honcho_fallback import FallbackConfig, FallbackPolicy
from tests.helpers.provider import ProviderProcess


@pytest.mark.parametrize(
    ("mode", "primary", "backup", "expected"),
    [
        ("500", [(1, 2)], [5], Round(1, 3.0)),
        ("500", [(1, 2), (4, 5), (7, 8)], [9], Round(3, 7.0)),
        ("500", [(1, 2), (8, 9)], [5], Round(1, 3.0)),
        (HANG, [(1, 900)], [1001], Round(1, 1000.0)),
        ("500", [], [5], Round(0, None)),
        ("500", [(1, 2)], [], Round(1, None)),
    ],
)
def test_a_round_is_read_from_what_the_providers_saw(
    mode: str, primary: list[tuple[int, int]], backup: list[int], expected: Round
) -> None:
    """From the first failing answer (hang: the first request); later requests do not count."""
    requests: dict[str, Any] = {
        "primary": [{"at": at / 1e3, "answered": answered / 1e3} for at, answered in primary],
        "backup": [{"at": at / 1e3} for at in backup],
    }
    got = Round.of(mode, {"requests": requests})
    assert got.requests == expected.requests
    assert got.gap == pytest.approx(expected.gap)


def interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 15)


@pytest.mark.parametrize(
    ("mode", "rounds", "gap", "beside", "expected"),
    [
        ("500", [Round(1, 2.0)], interval(2, 9), None, "kept"),
        ("500", [Round(1, 2.0)], interval(9, 11), None, "undecided"),
        ("500", [Round(1, 2.0)], interval(11, 12), None, "**missed**"),
        ("500", [Round(1, 2.0)], interval(11, 12), interval(0.9, 1.1), "kept"),
        ("500", [Round(1, 2.0)], interval(2, 9), interval(1.1, 1.2), "**missed**"),
        ("500", [Round(1, 2.0)], interval(2, 9), Interval(1, 0.1, 9, 15, 3, True), "undecided"),
        (HANG, [Round(1, 2.0)], interval(1000, 1009), None, "kept"),
        (HANG, [Round(1, 2.0)], interval(1011, 1012), None, "**missed**"),
        ("500", [Round(1, 2.0), Round(2, 2.0)], interval(2, 9), None, "**missed**"),
        ("500", [Round(1, 2.0), Round(1, 2.0, "X")], interval(2, 9), None, "**missed**"),
    ],
)
def test_the_contract_is_decided_by_the_interval(
    mode: str, rounds: list[Round], gap: Interval, beside: Interval | None, expected: str
) -> None:
    """One request, no error, 10 ms (beyond a timeout) or no slower than the peer."""
    assert contract(mode, rounds, gap, beside) == expected


def test_a_fallback_that_was_never_asked_is_later_than_any() -> None:
    """Such a round counts, as one that never ends."""
    assert Round(3, None).milliseconds == float("inf")
    assert Round(1, 2.5).milliseconds == 2.5


def test_the_policy_asks_a_dead_primary_once_over_a_real_socket() -> None:
    """One request, the fallback's answer, no error, whatever the failure; the hang is left out."""
    (sync,) = (one for one in core() if one.name.endswith("`policy.call`"))
    with ProviderProcess() as providers, asyncio.Runner() as runner:
        client = sync.make(providers.url)
        for mode in (HEALTHY, *MODES):
            if mode != HANG:
                seen = ask(providers, runner, client, mode)
                assert (seen.requests, seen.error) == (1, None)
                assert (seen.gap is None) == (mode == HEALTHY)


def test_an_outage_is_counted_call_by_call() -> None:
    """One request a call without a memory, fewer with one, and who raises has not answered."""
    with ProviderProcess() as providers, asyncio.Runner() as runner:
        primary, backup = (
            sdk(openai.OpenAI, providers.url, name, max_retries=0)
            for name in ("primary", "backup")
        )
        policies = [
            policy(primary, backup, "other", config)
            for config in (FallbackConfig(), FallbackConfig.resilient(reset="iteration"))
        ]

        async def ask(chosen: FallbackPolicy) -> object:
            return chosen.call(ask_sdk)

        async def ask_the_dead() -> object:
            return primary.chat.completions.create(model="any", messages=[])

        clients = [Client(partial(ask, one)) for one in policies]
        plain, remembering, single = (
            runner.run(outage(providers, client)) for client in (*clients, Client(ask_the_dead))
        )
    assert (plain.requests, plain.answered) == (CALLS, CALLS)
    assert (remembering.requests, remembering.answered) == (1, CALLS)
    assert (single.requests, single.answered) == (CALLS, 0)
