"""Simulated providers that break on demand; the one place that knows llmock."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

# A stream that was cut may still be closing on the server's side when its record is read.
_IN_FLIGHT_SECONDS = 2.0


class SeenRequest(NamedTuple):
    """Hold one request that a simulated provider saw.

    Args:
        provider: Which provider's wire it came over.
        model: The model in the request, or None.
        status: The status of the answer.
        stream: Whether it was a request for a stream.
    """

    provider: str
    model: str | None
    status: int
    stream: bool


class FaultSimulator:
    """Script what simulated providers do next; made by ``fault_simulator()``.

    Each method but ``requests`` takes whose ``provider`` it is for, such as ``openai`` or
    ``anthropic``, and how many ``times`` it happens; None for always, until ``reset``.

    Args:
        server: The running llmock server.
        scenarios: llmock's module of that name.
    """

    def __init__(self, server: Any, scenarios: Any) -> None:
        self._server = server
        self._scenarios = scenarios

    def base_url(self, provider: str = "openai") -> str:
        """Return the ``base_url`` that the provider's own SDK needs."""
        return str(self._server.base_url(provider))

    def fail(
        self,
        status: int,
        *,
        times: int | None = 1,
        retry_after: float | None = None,
        code: str | None = None,
        provider: str = "openai",
    ) -> None:
        """Answer requests with an HTTP error in the provider's own form.

        Args:
            status: 400 to 599.
            times: How many requests.
            retry_after: Seconds for the Retry-After header.
            code: The error code in the body, where not the provider's usual one.
            provider: Whose requests.
        """
        error = self._scenarios.Fail(
            status,
            times=times,
            retry_after=retry_after,
            code=code,
            match=self._scenarios.Match(provider=provider),
        )
        self._server.state.scenarios.add(error)

    def delay(self, seconds: float, *, times: int | None = 1, provider: str = "openai") -> None:
        """Hold answers back for so many seconds; an error of ``fail`` comes at once."""
        match = self._scenarios.Match(provider=provider)
        self._server.state.scenarios.add(self._scenarios.Delay(seconds, times=times, match=match))

    def cut_stream(
        self, *, after_chunks: int = 1, times: int | None = 1, provider: str = "openai"
    ) -> None:
        """Drop the connection in the middle of a stream.

        Args:
            after_chunks: Where; OpenAI's and Anthropic's first chunk carries no content.
            times: How many streams.
            provider: Whose streams.
        """
        self._break("disconnect", provider, after_chunks=after_chunks, times=times)

    def stall_stream(
        self,
        seconds: float,
        *,
        after_chunks: int = 1,
        times: int | None = 1,
        provider: str = "openai",
    ) -> None:
        """Stop sending in the middle of a stream for so many seconds, then go on."""
        self._break(
            "stall", provider, stall_seconds=seconds, after_chunks=after_chunks, times=times
        )

    def reply(self, text: str, *, times: int | None = 1, provider: str | None = "openai") -> None:
        """Answer with a text; a provider of None stands for every one."""
        match = self._scenarios.Match(provider=provider)
        self._server.state.scenarios.add(
            self._scenarios.Reply(text=text, times=times, match=match)
        )

    def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        times: int | None = 1,
        provider: str | None = "openai",
    ) -> None:
        """Ask for a tool to be called, where tools are offered; None stands for every provider."""
        call = self._scenarios.ToolCall(name, arguments)
        match = self._scenarios.Match(provider=provider, tools=True)
        reply = self._scenarios.Reply(tool_calls=(call,), times=times, match=match)
        self._server.state.scenarios.add(reply)

    def requests(self, provider: str | None = None) -> list[SeenRequest]:
        """Return what came since the last ``reset``: provider, model, status and stream of each.

        Args:
            provider: Only the requests to one provider.
        """
        return [
            SeenRequest(seen.provider, seen.model, seen.status, seen.stream)
            for seen in self._server.state.journal.records(wait=_IN_FLIGHT_SECONDS)
            if provider is None or seen.provider == provider
        ]

    def reset(self) -> None:
        """Forget what was scripted and what was seen."""
        self._server.state.reset()

    def _break(self, how: str, provider: str, **options: Any) -> None:
        match = self._scenarios.Match(provider=provider, stream=True)
        fault = self._scenarios.StreamFault(how, match=match, **options)
        self._server.state.scenarios.add(fault)


@contextmanager
def fault_simulator() -> Generator[FaultSimulator, None, None]:
    """Serve simulated providers on a free loopback port, in this process.

    Raises:
        ImportError: The extra ``testing`` is not installed.
    """
    try:
        from llmock import scenarios  # noqa: PLC0415 # of an extra
        from llmock.testing import LLMockServer  # noqa: PLC0415 # of an extra
    except ModuleNotFoundError as missing:
        message = "llmock is not installed: pip install 'honcho-fallback[testing]'"
        raise ImportError(message, name="llmock") from missing
    with LLMockServer() as server:
        yield FaultSimulator(server, scenarios)
