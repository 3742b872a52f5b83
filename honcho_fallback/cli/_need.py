"""What the demo needs beyond the command line itself."""

from __future__ import annotations

from importlib.util import find_spec


class DemoError(ValueError):
    """Refuse a demo that cannot be played as asked."""


def need_sdk(name: str) -> None:
    """Make sure that an SDK is there."""
    if find_spec(name) is None:
        raise DemoError(f"{name} is not installed: pip install 'honcho-fallback[demo]'")
