"""Tables of other systems, as filters over what the classifier makes of an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback._failure import FailureKind

if TYPE_CHECKING:
    from honcho_fallback._failure import Failure

# What the pull request names by class where an error has no status.
_WITHOUT_STATUS = frozenset(
    {
        FailureKind.CONNECTION,
        FailureKind.OVERLOADED,
        FailureKind.RATE_LIMIT,
        FailureKind.SERVER_ERROR,
        FailureKind.TIMEOUT,
    }
)


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
        wanted = failure.kind in _WITHOUT_STATUS
    else:
        wanted = status in {408, 429} or status >= 500
    return failure._replace(transient=wanted and failure.transient, switchable=wanted)
