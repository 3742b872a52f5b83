"""When the page is written, and what stands on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from benchmarks import __main__ as program
from benchmarks.measure import Interval
from benchmarks.report import Result, bar

if TYPE_CHECKING:
    from pathlib import Path

BAR = bar(Interval(2.0, 1.0, 4.0, 15))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a page of before, on a quiet machine where every part is measured at once."""
    page = tmp_path / "benchmarks.md"
    page.write_text("before")
    monkeypatch.setattr(program, "PAGE", page)
    monkeypatch.setattr(
        program, "in_a_process", lambda *names: Result(f"table of {names[0]}", "ms", {"us": BAR})
    )
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    return page


def test_a_whole_run_of_a_quiet_machine_is_published(page: Path) -> None:
    """With every part's table, each section's plots in both themes, and the load."""
    program.main([])
    text = page.read_text()
    assert "| 0.50 |" in " ".join(text.split())
    for part in program.parts(quick=False):
        assert f"table of {part}\n" in text
    for section in program.SECTIONS:
        for theme in ("light", "dark"):
            plot = f"img/benchmarks-{section}-{theme}.svg"
            assert f"]({plot}#gh-{theme}-mode-only)" in text
            assert (page.parent / plot).read_text().startswith("<?xml")


def test_a_busy_machine_is_refused(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured, nothing written, and the message says what to do."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.51, 0.0, 0.0))
    with pytest.raises(SystemExit) as exit_:
        program.main([])
    assert exit_.value.code == 1
    assert "load 0.51" in capsys.readouterr().err
    assert [*page.parent.iterdir()] == [page]
    assert page.read_text() == "before"


@pytest.mark.parametrize("arguments", [["--print-only"], ["--quick"], ["overhead/memory"]])
def test_what_is_not_published_runs_under_any_load(
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    """A run that is not whole, or not meant to be kept, is printed and leaves the page alone."""
    monkeypatch.setattr(os, "getloadavg", lambda: (7.0, 0.0, 0.0))
    program.main(arguments)
    assert "table of overhead/memory" in capsys.readouterr().out
    assert [*page.parent.iterdir()] == [page]
    assert page.read_text() == "before"
