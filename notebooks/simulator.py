"""Simulated providers on loopback, which do as a notebook tells them: llmock's server."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from llmock import scenarios
from llmock.testing import LLMockServer

if TYPE_CHECKING:
    from collections.abc import Iterator


class SeenRequest(NamedTuple):
    """Hold one request that a simulated provider saw."""

    provider: str
    model: str | None
    status: int


class Simulator:
    """Script what simulated providers do next, in so many requests; None stands for all."""

    def __init__(self, server: LLMockServer) -> None:
        self._server: Any = server

    def base_url(self, provider: str) -> str:
        """Return the ``base_url`` that the provider's own SDK needs."""
        return str(self._server.base_url(provider))

    def fail(
        self,
        status: int,
        *,
        times: int | None = 1,
        retry_after: float | None = None,
        provider: str = "openai",
    ) -> None:
        """Answer with an HTTP error in the provider's own form."""
        match = scenarios.Match(provider=provider)
        self._add(scenarios.Fail(status, times=times, retry_after=retry_after, match=match))

    def delay(self, seconds: float, *, times: int | None = 1) -> None:
        """Have OpenAI hold its answers back for so many seconds."""
        match = scenarios.Match(provider="openai")
        self._add(scenarios.Delay(seconds, times=times, match=match))

    def cut_stream(self, *, after_chunks: int) -> None:
        """Have OpenAI drop the connection in the middle of a stream."""
        match = scenarios.Match(provider="openai", stream=True)
        self._add(scenarios.StreamFault("disconnect", after_chunks=after_chunks, match=match))

    def reply(self, text: str, *, times: int | None = 1, provider: str = "openai") -> None:
        """Answer with a text."""
        match = scenarios.Match(provider=provider)
        self._add(scenarios.Reply(text=text, times=times, match=match))

    def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        times: int | None = 1,
        provider: str | None = "openai",
    ) -> None:
        """Ask for a tool to be called; a provider of None stands for every one."""
        call = scenarios.ToolCall(name, arguments)
        match = scenarios.Match(provider=provider, tools=True)
        self._add(scenarios.Reply(tool_calls=(call,), times=times, match=match))

    def requests(self, provider: str | None = None) -> list[SeenRequest]:
        """Return what came since the last ``reset``, to one provider or to all."""
        # A stream that was cut may still be closing when its record is read.
        return [
            SeenRequest(seen.provider, seen.model, seen.status)
            for seen in self._server.state.journal.records(wait=2)
            if provider in {None, seen.provider}
        ]

    def reset(self) -> None:
        """Forget what was scripted and what was seen."""
        self._server.state.reset()

    def _add(self, scenario: Any) -> None:
        self._server.state.scenarios.add(scenario)


@contextmanager
def fault_simulator() -> Iterator[Simulator]:
    """Serve simulated providers on a free port, in this process."""
    with LLMockServer() as server:
        yield Simulator(server)
