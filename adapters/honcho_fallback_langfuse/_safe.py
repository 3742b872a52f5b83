"""Telemetry that fails is noted at DEBUG and forgotten; it never reaches the call."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("honcho_fallback.langfuse")

P = ParamSpec("P")
T = TypeVar("T")

# A handler that fails this often in a row would fail forever; it stops costing time.
_MOST_FAILURES = 20


def attempted(do: Callable[P, T], what: str, *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what a callable returns, or None where it raises."""
    try:
        return do(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 # hostile values must cost their field, not the call
        # No traceback: its frames could show what a call carries.
        logger.debug("%s raised %s", what, type(error).__name__)
        return None


class Fuse:
    """Count failures in a row, and blow for good when they do not stop."""

    __slots__ = ("_failures", "blown")

    def __init__(self) -> None:
        self._failures = 0
        self.blown = False

    def mend(self) -> None:
        """Forget the failures, because something worked."""
        self._failures = 0

    def heat(self, error: Exception, what: str) -> None:
        """Count a failure."""
        self._failures += 1
        logger.debug("%s raised %s", what, type(error).__name__)
        if self._failures == _MOST_FAILURES:
            self.blown = True
            logger.warning(
                "%s raised %s, the %dth failure in a row; this handler is off from now on",
                what,
                type(error).__name__,
                self._failures,
            )
