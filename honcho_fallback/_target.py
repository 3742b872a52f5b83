"""The two values that `ask` sees: a target, and one attempt at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from hashlib import sha256
from os import urandom
from types import MappingProxyType
from typing import Any, NamedTuple

from honcho_fallback._checks import require_text, require_type
from honcho_fallback._errors import FallbackConfigError
from honcho_fallback._recovery import Credential


@dataclass(frozen=True, slots=True)
class Target:
    """Describe one model endpoint that can answer, complete in itself.

    Nothing of one target reaches a request to another (Honcho's pull request 692: a fallback
    inherits no parameter, no key and no address from the primary).

    Args:
        model: The model's name as its provider knows it.
        provider: The provider's name, or None.
        name: What logs and records call it; default ``provider/model``. Unique in a chain.
        client: Any object of yours (an SDK client, a chat model); never touched, never shown.
        params: What this target's requests carry; copied, never shown.
        context_window: The largest input in tokens, or None when unknown.
        endpoint: The address that is asked, such as a ``base_url``, or None when unknown.
        credential: What it is asked with: an object with ``get`` and ``refresh``; never shown.

    ``identity`` tells whether two targets are one to their provider: made of provider, model,
    endpoint and the credential's fingerprint. Where one of them is unknown it is nobody else's.

    Raises:
        FallbackConfigError: A field is empty, of the wrong type or out of range.
    """

    model: str
    provider: str | None = None
    name: str = ""
    client: Any = field(default=None, repr=False, compare=False)
    params: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    context_window: int | None = None
    endpoint: str | None = None
    credential: Credential | None = field(default=None, repr=False, compare=False)
    identity: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_text("model", self.model, "name the model, such as Target('gpt-5.5')")
        if self.provider is not None:
            require_text("provider", self.provider, "name the provider or leave it out")
        require_type("name", self.name, str, "pass a string or leave it out")
        window = self.context_window
        if window is not None and (type(window) is not int or window <= 0):
            fix = "pass a positive number of tokens or None"
            raise FallbackConfigError.about("context_window", f"got {window!r}", fix)
        if self.endpoint is not None:
            require_text("endpoint", self.endpoint, "pass an address or leave it out")
        if self.credential is not None:
            fix = "pass an object with get and refresh"
            require_type("credential", self.credential, Credential, fix)
        require_type("params", self.params, Mapping, "pass a mapping of parameters")
        if not self.name:
            name = f"{self.provider}/{self.model}" if self.provider else self.model
            object.__setattr__(self, "name", name)
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))
        object.__setattr__(self, "identity", self._identity())

    def _identity(self) -> str:
        fingerprint: str | None = getattr(self.credential, "fingerprint", None)
        if not (self.provider and self.endpoint and fingerprint):
            return f"here:{urandom(12).hex()}"
        known = (self.provider.lower(), self.model, self.endpoint.rstrip("/"), fingerprint)
        return sha256("\0".join(known).encode()).hexdigest()[:32]

    def __reduce__(self) -> tuple[Any, ...]:
        # A mappingproxy cannot be pickled or deep-copied.
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return partial(Target, **given | {"params": dict(self.params)}), ()


class Attempt(NamedTuple):
    """Tell `ask` whom to ask, and under which terms; immutable.

    Args:
        target: Whom to ask.
        number: 1-based in the call.
        position: 0-based in the chain.
        timeout: Seconds for this attempt, or None.
        connect_timeout: Seconds to connect, or None; for SDKs that tell the two apart.
        wait: Seconds to wait before asking; 0 on a switch.
        call_id: Unique for the call, the same in all its attempts.
    """

    target: Target
    number: int
    position: int
    timeout: float | None
    connect_timeout: float | None
    wait: float
    call_id: str

    @property
    def is_fallback(self) -> bool:
        """Tell whether this is not the primary."""
        return self.position > 0
