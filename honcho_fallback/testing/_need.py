"""Import what only this kit needs, at the moment it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(module: str, extra: str = "demo") -> Any:
    """Import a module of an extra.

    Args:
        module: Its dotted name.
        extra: The extra that brings it.

    Raises:
        ImportError: It is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"{module} is not installed: pip install 'honcho-fallback[{extra}]'", name=module
        ) from missing
