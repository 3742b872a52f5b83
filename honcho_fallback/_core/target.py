"""The two values that ``ask`` sees: a target, and one attempt at it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from functools import partial
from hashlib import sha256
from os import urandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

from honcho_fallback._values.errors import (
    CredentialError,
    FallbackConfigError,
    require_text,
    require_texts,
    require_type,
)
from honcho_fallback.redaction import label

if TYPE_CHECKING:
    from honcho_fallback._values.failure import Scope

# What is computed: every process knows the target, with the keys of whom a failure may reach, or
# this one alone, sealed with what it is.
_COMPUTED = re.compile(
    r"known:[0-9a-f]{32}:(?P<credential>[0-9a-f]{16}):(?P<endpoint>[0-9a-f]{16})"
    r"|here:[0-9a-f]{24}:(?P<seal>[0-9a-f]{32})"
)

# What the content of a stream is that breaks after it.
Partial: TypeAlias = Literal["final", "replace", "continue"]
# The label of a target whose server never sends a finish reason: a stream is whole without one.
NO_FINISH_REASON = "no_finish_reason"


@runtime_checkable
class Credential(Protocol):
    """Hold what a target is asked with; ``ask`` takes it from ``attempt.target.credential``.

    Where ``fingerprint`` (a string that tells keys apart without showing them) is there too, other
    processes know the target as the same. However many calls wait for a ``refresh``, one of them
    makes it, and a call that was refused with an older credential does not make another.
    """

    def get(self) -> Any:
        """Return what is at hand; sync or async, as ``ask`` expects it."""

    def refresh(self) -> Any:
        """Fetch a new one, for ``get`` to return; sync (in a thread under a loop) or async."""


class ApiKey:
    """Hold a static key, so that a shared cooldown knows its target in every process.

    Args:
        key: The key; never shown.

    Raises:
        FallbackConfigError: It is no text; an empty one is refused by the provider alone.
    """

    __slots__ = ("__weakref__", "_key", "fingerprint")

    def __init__(self, key: str) -> None:
        if key != "":  # which is the provider's to refuse
            require_text("key", key, "pass the key; is the variable that it comes from set?")
        self._key = key
        self.fingerprint = _digest(key)[:16]

    def __repr__(self) -> str:
        return f"<ApiKey {self.fingerprint}>"

    def get(self) -> str:
        """Return the key."""
        return self._key

    def refresh(self) -> None:
        """Refuse: there is no other; a policy does not even try.

        Raises:
            CredentialError: Always.
        """
        raise CredentialError("a static key has no refresh; replace it")


@dataclass(frozen=True, slots=True)
class Target:
    """Describe one model endpoint that can answer, complete in itself.

    Nothing of one target reaches a request to another: a fallback inherits no parameter, no key
    and no address from the primary.

    Args:
        model: The model's name as its provider knows it.
        provider: The provider's name, or None.
        name: What logs and records call it; default ``provider/model``. Unique in a chain.
        client: Any object of yours (an SDK client, a chat model); never touched, never shown.
        params: What this target's requests carry; copied with all they hold, never shown.
        context_window: The largest input in tokens, or None when unknown.
        endpoint: The address that is asked, such as a ``base_url``, or None when unknown; never
            shown, as an address may hold a login or a key.
        credential: What it is asked with: an object with ``get`` and ``refresh``; never shown.
        identity: What tells whether two targets are one to their provider: they cool down
            together, and where their params are equal, too, a call asks only one of them once it
            has failed. By default made of provider, model, endpoint and the credential's
            fingerprint; where one of them is unknown the target is like no other but its own
            copies.
        labels: What is true of it, such as ``{"eu", "zdr"}``, for ``require``. One means something
            here, ``"no_finish_reason"``: its server's streams end without one.
        prefill: Whether it goes on with the beginning of an answer that it is sent as the
            assistant's last message, ``attempt.partial``: for streams with ``partial="continue"``.

    Attributes:
        keys: Whom a failure may reach, by scope: what it has in common with another target is
            down for both. The credential's is made of key and address, since one host may serve
            several providers under one word for a key; the endpoint's of the host.

    Raises:
        FallbackConfigError: A field is empty, of the wrong type or out of range.
    """

    model: str
    provider: str | None = None
    name: str = ""
    client: Any = field(default=None, compare=False)
    params: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    context_window: int | None = None
    endpoint: str | None = None
    credential: Credential | None = field(default=None, compare=False)
    identity: str = field(default="", compare=False)
    labels: AbstractSet[str] = frozenset()
    prefill: bool = field(default=False, compare=False)
    keys: Mapping[Scope, str] = field(init=False, compare=False)

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
        require_type("identity", self.identity, str, "pass a string or leave it out")
        require_type("prefill", self.prefill, bool, "pass True or False")
        labels = require_texts("labels", self.labels, "pass a set of texts, such as {'eu'}")
        object.__setattr__(self, "labels", labels)
        name = f"{self.provider}/{self.model}" if self.provider else self.model
        object.__setattr__(self, "name", self.name or name)
        params = {key: _copy(value) for key, value in self.params.items()}
        object.__setattr__(self, "params", MappingProxyType(params))
        self._identify()

    def __repr__(self) -> str:
        shown = ("model", "provider", "name", "context_window")
        return label(f"Target({', '.join(f'{one}={getattr(self, one)!r}' for one in shown)})")

    def _identify(self) -> None:
        """Compute identity and keys; one that was given, or computed for one like this, stays."""
        fingerprint: str = getattr(self.credential, "fingerprint", None) or ""
        provider, endpoint = (self.provider or "").lower(), (self.endpoint or "").rstrip("/")
        key = host = ""
        if endpoint:
            address, path = _split(endpoint)
            host = _digest(address)[:16]
            key = _digest(address, path, fingerprint)[:16] if fingerprint else ""
        identity, computed = self.identity, _COMPUTED.fullmatch(self.identity)
        # A copy is the same target; what dataclasses.replace makes under another name is not.
        seal = _digest(provider, self.model, endpoint, fingerprint, self.name)
        if provider and key and (not identity or computed):
            model = _digest(provider, self.model, endpoint, fingerprint)
            identity = f"known:{model}:{key}:{host}"
        elif not identity or (computed and computed["seal"] not in {None, seal}):
            identity = f"here:{urandom(12).hex()}:{seal}"
        if (handed_on := _COMPUTED.search(identity)) and handed_on["credential"]:
            key, host = handed_on.group("credential", "endpoint")
        keys = {"credential": key, "endpoint": host}
        keys = {scope: f"{scope}:{digest}" for scope, digest in keys.items() if digest}
        object.__setattr__(self, "identity", identity)
        object.__setattr__(self, "keys", {"model": identity, **keys})

    def __reduce__(self) -> tuple[Any, ...]:
        # A mappingproxy cannot be pickled or deep-copied.
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return partial(Target, **values | {"params": dict(self.params)}), ()


class Attempt(NamedTuple):
    """Tell ``ask`` which target to ask, and under which terms; immutable.

    Args:
        target: The target to ask.
        number: 1-based in the call.
        position: 0-based in the chain.
        timeout: Seconds for this attempt, or None; for a stream up to its first content.
        connect_timeout: Seconds to connect, or None; for SDKs that tell the two apart.
        wait: Seconds to wait before asking; 0 on a switch.
        call_id: Unique for the call, the same in all its attempts.
        first_token_timeout: Seconds up to a stream's first content, or None.
        idle_timeout: Seconds that a stream may be silent after that, or None.
        partial: What an answer to go on with begins with, without white space at its end; else
            empty. Send it as the assistant's last message.
    """

    target: Target
    number: int
    position: int
    timeout: float | None
    connect_timeout: float | None
    wait: float
    call_id: str
    first_token_timeout: float | None = None
    idle_timeout: float | None = None
    partial: str = ""

    def __repr__(self) -> str:
        # Whoever logs an attempt would log what the model wrote.
        shown = {**self._asdict(), "partial": f"<{len(self.partial)} characters>"}
        return f"Attempt({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def is_fallback(self) -> bool:
        """Tell whether this is not the primary."""
        return self.position > 0

    @property
    def idempotency_key(self) -> str:
        """Name the request: the same for repeats at one target in a call, unlike any other."""
        return f"{self.call_id}-{self.position}"

    @property
    def stream_timeout(self) -> float | None:
        """Return the seconds up to a stream's first content: the shorter of the two limits."""
        first, timeout = self.first_token_timeout, self.timeout
        return timeout if first is None or (timeout or first) < first else first


def is_local(identity: str) -> bool:
    """Tell whether an identity is one that no other target, policy or process can share."""
    return identity.startswith("here:")


def _split(endpoint: str) -> tuple[str, str]:
    """Return an address's host with its port, and its path; all of it where it is no address."""
    try:
        parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return endpoint, ""
    return f"{parts.hostname}:{port}", parts.path.rstrip("/")


def _copy(value: Any) -> Any:
    """Copy containers and what they contain; anything else is the caller's own object."""
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType] # anybody's mapping
    if type(value) in {list, tuple, set, frozenset}:
        return type(value)(map(_copy, value))
    return value


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]
