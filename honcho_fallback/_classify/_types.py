"""What can be known about an exception from its class alone, worked out once per class."""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback._classify._names import LOCAL_MODULES, NAMES, SUFFIXES, WEB_MODULES, NameRow
from honcho_fallback._classify._tables import WORDS
from honcho_fallback._failure import FailureKind

if TYPE_CHECKING:
    from collections.abc import Mapping

# The attributes that facts are read from.
ATTRIBUTES = WORDS["attributes"]

_CANCELLED = NameRow("", FailureKind.CANCELLED, "the caller stopped the call")
_EXHAUSTED = NameRow("", FailureKind.CANCELLED, "an iterator's end, not an error")
_INTERRUPT = NameRow("", FailureKind.CANCELLED, "a graph interrupt, not an error")
_WEB = NameRow("", FailureKind.LOCAL, "a web framework's own HTTP exception")
_STORAGE = NameRow("", FailureKind.LOCAL, "a database, cache or subprocess, not a provider")
_INTERRUPTS = frozenset({"GraphBubbleUp", "GraphInterrupt", "NodeInterrupt", "ParentCommand"})
# What a bug in the program raises: never a provider's word, so their texts are not read.
_BUGS: tuple[type[Exception], ...] = tuple(getattr(builtins, name) for name in WORDS["bugs"])


class ClassFacts(NamedTuple):
    """Hold what a class says about its instances.

    Args:
        settled: The row that decides whatever the instance carries, or None.
        row: The row of the nearest class in the MRO that a table names, or None.
        constants: Attributes that a class defines as plain values.
        lazy: Attributes that need code to be read: properties, slots, ``__getattr__``.
        os_error: Is it an OSError?
        bug: Is it what only a bug in the program raises?
        grpc: Does it carry its code behind a method, as gRPC's errors do?
    """

    settled: NameRow | None
    row: NameRow | None
    constants: Mapping[str, Any]
    lazy: frozenset[str]
    os_error: bool
    bug: bool
    grpc: bool


def class_facts(exc: BaseException) -> ClassFacts:
    """Say what the class of an exception says; worked out once per class.

    Args:
        exc: The exception.
    """
    cls: Any = type(exc)
    return _class_facts(cls)


@lru_cache(maxsize=512)
def _class_facts(cls: type) -> ClassFacts:
    own = [c for c in cls.__mro__ if c.__module__ != "builtins"]
    constants: dict[str, Any] = {}
    lazy: set[str] = set()
    if any("__getattr__" in vars(c) or "__getattribute__" in vars(c) for c in own):
        lazy.update(ATTRIBUTES)
    for name in ATTRIBUTES:
        holder = next((c for c in own if name in vars(c)), None)
        if holder is None:
            continue
        value = vars(holder)[name]
        if hasattr(type(value), "__get__"):
            lazy.add(name)
        else:
            constants[name] = value
    return ClassFacts(
        _settled(cls),
        _row(cls),
        constants,
        frozenset(lazy),
        issubclass(cls, OSError),
        issubclass(cls, _BUGS),
        any(c.__name__ == "RpcError" for c in own),
    )


def _settled(cls: type) -> NameRow | None:
    stopped = (asyncio.CancelledError, concurrent.futures.CancelledError)
    if issubclass(cls, stopped) or not issubclass(cls, Exception | BaseExceptionGroup):
        return _CANCELLED
    if issubclass(cls, StopIteration | StopAsyncIteration):
        return _EXHAUSTED
    for c in cls.__mro__:
        module = c.__module__
        top = module.partition(".")[0]
        if c.__name__ in _INTERRUPTS and top == "langgraph":
            return _INTERRUPT
        if top in WEB_MODULES or module.startswith("aiohttp.web"):
            return _WEB
        if top in LOCAL_MODULES:
            return _STORAGE
    return None


def _row(cls: type) -> NameRow | None:
    for c in cls.__mro__:
        name = c.__name__
        row = NAMES.get(name)
        if row is not None:
            return row
        if c.__module__ == "builtins":
            continue
        for suffix in SUFFIXES:
            if name.endswith(suffix.name):
                return suffix
    return None
