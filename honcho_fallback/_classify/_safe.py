"""Reading attributes of objects that may be hostile: what raises counts as absent."""

from __future__ import annotations

import threading
import warnings
from typing import Any

_lock = threading.RLock()


def plain(obj: Any, name: str) -> Any:
    """Read an attribute, or None.

    Args:
        obj: Any object.
        name: The attribute.
    """
    try:
        return getattr(obj, name, None)
    except Exception:  # noqa: BLE001  a property that raises counts as absent
        return None


def called(obj: Any, name: str) -> Any:
    """Call a method without arguments, or None.

    Args:
        obj: Any object.
        name: The method.
    """
    method = plain(obj, name)
    try:
        return method() if callable(method) else None
    except Exception:  # noqa: BLE001  a method that raises says nothing
        return None


def quiet(obj: Any, name: str) -> Any:
    """Read an attribute whose property may warn, or None.

    Args:
        obj: Any object.
        name: The attribute.
    """
    # The lock keeps two classifications from undoing each other's warning filters.
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(obj, name, None)
        except Exception:  # noqa: BLE001  a property that raises counts as absent
            return None
