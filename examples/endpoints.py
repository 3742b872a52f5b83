"""Where the examples send their requests: real providers, or a server in this process.

A provider is real if its key is set: OPENAI_API_KEY, ANTHROPIC_API_KEY. Otherwise a server
stands in for it: the primary, OpenAI, always fails with 503, and the fallback answers.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from simulated import SimulatedProviders

if TYPE_CHECKING:
    from collections.abc import Iterator


class Endpoint(NamedTuple):
    """Say where a provider is and which model to ask.

    Args:
        name: The provider's name.
        model: The model's name, such as ``OPENAI_MODEL`` in the environment.
        base_url: What the provider's own SDK takes as ``base_url``.
        api_key: The key, or a placeholder for the server.
        is_real: Whether this is the real provider.
    """

    name: str
    model: str
    base_url: str
    api_key: str = "none"
    is_real: bool = False

    def __str__(self) -> str:
        where = self.base_url if self.is_real else "simulated"
        return f"{self.name}/{self.model} ({where})"


@contextmanager
def endpoints() -> Iterator[tuple[Endpoint, Endpoint]]:
    """Yield the primary and the fallback; print who they are, and what the server saw."""
    # A proxy from the environment cannot reach the loopback of this machine.
    others = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    os.environ["no_proxy"] = f"{others},127.0.0.1" if others else "127.0.0.1"
    with SimulatedProviders() as server:
        primary = _endpoint("openai", "gpt-5.5", "https://api.openai.com/v1", server)
        fallback = _endpoint("anthropic", "claude-sonnet-5", "https://api.anthropic.com", server)
        print(f"Primary {primary}, fallback {fallback}", flush=True)
        yield primary, fallback
        seen = server.seen
        if len(seen) > 20:
            seen = [f"{number} x {one}" for one, number in Counter(seen).items()]
        print(f"Requests at the simulated providers: {', '.join(seen) or 'none'}")


def _endpoint(name: str, model: str, base_url: str, server: SimulatedProviders) -> Endpoint:
    prefix = name.upper()
    model = os.environ.get(f"{prefix}_MODEL", model)
    key = os.environ.get(f"{prefix}_API_KEY")
    if not key:
        return Endpoint(name, model, f"{server.url}/{name}")
    return Endpoint(name, model, os.environ.get(f"{prefix}_BASE_URL", base_url), key, is_real=True)
