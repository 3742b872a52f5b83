"""A schedule says which requests fail, whoever asks it; and the kit is free until it is used."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing import FaultTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback.testing import Clock


def schedule() -> FaultTransport:
    """Return a transport over a provider that always answers."""
    return FaultTransport(httpx.MockTransport(lambda _: httpx.Response(200)))


def statuses(transport: FaultTransport, number: int) -> list[int]:
    """Return the status of each of so many requests."""
    requests = (httpx.Request("POST", "http://provider.test/v1") for _ in range(number))
    return [transport.handle_request(request).status_code for request in requests]


def test_the_first_rule_that_applies_counts() -> None:
    """Rules stand in an order, and one without numbers is for all."""
    transport = schedule().on(3, 4, status=401).on(*range(3, 8, 3), status=503)
    assert statuses(transport, 7) == [200, 200, 401, 401, 200, 503, 200]
    assert (transport.requests, transport.failed) == (7, 3)
    assert repr(transport) == "<FaultTransport: 3 of 7 requests failed>"
    assert statuses(transport.on(status=529), 2) == [529, 529]


def test_an_outage_lasts_as_long_as_the_clock_says(fallback_clock: Clock) -> None:
    """It ends when the clock has moved on by its seconds, and not before."""
    transport = schedule().on(status=503, seconds=60)
    assert statuses(transport, 1) == [503]
    fallback_clock.advance(59.5)
    assert statuses(transport, 1) == [503]
    fallback_clock.advance(0.5)
    assert statuses(transport, 1) == [200]


def test_threads_share_the_numbers() -> None:
    """Requests of threads have numbers of their own: as many fail as one after the other."""
    thirds, seconds = range(3, 1001, 3), range(2, 1001, 2)
    transport = schedule().on(*thirds, status=503).on(*seconds, status=429)
    with ThreadPoolExecutor(16) as pool:
        together = [*pool.map(lambda _: statuses(transport, 100), range(10))]
    counts = [sum(one.count(status) for one in together) for status in (503, 429)]
    alone = statuses(schedule().on(*thirds, status=503).on(*seconds, status=429), 1000)
    assert counts == [alone.count(503), alone.count(429)]
    assert (transport.requests, transport.failed) == (1000, sum(counts))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda schedule: schedule.on(0, status=500), "count requests from 1"),
        (lambda schedule: schedule.on(1), "not one of status and error"),
        (lambda schedule: schedule.on(1, status=500, error="timeout"), "not one of status and"),
        (lambda schedule: schedule.on(1, status=200), "status: got 200"),
        (lambda schedule: schedule.on(1, error="slow"), "error: got 'slow'"),
    ],
)
def test_bad_rules_are_refused(write: Callable[[Any], Any], message: str) -> None:
    """A rule that could never do what it says is refused where it is written."""
    with pytest.raises(FallbackConfigError, match=message):
        write(schedule())


def output_of(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_kit_imports_nothing_that_it_may_not_need() -> None:
    """No SDK, HTTP client, server or framework is loaded before something of the kit uses it."""
    heavy = {"anthropic", "groq", "httpx", "httpx2", "langchain_core", "llmock", "openai"}
    code = f"import sys, honcho_fallback.testing; print({heavy} & {{*sys.modules}})"
    assert output_of(code) == "set()"
