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
    """

    provider: Provider
    model: str = "gpt-next"
    key: str = ""
    host: str = "127.0.0.1"
    timeout: float | None = None
    labels: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def url(self) -> str:
        return self.provider.url.replace("127.0.0.1", self.host)

    @property
    def secret(self) -> str:
        return self.key or f"key-of-{self.provider.name}"


class Way(ABC):
    """Drive one way in, as its users write it.

    Attributes:
        name: For the tests' names.
        verbs: Every way to ask; those with ``stream`` in their name read one to its end.
        few: Those that the properties are looked at with that no single verb decides.
        offers: What not every way has.
        raises: What comes out of a call, by what became of it.
        form: Whose errors it reads: of ``openai`` or of ``anthropic``.
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

    def clean(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def close(self) -> None:  # noqa: B027 # most keep nothing open
        """Close what the framework keeps open in this loop."""

    @abstractmethod
    def chain(self, places: list[Place], config: FallbackConfig, observers: Iterable[Any]) -> Any:
        """Build the framework's chain."""

    @abstractmethod
    async def ask(self, chain: Any, verb: str, question: str, metadata: Any) -> str:
        """Ask it, and return what it says."""
