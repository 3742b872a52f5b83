"""The one writer: Markdown, for a terminal and for the page."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PACKAGES = """honcho-fallback anthropic backoff haystack-ai httpx langchain langchain-core
langchain-openai langfuse litellm openai pydantic pydantic-ai-slim stamina tenacity"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table whose columns are in line on a terminal, too."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(head), line(rule), *map(line, lines[1:])])


def machine(load: float) -> str:
    """Describe the machine without its name, and the packages."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return table(
        ("", "this run"),
        [
            ("date", datetime.now(UTC).strftime("%Y-%m-%d")),
            (
                "processor",
                f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores",
            ),
            ("load at the start", f"{load:.2f}"),
            ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
            ("packages", ", ".join(map(_versioned, PACKAGES.split()))),
        ],
    )


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"
