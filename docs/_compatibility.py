"""Write one column of the table in compatibility.md: what a run had installed, and how it ended.

``python docs/_compatibility.py COLUMN JUNIT_XML`` is run by ``make test-newest``, ``make
test-lowest`` and ``make test-pythons``, by the Python that the tests ran with. Without arguments
it writes what other files say, as ``make docs`` does.
"""

from __future__ import annotations

import datetime as dt
import platform
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree as ET

from packaging.requirements import Requirement

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "compatibility.md"
PYPROJECT = DOCS.parent / "pyproject.toml"
COLUMNS = ("allowed", "lowest", "pinned", "newest", "3.12", "3.13")
PACKAGES = (
    "pydantic", "tenacity", "langchain", "langchain-core", "langchain-openai",
    "langchain-anthropic", "langchain-google-genai", "langgraph", "litellm", "openai-agents",
    "pydantic-ai-slim", "openai", "anthropic", "google-genai", "httpx", "httpx2", "aiohttp",
    "langfuse", "opentelemetry-api", "prometheus-client", "redis", "pydantic-settings", "typer",
)  # fmt: skip
START = "<!-- written by make test-newest, test-lowest and test-pythons -->"
END = "<!-- written -->"
NOTHING = "-"


def allowed() -> dict[str, str]:
    """Return what the package and its extras ask for; what is only tested with is in no extra."""
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    lines = [*project["dependencies"]]
    lines += [line for name, lines in extras if name != "notebooks" for line in lines]
    ranges = {
        one.name: ",".join(sorted(map(str, one.specifier), key=lambda part: part[0] != ">"))
        for one in map(Requirement, lines)
    }
    return {name: f"`{ranges[name]}`" for name in PACKAGES if name in ranges}


def pinned() -> dict[str, str]:
    """Return the versions of every change's tests."""
    lines = (DOCS.parent / "constraints.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    return {name: pins[name] for name in PACKAGES} | {"result": "each change", "run": NOTHING}


def installed() -> dict[str, str]:
    """Return the versions that this Python has."""
    cells = {}
    for name in PACKAGES:
        try:
            cells[name] = version(name)
        except PackageNotFoundError:
            cells[name] = NOTHING
    return cells


def outcome(junit: Path) -> dict[str, str]:
    """Return how a run ended, and when and with which Python it was made."""
    (suite,) = ET.parse(junit).getroot().iter("testsuite")  # noqa: S314 # pytest's own
    total, failed, skipped = (
        int(suite.get("tests", 0)),
        int(suite.get("failures", 0)) + int(suite.get("errors", 0)),
        int(suite.get("skipped", 0)),
    )
    result = f"{total - failed - skipped:,} passed, {skipped} skipped"
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return {
        "result": f"{result}, **{failed} failed**" if failed else result,
        "run": f"{date}, Python {platform.python_version()}",
    }


def table(page: str) -> dict[str, dict[str, str]]:
    """Return the cells that a page has, by column."""
    lines = page.partition(START)[2].partition(END)[0].strip().splitlines()
    head, _, *rows = [[cell.strip() for cell in one.strip("|").split("|")] for one in lines]
    return {
        column: {row[0].strip("`"): row[head.index(column)] for row in rows if column in head}
        for column in COLUMNS
    }


def written(columns: dict[str, dict[str, str]]) -> str:
    """Return the table, a package per row."""
    lines = [" | ".join(("| package", *COLUMNS)) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    lines += [
        " | ".join([f"| {name}", *(columns[one].get(name, NOTHING) for one in COLUMNS)]) + " |"
        for name in (*PACKAGES, "result", "run")
    ]
    return "\n".join(lines)


def rewritten(page: str, run: dict[str, dict[str, str]]) -> str:
    """Return the page with the columns of a run, and those that other files say."""
    columns = table(page) | {"allowed": allowed(), "pinned": pinned()} | run
    before, _, rest = page.partition(START)
    return f"{before}{START}\n\n{written(columns)}\n\n{END}{rest.partition(END)[2]}"


def main(column: str = "", junit: str = "") -> None:
    """Write the page."""
    run = {column: installed() | outcome(Path(junit))} if column else {}
    PAGE.write_text(rewritten(PAGE.read_text("utf-8"), run), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
