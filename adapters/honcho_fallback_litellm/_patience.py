"""The time limit of one attempt, where LiteLLM runs in a task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from litellm.exceptions import Timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from honcho_fallback import Target

T = TypeVar("T")


class Patience:
    """Bound what one attempt takes, from its opening to a stream's first content.

    A reader's own time between two chunks does not count. Nothing is bounded until ``give``.
    """

    __slots__ = ("_left", "_scope", "_seconds", "_target")

    def __init__(self) -> None:
        self._left: float | None = None
        self._scope: asyncio.Timeout | None = None
        self._seconds: float | None = None
        self._target: Target | None = None

    def give(self, seconds: float | None, target: Target) -> None:
        """Start anew for an attempt, also from within ``bear``."""
        self._left = self._seconds = seconds
        self._target = target
        if self._scope is not None:
            now = asyncio.get_running_loop().time()
            self._scope.reschedule(None if seconds is None else now + seconds)

    async def bear(self, awaitable: Awaitable[T]) -> T:
        """Await something of the attempt."""
        if self._scope is not None:  # LiteLLM goes on with another target within a chunk's reading
            return await awaitable
        self._scope = scope = asyncio.timeout(self._left)
        try:
            async with scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
            raise self._over() from None
        finally:
            self._scope, until = None, scope.when()
            left = None if until is None else until - asyncio.get_running_loop().time()
            self._left = None if left is None else max(0.0, left)

    def _over(self) -> Timeout:
        assert self._target is not None  # noqa: S101 # for the type checker: nothing else expires
        name, provider = self._target.name, self._target.provider
        message = f"{name} gave no answer within {self._seconds:g} s"
        return Timeout(message, model=self._target.model, llm_provider=provider or "")
