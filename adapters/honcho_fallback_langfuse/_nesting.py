"""What the next call is nested under, where that is not the current span."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback_langfuse._content import is_mapping
from honcho_fallback_langfuse._safe import attempted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable


class Parent(NamedTuple):
    """Name an observation.

    Args:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
    """

    trace_id: str
    span_id: str


_parent: ContextVar[Parent | None] = ContextVar("honcho_fallback_langfuse_parent", default=None)


def current_parent() -> Parent | None:
    """Return what was set around this call, or None."""
    return _parent.get()


@contextmanager
def nested_under(parent: Parent | None) -> Generator[None, None, None]:
    """Nest the calls that start inside; None changes nothing."""
    if parent is None:
        yield
        return
    token = _parent.set(parent)
    try:
        yield
    finally:
        _parent.reset(token)


def observation_of(handlers: Iterable[object], run_id: object) -> Parent | None:
    """Return the observation that one of Langfuse's LangChain handlers made for a run, or None."""
    return attempted(_observation_of, "looking for LangChain's run", handlers, run_id)


def _observation_of(handlers: Iterable[object], run_id: object) -> Parent | None:
    for handler in handlers:
        # The handler tells nobody else which observation belongs to a run.
        runs = getattr(handler, "_runs", None)
        observation = runs.get(run_id) if is_mapping(runs) else None
        if observation is not None:
            return Parent(observation.trace_id, observation.id)
    return None
