"""The one writer: tables for a terminal and the page, and the page's plots."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.measure import Interval

PACKAGES = """honcho-fallback anthropic backoff haystack-ai httpx langchain langchain-core
langchain-openai langfuse litellm openai pydantic pydantic-ai-slim stamina tenacity"""
# What others write stands last on the page: the scenarios' tests, then another environment.
SCENARIOS = "\n## Sixteen outages\n"
AGENTS = "\n## Agent frameworks over sockets\n"
# Colours of Okabe and Ito, and the text's: each readable on its background.
_THEMES = {"light": ("#24292f", "#0072b2", "#d55e00"), "dark": ("#d0d7de", "#56b4e9", "#e69f00")}


Bar: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Result:
    """Hold what one part measured: its table, and which rows of it are drawn."""

    table: str
    unit: str = ""
    # Median and both ends by label; those of this package, and the others'.
    ours: dict[str, Bar] = field(default_factory=dict[str, Bar])
    others: dict[str, Bar] = field(default_factory=dict[str, Bar])


def bar(interval: Interval) -> Bar:
    return interval.median, interval.low, interval.high


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


def publish(
    page: Path,
    introduction: str,
    sections: Mapping[str, str],
    results: Mapping[str, Result],
    load: float,
) -> None:
    """Write the page, and each section's plots beside it.

    Args:
        page: Where it goes; the plots go to ``img/``.
        introduction: What stands first.
        sections: The heading and the text of each, by the first part of its results' names.
        results: By name, such as ``failover/core``.
        load: The machine's, at the start.
    """
    pieces = [introduction, machine(load)]
    for section, text in sections.items():
        of_it = [one for name, one in results.items() if name.partition("/")[0] == section]
        pieces.append(f"\n{text}")
        ours = {label: figures for one in of_it for label, figures in one.ours.items()}
        others = {label: figures for one in of_it for label, figures in one.others.items()}
        if ours:
            unit = next(one.unit for one in of_it if one.unit)
            page.parent.joinpath("img").mkdir(parents=True, exist_ok=True)
            for theme in _THEMES:
                name = f"img/benchmarks-{section}-{theme}.svg"
                _plot(page.parent / name, theme, unit, ours, others)
                # GitHub, Forgejo and Material for MkDocs all show one of the two by this ending.
                pieces.append(f"![{unit}]({name}#gh-{theme}-mode-only)")
        pieces += [f"\n{one.table}" for one in of_it]
    _, heading, others_sections = page.read_text("utf-8").partition(SCENARIOS)
    page.write_text("\n".join(pieces) + "\n" + heading + others_sections, encoding="utf-8")


def _plot(
    path: Path,
    theme: str,
    unit: str,
    ours: Mapping[str, Bar],
    others: Mapping[str, Bar],
) -> None:
    """Draw a point with its interval for each figure."""
    from matplotlib import rc_context  # noqa: PLC0415 # only who publishes needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    text, *colours = _THEMES[theme]
    with rc_context(
        {
            "axes.edgecolor": text,
            "axes.labelcolor": text,
            "text.color": text,
            "xtick.color": text,
            "ytick.color": text,
            "svg.hashsalt": "benchmarks",
        }
    ):
        figure = Figure(figsize=(8, 1 + 0.3 * len({**ours, **others})), layout="constrained")
        axes = figure.subplots()
        for label, colour, figures in zip(
            ("honcho_fallback", "others"), colours, (ours, others), strict=True
        ):
            medians = [median for median, _, _ in figures.values()]
            errors = [
                [median - low for median, low, _ in figures.values()],
                [high - median for median, _, high in figures.values()],
            ]
            if figures:
                names = [name.replace("`", "") for name in figures]
                axes.errorbar(
                    medians, names, xerr=errors, fmt="o", capsize=3, color=colour, label=label
                )
        values = [figures[0] for figures in (*ours.values(), *others.values())]
        if min(values) > 0 and max(values) > 20 * min(values):
            axes.set_xscale("log")
        else:
            # A mark at the end of the axis is to be seen whole.
            axes.set_xlim(left=min(0.0, *values) - 0.02 * max(values))
        axes.set_xlabel(unit)
        axes.invert_yaxis()
        axes.set_facecolor("none")
        axes.grid(axis="x", alpha=0.3)
        figure.legend(loc="outside upper right", ncols=2, frameon=False)
        figure.savefig(path, transparent=True, metadata={"Date": None})


def machine(load: float, packages: str = PACKAGES) -> str:
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
            ("packages", ", ".join(map(_versioned, packages.split()))),
        ],
    )


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"
