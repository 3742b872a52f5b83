"""Class names that decide: a table, because importing the SDKs to ask them is not an option."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback._classify._tables import WORDS, read, values

if TYPE_CHECKING:
    from honcho_fallback._failure import FailureKind


class NameRow(NamedTuple):
    """Say what a class of this name means, in whatever module it lives.

    Args:
        name: The class name, looked up over the whole MRO.
        kind: What it means.
        reason: One line for ``Failure.reason``.
        homes: Where the name comes from, as ``module``; a test looks that it still exists.
        strong: Does the name decide before the status does?
        wraps: Does the class hide another exception that may say more?
        transient: Overrides the kind's answer.
        opaque: Does whatever is inside decide, because the class itself says nothing?
    """

    name: str
    kind: FailureKind
    reason: str
    homes: tuple[str, ...] = ()
    strong: bool = False
    wraps: bool = False
    transient: bool | None = None
    opaque: bool = False


_TABLES = read("names")

NAMES = {row["name"]: NameRow(**values(row)) for row in _TABLES["name"]}

# Endings for classes of SDKs that no row names; nearest class first, longest ending first.
SUFFIXES = tuple(
    NameRow(**values(row), reason=f"a class name that ends in {row['name']}")
    for row in _TABLES["ending"]
)

WEB_MODULES = frozenset(WORDS["web_modules"])
LOCAL_MODULES = frozenset(WORDS["local_modules"])
