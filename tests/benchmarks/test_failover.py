"""What is read out of the providers' notes, and which figures are kept."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import __main__ as program
from benchmarks.competitors import core
from benchmarks.failover import HANG, HEALTHY, MODES, Round, ask, keeps_contract
from tests.helpers.provider import ProviderProcess

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize(
    ("mode", "rounds", "peers", "is_kept"),
    [
        ("500", [Round(1, 2.0), Round(1, 9.0), Round(1, 90.0)], [], True),
        ("500", [Round(1, 11.0), Round(1, 12.0)], [], False),
        ("500", [Round(1, 11.0)], [Round(1, 12.0)], True),
        ("500", [Round(1, 9.0)], [Round(1, 8.0)], False),
        (HANG, [Round(1, 1009.0)], [], True),
        (HANG, [Round(1, 1011.0)], [], False),
        ("500", [Round(1, 2.0), Round(2, 2.0)], [], False),
        ("500", [Round(1, 2.0), Round(1, None)], [], False),
        ("500", [Round(1, 2.0, "X")], [], False),
    ],
)
def test_what_is_beyond_the_contract_is_named(
    mode: str, rounds: list[Round], peers: list[Round], is_kept: bool
) -> None:
    """One request, 10 ms or the peer's time, 10 ms beyond a timeout, and no error."""
    assert keeps_contract(mode, rounds, peers) is is_kept


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


@pytest.mark.parametrize(
    ("load", "arguments", "is_written"),
    [
        (0.4, [], True),
        (0.6, [], False),
        (0.6, ["--force"], True),
        (0.4, ["--quick"], False),
        (0.4, ["memory", "import"], False),
    ],
)
def test_a_page_of_noise_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    load: float,
    arguments: list[str],
    is_written: bool,
) -> None:
    """Only a whole and thorough run of a quiet machine replaces the page, and says its load."""
    page = tmp_path / "benchmarks.md"
    page.write_text("before")
    monkeypatch.setattr(program, "PAGE", page)
    monkeypatch.setattr(program, "in_a_process", lambda *names: f"table of {names[0]}")
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    program.main()
    text = page.read_text()
    assert (text != "before") is is_written
    if is_written:
        assert f"| {load:.2f} |" in " ".join(text.split())
        for part in program.parts(quick=False):
            assert f"table of {part}" in text
