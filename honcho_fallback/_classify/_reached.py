"""What became of a request that failed, and where nobody could be asked: decided here alone.

It is a promise (``replay="safe"`` asks nobody after ``"unknown"``), so doubt is ``"unknown"``.
``"refused"`` takes an answer that says no: a 4xx that is about the request, or a document in which
a code stands beside the words. ``"no"`` takes a class or number of a socket's that says that there
was no connection. Neither holds where an earlier request was lost: a client's own retry, another
error below this one, a nested policy's attempt.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from honcho_fallback._classify._facts import message_of
from honcho_fallback._classify._origin import class_row, of_errno
from honcho_fallback._classify._read import children, frames_of, plain
from honcho_fallback._classify._tables import GENERIC, NOT_REFUSED, RETRY_COUNTS, WORDS
from honcho_fallback._values.failure import KINDS, Failure, Reached, Scope
from honcho_fallback._values.failure import FailureKind as Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback._classify._facts import Facts
    from honcho_fallback._classify._tables import Row

_MOST = 32  # errors that are looked at; where there are more nobody knows
_UNANSWERED = frozenset({Kind.CONNECTION, Kind.TIMEOUT})


def outcome(outermost: BaseException, row: Row, facts: Facts) -> tuple[Reached, Scope | None]:
    """Say what became of a request, and whom the failure reaches where that is a fact.

    It was raised for the request; the row and the facts are those of the error in it that decided.
    """
    if row.scope is not None:  # a client of this process, whose words say both
        return row.reached or KINDS[row.kind].reached, row.scope
    errors = tree(outermost)
    reached, scope = row.reached, None
    if row.kind in _UNANSWERED:
        known = next(filter(None, map(_socket_row, errors)), None)
        if known is not None and known.reached == "no":
            frames = (frame for error in errors for frame, _ in frames_of(error))
            waited = any(frame.f_code.co_name in WORDS["pool_waits"] for frame in frames)
            # Whoever cannot be reached has no model that can.
            scope = known.scope or ("client" if waited else "endpoint")
        reached = known and known.reached
    elif reached is None and KINDS[row.kind].reached == "refused":
        reached = "refused" if _is_refusal(row, facts) else None
    if reached is None or reached == "unknown":
        return "unknown", scope
    in_doubt = reached == "refused" and facts.error in NOT_REFUSED  # whatever its code says
    is_lost = in_doubt or len(errors) > _MOST or any(map(_lost_another, errors))
    return "unknown" if is_lost else reached, scope


def worst(all_reached: Iterable[Reached | None]) -> Reached:
    """Say what became of several requests together; an attempt that was answered has acted."""
    known = {*all_reached}
    return "unknown" if known - {"no", "refused"} else "refused" if "refused" in known else "no"


def of_group(
    group: BaseExceptionGroup[BaseException], failure: Failure, failures: Iterable[Failure]
) -> Failure:
    """Give the failure that a group counts as what became of all its requests together."""
    reached = "unknown" if _lost_another(group) else worst(one.reached for one in failures)
    if failure.scope == "endpoint" and reached != "no":
        failure = failure._replace(scope=KINDS[failure.kind].scope)
    return failure._replace(reached=reached)


def _is_refusal(row: Row, facts: Facts) -> bool:
    """Tell whether an answer came that says no, and by somebody who knows."""
    status = facts.error
    if status is not None and status < 500:
        return status not in NOT_REFUSED
    if row is facts.row:  # an SDK's class for an answer; a gateway is unavailable, too
        return row.kind is not Kind.OVERLOADED
    numbers = {GENERIC.get(code, 0) for code in facts.codes}
    is_refused = any(400 <= number < 500 for number in numbers - NOT_REFUSED)
    return is_refused or (facts.document.is_providers and 502 not in numbers)


def tree(outermost: BaseException) -> list[BaseException]:
    """List an error with all that it was raised for, the outermost first; at most one too many."""
    errors, seen = [outermost], {id(outermost)}
    for error in errors:
        members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        for inner in chain(members, children(error, follow_context=True)):
            if id(inner) not in seen and len(errors) <= _MOST:
                seen.add(id(inner))
                errors.append(inner)
    return errors


def _socket_row(error: BaseException) -> Row | None:
    """Find the row of a class or number of a socket's that says what became of a request."""
    cls: Any = type(error)
    row = class_row(cls)
    if (row is None or row.reached is None) and isinstance(error, OSError):
        row = of_errno(error, message_of(error))
    return row if row is not None and row.reached is not None else None


def _lost_another(error: BaseException) -> bool:
    """Tell whether an error knows of a request before the last one that may have had an effect."""
    cls: Any = type(error)
    row = class_row(cls)
    # Libraries time their connecting with Python's own TimeoutError.
    if row is not None and row.reached == "unknown" and cls.__module__ != "builtins":
        return True
    attempts = plain(plain(error, "record"), "attempts")  # a nested policy's
    reached = [plain(one, "reached") for one in attempts] if isinstance(attempts, tuple) else ()
    if worst(reached) == "unknown":
        return True
    own: dict[str, Any] = plain(error, "__dict__") or {}
    counts = [plain(own.get("last_attempt"), "attempt_number")]  # tenacity's, from 1
    with suppress(Exception):  # an odd mapping says nothing
        headers, response = plain(own.get("request"), "headers"), own.get("response")
        if headers is not None:  # Stainless's clients, from 0
            counts.append(int(headers.get("x-stainless-retry-count", 0)) + 1)
        if isinstance(response, dict):  # botocore's, from 0
            counts.append(response["ResponseMetadata"]["RetryAttempts"] + 1)
    for frame, module in frames_of(error):
        if frame.f_code.co_name in RETRY_COUNTS:
            package, place = RETRY_COUNTS[frame.f_code.co_name]
            if module.partition(".")[0] == package:
                variable, _, attribute = place.partition(".")
                count = frame.f_locals.get(variable)
                count = plain(count, attribute) if attribute else count
                counts.append(len(count) + 1 if isinstance(count, tuple) else count)
    return any(isinstance(count, int) and count > 1 for count in counts)
