"""Pages whose facts stand in the code say what the code says."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackConfig
from tests.test_house import ROOMS

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATOR: dict[str, Any] = runpy.run_path(str(DOCS / "_generate.py"))
PAGES: dict[str, Callable[[], str]] = GENERATOR["PAGES"]


@pytest.mark.parametrize("page", PAGES)
def test_the_committed_page_is_current(page: str) -> None:
    """Who changes an option, a command or the order of the rules writes the page anew."""
    if page == "cli.md" and version("typer").split(".")[:2] < ["0", "29"]:
        pytest.skip("this typer writes its help in other words")
    committed = (DOCS / page).read_text(encoding="utf-8")
    assert committed == PAGES[page](), "run python docs/_generate.py"


def test_every_option_is_described_once() -> None:
    """An option without a description, or in no group, would be one that nobody finds."""
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$",
        (DOCS / "options.md").read_text(encoding="utf-8").partition("\n## Presets\n")[0],
        re.MULTILINE,
    )
    options = sorted(field.alias or name for name, field in FallbackConfig.model_fields.items())
    assert sorted(name for name, *_ in rows) == options
    assert all(all(cells) for cells in rows)


def test_the_reference_shows_every_package() -> None:
    """A public package that the reference leaves out would be documented nowhere."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    public = {
        path.relative_to(folder.parent).with_suffix("").as_posix().replace("/", ".")
        for folder in (ROOT / package for package in wheel["targets"]["wheel"]["packages"])
        for path in folder.rglob("*.py")
        if not re.search(r"/_(?!_init__)", f"/{path.relative_to(folder.parent)}")
    }
    public = {name.removesuffix(".__init__") for name in public} - {"honcho_fallback.cli"}
    shown = re.findall(r"^::: (\S+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(public)


def test_the_page_has_the_rooms_of_today() -> None:
    """Column "now", in the order of the rooms."""
    page = (DOCS / "why.md").read_text(encoding="utf-8")
    now = re.findall(r"^\| [^|]+ \| [\d,]+ \| ([\d,]+) \|", page, re.MULTILINE)
    assert now == [f"{most:,}" for most, _ in ROOMS.values()]
