"""What a forked child finds: locks that are free, and nothing that its parent's threads hold.

A fork copies the memory and the calling thread alone. A lock that another thread had at that
moment (gunicorn with preload, Celery, a pool of processes) is never released in the child.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

if TYPE_CHECKING:
    from collections.abc import Callable

# By their own ids, as long as their owners live; global, as the hook that they serve is.
_RENEWALS: dict[int, WeakMethod[Any]] = {}


def renew_after_fork(renew: Callable[[], None]) -> None:
    """Let an object make its locks anew, now and in every child that is forked while it lives.

    Args:
        renew: Its method that sets them, and drops what belongs to calls of the parent.
    """
    renew()
    reference = WeakMethod(renew, lambda one: _RENEWALS.pop(id(one), None))
    _RENEWALS[id(reference)] = reference


def _renew_all() -> None:
    for reference in list(_RENEWALS.values()):
        renew = reference()
        if renew is not None:
            renew()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_renew_all)
