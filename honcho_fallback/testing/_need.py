"""Import what only this kit needs, at the moment it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(module: str, extra: str = "testing") -> Any:
    """Import a module of an extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"{module} is not installed: pip install 'honcho-fallback[{extra}]'", name=module
        ) from missing
