"""The source tree, what is packed from it, what is public of it, and who may publish it."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

import honcho_fallback
from tests import public_api

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_every_adapter_is_in_the_wheel() -> None:
    """A folder under adapters/ that the wheel does not list would be lost without a word.

    Another distribution owns that name, so the folder itself must never become importable.
    """
    folders = {
        f"adapters/{path.name}"
        for path in (ROOT / "adapters").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    assert {*PACKAGES} == {"honcho_fallback", *folders}
    assert not (ROOT / "adapters" / "__init__.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed_and_speaks_to_users(package: str) -> None:
    """Type checkers read a package's annotations only where py.typed stands.

    pytest's own marker stands in its plugin's docstring alone, not in what ``help`` shows.
    """
    assert (ROOT / package / "py.typed").is_file()
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


# What docs/versioning.md promises is seen in review before it changes.


def test_the_public_names_are_those_of_the_file() -> None:
    """A name, a parameter, a default or an option that changes is a change of this file, too.

    It is made from the reference, and would not miss what that leaves out.
    """
    text = public_api.FILE.read_text("utf-8")
    assert text == public_api.written(), "run make api"
    lines = text.splitlines()
    packages = {path.name for path in (ROOT / "adapters").glob("honcho_fallback_*")}
    assert packages <= {*lines}
    for option in ("deadline", "replay", "only_models"):
        assert any(line.startswith(f"    .{option}: ") for line in lines)


# What runs on the forge is pinned and may do no more than it needs.

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_and_a_job_may_do_what_it_lists(path: Path) -> None:
    """A tag can be moved to other code, a hash cannot; the comment says which version it is.

    Nothing is allowed to all jobs; each says for itself what it needs.
    """
    used = re.findall(r"uses: (.+)", path.read_text("utf-8"))
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {}
    assert all("permissions" in job for job in workflow["jobs"].values())


def test_only_a_tag_publishes_what_was_built_once() -> None:
    """No other job builds, and a pull request reaches neither the index nor a signature."""
    jobs = yaml.safe_load((FOLDER / "release.yml").read_text("utf-8"))["jobs"]
    builds = [name for name, job in jobs.items() if "make dist" in str(job["steps"])]
    assert builds == ["build"]
    for name, job in jobs.items():
        rights = {right for right, degree in job["permissions"].items() if degree == "write"}
        if rights:
            assert job["if"] == "github.ref_type == 'tag'", name
    assert jobs["publish"]["environment"] == "pypi"
    assert "actions/checkout" not in str(jobs["publish"]["steps"])
