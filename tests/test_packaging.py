"""The source tree and what is packed from it."""

from __future__ import annotations

import ast
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import honcho_fallback

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_every_adapter_is_in_the_wheel() -> None:
    """A folder under adapters/ that the wheel does not list would be lost without a word."""
    folders = {
        f"adapters/{path.name}"
        for path in (ROOT / "adapters").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    assert {*PACKAGES} == {"honcho_fallback", *folders}


def test_adapters_is_not_a_package() -> None:
    """Another distribution owns the name, so the folder must never become importable."""
    assert not (ROOT / "adapters" / "__init__.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    """Type checkers read a package's annotations only where py.typed stands."""
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_docstring_speaks_to_users(package: str) -> None:
    """pytest's own marker stands in its plugin alone, not in what ``help`` shows."""
    source = (ROOT / package / "__init__.py").read_text(encoding="utf-8")
    is_marked = "PYTEST_DONT_REWRITE" in (ast.get_docstring(ast.parse(source)) or "")
    assert is_marked is (package == "adapters/honcho_fallback_pytest")


def test_the_version_stands_once() -> None:
    """``__version__`` is what the distribution says of itself."""
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert honcho_fallback.__version__ == version("honcho-fallback")


def test_constraints_are_plain_versions() -> None:
    """The pinned set holds names and versions, no address it was fetched from."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins == sorted(pins)
    assert all(line.count("==") == 1 and "/" not in line and " " not in line for line in pins)
