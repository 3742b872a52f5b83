"""What is read out of the providers' notes, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.failover import HANG, Round


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
