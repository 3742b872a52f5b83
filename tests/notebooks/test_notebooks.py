"""The notebooks run, are kept with what they show, and tell nothing of the machine they ran on."""

from __future__ import annotations

import ast
import re
import socket
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
import rerun
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = sorted(rerun.FOLDER.glob("*.ipynb"))
MOST_LINES = 25
KEEP_TREE = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
# Where files lie, which ports were free, where objects were, which keys there are. Cassettes were
# recorded at LM Studio's usual port.
OF_A_MACHINE = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|usr|work|Users|var|opt)/|[A-Z]:\\\\|site-packages|\.venv"
    r"|(?:127\.0\.0\.1|localhost):(?!1234\b)\d{3}|0x[0-9a-f]{6}|\b(?:sk|pk|gsk)-\w{3}|AIza|Bearer "
)
VARYING = re.compile(r"[0-9a-f]{16,}(?:-\w+)?|\d+(?:\.\d+)?|\s+")  # ids, figures, widths
PRIVATE_IMPORT = re.compile(r"^\s*(?:from|import)\b.*(?:\b_|\._)\w", re.MULTILINE)
SECONDS = 150  # importing a framework takes long where others work, too

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook: NotebookNode) -> list[set[str]]:
    """Return what each cell prints, without figures, and the types of what else it shows.

    How the log is cut into parts differs from run to run.
    """
    return [
        {
            kind
            for output in cell.outputs
            if output.get("name") != "stderr"
            for kind in output.get("data", [VARYING.sub(" ", output.get("text", ""))])
        }
        for cell in code_cells(notebook)
    ]


@pytest.mark.timeout(SECONDS)
@each_notebook
def test_every_cell_runs_and_shows_what_is_kept(path: Path) -> None:
    """No cell raises; the words it prints are kept, and a picture wherever it shows one."""
    kept = nbformat.read(path, as_version=4)
    assert shown(kept) == shown(rerun.run(path)), "run: make notebooks"


@each_notebook
def test_what_is_kept_is_one_run_of_a_readable_notebook(path: Path) -> None:
    """It was run from top to bottom, has a title and short cells, and uses public names only.

    Nothing of a machine is kept: no path, no port, no address in memory, no key, no host.
    """
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert any(shown(notebook))
    assert notebook.cells[0].source.startswith("# ")
    assert [cell.id for cell in cells if cell.source.count("\n") >= MOST_LINES] == []
    assert [cell.id for cell in cells if PRIVATE_IMPORT.search(cell.source)] == []
    text, host = path.read_text("utf-8"), socket.gethostname()
    assert OF_A_MACHINE.findall(text) == []
    assert len(host) < 8 or host not in text  # a short name may well be a word


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_pages_list_them(page: str) -> None:
    """Each notebook stands in the README and among the examples, and nothing else does."""
    text = (ROOT / page).read_text("utf-8")
    names = [path.name for path in NOTEBOOKS]
    assert re.findall(r"\((?:\.\./)?notebooks/(\w+\.ipynb)\)", text) == names


def imported() -> set[str]:
    """Return the top-level modules that the notebooks and the files beside them import."""
    sources = [path.read_text("utf-8") for path in rerun.FOLDER.glob("*.py")]
    for path in NOTEBOOKS:
        sources += [cell.source for cell in code_cells(nbformat.read(path, as_version=4))]
    names: set[str] = set()
    for source in sources:
        for node in ast.walk(compile(source, "cell", "exec", KEEP_TREE)):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(str(node.module).partition(".")[0])
    ours = {path.stem for path in [*rerun.FOLDER.glob("*.py"), *ROOT.glob("adapters/*")]}
    return names - ours - sys.stdlib_module_names - {"honcho_fallback"}


def named_by(extra: str) -> set[str]:
    """Return the distributions that an extra names, and the extras that it names, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"][extra]]
    names: set[str] = set()
    for requirement in map(Requirement, requirements):
        names.add(canonicalize_name(requirement.name))
        for other in requirement.extras if requirement.name == project["name"] else ():
            names |= named_by(other)
    return names


def test_the_extra_names_whatever_the_notebooks_import() -> None:
    """``pip install '.[notebooks]'`` is enough, also where a dependency stops bringing another."""
    extra, owners = named_by("notebooks"), packages_distributions()
    missing = [
        module
        for module in sorted(imported())
        if extra.isdisjoint(map(canonicalize_name, owners.get(module, [])))
    ]
    assert missing == []
