"""How the core is built: few rooms, downhill, and each a door worth its place."""

from __future__ import annotations

import ast
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import honcho_fallback
from honcho_fallback import FallbackPolicy, FallbackRun, Target
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from types import FrameType

PACKAGE = Path(honcho_fallback.__file__).parent
CORE = PACKAGE / "_core"
DOWN = StatusError(503)


def test_a_first_failure_switch_changes_rooms_at_most_12_times() -> None:
    """Who follows one call through the core opens few files; the classifier is one of them."""
    policy = FallbackPolicy([Target("primary"), Target("fallback")])

    def ask(attempt: Any) -> str:
        if attempt.position == 0:
            raise DOWN
        return "hello"

    policy.call(ask)  # what is made once is made
    rooms: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent == CORE:
            rooms.append(path.stem)

    sys.setprofile(note)
    try:
        policy.call(ask)
    finally:
        sys.setprofile(None)
    visits = [room for room, _ in groupby(rooms)]
    assert {"policy", "run", "state", "drivers", "rules", "observers"} <= {*visits}
    assert len(visits) - 1 <= 12, visits


def test_a_run_has_at_most_12_public_members() -> None:
    """Whoever drives a run by hand learns a dozen names."""
    members = [name for name in dir(FallbackRun) if not name.startswith("_")]
    assert len(members) <= 12, members


def test_the_core_has_no_import_circle() -> None:
    """Type imports and imports inside functions count: the next reader follows them, too."""
    rooms = {path.stem: path.read_text(encoding="utf-8") for path in CORE.glob("[a-z]*.py")}
    arrows = {
        room: {
            name
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.ImportFrom) and node.module
            for name in _rooms_of(node)
            if name in rooms
        }
        for room, source in rooms.items()
    }
    done: list[str] = []
    while arrows:
        free = sorted(room for room, needed in arrows.items() if needed <= {*done})
        assert free, f"a circle among {sorted(arrows)}"
        done += free
        for room in free:
            del arrows[room]
    assert len(done) == len(rooms) >= 15


def _rooms_of(node: ast.ImportFrom) -> list[str]:
    core = "honcho_fallback._core"
    if node.module == core:
        return [alias.name for alias in node.names]
    module = node.module or ""
    return [module.removeprefix(f"{core}.")] if module.startswith(f"{core}.") else []


@pytest.mark.parametrize("room", ["rules", "run"])
def test_the_heart_begins_with_its_theory(room: str) -> None:
    """The two rooms that decide say how before they do."""
    source = (CORE / f"{room}.py").read_text(encoding="utf-8")
    assert "Theory of operation" in (ast.get_docstring(ast.parse(source)) or "")


def test_nothing_is_imported_by_a_name_in_a_string() -> None:
    """Import rules see no strings: a module named in one would be known by nobody."""
    by_string = re.compile(r"import_module\(\s*f?[\"']honcho_fallback")
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if by_string.search(path.read_text(encoding="utf-8"))
    }
    assert found == set()
