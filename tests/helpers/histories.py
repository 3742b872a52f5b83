"""Histories as a provider is sent them, beside a primary at another."""

from __future__ import annotations

from typing import Any

from honcho_fallback import Target
from honcho_fallback_langchain._history import for_provider
from honcho_fallback_langchain._providers import RESPONSES, Reader, family_of, markers_unknown_to


def sent_to(provider: str, history: list[Any]) -> list[Any]:
    """Return what a fallback at a provider, or of one message format, is sent."""
    family = family_of(provider)
    wire = provider if provider == RESPONSES else family
    target, markers = Target("model", family), markers_unknown_to(family)
    sent: list[Any] = for_provider(
        history, Reader(target, (), family, wire, is_primarys=False, markers=markers)
    )
    return sent
