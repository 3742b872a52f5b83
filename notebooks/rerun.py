"""Run the notebooks and keep what they show: ``make notebooks``."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
CELL_SECONDS = 60
# What a notebook needs to be opened; a kernel adds the version of its own Python.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def run(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of a fresh run.

    Args:
        path: Where it is.

    Raises:
        CellExecutionError: A cell raised.
    """
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=CELL_SECONDS,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    return notebook


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(run(path), path)
