"""Simulated providers that break on demand; the one place that knows llmock."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback.testing._need import need

if TYPE_CHECKING:
    from collections.abc import Generator

# A stream that was cut may still be closing on the server's side when its record is read.
_IN_FLIGHT_SECONDS = 2.0


class SeenRequest(NamedTuple):
    """Tell one request that a simulated provider saw.

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

    Args:
        server: The running llmock server.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._scenarios = need("llmock.scenarios")

    def base_url(self, provider: str = "openai") -> str:
        """Tell the ``base_url`` that the provider's own SDK needs.

        Args:
            provider: Such as ``openai`` or ``anthropic``.
        """
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
            times: How many requests; None for all of them, until ``reset``.
            retry_after: Seconds for the Retry-After header.
            code: The error code in the body, where not the provider's usual one.
            provider: Whose requests.
        """
        match = self._scenarios.Match(provider=provider)
        self._add("Fail", status, times=times, retry_after=retry_after, code=code, match=match)

    def delay(self, seconds: float, *, times: int | None = 1, provider: str = "openai") -> None:
        """Hold answers back; an HTTP error of ``fail`` comes at once all the same.

        Args:
            seconds: For how long.
            times: How many answers; None for all of them, until ``reset``.
            provider: Whose answers.
        """
        match = self._scenarios.Match(provider=provider)
        self._add("Delay", seconds, times=times, match=match)

    def cut_stream(
        self, *, after_chunks: int = 1, times: int | None = 1, provider: str = "openai"
    ) -> None:
        """Drop the connection in the middle of a stream.

        Args:
            after_chunks: Where; OpenAI's and Anthropic's first chunk carries no content.
            times: How many streams.
            provider: Whose streams.
        """
        match = self._scenarios.Match(provider=provider, stream=True)
        self._add("StreamFault", "disconnect", after_chunks=after_chunks, times=times, match=match)

    def stall_stream(
        self,
        seconds: float,
        *,
        after_chunks: int = 1,
        times: int | None = 1,
        provider: str = "openai",
    ) -> None:
        """Stop sending in the middle of a stream, then go on.

        Args:
            seconds: For how long.
            after_chunks: Where.
            times: How many streams.
            provider: Whose streams.
        """
        match = self._scenarios.Match(provider=provider, stream=True)
        self._add(
            "StreamFault",
            "stall",
            after_chunks=after_chunks,
            stall_seconds=seconds,
            times=times,
            match=match,
        )

    def reply(self, text: str, *, times: int | None = 1, provider: str | None = "openai") -> None:
        """Say a text.

        Args:
            text: What the model says.
            times: How many times.
            provider: Whose model; None for every one.
        """
        match = self._scenarios.Match(provider=provider)
        self._add("Reply", text=text, times=times, match=match)

    def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        times: int | None = 1,
        provider: str | None = "openai",
    ) -> None:
        """Ask for a tool to be called, where tools are offered.

        Args:
            name: The tool's.
            arguments: What it is passed.
            times: How many times.
            provider: Whose model; None for every one.
        """
        match = self._scenarios.Match(provider=provider, tools=True)
        call = self._scenarios.ToolCall(name, arguments)
        self._add("Reply", tool_calls=(call,), times=times, match=match)

    def requests(self, provider: str | None = None) -> list[SeenRequest]:
        """List the requests seen since the last ``reset``, in the order they came.

        Args:
            provider: Only those of one provider.
        """
        return [
            SeenRequest(seen.provider, seen.model, seen.status, seen.stream)
            for seen in self._server.state.journal.records(wait=_IN_FLIGHT_SECONDS)
            if provider is None or seen.provider == provider
        ]

    def reset(self) -> None:
        """Forget what was scripted and what was seen."""
        self._server.state.reset()

    def _add(self, behaviour: str, *args: Any, **options: Any) -> None:
        self._server.state.scenarios.add(getattr(self._scenarios, behaviour)(*args, **options))


@contextmanager
def fault_simulator() -> Generator[FaultSimulator, None, None]:
    """Serve simulated providers on a free loopback port, in this process.

    Raises:
        ImportError: The extra ``testing`` is not installed.
    """
    with need("llmock.testing").LLMockServer() as server:
        yield FaultSimulator(server)
