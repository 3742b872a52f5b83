"""The structured facts that decide: statuses, provider codes, errno. Tables, first match wins."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from honcho_fallback._classify._tables import WORDS, read, values
from honcho_fallback._failure import FailureKind as Kind


class StatusRow(NamedTuple):
    """Say what a status means when nothing more telling is known."""

    status: int
    kind: Kind
    reason: str


class CodeRow(NamedTuple):
    """Say what a provider's code means; it decides before the status.

    Args:
        kind: What it means.
        reason: One line for ``Failure.reason``.
        codes: Lower case.
        statuses: Only with one of these; empty: with any.
        transient: Overrides the kind's answer.
    """

    kind: Kind
    reason: str
    codes: tuple[str, ...]
    statuses: frozenset[int] = frozenset()
    transient: bool | None = None


_TABLES = read("codes")

STATUSES = {row["status"]: StatusRow(**values(row)) for row in _TABLES["status"]}
OTHER_4XX = StatusRow(400, Kind.INVALID_REQUEST, "status 4xx")
OTHER_5XX = StatusRow(500, Kind.SERVER_ERROR, "status 5xx")


def by_code(rows: list[dict[str, Any]]) -> dict[str, CodeRow]:
    """Give each code its row.

    Args:
        rows: As they stand in a file; no code twice.
    """
    return {code: row for row in (CodeRow(**values(r)) for r in rows) for code in row.codes}


CODES = by_code(_TABLES["code"])

# Codes that only name a class of statuses: they count where there is no error status.
GENERIC = {code: int(status) for status, codes in _TABLES["generic"].items() for code in codes}

NETWORK_ERRNO = frozenset(
    getattr(errno, name) for name in WORDS["network_errno"] if hasattr(errno, name)
)
TIMEOUT_ERRNO = frozenset({errno.ETIMEDOUT})

# A window of this many seconds is a used-up quota, not a rate that passes.
LONG_WAIT = 3600.0
