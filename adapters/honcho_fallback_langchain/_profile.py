"""What a chain of chat models can do for certain: what each of them can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import ModelProfile


def joined_profile(profiles: Sequence[ModelProfile | None]) -> ModelProfile | None:
    """Join profiles conservatively: all for an ability, the smallest for a size.

    What one of them does not tell is not promised, and what they disagree on is left out.
    """
    entries = [cast("dict[str, Any]", profile) for profile in profiles if profile is not None]
    if not entries or len(entries) < len(profiles):
        return None
    shared = set(entries[0]).intersection(*entries[1:])
    joined = {name: _join([profile[name] for profile in entries]) for name in sorted(shared)}
    fields = {name: value for name, value in joined.items() if value is not None}
    return cast("ModelProfile", fields)


def _join(values: list[Any]) -> Any:
    if all(type(value) is bool for value in values):
        return all(values)
    if all(type(value) in {int, float} for value in values):
        return min(values)
    return values[0] if all(value == values[0] for value in values) else None
