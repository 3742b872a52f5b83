"""What stands in several places says the same: pages, names for coding agents, Pythons."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

import honcho_fallback

ROOT = Path(__file__).parents[2]
LLMS = (ROOT / "llms.txt").read_text(encoding="utf-8")


def navigation() -> set[str]:
    """Return the pages that mkdocs.yml names."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return {*re.findall(r"^ +- .+: (\S+\.md)$", text, re.MULTILINE)}


def test_coding_agents_are_shown_each_page_of_the_navigation() -> None:
    """``llms.txt`` lists the pages that the site does, and no other."""
    linked = {*re.findall(r"\]\((\S+\.md)\)", LLMS)}
    pages = {page.removeprefix("project/") for page in navigation() if page.startswith("project/")}
    pages |= {f"docs/{page}" for page in navigation() if not page.startswith("project/")}
    assert linked == pages


def test_every_page_is_in_the_navigation() -> None:
    """A page outside of it would be found by nobody."""
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= navigation()


def test_coding_agents_are_told_names_that_there_are() -> None:
    """A name in ``llms.txt`` that was renamed would be written into other people's code."""
    names = {*re.findall(r"`(?:[\w.]+ = )?([A-Z]\w+[a-z]\w*)", LLMS)} - {"ExceptionGroup"}
    exported = {
        name
        for package in ("honcho_fallback", *(path.name for path in (ROOT / "adapters").iterdir()))
        for name in _exports(package)
    }
    assert names
    assert names <= exported, names - exported


def _exports(package: str) -> list[str]:
    folder = ROOT if package == honcho_fallback.__name__ else ROOT / "adapters"
    path = folder / package / "__init__.py"
    source = path.read_text(encoding="utf-8") if path.exists() else ""
    return re.findall(r'"(\w+)"', source.partition("__all__ = [")[2].partition("]")[0])


def test_supported_pythons_stand_in_one_list() -> None:
    """The oldest Python, the classifiers and the workflow's matrix say the same."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    named = [one.removeprefix(prefix) for one in project["classifiers"] if one.startswith(prefix)]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["run"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"
