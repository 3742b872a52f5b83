"""How a value draws itself in a notebook, and in a terminal through rich."""

from __future__ import annotations


class Shown:
    """Draw the value with what stands in this package."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from honcho_fallback.display._html import html_of  # noqa: PLC0415 # it draws these values

        return html_of(self)

    def __rich__(self) -> object:
        from honcho_fallback.display._draw import rich_of  # noqa: PLC0415 # as above

        return rich_of(self)
