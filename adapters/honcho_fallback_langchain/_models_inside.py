"""Change the chat models inside a runnable, whatever LangChain composed it of."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableSerializable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import BaseModel

# Fields of a binding that contain no candidate.
_BINDING_FIELDS: Final = {"config", "config_factories", "kwargs"}


def with_changed(part: Any, change: Callable[[Any], Any]) -> Any:
    """Return a runnable over other chat models, or the same object where none was changed."""
    kind: type[Any] = part.__class__
    if issubclass(kind, BaseChatModel):
        return change(part)
    if _is_composite(kind):
        fields = {name: getattr(part, name) for name in kind.model_fields.keys() - _BINDING_FIELDS}
        changed = {name: with_changed(value, change) for name, value in fields.items()}
        return copied(part, changed) if differ(changed.values(), fields.values()) else part
    if kind in {list, tuple}:
        items: Any = part.__class__(with_changed(item, change) for item in part)
        return items if differ(items, part) else part
    if kind is dict:
        entries = {key: with_changed(value, change) for key, value in part.items()}
        return entries if differ(entries.values(), part.values()) else part
    return part


def differ(new: Iterable[Any], old: Iterable[Any]) -> bool:
    """Tell whether one of some objects was replaced."""
    return any(one is not other for one, other in zip(new, old, strict=True))


def copied(model: Any, changes: dict[str, Any]) -> Any:
    """Copy a model with other field values, and without what it computed from the old ones."""
    copy: BaseModel = model.model_copy(update=changes)
    for name in list(vars(copy)):
        if isinstance(getattr(type(copy), name, None), cached_property):
            del vars(copy)[name]
    return copy


def of_integration(model: Any, table: dict[tuple[str, str], Any]) -> Any:
    """Look a chat model up by distribution and class: no provider's package is imported."""
    for base in type(model).__mro__:
        entry = table.get((base.__module__.partition(".")[0], base.__name__))
        if entry is not None:
            return entry
    return None


def derived(client: Any, **options: Any) -> Any:
    """Derive a client that shares the connections, from an SDK's client or a resource of one."""
    owner = owner_of(client)
    if owner is None:
        return client
    new_client = owner.with_options(**options)
    return new_client if owner is client else type(client)(new_client)


def owner_of(client: Any) -> Any:
    """Return the SDK's client behind a resource like ``chat.completions``, or None."""
    for one in (client, getattr(client, "_client", None)):
        if hasattr(one, "with_options") and hasattr(one, "max_retries"):
            return one
    return None


def _is_composite(kind: type) -> TypeGuard[type[RunnableSerializable[Any, Any]]]:
    """Tell LangChain's ways to compose runnables from tools, retrievers and users' classes."""
    return issubclass(kind, RunnableSerializable) and any(
        base.__module__.startswith("langchain_core.runnables.")
        and base not in {Runnable, RunnableSerializable}
        for base in kind.__mro__
    )
