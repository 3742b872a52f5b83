"""Change the chat model under bindings and retries, and keep what was bound around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import Runnable, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import RunnableSerializable
    from langchain_core.runnables.utils import AnyConfigurableField


def rebound(
    candidate: Runnable[Any, Any],
    change: Callable[[BaseChatModel], Runnable[Any, Any]],
    replaced: Collection[str] = (),
) -> Runnable[Any, Any]:
    """Return a candidate whose chat model was changed, bindings and retries kept."""
    if isinstance(candidate, RunnableBindingBase):
        kwargs = {key: value for key, value in candidate.kwargs.items() if key not in replaced}
        bound = rebound(candidate.bound, change, replaced)
        return candidate.model_copy(update={"bound": bound, "kwargs": kwargs})
    if isinstance(candidate, DynamicRunnable):
        return _on_dynamic(candidate, change(cast("BaseChatModel", candidate.default)))
    return change(cast("BaseChatModel", candidate))


def each(
    candidates: Sequence[Runnable[Any, Any]],
    change: Callable[[BaseChatModel], Runnable[Any, Any]],
    what: str,
    replaced: Collection[str] = (),
) -> list[Runnable[Any, Any]]:
    """Change the chat model of every candidate."""
    changed: list[Runnable[Any, Any]] = []
    for position, candidate in enumerate(candidates):
        try:
            changed.append(rebound(candidate, change, replaced))
        except Exception as error:
            if position == 0 and not isinstance(error, NotImplementedError):
                raise
            raise FallbackConfigError.about(
                f"candidates[{position}]",
                f"a {type(candidate).__name__} cannot take {what} ({type(error).__name__})",
                "take it out of the chain, or put in a model that can",
            ) from error
    return changed


def configurable(
    candidates: Sequence[Runnable[Any, Any]], fields: Mapping[str, AnyConfigurableField]
) -> list[Runnable[Any, Any]]:
    """Make fields configurable in every candidate that has them."""
    changed: list[Runnable[Any, Any]] = []
    unknown = set(fields)
    for candidate in candidates:
        own_fields = {name: fields[name] for name in fields.keys() & _fields_of(candidate)}
        unknown -= own_fields.keys()
        if own_fields:
            candidate = cast("RunnableSerializable[Any, Any]", candidate)  # it has fields
            changed.append(candidate.configurable_fields(**own_fields))
        else:
            changed.append(candidate)
    if unknown:
        raise FallbackConfigError.about(
            "configurable_fields",
            f"no candidate has {', '.join(sorted(unknown))}",
            "name fields of the candidates",
        )
    return changed


def _fields_of(candidate: Runnable[Any, Any]) -> set[str]:
    inner = candidate.bound if isinstance(candidate, RunnableBindingBase) else candidate
    return set(getattr(type(inner), "model_fields", ()))


def _on_dynamic(
    dynamic: DynamicRunnable[Any, Any], changed: Runnable[Any, Any]
) -> Runnable[Any, Any]:
    # What is configured per call is the model; what was made of its default is carried over.
    if isinstance(changed, RunnableBindingBase) and changed.bound is dynamic.default:
        return changed.model_copy(update={"bound": dynamic})
    if isinstance(changed, RunnableSequence):
        first = _on_dynamic(dynamic, changed.first)
        return changed.model_copy(update={"first": first})
    raise FallbackConfigError.about(
        "candidates",
        f"a configurable {type(dynamic.default).__name__} cannot be changed like this",
        "bind first, and make the result configurable",
    )
