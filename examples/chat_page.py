"""A chat page over an agent: what a failed attempt has said is taken back while the next speaks.

Run:     python examples/chat_page.py  (offline: the models are scripted)
Install: pip install 'honcho-fallback[agents]'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackMiddleware

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_core.outputs import ChatGenerationChunk


class BreaksOff(GenericFakeChatModel):
    """Speak seven tokens, then fail as a provider does that is overloaded."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for number, chunk in enumerate(super()._stream(*args, **kwargs)):
            if number == 7:
                raise StatusError(503)
            yield chunk


class Page:
    """Show the messages of a chat; a console that only writes on stands in for a browser."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self._shown: dict[str, str] = {}  # by call: the message that its attempts share

    def read(self, stream: Iterable[Any]) -> None:
        """Show each token where it belongs.

        Args:
            stream: Of a graph, with ``stream_mode="messages"``: pairs of chunk and metadata.
        """
        for chunk, metadata in stream:
            if not isinstance(chunk, AIMessageChunk) or not chunk.text:
                continue
            # One call of the model is one message; each attempt at it has an id of its own.
            call = metadata["fallback_call_id"]
            before = self._shown.setdefault(call, chunk.id or "")
            if before != chunk.id:
                print(f"\n   [taken back: {self.messages.pop(before)!r}]")
                self._shown[call] = chunk.id or ""
            key = self._shown[call]
            if key not in self.messages:
                print(f"attempt {metadata['fallback_attempt']}: ", end="")
            self.messages[key] = self.messages.get(key, "") + chunk.text
            print(chunk.text, end="", flush=True)
        print()


def main() -> None:
    """Ask an agent whose model breaks off in mid-sentence."""
    primary = BreaksOff(messages=iter([AIMessage(content="The weather in Oslo is fine, and")]))
    backup = GenericFakeChatModel(messages=iter([AIMessage(content="It rains in Oslo today.")]))
    # By default the break would come out as StreamInterrupted, with what was said as `partial`.
    fallback = FallbackMiddleware(backup, partial="replace", agent="weather")
    agent = create_agent(primary, middleware=[fallback])

    page = Page()
    question = HumanMessage("What is the weather in Oslo?")
    page.read(agent.stream({"messages": [question]}, stream_mode="messages"))
    print("On the page:", *page.messages.values())


if __name__ == "__main__":
    main()
