"""The tables: data in ``tables/*.toml``, one row for each thing that decides."""

from __future__ import annotations

import errno
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from honcho_fallback._values.failure import KINDS, FailureKind, Reached, Scope


class Row(NamedTuple):
    """Say what one thing means, and where it counts."""

    kind: FailureKind
    reason: str  # one line for ``Failure.reason``
    transient: bool | None = None  # overrides the kind's answer
    keys: tuple[Any, ...] = ()  # what it is looked up by, in lower case; an errno's names
    statuses: tuple[int, ...] = ()  # only with one of these; none: with any
    name: str = ""  # of a class, looked up over the whole MRO, or the end of one
    strong: bool = False  # does the name decide before the status does?
    wraps: bool = False  # does the class hide another exception that may say more?
    opaque: bool = False  # does whatever is inside decide, as the class itself says nothing?
    reached: Reached | None = None  # what became of the request, where that is a fact
    scope: Scope | None = None  # whom it reaches, where that is another than the kind's
    any: tuple[str, ...] = ()  # of a text: alternatives, each of groups that one sentence has


def read(name: str) -> dict[str, Any]:
    path = Path(__file__).parent / "tables" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def frozen(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def rows(
    raw: list[dict[str, Any]], statuses: dict[str, list[int]] | None = None, reason: str = ""
) -> tuple[Row, ...]:
    """Build the rows of a table, sets of statuses by their names.

    An entry with names makes a row of each; a test looks into the modules behind its colon.
    """
    built: list[Row] = []
    for entry in raw:
        named = [(statuses or {}).get(status, [status]) for status in entry.get("statuses", ())]
        codes = tuple(dict.fromkeys(status for group in named for status in group))
        fields = {**frozen(entry), "kind": FailureKind(entry["kind"]), "statuses": codes}
        for one in fields.pop("names", ("",)):
            name = one.partition(":")[0]
            row: dict[str, Any] = {"reason": reason.format(name), **fields, "name": name}
            built.append(Row(**row))
    return tuple(built)


def by_key(raw: list[dict[str, Any]]) -> dict[Any, Row]:
    return {key: row for row in rows(raw) for key in row.keys}


# Words by what they are looked for; each a dictionary that is an ordered set.
WORDS: dict[str, dict[str, None]] = {one: dict.fromkeys(row) for one, row in read("words").items()}
_CODES, _CLASSES = read("codes"), read("names")
# By the function: its package, and a variable of it, perhaps with an attribute.
RETRY_COUNTS: dict[str, tuple[str, str]] = _CLASSES["retry_counts"]
STATUS_OF = {FailureKind(kind): status for kind, status in _CODES["status_of"].items()}
STATUSES, NOT_REFUSED = by_key(_CODES["status"]), frozenset(_CODES["not_refused"])
# Who answers with a code of its own knows what it did.
_BY_CODE = by_key(_CODES["code"])
CODES = {key: row._replace(reached=KINDS[row.kind].reached) for key, row in _BY_CODE.items()}
# Codes that only name a class of statuses: they count where there is no error status.
GENERIC = {code: int(status) for status, codes in _CODES["generic"].items() for code in codes}
_BY_ERRNO = by_key(_CODES["errno"])
ERRNOS = {getattr(errno, one): row for one, row in _BY_ERRNO.items() if hasattr(errno, one)}

ORIGINS = by_key(_CLASSES["origin"])
NAMES = {row.name: row for row in rows(_CLASSES["name"], reason="class {}")}
# Endings for classes that no row names; nearest class first, longest ending first.
_ENDINGS = rows(_CLASSES["ending"], reason="a class name that ends in {}")
ENDINGS = sorted(_ENDINGS, key=lambda row: -len(row.name))
