"""Wait for what is still to be sent, and never longer than asked."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from honcho_fallback_langfuse._safe import attempted

if TYPE_CHECKING:
    from langfuse import Langfuse


def flushed(client: Langfuse, timeout: float) -> bool:
    """Run the SDK's flush, which knows no timeout, and tell whether it was done in time."""
    # A daemon: a host that hangs may keep the thread, never the process.
    worker = Thread(
        target=attempted,
        args=(lambda: client.flush(), "flushing"),  # noqa: PLW0108 # the look-up may raise, too
        name="honcho-fallback-flush",
        daemon=True,
    )
    worker.start()
    worker.join(timeout)
    return not worker.is_alive()
