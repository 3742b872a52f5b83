"""The notebooks run, show what is kept of them, and tell nothing of the machine they ran on."""

from __future__ import annotations

import ast
import re
import socket
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
import rerun
from nbclient.exceptions import CellExecutionError, DeadKernelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = rerun.notebooks()
OURS = "honcho_fallback"
MOST_LINES = 25
# What a page shows of a machine: where its files lie, what it is called, which keys it holds.
OF_A_MACHINE = re.compile(
    r"(?:(?<![\w.])/(?:home|root|tmp|usr|work|Users|var|opt)/|[A-Z]:\\|site-packages|\.venv"
    r"|(?:127\.0\.0\.1|localhost):\d|0x[0-9a-f]{6}|\b[0-9a-f]{20}"
    r"|\b(?:sk|pk|gsk)-\w{3}|AIza|Bearer )"
)
SECONDS = 150  # importing a framework takes long where others work, too

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that are run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def of(*sources: str) -> NotebookNode:
    """Make a notebook of a few cells."""
    cells = [
        nbformat.v4.new_code_cell(source, id=f"cell-{number}")
        for number, source in enumerate(sources)
    ]
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=cells)
    return notebook


def imports(source: str) -> Iterator[tuple[str, str | None]]:
    """Return the modules that a cell imports, each with the name it takes from there."""
    for node in ast.walk(ast.parse(re.sub(r"^(\s*)await ", r"\1", source, flags=re.MULTILINE))):
        if isinstance(node, ast.Import):
            yield from ((one.name, None) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", one.name) for one in node.names)


def private_imports(notebook: NotebookNode) -> list[str]:
    """Name what a notebook imports that nobody promised."""
    found: list[str] = []
    for cell in code_cells(notebook):
        for module, name in imports(cell.source):
            parts = f"{module}.{name or ''}".split(".")
            is_ours = parts[0].startswith(OURS) and name is not None
            if any(part.startswith("_") for part in parts) or (
                is_ours and name not in import_module(module).__all__
            ):
                found.append(".".join(filter(None, parts)))
    return found


def told_of_the_machine(text: str) -> list[str]:
    """Return the places where a text tells where it was written."""
    host = socket.gethostname()
    # A short name may well be a word.
    return [*OF_A_MACHINE.findall(text), *([host] if len(host) > 7 and host in text else [])]


@pytest.mark.timeout(SECONDS)
@each_notebook
def test_a_fresh_run_shows_what_is_kept(path: Path) -> None:
    """Every cell runs, and shows what the repository says it shows."""
    kept = rerun.read(path)
    fresh = rerun.rerun(kept)
    for old, new in zip(code_cells(kept), code_cells(fresh), strict=True):
        assert (old.id, rerun.shown(old)) == (new.id, rerun.shown(new)), "run: make notebooks"
    assert not rerun.stale_cells(kept, fresh)


@each_notebook
def test_what_is_kept_was_run_from_top_to_bottom(path: Path) -> None:
    """Outputs are those of one run of the whole notebook, and some cells have one."""
    cells = code_cells(rerun.read(path))
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert any(cell.outputs for cell in cells)


@each_notebook
def test_what_is_kept_is_in_its_one_form(path: Path, tmp_path: Path) -> None:
    """Nothing but what ``make notebooks`` writes, so that a change shows what has changed."""
    written = tmp_path / path.name
    rerun.write(rerun.steady(rerun.read(path)), written)
    assert path.read_bytes() == written.read_bytes(), "run: make notebooks"


@each_notebook
def test_a_notebook_is_valid(path: Path) -> None:
    """Any Jupyter opens it; each cell has an id of its own, which stays."""
    notebook = rerun.read(path)
    nbformat.validate(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert len({*ids}) == len(ids)


@each_notebook
def test_only_public_names_are_imported(path: Path) -> None:
    """A reader may do all that a notebook does."""
    notebook = rerun.read(path)
    assert not private_imports(notebook)
    assert any(
        module.startswith(OURS)
        for cell in code_cells(notebook)
        for module, _ in imports(cell.source)
    )


@each_notebook
def test_nothing_of_a_machine_is_kept(path: Path) -> None:
    """No path, no host, no port, no address in memory, no key."""
    assert not told_of_the_machine(path.read_text("utf-8"))


@each_notebook
def test_cells_are_short(path: Path) -> None:
    """Helpers live in the test kit; a cell is read at a glance, and each section is introduced."""
    notebook = rerun.read(path)
    assert [
        cell.id for cell in code_cells(notebook) if cell.source.count("\n") >= MOST_LINES
    ] == []
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")


def test_the_readme_lists_them() -> None:
    """Each notebook stands in the README, and nothing else does."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert re.findall(r"\(notebooks/(\w+\.ipynb)\)", readme) == [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize(
    "source",
    [
        "import honcho_fallback._core.run",
        "from honcho_fallback._core.run import FallbackRun",
        "from honcho_fallback.testing import _need",
        "from honcho_fallback import annotations",
        "from litellm import _logging",
    ],
)
def test_a_private_name_is_found(source: str) -> None:
    """The check of imports sees modules, names, other people's, and what is there by accident."""
    assert private_imports(of("from honcho_fallback import classify", source))


@pytest.mark.parametrize(
    "text",
    [
        "/home/me/project",
        "in /tmp/x.py",
        "http://127.0.0.1:40123/v1",
        "<Strategy at 0x7fbe5874f7d0>",
        "Call ee146c28489015093597-1",
        "sk-abc123",
        "on builder-7",
    ],
)
def test_what_tells_of_a_machine_is_found(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of what is kept sees paths, ports, addresses, call ids, keys and the host."""
    monkeypatch.setattr(socket, "gethostname", lambda: "builder-7")
    assert told_of_the_machine(text)


@pytest.mark.timeout(SECONDS)
def test_a_cell_that_raises_is_an_error() -> None:
    """A notebook cannot fail unseen."""
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        rerun.rerun(of("1 / 0"))


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(
    "source",
    [
        "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=1)",
        "import socket\nsocket.getaddrinfo('provider.example', 443)",
    ],
)
def test_a_notebook_cannot_leave_the_machine(source: str) -> None:
    """A notebook that reaches for the network ends at once, whatever it would make of an error."""
    with pytest.raises(DeadKernelError):
        rerun.rerun(
            of(f"try:\n    {source.replace(chr(10), chr(10) + '    ')}\nexcept OSError:\n    pass")
        )


@pytest.mark.timeout(SECONDS)
def test_a_run_leaves_out_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of a call show the same: ids are numbered, times and ports left out."""
    monkeypatch.setenv("OPENAI_API_KEY", "of this machine")
    call = (
        "from honcho_fallback import FallbackPolicy, Target\n"
        "policy = FallbackPolicy([Target('m')])\n"
        "first, second = policy.start(), policy.start()\n"
        "policy.call(len, run=first)"
    )
    say = "import os, sys\nprint('127.0.0.1:8000', first.record.explain(), file=sys.stderr)"
    more = "print(second.record.call_id, os.environ.get('OPENAI_API_KEY'))\nfirst.record"
    fresh = rerun.rerun(of(call, f"{say}\n{more}"))
    errors, printed, result = fresh.cells[1].outputs
    assert errors.text.startswith("127.0.0.1:… Call call-1 of agent unknown")
    assert errors.text.count("… ms") == 2
    assert printed.text == "call-2 None\n"
    assert "seconds=…" in result.data["text/plain"]
    assert not re.search(r"\d\.\d{3}", str(fresh.cells))


def a_cell(**output: Any) -> NotebookNode:
    """Make a notebook of one cell that showed something."""
    notebook = of("show()")
    (cell,) = notebook.cells
    data = nbformat.v4.new_output("display_data", data=output)
    cell.outputs = [data]
    return notebook


def test_what_is_stale_is_named() -> None:
    """Other text, a picture more or an output less is stale; times in HTML are not."""
    kept = a_cell(**{"text/plain": "one", "text/html": "<p>1 ms</p>"})
    assert not rerun.stale_cells(kept, a_cell(**{"text/plain": "one", "text/html": "<p>2 ms</p>"}))
    for other in (
        a_cell(**{"text/plain": "two", "text/html": "<p>1 ms</p>"}),
        a_cell(**{"text/plain": "one"}),
        of("show()"),
    ):
        assert rerun.stale_cells(kept, other) == ["cell-0"]
