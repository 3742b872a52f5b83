"""Which Langfuse client is used where none is given: the application's, or one of our own."""

from __future__ import annotations

import logging
import os
import sys
from threading import Thread
from typing import TYPE_CHECKING, Any

from honcho_fallback.spans import attempted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langfuse import Langfuse

logger = logging.getLogger("honcho_fallback.langfuse")

_KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")


def found_client(*, may_build: bool) -> Langfuse | None:
    """Return the application's client, else one by the environment, else None.

    To build one takes 1 to 3 s with the SDK's import: never in a call.
    """
    try:
        if existing := _existing():
            return _adopted(existing, logging.WARNING if may_build else logging.DEBUG)
        return _built() if may_build else None
    except Exception as error:  # noqa: BLE001 # a wrong variable must not end the application
        text = "nothing is sent to Langfuse: its client raised %s; check the variables LANGFUSE_*"
        logger.warning(text, type(error).__name__)
        return None


def _adopted(existing: Mapping[str, Any], level: int) -> Langfuse | None:
    key = os.environ.get(_KEYS[0])
    if key not in existing and len(existing) > 1:
        fix = "pass LangfuseCallbackHandler(client=...)"
        logger.log(level, "there are several Langfuse clients: nothing is sent; %s", fix)
        return None
    from langfuse import get_client  # noqa: PLC0415 # imported already, as a client exists

    return get_client(public_key=key if key in existing else None)


def _built() -> Langfuse | None:
    if not all(os.environ.get(name) for name in _KEYS):
        logger.debug("no client and no %s: nothing is sent to Langfuse", " and ".join(_KEYS))
        return None
    from langfuse import Langfuse  # noqa: PLC0415 # takes a second, and only here
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 # comes with langfuse
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased  # noqa: PLC0415 # as above

    # Not parent based: whether the application samples its own spans says nothing about ours.
    sampler = TraceIdRatioBased(float(os.environ.get("LANGFUSE_SAMPLE_RATE", "1")))
    # A provider of its own: the SDK would otherwise become the global one, or hang its exporter,
    # and with it our prompts, onto the one that the application set. It flushes at exit by itself.
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    return Langfuse(tracer_provider=provider)


def _existing() -> Mapping[str, Any]:
    # There is no public way to ask for clients without making one, and get_client() answers
    # "several" with a client that is off for good.
    module = sys.modules.get("langfuse._client.resource_manager")
    manager = getattr(module, "LangfuseResourceManager", None)
    return dict(getattr(manager, "_instances", None) or {})


def flushed(client: Langfuse, timeout: float) -> bool:
    """Run the SDK's flush, which knows no timeout; tell whether it took at most these seconds."""
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
