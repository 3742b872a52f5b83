"""How a value draws itself; what draws it stands beside the core and is loaded when asked."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """Draw the value in a notebook, and in a terminal through rich."""

    __slots__ = ()

    # Named in a string, not imported: the core does not know what stands beside it.
    def _repr_html_(self: object) -> str:
        return str(import_module("honcho_fallback.display").html_of(self))

    def __rich__(self: object) -> object:
        return import_module("honcho_fallback.display").rich_of(self)
