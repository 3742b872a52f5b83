"""Telemetry that fails is noted at DEBUG and forgotten; it never reaches the call."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        _note(error, what)
        return None


def fields_of(makers: Mapping[str, Callable[..., Any]], *args: object) -> dict[str, Any]:
    """Return what each maker makes, without None; one that raises costs its own field only."""
    fields: dict[str, Any] = {}
    for name, make in makers.items():
        try:
            value = make(*args)
        except Exception as error:  # noqa: BLE001 # as above
            _note(error, name)
        else:
            if value is not None:
                fields[name] = value
    return fields


def _note(error: Exception, what: str) -> None:
    # No traceback: its frames could show what a call carries.
    logger.debug("%s raised %s", what, type(error).__name__)


class FailureLimit:
    """Count failures in a row; once there are too many, the limit is reached for good."""

    __slots__ = ("_failures", "reached")

    def __init__(self) -> None:
        self._failures = 0
        self.reached = False

    def reset(self) -> None:
        """Forget the failures, because something worked."""
        self._failures = 0

    def record(self, error: Exception, what: str) -> None:
        """Count a failure."""
        self._failures += 1
        _note(error, what)
        if self._failures == _MOST_FAILURES:
            self.reached = True
            logger.warning(
                "%s raised %s, the %dth failure in a row; this handler is off from now on",
                what,
                type(error).__name__,
                self._failures,
            )
