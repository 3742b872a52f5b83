"""The notebooks run, are kept with what they show, and tell nothing of the machine they ran on."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
import rerun
from nbclient.exceptions import CellExecutionError

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = sorted(rerun.FOLDER.glob("*.ipynb"))
MOST_LINES = 25
# Where files lie, which ports were free, where objects were, which keys there are.
OF_A_MACHINE = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|usr|work|Users|var|opt)/|[A-Z]:\\\\|site-packages|\.venv"
    r"|(?:127\.0\.0\.1|localhost):\d{3}|0x[0-9a-f]{6}|\b(?:sk|pk|gsk)-\w{3}|AIza|Bearer "
)
PRIVATE_IMPORT = re.compile(r"^\s*(?:from|import)\b.*(?:\b_|\._)\w", re.MULTILINE)
SECONDS = 150  # importing a framework takes long where others work, too

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that are run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook: NotebookNode) -> list[set[str]]:
    """Return the types of what each cell shows; how the log is cut into parts differs."""
    return [
        {
            kind
            for output in cell.outputs
            if output.get("name") != "stderr"
            for kind in output.get("data", [output.output_type])
        }
        for cell in code_cells(notebook)
    ]


@pytest.mark.timeout(SECONDS)
@each_notebook
def test_every_cell_runs_and_shows_what_is_kept(path: Path) -> None:
    """No cell raises, and text or a picture is kept wherever a fresh run shows some."""
    kept = nbformat.read(path, as_version=4)
    assert shown(kept) == shown(rerun.run(path)), "run: make notebooks"


@each_notebook
def test_what_is_kept_is_one_run_of_a_readable_notebook(path: Path) -> None:
    """It was run from top to bottom, has a title and short cells, and uses public names only."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert any(shown(notebook))
    assert notebook.cells[0].source.startswith("# ")
    assert [cell.id for cell in cells if cell.source.count("\n") >= MOST_LINES] == []
    assert [cell.id for cell in cells if PRIVATE_IMPORT.search(cell.source)] == []


@each_notebook
def test_nothing_of_a_machine_is_kept(path: Path) -> None:
    """No path, no port, no address in memory, no key, no host."""
    text = path.read_text("utf-8")
    host = socket.gethostname()
    assert OF_A_MACHINE.findall(text) == []
    assert len(host) < 8 or host not in text  # a short name may well be a word


def test_the_readme_lists_them() -> None:
    """Each notebook stands in the README, and nothing else does."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert re.findall(r"\(notebooks/(\w+\.ipynb)\)", readme) == [path.name for path in NOTEBOOKS]


@pytest.mark.timeout(SECONDS)
def test_a_cell_that_raises_is_an_error(tmp_path: Path) -> None:
    """A notebook cannot fail unseen."""
    path = tmp_path / "broken.ipynb"
    cell = nbformat.v4.new_code_cell("1 / 0")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        rerun.run(path)
