"""The providers' side of a simulation: endpoints that answer, fail and hang, and count it."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from functools import partial
from math import ceil, inf
from random import Random
from typing import TYPE_CHECKING

from honcho_fallback.simulate._scenario import KEPT_ALIVE, Phase, Reply, dropped
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from honcho_fallback import Attempt
    from honcho_fallback.simulate._scenario import SimulatedTarget, Traffic

_FIRST = 0.25  # of an answer's time passes before a stream's first content


class Endpoint:
    """Play one target in an event loop's time, and count its requests."""

    def __init__(self, target: SimulatedTarget, traffic: Traffic, seed: int) -> None:
        self.requests = 0
        self.written = self.unheard = 0  # answers, or parts of one, and those that nobody got
        self._target = target
        self._stream = traffic.stream
        price = target.price.per_million_input * traffic.input_tokens
        price += target.price.per_million_output * traffic.output_tokens
        self.price = price / 1_000_000
        self._phases = (Phase(kind="up"), *target.phases)
        self._starts = [phase.starts for phase in self._phases]
        self._times = [at for at, _ in target.recorded]
        # Requests of each window of each phase, and of each moment on record.
        self._seen: Counter[float | tuple[float, int]] = Counter()
        # Of its own: its n-th request has the same luck under every policy.
        self._rng = Random(f"{seed}:{target.name}")  # noqa: S311 # no secrets

    async def ask(self, attempt: Attempt) -> str:
        """Answer one request as a whole."""
        async for _ in self.stream(attempt):
            pass
        return "answer"

    async def stream(self, attempt: Attempt) -> AsyncGenerator[str, None]:
        """Answer one request in chunks, often enough for the caller's idle timeout."""
        reply = self._reply(asyncio.get_running_loop().time())
        first = reply.first if self._stream else None
        # What is written is paid for, whether anybody still waits at its end or not.
        is_written = reply.error is None or first is not None
        self.requests += 1
        self.written += is_written
        self.unheard += is_written
        rest, pieces = reply.seconds, 1
        if first is not None:
            await asyncio.sleep(first)
            yield "content"
            rest -= first
            if attempt.idle_timeout is not None and not reply.quiet:
                pieces = ceil(2 * rest / attempt.idle_timeout)
        for _ in range(pieces):
            await asyncio.sleep(rest / pieces)
            if reply.error is None or pieces > 1:
                yield "content"
        if reply.error is not None:
            raise reply.error()
        self.unheard -= 1

    def _reply(self, now: float) -> Reply:
        if self._times:
            return self._recorded(round(now, 6))
        number = bisect_right(self._starts, now)
        phase, end = self._phases[number - 1], [*self._starts, inf][number]
        since, left = now - phase.starts, end - now
        # Two draws for every request, used or not: the next one's luck depends on nothing else.
        luck, normal = self._rng.random(), self._rng.gauss()
        usual = self._target.latency.seconds(normal)
        share = phase.share * (left / (since + left) if phase.kind == "recovering" else 1.0)
        is_answered = phase.kind in {"up", "slow"} or luck >= share
        if phase.kind == "rate_limited":
            window = int(since // phase.window)
            self._seen[phase.starts, window] += 1
            is_answered = self._seen[phase.starts, window] <= phase.calls
            rest = (window + 1) * phase.window - since
            phase = phase.model_copy(update={"status": 429, "retry_after": rest})
        if is_answered:
            seconds = usual * phase.factor
            return Reply(seconds, None, seconds * _FIRST)
        first = usual * _FIRST if phase.after_content and self._stream else None
        after = (first or 0.0) + phase.delay
        if phase.kind == "silent":
            return Reply(after - phase.delay + min(left, KEPT_ALIVE), dropped, first, quiet=True)
        if phase.kind == "dropped":
            return Reply(after, dropped, first)
        wait = None if phase.retry_after is None else ceil(phase.retry_after)
        refusal = partial(StatusError, phase.status, code=phase.code, retry_after=wait)
        return Reply(after, refusal, first)

    def _recorded(self, now: float) -> Reply:
        """Repeat what was seen nearest in time; requests of the same moment take turns."""
        times = self._times
        after = bisect_left(times, now)
        nearest = min(times[max(0, after - 1) : after + 1], key=lambda at: abs(at - now))
        start, end = bisect_left(times, nearest), bisect_right(times, nearest)
        turn = self._seen[nearest] % (end - start)
        self._seen[nearest] += 1
        return self._target.recorded[start + turn][1]
