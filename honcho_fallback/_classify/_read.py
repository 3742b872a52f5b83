"""Reading objects: exceptions that may be hostile, and what answers hold by paths."""

from __future__ import annotations

import sys
from functools import lru_cache
from traceback import walk_tb
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
    try:
        return getattr(obj, name, None)
    except Exception:  # noqa: BLE001  a property that raises counts as absent
        return None


def called(obj: Any, name: str) -> Any:
    method = plain(obj, name)
    try:
        return method() if callable(method) else None
    except Exception:  # noqa: BLE001  a method that raises says nothing
        return None


def frames_of(error: BaseException) -> list[tuple[Any, str]]:
    """List an error's frames with their modules; the standard library reads for its callers."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    named = [(frame, str(frame.f_globals.get("__name__"))) for frame in frames]
    return [one for one in named if one[1].partition(".")[0] not in sys.stdlib_module_names]


def children(exc: BaseException, *, follow_context: bool) -> list[BaseException]:
    """Name the exceptions that one exception was raised for, the most certain first."""
    own: dict[str, Any] = plain(exc, "__dict__") or {}
    candidates: list[Any] = [exc.__cause__]
    context = exc.__context__ if follow_context and not exc.__suppress_context__ else None
    if context is not None and is_of_the_same_call(context, exc):
        candidates.append(context)
    attempt = own.get("last_attempt")  # tenacity's
    # Asking a pending future for its exception would wait for it.
    if attempt is not None and called(attempt, "done") is True:
        candidates.append(called(attempt, "exception"))
    candidates += map(own.get, ("reason", "original_exception", "os_error"))
    if isinstance(args := plain(exc, "args"), tuple):
        candidates += args[:2]
    return [error for error in candidates if isinstance(error, BaseException)]


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def find(part: Any, path: str) -> Any:
    """Return what a path leads to, or None; raise AttributeError for what has no fields.

    An empty path stays where it is. Properties never run: an object is read through its
    dictionary and pydantic's own two.
    """
    for step in _steps(path):
        if isinstance(part, dict):
            part = part.get(step)
        elif step == "0":
            part = part[0] if isinstance(part, list) and part else None
        elif part is not None:
            fields = part.__dict__
            if step in fields:
                part = fields[step]
            else:
                # What a class does not name; of LiteLLM's chunks everything.
                more = getattr(part, _private if step[0] == "_" else _extra, None)
                part = more.get(step) if more else None
    return part


def first(part: Any, paths: tuple[str, ...]) -> Any:
    for path in paths:
        value = find(part, path)
        if value is not None:
            return value
    return None


def fields_of(part: Any) -> dict[str, Any]:
    if isinstance(part, dict):
        return part
    fields: dict[str, Any] = part.__dict__
    more = getattr(part, _extra, None)
    return {**fields, **more} if more else fields


_extra, _private = "__pydantic_extra__", "__pydantic_private__"
