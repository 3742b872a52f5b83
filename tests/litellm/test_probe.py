"""What the adapter uses of LiteLLM without its promise is there, with its parameters."""

from __future__ import annotations

from honcho_fallback_litellm._patches import OPTIONAL
from tests.litellm.unpromised import probe


def test_the_installed_release_has_all_of_it() -> None:
    """A release that lacks a name, or renames a parameter, is named here before users meet it."""
    needed = [one for one in probe() if not any(f"Router.{name}:" in one for name in OPTIONAL)]
    assert needed == []
