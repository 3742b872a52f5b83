"""``honcho-fallback simulate``: one incident, several policies, a table and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing.simulate import (
    compare,
    load_policy,
    load_records,
    load_scenario,
    replay,
    shipped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from honcho_fallback.testing.simulate import Comparison, Scenario
    from honcho_fallback.testing.simulate._simulate import Contender


def played(source: str, policies: Sequence[str], seed: int, calls: int | None) -> Comparison:
    """Play an incident under each policy.

    Args:
        source: A shipped scenario's name, a TOML file, or saved records (``.jsonl``).
        policies: Names or TOML files; none for those compared by default.
        seed: Of everything drawn.
        calls: About how many, or None for the scenario's own number.

    Raises:
        FallbackConfigError: A file is wrong, or two policies share a name.
    """
    scenario = _scenario(source)
    return compare(scenario, _policies(policies, scenario), seed=seed, calls=calls)


def show(comparison: Comparison, console: Console) -> None:
    """Print a comparison for a person."""
    console.print(comparison)


def to_json(comparison: Comparison) -> str:
    """Return a comparison as a JSON object."""
    return json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False)


def check_folder(path: Path) -> None:
    """Look that the page's folder is there, before a long play for nothing."""
    if not path.parent.is_dir():
        raise FallbackConfigError.about(
            "--html", f"{path.parent} is no folder", "make it, or name another file"
        )


def write_page(comparison: Comparison, path: Path) -> None:
    """Write a page that stands alone.

    Args:
        comparison: What is shown.
        path: Where to.

    Raises:
        FallbackConfigError: It cannot be written.
    """
    from honcho_fallback.testing.simulate._html import page  # noqa: PLC0415 # only --html needs it

    try:
        path.write_text(page(comparison), encoding="utf-8")
    except OSError as error:
        why = str(error.strerror)
        raise FallbackConfigError.about("--html", f"{path}: {why}", "name another file") from None


def show_shipped(console: Console) -> None:
    """Print the scenarios that come with the package."""
    table = Table.grid(padding=(0, 2))
    for name in shipped():
        table.add_row(Text(name, "bold"), Text(load_scenario(name).summary))
    console.print(table)


def _scenario(source: str) -> Scenario:
    if source.endswith((".jsonl", ".ndjson")):
        return replay(load_records(source), name=Path(source).stem)
    return load_scenario(source)


def _policies(sources: Sequence[str], scenario: Scenario) -> dict[str, Contender] | None:
    chosen: dict[str, Contender] = {}
    for source in sources:
        name, policy = load_policy(source, scenario)
        if name in chosen:
            fix = "give one of them another name"
            raise FallbackConfigError.about(f"{source}: name", f"{name!r} is taken", fix)
        chosen[name] = policy
    return chosen or None
