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
    known = [cast("dict[str, Any]", profile) for profile in profiles if profile is not None]
    if not known or len(known) < len(profiles):
        return None
    shared = set(known[0]).intersection(*known[1:])
    joined = {name: _join([profile[name] for profile in known]) for name in sorted(shared)}
    kept = {name: value for name, value in joined.items() if value is not None}
    return cast("ModelProfile", kept)


def _join(values: list[Any]) -> Any:
    if all(type(value) is bool for value in values):
        return all(values)
    if all(type(value) in {int, float} for value in values):
        return min(values)
    return values[0] if all(value == values[0] for value in values) else None
