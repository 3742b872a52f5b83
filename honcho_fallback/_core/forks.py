"""What a forked child finds: locks that are free, and nothing that its parent's threads hold.

A fork copies the memory and the calling thread alone. A lock that another thread had at that moment
(gunicorn with preload, Celery, a pool of processes) is never released in the child.
"""

from __future__ import annotations

import os
from types import MethodType
from typing import Any
from weakref import WeakMethod

# By the id of its owner, as long as that lives; global, as the hook that it serves is.
_RENEWALS: dict[int, WeakMethod[Any]] = {}


def renew_after_fork(renew: MethodType) -> None:
    """Let an object make its locks anew, now and in every child that is forked while it lives.

    Args:
        renew: Its method that sets them, and drops what belongs to calls of the parent.
    """
    renew()
    key = id(renew.__self__)
    _RENEWALS[key] = WeakMethod(renew, lambda _: _RENEWALS.pop(key, None))


def _renew_all() -> None:
    for renewal in list(_RENEWALS.values()):
        renew = renewal()
        if renew is not None:
            renew()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_renew_all)
