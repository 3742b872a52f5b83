"""The page of outages shows what came out here."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_sessions import cost_of_a_conversation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "outages.md"


def test_the_page_shows_what_a_conversation_costs_today() -> None:
    """Its table of prompt caches has the figures of this version."""
    page = PAGE.read_text(encoding="utf-8")
    for reset in ("iteration", "turn", "session"):
        two, six = (f"{cost_of_a_conversation(reset, minutes):,}" for minutes in (2, 6))
        assert f'| `reset="{reset}"` | {two} | {six} |' in page
