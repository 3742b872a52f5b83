"""Who hears of the runs under a call.

Langfuse's own callback handler makes an observation of each attempt, and none of them can be
withdrawn. An observer with ``replaces_langfuse_callbacks`` makes one of the call instead, where
the handler would have put its own: ``in_place_of(handlers, parent_run_id)`` is a context to start
the call in.
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


class Detached(NamedTuple):
    """Hold the handlers that were taken out of a call's config.

    Args:
        handlers: Langfuse's, which an observer replaces.
        parent_run_id: LangChain's id of the run that the call belongs to, or None.
        config: The config around the call without them, where the call was handed none; None
            where nothing was taken out.
    """

    handlers: tuple[object, ...] = ()
    parent_run_id: object = None
    config: RunnableConfig | None = None


NOT_DETACHED = Detached()


def ambient_config(observers: Iterable[FallbackObserver]) -> Detached:
    """Take the handlers out of the config around us, for callers that are handed none."""
    if not _replaces_langfuse(observers):
        return NOT_DETACHED
    config = ensure_config()
    manager = config.get("callbacks")
    if not isinstance(manager, BaseCallbackManager):
        return NOT_DETACHED
    manager = manager.copy()
    detached = detach_langfuse(manager, observers)
    if not detached.handlers:
        return NOT_DETACHED
    config["callbacks"] = manager
    return detached._replace(config=config)


def detach_langfuse(
    manager: BaseCallbackManager, observers: Iterable[FallbackObserver]
) -> Detached:
    """Take Langfuse's handlers out of a call's manager if an observer replaces them."""
    if not _replaces_langfuse(observers):
        return NOT_DETACHED
    handlers = tuple(
        one for one in manager.handlers if type(one).__module__.startswith("langfuse.")
    )
    for handler in handlers:
        manager.remove_handler(handler)
    return Detached(handlers, manager.parent_run_id) if handlers else NOT_DETACHED


def parented_like(detached: Detached, observers: Iterable[FallbackObserver]) -> ExitStack:
    """Return a context for the start of a call: it nests the call where the handlers would."""
    stack = ExitStack()
    for observer in observers if detached.handlers else ():
        replacement: Any = getattr(observer, "in_place_of", None)
        if replacement is not None:
            stack.enter_context(replacement([*detached.handlers], detached.parent_run_id))
    return stack


def _replaces_langfuse(observers: Iterable[FallbackObserver]) -> bool:
    return any(getattr(one, "replaces_langfuse_callbacks", False) for one in observers)
