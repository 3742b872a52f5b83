"""Reads the tables: data in ``tables/*.toml``, one row for each thing that decides."""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from honcho_fallback._failure import FailureKind

if TYPE_CHECKING:
    from collections.abc import Mapping


def read(name: str) -> dict[str, Any]:
    """Read one file of tables.

    Args:
        name: Without its ending.
    """
    path = Path(__file__).with_name("tables") / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def values(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its words as values: the kind, lists as tuples, statuses as a set.

    Args:
        row: As it stands in the file.
    """
    return {key: _value(key, value) for key, value in row.items()}


def _value(key: str, value: Any) -> Any:
    if key == "kind":
        return FailureKind(value)
    if key == "statuses":
        return frozenset(value)
    return tuple(value) if isinstance(value, list) else value


WORDS: Mapping[str, tuple[str, ...]] = {name: tuple(row) for name, row in read("words").items()}
