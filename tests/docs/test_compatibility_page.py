"""The table of releases says what was run, and what other files allow."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

SCRIPT: dict[str, Any] = runpy.run_path(
    str(Path(__file__).parents[2] / "docs" / "_compatibility.py")
)
PAGE: str = SCRIPT["PAGE"].read_text("utf-8")
REPORT = """<testsuites>
<testsuite name="pytest" tests="12" failures="1" errors="1" skipped="3"/>
</testsuites>"""


def test_ranges_and_pins_are_current() -> None:
    """Who changes an extra or a pin writes the page anew; the runs' columns stay as they are."""
    assert SCRIPT["rewritten"](PAGE, {}) == PAGE, "run python docs/_compatibility.py"


def test_a_run_writes_its_own_column(tmp_path: Path) -> None:
    """A failure is named, and what the other run said is kept."""
    junit = tmp_path / "newest.xml"
    junit.write_text(REPORT, "utf-8")
    before = SCRIPT["table"](PAGE)
    after = SCRIPT["table"](SCRIPT["rewritten"](PAGE, {"newest": SCRIPT["outcome"](junit)}))
    assert after["newest"]["result"] == "7 passed, 3 skipped, **2 failed**"
    assert after["lowest"] == before["lowest"]
