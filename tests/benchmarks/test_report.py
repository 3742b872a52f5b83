"""The page of figures: what is read, what is computed, what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from failover.measure import FAMILIES as PLACES
from failover.measure import Effort, Round, measured, seen
from failover.provider import HANG, MODES, OK
from failover.sdk import SUBJECTS
from overhead import ASYNC, FAILOVER, HAPPY, Figures
from peers import added
from report.failover import duration, gap_table, missed, spread, whole_table
from report.lines import read_lines, write_lines
from report.machine import cpu_model, facts
from report.markdown import block, table
from report.page import FAMILIES, PRINTED, QUICK, write
from standins import serving

if TYPE_CHECKING:
    from collections.abc import Sequence


def cell(mode: str = "500", **more: Any) -> dict[str, Any]:
    told = {"subject": "ours", "ours": True, "mode": mode, "requests": [1, 1]}
    return {**told, "gap": [2.0, 4.0], "whole": [5.0, 7.0], "errors": [], **more}


def test_a_table_is_as_wide_as_its_head() -> None:
    """A row that does not fit would move figures under other names."""
    assert table(("", "a"), [("x|y", "1")]) == "|  | a |\n| --- | ---: |\n| x\\|y | 1 |"
    with pytest.raises(ValueError, match="3 cells under 2 columns"):
        table(("", "a"), [("x", "1", "2")])


def test_figures_survive_the_way_between_processes() -> None:
    """Whatever a peer prints in between, each figure arrives once; half a figure is refused."""
    figures: list[dict[str, Any]] = [{"a": 1.5, "b": None}, {"c": ["x"]}]
    text = f"a banner\n{write_lines(figures)}\n{{'not': 1}}\n"
    assert read_lines(text) == figures
    with pytest.raises(ValueError, match="line 1"):
        read_lines(write_lines(figures)[:-4])


def test_printed_text_stays_as_it_was() -> None:
    """A block keeps columns in line."""
    assert block("\n a  b\n") == "```text\na  b\n```"


@pytest.mark.parametrize(
    ("milliseconds", "said"), [(0.04, "0.0 ms"), (9.96, "10.0 ms"), (1000, "1.000 s")]
)
def test_durations(milliseconds: float, said: str) -> None:
    """Milliseconds below a second, seconds from there on."""
    assert duration(milliseconds) == said


def test_a_spread_leaves_out_what_was_not_measured() -> None:
    """Median and worst of what there is; nothing where there is nothing."""
    assert spread([3.0, None, 1.0, 2.0]) == "2.0 ms (3.0 ms)"
    assert spread([None]) == "-"


MILLISECOND = 1_000_000


@pytest.mark.parametrize(
    ("mode", "primary", "backup", "expected"),
    [
        (OK, [[2, 3]], [], Round(1, None, 2.0)),
        ("500", [[1, 2]], [5], Round(1, 3.0, 5.0)),
        ("500", [[1, 2], [4, 5], [7, 8]], [9], Round(3, 7.0, 9.0)),
        ("500", [[1, 2], [8, 9]], [5], Round(1, 3.0, 5.0)),
        (HANG, [[1, 900]], [1001], Round(1, 1000.0, 1001.0)),
        ("500", [], [5], Round(0, None, 5.0)),
        ("500", [[1, 2]], [], Round(1, None, None)),
    ],
)
def test_a_round_is_read_from_what_the_providers_saw(
    mode: str, primary: list[list[int]], backup: list[int], expected: Round
) -> None:
    """From the first failing answer (hang: the first request); later requests do not count."""
    log = {
        "primary": [[moment * MILLISECOND for moment in one] for one in primary],
        "backup": [moment * MILLISECOND for moment in backup],
    }
    assert seen(mode, 0, log) == expected


@pytest.mark.parametrize(
    ("changed", "is_missed"),
    [
        ({}, False),
        ({"gap": [2.0, 9.0, 90.0]}, False),
        ({"gap": [11.0, 12.0]}, True),
        ({"gap": [1009.0], "mode": HANG}, False),
        ({"gap": [1011.0], "mode": HANG}, True),
        ({"requests": [1, 2]}, True),
        ({"gap": [None, None]}, True),
        ({"errors": ["X"]}, True),
        ({"gap": [99.0], "ours": False}, False),
        ({"gap": [None], "mode": OK}, False),
    ],
)
def test_what_is_beyond_the_target_is_named(changed: dict[str, Any], is_missed: bool) -> None:
    """One request, 10 ms or 10 ms beyond the timeout, no error; asked of our rows only."""
    assert bool(missed([cell(**changed)])) is is_missed


def test_the_tables_of_failover() -> None:
    """A row per subject, a column per way to fail, ours in bold, nothing where nothing was."""
    cells = [cell(), cell("401", requests=[1, 3], errors=["X"]), cell(subject="peer", ours=False)]
    first, _, ours, peer = gap_table(cells).splitlines()
    assert first.count("|") == len(MODES) + 2
    assert ours.startswith("| **ours** | 1: 3.0 ms (4.0 ms) | - |")
    assert "1-3: 3.0 ms (4.0 ms) X" in ours
    assert peer.startswith("| peer |")
    assert "6.0 ms (7.0 ms)" in whole_table(cells)


def test_overhead_is_over_the_bare_call_of_its_kind() -> None:
    """The floor is taken off on both paths."""
    figures = {
        ("bare call", ASYNC, HAPPY): Figures(1.0, 2.0),
        ("policy.acall", ASYNC, HAPPY): Figures(4.0, 9.0),
        ("policy.acall", ASYNC, FAILOVER): Figures(31.0, 90.0),
    }
    (one,) = added(figures)
    assert one == {
        "subject": "policy.acall (async)",
        "ours": True,
        "floor": 1.0,
        "happy": 3.0,
        "failover": 30.0,
    }


def test_the_machine_is_told_without_its_name() -> None:
    """Processor, system, versions; neither the host's name nor a path."""
    assert cpu_model("processor: 0\nmodel name\t: Fast 3000\n") == "Fast 3000"
    told = dict(facts("make bench"))
    assert told["command"] == "`make bench`"
    assert "honcho-fallback 0" in told["packages"]
    assert "/" not in told["processor"] + told["packages"] + told["system"]


def test_the_page_runs_everything_once_and_is_laid_out_alike() -> None:
    """The same figures make the same page, and every program has its place."""
    asked: list[tuple[str, ...]] = []

    def run(command: Sequence[str]) -> str:
        asked.append(tuple(command))
        if command[0] == "peers.py":
            row = {"subject": command[1], "ours": False}
            return write_lines([{**row, "floor": 1, "happy": 2, "failover": 3}])
        if command[0] == "-m":
            return write_lines([cell(mode, subject=command[2]) for mode in (OK, *MODES)])
        return f"printed by {command[0]}"

    page = write("make bench", QUICK, run)
    assert len({*asked}) == len(asked) == len(FAMILIES) + len(PLACES) + len(PRINTED)
    for program, title, _ in PRINTED:
        assert f"### {title}\n\n```text\nprinted by {program}\n```" in page
    assert "Every row of ours reached that." in page
    assert page.partition("\n## ")[2] == write("x", QUICK, run).partition("\n## ")[2]


def test_ours_asks_a_dead_primary_once_over_a_real_socket() -> None:
    """One request, the fallback's answer, no error, whatever the failure; the hang is left out."""
    ours = [subject for subject in SUBJECTS if subject.name.endswith("`policy.call`")]
    with serving("failover.provider") as served:
        cells = [*measured(served, ours, Effort(1, 0), (OK, *MODES[:-1]))]
    assert [one["mode"] for one in cells] == [OK, *MODES[:-1]]
    for one in cells:
        assert one["requests"] == [1]
        assert one["errors"] == []
        assert (one["gap"][0] is None) == (one["mode"] == OK)
