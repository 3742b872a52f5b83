"""What Honcho and hermes-agent make of a failure and how long they wait; presets.toml names it."""

from __future__ import annotations

import random

import tenacity

from honcho_fallback._failure import Failure, FailureKind

__all__ = [
    "HONCHO_WAIT",
    "hermes_wait",
    "refine_as_hermes",
    "refine_as_honcho",
    "refine_as_honcho_main",
]

HONCHO_WAIT = tenacity.wait_exponential(multiplier=1, min=4, max=10)
_HERMES_DELAY = tenacity.wait_exponential(multiplier=2, max=60)
# What the pull request names by class where an error has no status.
_BY_CLASS = frozenset({"connection", "overloaded", "rate_limit", "server_error", "timeout"})


def refine_as_honcho(failure: Failure, _: BaseException) -> Failure:
    """Switch on 408, 429, 5xx, timeouts and lost connections only (Honcho's pull request 692).

    Args:
        failure: What the classifier made of the exception.
    """
    if failure.kind is FailureKind.LOCAL:
        return failure
    status = failure.status
    # Under an HTTP 200 stream the status says nothing about the error event inside it.
    if status is None or status < 400:
        wanted = failure.kind in _BY_CLASS
    else:
        wanted = status in {408, 429} or status >= 500
    return failure._replace(transient=wanted and failure.transient, switchable=wanted)


def refine_as_honcho_main(failure: Failure, _: BaseException) -> Failure:
    """Ask again after any error, the same target or the next, and take no advice on when.

    Args:
        failure: What the classifier says.
        _: What was raised.
    """
    # There a prompt that is too long is an error like any other, whoever has which window.
    overflow = failure.kind in {FailureKind.CONTEXT_OVERFLOW, FailureKind.PAYLOAD_TOO_LARGE}
    kind = FailureKind.INVALID_REQUEST if overflow else failure.kind
    return failure._replace(kind=kind, transient=True, switchable=True, retry_after=None)


def refine_as_hermes(failure: Failure, error: BaseException) -> Failure:
    """Take what nobody can explain for the provider's; the machine's own troubles stay local.

    Args:
        failure: What the classifier says.
        error: What was raised.
    """
    if failure.kind is not FailureKind.LOCAL or isinstance(error, OSError):
        return failure
    reason = "unknown, taken for the provider's"
    return Failure.of(FailureKind.SERVER_ERROR, reason=reason, error=failure.error)


def hermes_wait(state: tenacity.RetryCallState) -> float:
    """Wait 2 s doubling to 60 s, and up to half as much again (hermes-agent's retry_utils).

    Args:
        state: Tenacity's.
    """
    delay = _HERMES_DELAY(state)
    return delay + random.uniform(0, delay / 2)  # noqa: S311 # a jitter is no secret
