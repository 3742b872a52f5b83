"""Where the demo plays: simulated providers and a local model, or real providers."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import openai

from honcho_fallback import Target
from honcho_fallback.cli._need import DemoError, need_sdk
from honcho_fallback.cli._speakers import OpenAISpeaker
from honcho_fallback.testing import fault_simulator, local_model_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from honcho_fallback.cli._speakers import Speaker
    from honcho_fallback.testing import FaultSimulator

_NO_KEY = "not-needed"
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


class _Provider(NamedTuple):
    key: str
    speaker: Callable[[ExitStack], Speaker]


def _openai(stack: ExitStack) -> Speaker:
    return OpenAISpeaker(stack.enter_context(openai.OpenAI(max_retries=0)))


def _anthropic(stack: ExitStack) -> Speaker:
    need_sdk("anthropic")
    import anthropic  # noqa: PLC0415 # costs a second, and only few demos ask it

    from honcho_fallback.cli._speakers_anthropic import AnthropicSpeaker  # noqa: PLC0415 # as above

    return AnthropicSpeaker(stack.enter_context(anthropic.Anthropic(max_retries=0)))


_PROVIDERS = {
    "openai": _Provider("OPENAI_API_KEY", _openai),
    "anthropic": _Provider("ANTHROPIC_API_KEY", _anthropic),
}


@contextmanager
def simulated_stage() -> Generator[Stage, None, None]:
    """Start the simulator and the local model; stop both on the way out.

    Raises:
        ImportError: The extra ``demo`` is not installed.
    """
    with ExitStack() as stack:
        simulator = stack.enter_context(fault_simulator())
        local = stack.enter_context(local_model_server())
        # Bound and not listening: nobody answers there, and nobody else takes the port.
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))
        primary = Target(
            "gpt-5.5",
            provider="openai",
            name="simulated/gpt-5.5",
            client=_loopback(stack, simulator.base_url("openai")),
        )
        fallback = Target(
            local.model,
            provider="llama.cpp",
            name=f"local/{local.model}",
            client=_loopback(stack, local.base_url),
            params=_FEW_WORDS,
        )
        gone = Target(
            local.model,
            provider="llama.cpp",
            name="local/not-running",
            client=_loopback(stack, f"http://127.0.0.1:{closed.getsockname()[1]}/v1"),
        )
        yield Stage((primary, fallback), (primary, gone), simulator)


@contextmanager
def real_stage(primary: str, fallback: str) -> Generator[Stage, None, None]:
    """Speak to real providers, with the keys of the environment.

    Args:
        primary: Such as ``openai/gpt-5.5``.
        fallback: Such as ``anthropic/claude-sonnet-5``.

    Raises:
        DemoError: A provider is unknown, its key is missing, or both targets are the same.
    """
    if primary == fallback:
        raise DemoError(f"--fallback: {fallback} is the primary; name another model")
    with ExitStack() as stack:
        chain = tuple(
            _real_target(stack, option, spec)
            for option, spec in (("--primary", primary), ("--fallback", fallback))
        )
        yield Stage(chain, chain)


def _real_target(stack: ExitStack, option: str, spec: str) -> Target:
    name, slash, model = spec.partition("/")
    provider = _PROVIDERS.get(name)
    if provider is None or not (slash and model):
        known = ", ".join(f"{known}/MODEL" for known in _PROVIDERS)
        raise DemoError(f"{option}: got {spec!r}; pass one of {known}")
    if not os.environ.get(provider.key):
        raise DemoError(f"{option}: {provider.key} is not set; export the key for {spec}")
    return Target(model, provider=name, client=provider.speaker(stack))


def _loopback(stack: ExitStack, base_url: str) -> Speaker:
    # A proxy from the environment has no business between us and our own servers.
    transport = stack.enter_context(openai.DefaultHttpxClient(trust_env=False))
    client = openai.OpenAI(
        base_url=base_url, api_key=_NO_KEY, max_retries=0, http_client=transport
    )
    return OpenAISpeaker(client)
