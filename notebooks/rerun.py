"""Run the notebooks and keep what they show: ``make notebooks``.

A notebook is run as a reader would, in a fresh kernel of this environment, with three differences:
it sees nothing of this machine's settings, it reaches loopback and nothing else, and what changes
from run to run (ids, milliseconds, ports) is left out of what is kept. So two runs show the same,
and a notebook whose kept outputs differ from a fresh run is stale.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
CELL_SECONDS = 60
# All that says nothing about the machine; an editor adds its version, a kernel its own.
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_FROM_OUTSIDE = ("LD_LIBRARY_PATH", "PATH", "SYSTEMROOT")
# An exception would be a lost connection to the SDKs, the policy would fall back, and the notebook
# would show something after all.
_LOOPBACK_ONLY = """
def _stay_here():
    import os, sys
    def hook(event, args):
        if event == "socket.getaddrinfo":
            host = args[0]
        elif event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
            host = args[1][0]
        else:
            return
        host = host.decode() if isinstance(host, bytes) else host
        if host not in (None, "", "127.0.0.1", "::1", "localhost"):
            os.write(2, f"a notebook reached for {host}\\n".encode())
            os._exit(1)
    sys.addaudithook(hook)
_stay_here()
del _stay_here
"""
_CALL_ID = re.compile(r"\b[0-9a-f]{20}-[0-9a-f]+\b")
_VOLATILE = (
    (re.compile(r"\b\d[\d.]* ms\b"), "… ms"),
    (re.compile(r"((?:127\.0\.0\.1|localhost):)\d+"), r"\1…"),
    (
        re.compile(
            r"""\b((?:milliseconds|seconds|started|started_at|time_to_first_token)["']?[=:] ?)"""
            r"\d[\d.e+-]*"
        ),
        r"\1…",
    ),
)


def notebooks() -> list[Path]:
    """Return the notebooks in the order in which they are read."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """Read a notebook.

    Args:
        path: Where it is.
    """
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def rerun(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook with the outputs of a fresh run.

    Args:
        notebook: What to run; it stays as it is.

    Raises:
        CellExecutionError: A cell raised.
        DeadKernelError: The kernel ended, for instance because a cell reached for the network.
    """
    fresh = nbformat.from_dict(notebook)
    with TemporaryDirectory(prefix="honcho-fallback-") as home:
        startup = Path(home, "profile_default", "startup")
        startup.mkdir(parents=True)
        (startup / "00-loopback-only.py").write_text(_LOOPBACK_ONLY, "utf-8")
        env = {name: os.environ[name] for name in _FROM_OUTSIDE if name in os.environ}
        env |= {"HOME": home, "IPYTHONDIR": home, "NO_PROXY": "127.0.0.1"}
        # Other people's; the tests of this project see them as errors.
        env |= {"PYTHONWARNINGS": "ignore"}
        kernel = AsyncKernelManager(
            kernel_name="python3",
            # No folder of kernels, so that none but this very Python is found.
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
            connection_file=str(Path(home, "kernel.json")),
            transport="ipc",
        )
        client = NotebookClient(
            fresh,
            km=kernel,
            timeout=CELL_SECONDS,
            record_timing=False,
            resources={"metadata": {"path": home}},
        )
        client.execute(env=env, cleanup_kc=True)
    return steady(fresh)


def steady(notebook: NotebookNode) -> NotebookNode:
    """Leave out of a notebook what is the machine's or the moment's; changes and returns it.

    Args:
        notebook: After a run.
    """
    calls: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return calls.setdefault(found[0], f"call-{len(calls) + 1}")

    def kept(text: str) -> str:
        text = _CALL_ID.sub(name, text)
        for pattern, replacement in _VOLATILE:
            text = pattern.sub(replacement, text)
        return text

    notebook.metadata = nbformat.from_dict(_METADATA)
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type != "code":
            continue
        cell.outputs = list(_joined(cell.outputs))
        for output in cell.outputs:
            if "text" in output:
                output.text = kept(output.text)
            for kind, shown in output.get("data", {}).items():
                if isinstance(shown, str):
                    output.data[kind] = kept(shown)
    return notebook


def _joined(outputs: Sequence[NotebookNode]) -> Iterable[NotebookNode]:
    # Two streams reach the client in any order and in any number of parts.
    streams: dict[str, NotebookNode] = {}
    for output in outputs:
        if output.output_type == "stream" and output.name in streams:
            streams[output.name].text += output.text
        elif output.output_type == "stream":
            streams[output.name] = output
        else:
            yield from (streams[name] for name in sorted(streams))
            streams.clear()
            yield output
    yield from (streams[name] for name in sorted(streams))


def shown(cell: NotebookNode) -> list[dict[str, Any]]:
    """Return what a cell shows, as far as it is the same in every run.

    Args:
        cell: Of a steady notebook. Of HTML only that it is there: times stand in its styles.
    """
    return [
        {
            **output,
            "execution_count": None,
            "metadata": None,
            "data": {
                kind: "" if kind == "text/html" else text
                for kind, text in output.get("data", {}).items()
            },
        }
        for output in cell.get("outputs", ())
    ]


def stale_cells(kept: NotebookNode, fresh: NotebookNode) -> list[str]:
    """Name the cells whose kept outputs are not those of a fresh run.

    Args:
        kept: As it is in the repository.
        fresh: The same after ``rerun``.
    """
    pairs = zip(kept.cells, fresh.cells, strict=True)
    return [
        str(old.id)
        for old, new in pairs
        if shown(old) != shown(new) or old.get("execution_count") != new.get("execution_count")
    ]


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook in the form in which the repository keeps it.

    Args:
        notebook: What.
        path: Where to.
    """
    text = nbformat.writes(notebook, version=4)
    path.write_text(f"{text.rstrip()}\n", "utf-8")


def main(names: Sequence[str]) -> None:
    """Run notebooks and keep what is new.

    Args:
        names: Their paths; none for all of them.
    """
    for path in map(Path, names) if names else notebooks():
        kept = read(path)
        fresh = rerun(kept)
        stale = stale_cells(kept, fresh)
        # Where nothing is new, the times that stand in HTML are not either.
        write(fresh if stale else steady(kept), path)
        print(f"{path.name}: {', '.join(stale) or 'as it was'}")


if __name__ == "__main__":
    main(sys.argv[1:])
