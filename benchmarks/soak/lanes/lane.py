"""What every lane can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from honcho_fallback import FallbackConfig
from soak.provider import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

KEY = "not-a-key"
# Waits are short, as it is not patience that is tried here.
CONFIG = FallbackConfig(timeout=TIMEOUT, wait=0.01, retry_after_cap=0.02)


class Lane(Protocol):
    """Ask by any of four ways; the text of the answer, or its parts."""

    def call(self, prompt: str, /) -> str: ...

    async def acall(self, prompt: str, /) -> str: ...

    def stream(self, prompt: str, /) -> Generator[str, None, None]: ...

    def astream(self, prompt: str, /) -> AsyncGenerator[str, None]: ...

    def unfinished(self) -> list[str]:
        """Describe the connections of its pool that are still in use."""
        ...

    async def close(self) -> None:
        """Close the clients."""
        ...
