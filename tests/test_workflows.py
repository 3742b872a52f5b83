"""What runs on the forge is pinned and may do no more than it needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[1] / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(path.read_text("utf-8")))


@each_workflow
def test_every_action_is_pinned_by_its_hash(path: Path) -> None:
    """A tag can be moved to other code, a hash cannot; the comment says which version it is."""
    used = re.findall(r"uses: (.+)", path.read_text("utf-8"))
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []


@each_workflow
def test_a_job_may_do_what_it_lists(path: Path) -> None:
    """Nothing is allowed to all jobs; each says for itself what it needs."""
    workflow = read(path)
    assert workflow["permissions"] == {}
    assert all("permissions" in job for job in workflow["jobs"].values())


def test_only_a_tag_publishes_what_was_built_once() -> None:
    """No other job builds, and a pull request reaches neither the index nor a signature."""
    jobs = read(FOLDER / "release.yml")["jobs"]
    builds = [name for name, job in jobs.items() if "make dist" in str(job["steps"])]
    assert builds == ["build"]
    for name, job in jobs.items():
        rights = {right for right, degree in job["permissions"].items() if degree == "write"}
        if rights:
            assert job["if"] == "github.ref_type == 'tag'", name
    assert jobs["publish"]["environment"] == "pypi"
    assert "actions/checkout" not in str(jobs["publish"]["steps"])
