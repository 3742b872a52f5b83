"""Read the tables: data in TOML files that lie beside the code."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read(name: str) -> dict[str, Any]:
    """Read one file of tables.

    Args:
        name: Its path inside the package, without its ending.
    """
    path = Path(__file__).parent / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
