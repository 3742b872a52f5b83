"""One request: what the provider is going to do, and what the caller sees of it."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from honcho_fallback.testing.simulate._failures import late


class Reply(NamedTuple):
    """Say what a provider does with a request, for as long as the caller waits.

    Args:
        seconds: Until the answer is complete, or the error is there.
        error: What the caller gets, or None for an answer.
        first: Seconds until a stream's first content, or None where none comes before the end.
        quiet: Whether nothing comes between the first content and the end.
        connected: Whether a connection is made at all.
    """

    seconds: float
    error: Exception | None = None
    first: float | None = None
    quiet: bool = False
    connected: bool = True


class Limits(NamedTuple):
    """Say how long a caller waits; None is for ever.

    Args:
        timeout: Seconds for the whole answer; for a stream up to its first content.
        connect_timeout: Seconds to connect.
        idle_timeout: Seconds that a stream may be silent after its first content.
    """

    timeout: float | None = None
    connect_timeout: float | None = None
    idle_timeout: float | None = None


class Exchange(NamedTuple):
    """Say what a caller sees of one request.

    Args:
        seconds: Until it is over.
        error: What it ended in, or None for an answer.
        first: Seconds until a stream's first content, or None.
    """

    seconds: float
    error: Exception | None
    first: float | None


def seen(target: str, reply: Reply, limits: Limits) -> Exchange:
    """Tell what a caller with limited patience sees of a reply."""
    timeout = _bound(limits.timeout)
    if not reply.connected:
        timeout = min(timeout, _bound(limits.connect_timeout))
    first = reply.first
    if (reply.seconds if first is None else first) > timeout:
        return Exchange(timeout, late(target, timeout, connected=reply.connected), None)
    idle = limits.idle_timeout
    if first is not None and reply.quiet and idle is not None and reply.seconds - first > idle:
        return Exchange(first + idle, late(target, idle), first)
    return Exchange(reply.seconds, reply.error, first)


def _bound(seconds: float | None) -> float:
    return inf if seconds is None else max(0.0, seconds)
