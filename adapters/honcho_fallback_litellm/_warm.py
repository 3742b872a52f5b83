"""Load before the first failure what LiteLLM imports during it."""

from __future__ import annotations

def warm_up() -> None:
    """Import what LiteLLM imports lazily."""
