"""Rules that tests hand to a config or to ``classify``."""

from __future__ import annotations

from typing import Any

from honcho_fallback import FallbackConfig


def of_provider(*classes: type[BaseException]) -> dict[str, Any]:
    """Say that a provider raises some classes: where nothing else explains one, it has failed."""
    return {"error": classes, "kind": "server_error", "default": True}


def of_program(*classes: type[BaseException]) -> dict[str, Any]:
    """Say that some classes are the program's own, whatever they carry."""
    return {"error": classes, "kind": "local"}


def loaded(*rules: Any) -> Any:
    return FallbackConfig(rules=list(rules)).rules
