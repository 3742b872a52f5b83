"""Import what only this kit needs, at the moment it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(module: str) -> Any:
    """Import a module of the extra ``demo``.

    Args:
        module: Its dotted name.

    Raises:
        ImportError: It is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"{module} is not installed: pip install 'honcho-fallback[demo]'", name=module
        ) from missing
