"""What is compared: a way to ask a primary and, when it fails, a fallback."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standins import Served

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PROMPT = "hi"
KEY = "not-a-key"

Ask = Callable[[], Awaitable[object]] | Callable[[], object]


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Place:
    """Say where the two providers are.

    Args:
        primary: The base URL that a client of OpenAI's protocol takes.
        backup: The same.
        timeout: Seconds for one attempt where the primary hangs, or None for the default.
    """

    primary: str
    backup: str
    timeout: float | None = None

    @classmethod
    def of(cls, served: Served, timeout: float | None = None) -> Place:
        return cls(served.url(0, "/v1"), served.url(1, "/v1"), timeout)

    @property
    def limit(self) -> dict[str, Any]:
        """Return the timeout as a keyword, where there is one."""
        return {} if self.timeout is None else {"timeout": self.timeout}


@dataclass(frozen=True, slots=True)
class Ready:
    """Hold what is asked again and again.

    Args:
        ask: Makes one call.
        rest: Forgets between two calls what the peer remembers across calls.
        sync: Whether it blocks; it is then called where no event loop runs.
    """

    ask: Ask
    rest: Callable[[], None] = _nothing
    sync: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Subject:
    """Name a row.

    Args:
        name: As it is shown.
        make: Builds it for a place.
        ours: Whether this package is in it.
    """

    name: str
    make: Callable[[Place], Ready]
    ours: bool = field(default=False, kw_only=True)
