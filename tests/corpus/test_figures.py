"""How often classify is right about errors that real providers, SDKs and sockets produced."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("HONCHO_FALLBACK_CORPUS") or ROOT.parent / "shared" / "corpus")
PYTHON = Path(os.environ.get("HONCHO_FALLBACK_CORPUS_PYTHON") or ROOT / ".venv-corpus/bin/python")
# What is to be reached on all records, and on the public ones.
GOALS = {"balanced": 0.975, "precision": 0.99, "kind": 0.945, "retry": 0.955}


def run(written: Path, *command: Path) -> tuple[dict[str, Any], str]:
    """Run a script of the corpus; return the JSON that it wrote, and what it printed."""
    if not (CORPUS / "score.py").is_file():
        pytest.skip(f"no corpus beside the repository ({CORPUS.name}/score.py is not there)")
    if not PYTHON.is_file():
        pytest.skip("the corpus has no environment yet: run `make corpus`")
    done = subprocess.run(
        [PYTHON, *command, "--json", written],
        capture_output=True,
        text=True,
        check=False,
        # This tree's package, whichever is installed there.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(written.read_text()), done.stdout


@pytest.mark.timeout(540)
def test_the_figures_are_reached(tmp_path: Path) -> None:
    """Switch, kind and retry are right as often as the project promises."""
    figures, printed = run(tmp_path / "figures.json", CORPUS / "score.py")
    missed = [
        f"{rows}: {name} is {figures[rows][name]:.3f}, to reach {goal:.3f}"
        for rows in ("all", "public")
        for name, goal in GOALS.items()
        if figures[rows][name] < goal
    ]
    assert not missed, printed
