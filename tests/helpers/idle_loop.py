"""An event loop whose time passes only while nobody has anything to do.

Whoever waits for a timeout does not wait: when no socket, no callback and no thread has anything
for the loop, its clock goes on to the next timer. A slow or loaded machine moves that clock by
nothing, so what takes 120 s takes exactly that, and no real time.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

import anyio.to_thread
import openai

from honcho_fallback import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Executor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Real seconds that nothing may come in before time goes on: what the kernel has to deliver on
# loopback is there by then.
GRACE = 0.003


class _IdleSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.threads = 0  # that work, and do not wait for the loop
        self.limiter: anyio.CapacityLimiter | None = None  # it counts anyio's threads

    @property
    def is_awaited(self) -> bool:
        """Tell whether a thread may have something for the loop."""
        return self.threads > 0 or (self.limiter is not None and self.limiter.borrowed_tokens > 0)

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self.is_awaited:
            return super().select(None if timeout is None else GRACE)
        ready = super().select(GRACE)
        if not ready:
            self.now += timeout
        return ready


class IdleLoop(asyncio.SelectorEventLoop):
    """Be the loop of whoever asks and of the provider that answers."""

    def __init__(self) -> None:
        self._idle = _IdleSelector()
        self._epoch = time.time()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.now

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 # as asyncio calls it
        """Wait for threads for as long as they take: this loop's seconds pass at once."""
        await super().shutdown_default_executor()

    def date(self) -> float:
        """Return the seconds since the epoch, which began to pass with this loop's."""
        return self._epoch + self.time()

    async def runtime(self) -> Runtime:
        """Return this loop's time for policies, in tasks as in threads."""
        self._idle.limiter = anyio.to_thread.current_default_thread_limiter()
        return Runtime(
            monotonic=self.time,
            time=self.date,
            sleep=lambda seconds: self.wait_for(asyncio.sleep(seconds)),
        )

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Let time stand still while a thread works."""
        future = super().run_in_executor(executor, func, *args)
        self._idle.threads += 1
        future.add_done_callback(self._came_back)
        return future

    def _came_back(self, _: object) -> None:
        self._idle.threads -= 1

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop for a thread of its executor, which waits: time may pass."""

        async def while_it_waits() -> T:
            self._idle.threads -= 1
            try:
                return await work
            finally:
                self._idle.threads += 1

        return asyncio.run_coroutine_threadsafe(while_it_waits(), self).result()


def transport_of(loop: IdleLoop) -> Any:
    """Make a transport for the sync SDK whose sockets and timeouts are the loop's."""
    # The SDK's own HTTP library, whichever it is.
    http = __import__(openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])

    class Body(http.SyncByteStream):  # type: ignore[misc, name-defined] # known when it runs
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __iter__(self) -> Iterator[bytes]:
            chunks = aiter(self.stream)
            while (chunk := loop.wait_for(anext(chunks, None))) is not None:
                yield chunk

        def close(self) -> None:
            loop.wait_for(self.stream.aclose())

    class Transport(http.BaseTransport):  # type: ignore[misc, name-defined] # known when it runs
        def __init__(self) -> None:
            self.inner = http.AsyncHTTPTransport()

        def handle_request(self, request: Any) -> Any:
            answer = loop.wait_for(self.inner.handle_async_request(request))
            return http.Response(
                answer.status_code,
                headers=answer.headers,
                stream=Body(answer.stream),
                extensions=answer.extensions,
            )

    return Transport()
