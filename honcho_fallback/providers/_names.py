"""What the targets of a chain are called where two would have one name."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def distinct_name(name: str, taken: Collection[str]) -> str:
    """Return a name for the next target of a chain that none before it has.

    Logs, records and alerts know a target by its name: a name that is taken gets the number of
    its target's place, so that ``gpt-5.5#2`` is the second of the chain under every adapter.

    Args:
        name: What the target would be called by itself.
        taken: The names of the targets before it, one for each.
    """
    if name not in taken:
        return name
    # The place counts from 1; where somebody gave that very name to another, the next is free.
    numbered = (f"{name}#{number}" for number in count(len(taken) + 1))
    return next(one for one in numbered if one not in taken)
