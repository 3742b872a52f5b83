"""Honcho's agents, transports and names, as its settings module has them; where a target is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """Say how a transport is reached."""

    wire: str  # whose protocol it speaks: openai, anthropic or gemini
    base_url: str | None  # unless configured otherwise; None where only the user knows
    needs_key: bool = True


TRANSPORTS = {
    "openai": Transport("openai", "https://api.openai.com/v1"),
    "anthropic": Transport("anthropic", "https://api.anthropic.com"),
    "gemini": Transport("gemini", "https://generativelanguage.googleapis.com"),
    "lmstudio": Transport("openai", "http://localhost:1234/v1", needs_key=False),
    "nous": Transport("openai", "https://inference-api.nousresearch.com/v1"),
    "openai_compatible": Transport("openai", None),
}

DEFAULT_TRANSPORT = "openai"
DEFAULT_TIMEOUT = 180.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Say where a target is; ``load_policies`` puts one into each ``Target.client``.

    The key stands in ``Target.credential``: it may change from one request to the next.

    Args:
        transport: ``openai``, ``anthropic``, ``gemini``, ``lmstudio``, ``nous`` or
            ``openai_compatible``.
        base_url: Its address.
        timeout: Seconds per request.
        extra_body: What is added to each request's body.
        extra_headers: What is added to each request's headers.
        extra_query: What is added to each request's query.
    """

    transport: str
    base_url: str = field(repr=False)
    timeout: float = DEFAULT_TIMEOUT
    extra_body: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    extra_headers: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    extra_query: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __repr__(self) -> str:
        return f"<Endpoint {self.transport} at {self.host}>"

    @property
    def wire(self) -> str:
        """Name the protocol that it speaks: ``openai``, ``anthropic`` or ``gemini``."""
        return TRANSPORTS[self.transport].wire

    @property
    def host(self) -> str:
        """Return host and port, fit to be shown."""
        return host_of(self.base_url)

    @property
    def public_url(self) -> str:
        """Return scheme, host and port; all the rest of an address may hold a secret."""
        parts = urlsplit(self.base_url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))


def key_name(transport: str) -> str:
    return f"LLM_{transport.upper()}_API_KEY"


def host_of(base_url: str) -> str:
    """Return host and port of an address, fit to be shown: no user, no password, no path."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    return f"{host}:{parts.port}" if parts.port else host


def is_address(base_url: str) -> bool:
    """Tell whether something is an address that a request can be sent to, without a user."""
    try:
        parts = urlsplit(base_url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and has_host and "@" not in parts.netloc


def is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def origin_of(base_url: str) -> tuple[str, str | None, int | None]:
    """Return what is the same of addresses that lead to the same server."""
    parts = urlsplit(base_url)
    default = {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or default
