"""Histories as a provider is sent them, beside a primary at another."""

from __future__ import annotations

from typing import Any

from honcho_fallback import Target
from honcho_fallback.providers import Provider
from honcho_fallback_langchain._message_history import Reader, for_provider


def fallback_at(provider: str, *chain: Target) -> Reader:
    known = Provider.named(provider)
    return Reader(Target("model", known.family), chain, known, known, is_primarys=False)


def sent_to(provider: str, history: list[Any]) -> list[Any]:
    sent: list[Any] = for_provider(history, fallback_at(provider))
    return sent
