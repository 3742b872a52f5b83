"""SDK clients, as a fallback chain has to ask them, and the targets that are made of them.

The clients that Stainless generates (OpenAI's, Anthropic's, Groq's and most others) derive copies
that share the connections, by ``with_options``; others are refused with what to do. No SDK is
imported, and a user's own client is never changed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from honcho_fallback import ApiKey, FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from honcho_fallback import Attempt, Target

ClientT = TypeVar("ClientT")


def without_retries(client: ClientT) -> ClientT:
    """Return a client that sends one request per call, or the same object if it already does.

    An SDK that asks a dead provider again by itself keeps the fallback waiting.

    Args:
        client: An SDK's client, or a resource of one such as ``client.chat.completions``.

    Raises:
        FallbackConfigError: How such a client is told is not known here.
    """
    if _asks_once(client):
        return client
    retries = _known_owner(client, "without_retries").max_retries
    return client if type(retries) is int and retries <= 0 else _derived(client, max_retries=0)


def with_key(client: ClientT, key: str) -> ClientT:
    """Return a client that asks with another key, over the same connections.

    Args:
        client: As for ``without_retries``.
        key: The key, such as that of ``attempt.target.credential``.

    Raises:
        FallbackConfigError: How such a client is told is not known here.
    """
    _known_owner(client, "with_key")
    return _derived(client, api_key=key)


def with_timeout(client: ClientT, attempts: Attempt | Callable[[], Iterable[Attempt]]) -> ClientT:
    """Return a client whose requests end with an attempt, or the same object if they do.

    A thread cannot be interrupted: its client has to give up by itself. A timeout of the client's
    own stays where it is shorter; one that is given with a request stays as it is.

    Args:
        client: As for ``without_retries``.
        attempts: The attempt; or what names, request by request, the attempts that it is made in.

    Raises:
        FallbackConfigError: How such a client is told is not known here.
    """
    owner = _known_owner(client, "with_timeout")
    sdk = type(owner).__module__.partition(".")[0]
    kind = getattr(sys.modules.get(sdk), "Timeout", None)
    if kind is None:
        return client
    bounded = _bounded(kind)
    if isinstance(owner.timeout, bounded):
        return client
    own = owner.timeout if isinstance(owner.timeout, kind) else kind(owner.timeout)
    around = attempts if callable(attempts) else lambda: (attempts,)
    return _derived(client, timeout=bounded(own, around))


def owner_of(client: Any) -> Any:
    """Return the SDK's client behind a resource like ``chat.completions``, or None.

    Args:
        client: Any object.
    """
    for one in (client, getattr(client, "_client", None)):
        if hasattr(one, "with_options") and hasattr(one, "max_retries"):
            return one
    return None


def with_place(
    target: Target, client: Any, address: object = None, provider: str | None = None
) -> Target:
    """Return a target with the address and the key of its SDK's client, where it has none itself.

    By them a chain knows whom a failure may reach: a dead key, a dead host. With a provider, too,
    other chains and processes know the target as the same.

    Args:
        target: The target.
        client: The SDK's, or None.
        address: Where it asks, in place of the client's ``base_url``; or None.
        provider: Whose it is where the target names none; or None.
    """
    key, address = getattr(client, "api_key", None), address or getattr(client, "base_url", None)
    return replace(
        target,
        provider=target.provider or provider,
        endpoint=target.endpoint or (str(address) if address else None),
        credential=target.credential or (ApiKey(key) if key and isinstance(key, str) else None),
    )


def place_of(target: Target) -> str:
    """Name the address and the account of a target, without showing either.

    What the server of one place keeps is there for all targets of that place, and so are settings
    with its key. A target whose address is not known is a place of its own.

    Args:
        target: The target.
    """
    place = target.keys.get("credential") or target.endpoint or target.identity
    return sha256(place.encode()).hexdigest()[:16]


def distinct_name(name: str, taken: Collection[str]) -> str:
    """Return a name for the next target of a chain that none before it has.

    Logs, records and alerts know a target by its name: a name that is taken gets the number of
    its target's place, so that ``gpt-5.5#2`` is the second of the chain under every adapter.

    Args:
        name: What the target would be called by itself.
        taken: The names of the targets before it, one for each.
    """
    if name not in taken:
        return name
    # The place counts from 1; where somebody gave that very name to another, the next is free.
    numbered = (f"{name}#{number}" for number in count(len(taken) + 1))
    return next(one for one in numbered if one not in taken)


def _known_owner(client: object, function: str) -> Any:
    owner = owner_of(client)
    if owner is None:
        problem = (
            f"how a {type(client).__module__}.{type(client).__qualname__} is told is not known"
        )
        fix = "set it where the client is built, or with each request"
        if function == "without_retries" and type(client).__module__.startswith("google.genai."):
            once = "http_options=HttpOptions(retry_options=HttpRetryOptions(attempts=1))"
            fix = f"build it with {once}"
        raise FallbackConfigError.about(function, problem, fix)
    return owner


def _asks_once(client: object) -> bool:
    """Tell whether a client of google-genai, which has no copies, was built to ask once."""
    options = getattr(getattr(client, "_api_client", None), "_http_options", None)
    # Without options of its own aiohttp asks again, some seconds later, when a connection breaks.
    return getattr(getattr(options, "retry_options", None), "attempts", None) in {0, 1}


def _derived(client: ClientT, **options: Any) -> ClientT:
    owner = owner_of(client)
    new_client = owner.with_options(**options)
    resource: Any = type(client)
    derived: ClientT = new_client if owner is client else resource(new_client)
    return derived


@cache  # one per SDK
def _bounded(kind: Any) -> Any:
    """Make a timeout that ends with attempts out of an SDK's own kind."""

    def limited(name: str, *limits: str) -> property:
        def shortest(timeout: Any) -> float | None:
            around = (getattr(one, limit) for one in timeout.attempts() for limit in limits)
            seconds = (getattr(timeout.own, name), *around)
            return min((one for one in seconds if one is not None), default=None)

        return property(shortest)

    class AttemptTimeout(kind):  # type: ignore[misc] # httpx's, of which there are two
        def __init__(self, own: Any, attempts: Callable[[], Iterable[Attempt]]) -> None:
            self.own, self.attempts = own, attempts

        connect = limited("connect", "timeout", "connect_timeout")
        read, write, pool = (limited(name, "timeout") for name in ("read", "write", "pool"))

    return AttemptTimeout
