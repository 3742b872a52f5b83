"""Time that stands still until a test moves it."""

from __future__ import annotations

import pytest
from scripted import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock and the sleep that policies hand to their runs and drivers."""
    clock = Clock()
    monkeypatch.setattr("honcho_fallback._policy.monotonic", clock)
    monkeypatch.setattr("honcho_fallback._policy.sleep", clock.sleep)
    return clock
