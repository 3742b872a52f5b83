"""Reading objects that may be hostile: what raises counts as absent."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from honcho_fallback._values.tracebacks import is_of_the_same_call


def fields(obj: Any, names: frozenset[str]) -> dict[str, Any]:
    """Return an object's own attributes, and those of the names that only its class has."""
    own: dict[str, Any] = plain(obj, "__dict__") or {}
    cls: Any = type(obj)
    inherited = _class_attributes(cls, names).difference(own)
    if not inherited:
        return own
    return own | {name: plain(obj, name) for name in inherited}


@lru_cache(maxsize=512)
def _class_attributes(cls: type, names: frozenset[str]) -> frozenset[str]:
    defined: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__ != "builtins":
            defined |= vars(base)
    if defined.keys() & {"__getattr__", "__getattribute__"}:
        return names
    return frozenset(name for name in names & defined.keys() if not _warns(defined[name]))


def _warns(attribute: object) -> bool:
    """Tell whether reading a property warns: it is the old name of another, as in aiohttp.

    It is not read, because to silence a warning is to change the filters of the whole process.
    """
    getter = attribute.fget if isinstance(attribute, property) else None
    code = getattr(getter, "__code__", None)
    return hasattr(getter, "__deprecated__") or (code is not None and "warn" in code.co_names)


def plain(obj: Any, name: str) -> Any:
    """Read an attribute, or None."""
    try:
        return getattr(obj, name, None)
    except Exception:  # noqa: BLE001  a property that raises counts as absent
        return None


def called(obj: Any, name: str) -> Any:
    """Call a method without arguments, or None."""
    method = plain(obj, name)
    try:
        return method() if callable(method) else None
    except Exception:  # noqa: BLE001  a method that raises says nothing
        return None


def _context(exc: BaseException) -> BaseException | None:
    context = exc.__context__
    return context if context is None or is_of_the_same_call(context, exc) else None


def children(exc: BaseException, *, follow_context: bool) -> list[BaseException]:
    """Name the exceptions that one exception was raised for, the most certain first."""
    own: dict[str, Any] = plain(exc, "__dict__") or {}
    attempt, args = own.get("last_attempt"), plain(exc, "args")  # the former is tenacity's
    candidates = (
        exc.__cause__,
        _context(exc) if follow_context and not exc.__suppress_context__ else None,
        # Asking a pending future for its exception would wait for it.
        called(attempt, "exception") if called(attempt, "done") is True else None,
        *(own.get(name) for name in ("reason", "original_exception", "os_error")),
        *(args[:2] if isinstance(args, tuple) else ()),
    )
    return [error for error in candidates if isinstance(error, BaseException)]
