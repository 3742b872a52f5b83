"""Where a target is and how it is reached: what a client is built from, apart from the key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from honcho_fallback_honcho._slots import DEFAULT_TIMEOUT, TRANSPORTS, host_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Say where a target is; ``load_policies`` puts one into each ``Target.client``.

    The key stands in ``Target.credential``: it may change from one request to the next.

    Args:
        transport: ``openai``, ``anthropic``, ``gemini``, ``lmstudio``, ``nous`` or
            ``openai_compatible``.
        base_url: Its address, with a user and a password if it was configured so.
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
        return urlunsplit(urlsplit(self.address)._replace(path="", query="", fragment=""))

    @property
    def address(self) -> str:
        """Return the address without user and password, for clients that get these otherwise."""
        parts = urlsplit(self.base_url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
