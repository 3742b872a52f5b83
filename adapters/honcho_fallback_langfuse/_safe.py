"""Telemetry that fails is noted at DEBUG and forgotten; it never reaches the call."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("honcho_fallback.langfuse")

T = TypeVar("T")

# A handler that fails this often in a row would fail forever; it stops costing time.
_MOST_FAILURES = 20


def attempted(do: Callable[[], T], what: str) -> T | None:
    """Return what a callable returns, or None where it raises.

    Args:
        do: What to do.
        what: Named in the log.
    """
    try:
        return do()
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

    def run(self, do: Callable[[], object], what: str) -> None:
        """Do something, unless blown.

        Args:
            do: What to do.
            what: Named in the log.
        """
        if self.blown:
            return
        try:
            do()
        except Exception as error:  # noqa: BLE001 # telemetry must not break a call
            self._failures += 1
            logger.debug("%s raised %s", what, type(error).__name__)
            if self._failures >= _MOST_FAILURES:
                self.blown = True
                logger.warning(
                    "%s raised %s, the %dth failure in a row; this handler is off from now on",
                    what,
                    type(error).__name__,
                    self._failures,
                )
        else:
            self._failures = 0
