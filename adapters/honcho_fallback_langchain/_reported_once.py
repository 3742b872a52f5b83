"""Keep Langfuse's own callback handler from reporting what an observer of this package reports.

That handler makes an observation of each attempt, and none of them can be withdrawn. An observer
with ``replaces_langfuse_callbacks`` makes one of the call instead, where the handler would have
put its own: ``in_place_of(handlers, parent_run_id)`` is a context to start the call in.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables.config import ensure_config

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.runnables import RunnableConfig

    from honcho_fallback import FallbackObserver


class Surroundings(NamedTuple):
    """Hold the config that a call runs in, without the handlers that were taken out of it.

    Args:
        config: To run in, or None where nothing was taken out.
        handlers: What was taken out.
        parent_run_id: LangChain's id of the run that the call belongs to, or None.
    """

    config: RunnableConfig | None = None
    handlers: list[object] = []  # noqa: RUF012 # a default that nobody writes to
    parent_run_id: object = None


def surroundings(observers: Iterable[FallbackObserver]) -> Surroundings:
    """Look at the config around us, for callers that are handed none."""
    if not _somebody_stands_in(observers):
        return Surroundings()
    config = ensure_config()
    manager = config.get("callbacks")
    if not isinstance(manager, BaseCallbackManager):
        return Surroundings()
    manager = manager.copy()
    handlers = take_out(manager, observers)
    if not handlers:
        return Surroundings()
    config["callbacks"] = manager
    return Surroundings(config, handlers, manager.parent_run_id)


def take_out(manager: BaseCallbackManager, observers: Iterable[FallbackObserver]) -> list[object]:
    """Remove and return Langfuse's handlers of a call's manager if an observer replaces them."""
    if not _somebody_stands_in(observers):
        return []
    handlers = [one for one in manager.handlers if type(one).__module__.startswith("langfuse.")]
    for handler in handlers:
        manager.remove_handler(handler)
    return list(handlers)


def in_place_of(
    handlers: list[object], parent_run_id: object, observers: Iterable[FallbackObserver]
) -> ExitStack:
    """Return a context for the start of a call: it nests the call where the handlers would."""
    stack = ExitStack()
    for observer in observers if handlers else ():
        stands_in: Any = getattr(observer, "in_place_of", None)
        if stands_in is not None:
            stack.enter_context(stands_in(handlers, parent_run_id))
    return stack


def _somebody_stands_in(observers: Iterable[FallbackObserver]) -> bool:
    return any(getattr(one, "replaces_langfuse_callbacks", False) for one in observers)
