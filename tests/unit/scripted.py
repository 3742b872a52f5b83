"""Fake providers with a script: what each target says, in order, and who was asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from honcho_fallback import Attempt, FallbackPolicy, FallbackRun


class Response:
    """Stand for an HTTP response as SDK exceptions carry it."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = dict(headers)


class ProviderError(Exception):
    """An error as an SDK raises it: a status, a body, headers."""

    def __init__(self, status: int, *, code: str | None = None, **headers: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.body = {"error": {"code": code, "message": "in our own words"}} if code else None
        self.response = Response(
            {name.replace("_", "-"): value for name, value in headers.items()}
        )


class Script:
    """Answer for every target from a list; its last entry is said again and again.

    An entry is an answer, an exception, or (for streams) a list of chunks and exceptions.
    """

    def __init__(self, **said: Sequence[Any]) -> None:
        self.said = {name: list(entries) for name, entries in said.items()}
        self.asked: list[str] = []
        self.attempts: list[Attempt] = []
        self.closed: Counter[str] = Counter()

    def next(self, attempt: Attempt) -> Any:
        """Return the next entry of a target, having noted that it was asked."""
        self.asked.append(attempt.target.name)
        self.attempts.append(attempt)
        entries = self.said[attempt.target.name]
        return entries.pop(0) if len(entries) > 1 else entries[0]

    def ask(self, attempt: Attempt) -> Any:
        entry = self.next(attempt)
        if isinstance(entry, BaseException):
            raise entry
        return entry

    async def aask(self, attempt: Attempt) -> Any:
        await asyncio.sleep(0)
        return self.ask(attempt)

    def stream(self, attempt: Attempt) -> Iterator[Any]:
        try:
            for chunk in self._chunks(attempt):
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            self.closed[attempt.target.name] += 1

    async def astream(self, attempt: Attempt) -> AsyncIterator[Any]:
        try:
            for chunk in self._chunks(attempt):
                await asyncio.sleep(0)
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            self.closed[attempt.target.name] += 1

    def _chunks(self, attempt: Attempt) -> list[Any]:
        entry = self.next(attempt)
        return entry if isinstance(entry, list) else [entry]


def drive_call(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    return policy.call(script.ask, run=run)


def drive_acall(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    return asyncio.run(policy.acall(script.aask, run=run))


def drive_stream(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    (answer,) = policy.stream(script.stream, run=run)
    return answer


def drive_astream(policy: FallbackPolicy, script: Script, run: FallbackRun) -> Any:
    async def read() -> Any:
        (answer,) = [chunk async for chunk in policy.astream(script.astream, run=run)]
        return answer

    return asyncio.run(read())


DRIVERS: dict[str, Callable[[FallbackPolicy, Script, FallbackRun], Any]] = {
    "call": drive_call,
    "acall": drive_acall,
    "stream": drive_stream,
    "astream": drive_astream,
}
