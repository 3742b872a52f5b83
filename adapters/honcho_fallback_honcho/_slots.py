"""Tables: Honcho's agents, transports and names, as its settings module reads them."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

# Where each agent's model is configured: the prefix of its variables.
# Card refresh uses the deduction slot; MCP has no model of its own; embeddings have no fallback.
SLOTS = {
    "deriver": "DERIVER_MODEL_CONFIG",
    **{
        f"dialectic.{level}": f"DIALECTIC_LEVELS__{level}__MODEL_CONFIG"
        for level in ("minimal", "low", "medium", "high", "max")
    },
    "summary": "SUMMARY_MODEL_CONFIG",
    "dream.deduction": "DREAM_DEDUCTION_MODEL_CONFIG",
    "dream.induction": "DREAM_INDUCTION_MODEL_CONFIG",
}


class Transport(NamedTuple):
    """Say how a transport is reached.

    Args:
        wire: Whose protocol it speaks: ``openai``, ``anthropic`` or ``gemini``.
        base_url: Where it is, unless configured otherwise; None where only the user knows.
        needs_key: Whether it requires a key.
    """

    wire: str
    base_url: str | None
    needs_key: bool = True


TRANSPORTS = {
    "openai": Transport("openai", "https://api.openai.com/v1"),
    "anthropic": Transport("anthropic", "https://api.anthropic.com"),
    "gemini": Transport("gemini", "https://generativelanguage.googleapis.com"),
    "lmstudio": Transport("openai", "http://localhost:1234/v1", needs_key=False),
    "nous": Transport("openai", "https://inference-api.nousresearch.com/v1"),
    "openai_compatible": Transport("openai", None),
}

DEFAULT_TRANSPORT, DEFAULT_MODEL = "openai", "gpt-5.4-mini"
DEFAULT_TIMEOUT = 180.0
DEFAULT_MAX_TOKENS = 2500


def key_name(transport: str) -> str:
    """Name the variable with a transport's default key."""
    return f"LLM_{transport.upper()}_API_KEY"


def host_of(base_url: str) -> str:
    """Return host and port of an address, fit to be shown: no user, no password, no path."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    return f"{host}:{parts.port}" if parts.port else host


def is_address(base_url: str) -> bool:
    """Tell whether something is an address that a request can be sent to."""
    try:
        parts = urlsplit(base_url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def same_origin(one: str, other: str) -> bool:
    """Tell whether two addresses lead to the same server: scheme, host and port."""
    return _origin(one) == _origin(other)


def is_loopback(base_url: str) -> bool:
    """Tell whether an address leads to this machine."""
    host = urlsplit(base_url).hostname or ""
    return host in {"localhost", "::1"} or (
        host.startswith("127.") and host.replace(".", "").isdigit()
    )


def _origin(base_url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(base_url)
    default = {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or default
