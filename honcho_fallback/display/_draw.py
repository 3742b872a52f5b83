"""Draw in a terminal, where rich is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def rich_of(value: object) -> RenderableType:
    """Return what rich prints for a record, a failure, a policy, or several calls.

    Without rich, which is the only one to ask, this is the value's own repr.

    Args:
        value: A CallRecord, Failure, FallbackPolicy, Calls or Summary.

    Raises:
        TypeError: It is something else.
    """
    try:
        from honcho_fallback.display import _terminal  # noqa: PLC0415 # rich is an extra
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "rich":
            raise
        return repr(value)
    return _terminal.drawn(value)
