"""Where a target is and with which key: what a client is built from."""

from __future__ import annotations

from dataclasses import dataclass, field

from honcho_fallback import FallbackConfigError, Target
from honcho_fallback.settings._slots import (
    DEFAULT_TIMEOUT,
    TRANSPORTS,
    host_of,
    is_address,
    is_loopback,
    key_name,
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Say where a target is; ``load_policies`` puts one into each ``Target.client``.

    Args:
        transport: ``openai``, ``anthropic``, ``gemini``, ``lmstudio``, ``nous`` or
            ``openai_compatible``.
        base_url: Its address; default: the transport's own.
        api_key: Its key; never shown, and never sent anywhere else.
        timeout: Seconds per request.
        structured_output_mode: The form in which OpenAI's wire takes a request for JSON:
            ``json_schema`` or ``json_object``.

    Raises:
        FallbackConfigError: The transport is unknown or has no address.
    """

    transport: str
    base_url: str = field(default="", repr=False)
    api_key: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    structured_output_mode: str = "json_schema"

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            raise FallbackConfigError.about(
                "transport", f"got {self.transport!r}", f"choose from {', '.join(TRANSPORTS)}"
            )
        base_url = self.base_url or TRANSPORTS[self.transport].base_url
        if base_url is None:
            raise FallbackConfigError.about(
                "base_url", f"{self.transport} has no address of its own", "pass one"
            )
        if not is_address(base_url):
            raise FallbackConfigError.about(
                "base_url", "it is no address", "pass one such as https://llm.example/v1"
            )
        object.__setattr__(self, "base_url", base_url)
        key = (self.api_key or "").strip()
        if not key.isascii() or any(not sign.isprintable() or sign == " " for sign in key):
            # A transport's own complaint about such a header would show it.
            raise FallbackConfigError.about(
                "api_key", f"the key for {self.host} holds a sign no key has", "copy it again"
            )
        object.__setattr__(self, "api_key", key or None)

    def __repr__(self) -> str:
        key = "with a key" if self.api_key else "without a key"
        return f"<Endpoint {self.transport} at {self.host}, {key}>"

    @property
    def wire(self) -> str:
        """Name the protocol that it speaks: ``openai``, ``anthropic`` or ``gemini``."""
        return TRANSPORTS[self.transport].wire

    @property
    def host(self) -> str:
        """Return host and port, fit to be shown."""
        return host_of(self.base_url)

    @property
    def origin(self) -> str:
        """Tell endpoints apart: what one of them wrote in its own form is for it alone."""
        return f"{self.wire} {self.base_url}"

    @property
    def needs_key(self) -> bool:
        """Tell whether the endpoint requires a key."""
        local = self.transport == "openai_compatible" and is_loopback(self.base_url)
        return TRANSPORTS[self.transport].needs_key and not local

    @property
    def max_tokens_name(self) -> str:
        """Name the parameter that bounds an answer."""
        if self.wire == "gemini":
            return "max_output_tokens"
        # OpenAI's own newer models refuse the old name; other servers of its wire know no other.
        own = self.transport == "openai" and self.base_url == TRANSPORTS["openai"].base_url
        return "max_completion_tokens" if own else "max_tokens"


class MissingKeyError(FallbackConfigError):
    """Refuse to ask a target without a key; to a policy that is a failed authentication.

    No request was sent. The status is what the provider would have answered.
    """

    status_code = 401


def endpoint_of(target: Target) -> Endpoint:
    """Return where a target is."""
    endpoint = target.client
    if not isinstance(endpoint, Endpoint):
        raise FallbackConfigError.about(
            f"target {target.name}",
            f"its client is a {type(endpoint).__name__}",
            "pass client=Endpoint(transport, ...), or use the targets of load_policies()",
        )
    if endpoint.needs_key and not endpoint.api_key:
        raise MissingKeyError.about(
            f"target {target.name}",
            f"there is no key for {endpoint.host}",
            f"set {key_name(endpoint.transport)} for the transport's own host, or the target's "
            "OVERRIDES__API_KEY",
        )
    return endpoint
