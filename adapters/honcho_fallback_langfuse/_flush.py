"""Wait for what is still to be sent, and never longer than asked."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from honcho_fallback_langfuse._safe import attempted

if TYPE_CHECKING:
    from collections.abc import Callable


def flushed(flush: Callable[[], object], timeout: float) -> bool:
    """Run a flush that knows no timeout, and tell whether it was done in time.

    Args:
        flush: The SDK's.
        timeout: Seconds.
    """
    # A daemon: a host that hangs may keep the thread, never the process.
    worker = Thread(
        target=attempted, args=(flush, "flushing"), name="honcho-fallback-flush", daemon=True
    )
    worker.start()
    worker.join(timeout)
    return not worker.is_alive()
