"""Draw calls, failures and policies, in a notebook, in a terminal and on a page of their own.

A terminal needs rich (extra ``cli``).

PYTEST_DONT_REWRITE: pytest would rewrite and watch a whole distribution that brings a plugin.
"""

from honcho_fallback.display._calls import Calls, Summary
from honcho_fallback.display._draw import rich_of
from honcho_fallback.display._html import html_of
from honcho_fallback.display._page import write_page

__all__ = [
    "Calls",
    "Summary",
    "html_of",
    "rich_of",
    "write_page",
]
