"""The ids that tests name are explained in one place."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ID = re.compile(r"\b(?:AN|G|HOM|HON|HRC|HRS|HRT|OH)-\d{2,3}\b")
ROWS = re.findall(r"^\| (\S+-\d+) \|", (TESTS / "REQUIREMENTS.md").read_text("utf-8"), re.M)


def named_in(folder: Path) -> set[str]:
    return {name for path in folder.rglob("*.py") for name in ID.findall(path.read_text("utf-8"))}


def test_every_id_is_explained_once_and_named_by_a_test() -> None:
    """A line for each id that a test names, sorted, and no line that no test names."""
    assert sorted(named_in(TESTS)) == ROWS


def test_the_package_names_no_id() -> None:
    """Who reads the package finds words: the ids are explained beside the tests alone."""
    root = TESTS.parent
    assert named_in(root / "honcho_fallback") | named_in(root / "adapters") == set()
