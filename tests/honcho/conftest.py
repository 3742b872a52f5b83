"""Settings are read from what a test gives, never from the machine's own environment."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away every variable that Honcho or an SDK would read."""
    for name in list(os.environ):
        if (
            "API_KEY" in name
            or "MODEL_CONFIG" in name
            or name.startswith(("LLM_", "HONCHO_", "NOUS_"))
        ):
            monkeypatch.delenv(name)
