"""What a way in offers to the suite: a chain over scripted providers, and verbs to ask it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import openai

from honcho_fallback import DeadlineExceeded, FallbackExhausted, OutcomeUnknown, StreamInterrupted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import FallbackConfig
    from tests.helpers.provider import Provider

METADATA = "metadata"  # a call can carry some into its record
CONTENT = "content"  # observers hear the framework's own request
FEATURES = frozenset({METADATA, CONTENT})
EXHAUSTED, INTERRUPTED, LATE, UNKNOWN, REJECTED = (
    "exhausted",
    "interrupted",
    "late",
    "unknown",
    "rejected",
)


@dataclass(frozen=True)
class Place:
    """Say where a model of a chain is asked.

    Args:
        provider: Who answers.
        model: What is asked for; by default one whose window no table knows.
        key: The API key; by default one of the provider's own.
        host: The name of the machine in the address: what is on one host fails together.
        timeout: The patience of this model's own client, in seconds, or None for its default.
        labels: What is true of it.
        prefill: Whether it goes on with the beginning of an answer.
    """

    provider: Provider
    model: str = "gpt-next"
    key: str = ""
    host: str = "127.0.0.1"
    timeout: float | None = None
    labels: frozenset[str] = field(default_factory=frozenset[str])
    prefill: bool = False

    @property
    def url(self) -> str:
        return self.provider.url.replace("127.0.0.1", self.host)

    @property
    def secret(self) -> str:
        return self.key or f"key-of-{self.provider.name}"


@dataclass(slots=True)
class Page:
    """Show what is said, as an application does: another answer takes the place of the first."""

    text: str = ""
    of: object = None
    model: str | None = None
    has_usage: bool = False
    void: str = ""  # what stood there before

    def show(self, text: str, of: object = None) -> None:
        """Add a text of the answer that is known by this, or begin with it anew."""
        if of != self.of:
            self.void, self.text, self.of = self.void + self.text, "", of
        self.text += text

    def show_chunk(self, chunk: Any, *, by_id: bool) -> None:
        """Read a chunk of OpenAI's or LiteLLM's; the chunks of one answer share an id."""
        self.model = chunk.model or self.model
        self.has_usage = self.has_usage or bool(getattr(chunk, "usage", None))
        for choice in chunk.choices:
            if choice.delta.content:
                self.show(choice.delta.content, of=chunk.id if by_id else None)


class Way(ABC):
    """Drive one way in, as its users write it.

    Attributes:
        name: For the tests' names.
        verbs: Every way to ask; those with ``stream`` in their name read one to its end.
        few: Those that the properties are looked at with that no single verb decides.
        offers: What not every way has.
        raises: What comes out of a call, by what became of it.
        form: Whose errors it reads: of ``openai`` or of ``anthropic``.
        partial: What becomes of what was shown of a broken answer, where that may be said.
    """

    name: str
    verbs: tuple[str, ...]
    few: tuple[str, ...]
    offers: frozenset[str] = FEATURES
    raises: dict[str, type[BaseException]] = {  # noqa: RUF012 # never written to
        EXHAUSTED: FallbackExhausted,
        INTERRUPTED: StreamInterrupted,
        LATE: DeadlineExceeded,
        UNKNOWN: OutcomeUnknown,
        REJECTED: openai.BadRequestError,
    }
    form = "openai"
    partial: Any = "final"

    def clean(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def close(self) -> None:  # noqa: B027 # most keep nothing open
        """Close what the framework keeps open in this loop."""

    def chain(self, places: list[Place], config: FallbackConfig, observers: Iterable[Any]) -> Any:
        """Build the framework's chain."""
        return self.over(*map(self.model, places), config=config, observers=observers)

    @abstractmethod
    def model(self, place: Place, **fields: Any) -> Any:
        """Make what stands for one place in a chain, with further fields of its own."""

    @abstractmethod
    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        """Make the chain of these."""

    @abstractmethod
    async def read(self, chain: Any, verb: str, question: str, metadata: Any = None) -> Page:
        """Ask it, and show what it says, as its users read it."""

    async def ask(self, chain: Any, verb: str, question: str, metadata: Any) -> str:
        """Ask it, and return all that it says: whoever cannot take back has read it."""
        page = await self.read(chain, verb, question, metadata)
        return page.void + page.text
