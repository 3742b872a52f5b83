"""Packages of an extra: imported where they are needed, named where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_extra(module: str, extra: str = "honcho") -> Any:
    """Import what an extra installs, or say which."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"{module} is not installed: pip install 'honcho-fallback[{extra}]', "
            f"in a checkout pip install '.[{extra}]'",
            name=module,
        ) from missing
