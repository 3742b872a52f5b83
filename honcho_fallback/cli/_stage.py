"""Where the demo plays: simulated providers and a local model, or real providers."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from honcho_fallback.cli._need import DemoError
from honcho_fallback.cli._played import Endpoint
from honcho_fallback.testing import fault_simulator, local_model_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from honcho_fallback import Target
    from honcho_fallback.testing import FaultSimulator

_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_FEW_WORDS = {"max_tokens": 12}


@dataclass(frozen=True, slots=True)
class Stage:
    """Hold the chains, and the simulator where there is one.

    Args:
        chain: Who is asked.
        dead_chain: Who is asked where nobody should answer.
        simulator: Behind the chains' primary, or None with real providers.
    """

    chain: tuple[Target, ...]
    dead_chain: tuple[Target, ...]
    simulator: FaultSimulator | None = None

    def break_primary(self, fault: Callable[[FaultSimulator], None]) -> None:
        """Make the primary fail from now on, if it is simulated.

        Args:
            fault: Scripts the simulator.
        """
        if self.simulator is not None:
            self.simulator.reset()
            fault(self.simulator)

    def seen(self) -> int | None:
        """Count the requests that the simulated primary saw since it broke."""
        return None if self.simulator is None else len(self.simulator.requests("openai"))


@contextmanager
def simulated_stage(
    connect: Callable[[Endpoint, ExitStack], Target],
) -> Generator[Stage, None, None]:
    """Start the simulator and the local model; stop both on the way out."""
    with ExitStack() as stack:
        simulator = stack.enter_context(fault_simulator())
        local = stack.enter_context(local_model_server())
        # Bound and not listening: nobody answers there, and nobody else takes the port.
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        primary, fallback, gone = (
            connect(endpoint, stack)
            for endpoint in (
                Endpoint(
                    "simulated/gpt-5.5",
                    "gpt-5.5",
                    "openai",
                    "openai",
                    simulator.base_url("openai"),
                    {},
                ),
                Endpoint(
                    f"local/{local.model}",
                    local.model,
                    "llama.cpp",
                    "openai",
                    local.base_url,
                    _FEW_WORDS,
                ),
                Endpoint("local/not-running", local.model, "llama.cpp", "openai", nowhere, {}),
            )
        )
        yield Stage((primary, fallback), (primary, gone), simulator)


@contextmanager
def real_stage(
    connect: Callable[[Endpoint, ExitStack], Target], primary: str, fallback: str
) -> Generator[Stage, None, None]:
    """Speak to real providers, with the keys of the environment."""
    if primary == fallback:
        raise DemoError(f"--fallback: {fallback} is the primary; name another model")
    with ExitStack() as stack:
        chain = tuple(
            connect(_real_endpoint(option, spec), stack)
            for option, spec in (("--primary", primary), ("--fallback", fallback))
        )
        yield Stage(chain, chain)


def _real_endpoint(option: str, spec: str) -> Endpoint:
    provider, slash, model = spec.partition("/")
    key = _KEYS.get(provider)
    if key is None or not (slash and model):
        known = ", ".join(f"{known}/MODEL" for known in _KEYS)
        raise DemoError(f"{option}: got {spec!r}; pass one of {known}")
    if not os.environ.get(key):
        raise DemoError(f"{option}: {key} is not set; export the key for {spec}")
    return Endpoint(spec, model, provider, provider, None, {})
