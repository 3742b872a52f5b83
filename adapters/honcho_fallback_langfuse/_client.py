"""Which Langfuse client is used (the one given, the application's, or our own), and its flush."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from honcho_fallback.spans import attempted

if TYPE_CHECKING:
    from langfuse import Langfuse

logger = logging.getLogger("honcho_fallback.langfuse")

_KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
_RATE = "LANGFUSE_SAMPLE_RATE"
_OFF = {"LANGFUSE_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}


class ClientSource:
    """Find a client once, and remember it.

    What takes long (importing the SDK, building a client: 1 to 3 s) happens here and now, or not
    at all; a call never waits for it.

    Args:
        client: The one to use, or None.
    """

    __slots__ = ("_client", "_warned")

    def __init__(self, client: Langfuse | None) -> None:
        self._warned = False
        self._client = client
        if client is None:
            self._client = attempted(self._adopted, "looking for a Langfuse client") or attempted(
                self._built, "building a Langfuse client"
            )

    def get(self) -> Langfuse | None:
        """Return the client; one that the application made in the meantime counts."""
        if self._client is None and "langfuse" in sys.modules:
            self._client = attempted(self._adopted, "looking for a Langfuse client")
        return self._client

    def _adopted(self) -> Langfuse | None:
        existing = _existing()
        if not existing:
            return None
        key = os.environ.get(_KEYS[0])
        if key not in existing:
            if len(existing) > 1:
                self._warn_once()
                return None
            (key,) = existing
        from langfuse import get_client  # noqa: PLC0415 # imported already, as a client exists

        return get_client(public_key=key)

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "there are several Langfuse clients: nothing is sent; "
                "pass LangfuseCallbackHandler(client=...)"
            )

    def _built(self) -> Langfuse | None:
        if not all(os.environ.get(name) for name in _KEYS):
            logger.debug("no client and no %s: nothing is sent to Langfuse", " and ".join(_KEYS))
            return None
        if any(os.environ.get(name, "").lower() == value for name, value in _OFF.items()):
            return None
        rate = _sample_rate()
        if rate is None:
            return None
        from langfuse import Langfuse  # noqa: PLC0415 # takes a second, and only here

        # A provider of its own: the SDK would otherwise become the global one, or hang its
        # exporter, and with it our prompts, onto the one that the application set.
        return Langfuse(tracer_provider=_own_provider(rate))


def _existing() -> dict[str, Any]:
    # There is no public way to ask for clients without making one, and get_client() answers
    # "several" with a client that is off for good.
    module = sys.modules.get("langfuse._client.resource_manager")
    manager = getattr(module, "LangfuseResourceManager", None)
    return dict(getattr(manager, "_instances", None) or {})


def _sample_rate() -> float | None:
    """Read how much is sampled; None, with a warning, where that is no share: the SDK refuses."""
    given = os.environ.get(_RATE, "1")
    with suppress(ValueError):
        if 0 <= float(given) <= 1:
            return float(given)
    text = "nothing is sent to Langfuse: %s is %r; write a number from 0 to 1, such as 0.1"
    logger.warning(text, _RATE, given)
    return None


def _own_provider(rate: float) -> Any:
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 # comes with langfuse
    from opentelemetry.sdk.trace.sampling import (  # noqa: PLC0415 # as above
        ALWAYS_ON,
        TraceIdRatioBased,
    )

    # Not parent based: whether the application samples its own spans says nothing about ours.
    sampler = ALWAYS_ON if rate >= 1 else TraceIdRatioBased(rate)
    # The SDK flushes at exit by itself; nothing of ours is registered there.
    return TracerProvider(sampler=sampler, shutdown_on_exit=False)


def flushed(client: Langfuse, timeout: float) -> bool:
    """Run the SDK's flush, which knows no timeout, and tell whether it was done in time.

    Args:
        client: The client.
        timeout: Seconds to wait at most.
    """
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
