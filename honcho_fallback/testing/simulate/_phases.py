"""What a target does from some moment on: one class per kind of good or bad day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from honcho_fallback.testing.simulate._exchange import Reply
from honcho_fallback.testing.simulate._failures import (
    ConnectTimeoutError,
    SimulatedError,
    dropped,
)
from honcho_fallback.testing.simulate._latency import Latency, Moment, Part, Seconds
from honcho_fallback.testing.simulate._recorded import Recorded

if TYPE_CHECKING:
    from honcho_fallback.testing.simulate._recorded import Taken

# Where nobody hangs up, the kernel does: Linux gives up a silent connection after
# tcp_keepalive_time (7200 s) and one that is never made after six SYNs (127 s).
_KEPT_ALIVE = 7200.0
_CONNECTING = 127.0

Share = Annotated[float, Field(gt=0, le=1)]
Status = Annotated[int, Field(ge=400, le=599)]


class Request(NamedTuple):
    """Say what a phase knows of the request that it answers.

    Args:
        at: When it comes, in seconds of the scenario.
        since: Seconds since the phase began.
        left: Seconds until it ends.
        latency: The target's usual one.
        first: The share of an answer's time that passes before its first content.
        stream: Whether a stream is asked for.
        luck: A draw between 0 and 1.
        normal: A draw from the standard normal distribution.
        counts: Requests per window; kept for the phase.
        taken: Observations used up; kept for the phase.
    """

    at: float
    since: float
    left: float
    latency: Latency
    first: float
    stream: bool
    luck: float
    normal: float
    counts: dict[int, int]
    taken: Taken

    def answered(self, latency: Latency | None = None, factor: float = 1.0) -> Reply:
        """Return an answer."""
        seconds = (latency or self.latency).seconds(self.normal, factor)
        return Reply(seconds, None, seconds * self.first if self.stream else None)

    def broken(self, after: float, error: Exception, *, late: bool, quiet: bool = False) -> Reply:
        """Return a failure."""
        if not (late and self.stream):
            return Reply(after, error)
        first = self.latency.seconds(self.normal) * self.first
        return Reply(first + after, error, first, quiet)


class _Phase(Part):
    """Hold what all phases have.

    Args:
        starts: Seconds after the scenario's start; it lasts until the next phase.
    """

    starts: Moment = 0.0


class Up(_Phase):
    """Answer every request.

    Args:
        latency: Another than the target's usual one.
    """

    kind: Literal["up"] = "up"
    latency: Latency | None = None

    def reply(self, request: Request) -> Reply:
        """Answer."""
        return request.answered(self.latency)


class Slow(_Phase):
    """Answer, but take longer.

    Args:
        factor: How many times the usual time.
    """

    kind: Literal["slow"] = "slow"
    factor: Annotated[float, Field(gt=1, allow_inf_nan=False)]

    def reply(self, request: Request) -> Reply:
        """Answer late."""
        return request.answered(factor=self.factor)


class _Refusing(_Phase):
    """Refuse requests with a status.

    Args:
        status: HTTP status.
        code: The provider's error code, or None.
        delay: Seconds until the refusal is there.
        share: Share of the requests that are refused; the others are answered as usual.
        retry_after: Seconds that it asks to be left alone, or None.
        after_content: Whether a stream brings content first.
    """

    status: Status
    code: str | None = None
    delay: Moment = 0.05
    share: Share = 1.0
    retry_after: Moment | None = None
    after_content: bool = False

    def _refused(self, request: Request, share: float) -> Reply:
        if request.luck >= share:
            return request.answered()
        error = SimulatedError(self.status, self.code, self.retry_after)
        return request.broken(self.delay, error, late=self.after_content)


class Failing(_Refusing):
    """Refuse requests with a status."""

    kind: Literal["failing"] = "failing"

    def reply(self, request: Request) -> Reply:
        """Refuse."""
        return self._refused(request, self.share)


class Quota(_Refusing):
    """Refuse every request because the money is gone."""

    kind: Literal["quota"] = "quota"
    status: Status = 429
    code: str | None = "insufficient_quota"

    def reply(self, request: Request) -> Reply:
        """Refuse."""
        return self._refused(request, self.share)


class Recovering(_Refusing):
    """Refuse a share of the requests that falls to nothing by the end of the phase."""

    kind: Literal["recovering"] = "recovering"
    status: Status = 503

    def reply(self, request: Request) -> Reply:
        """Refuse, less and less often."""
        return self._refused(request, self.share * request.left / (request.since + request.left))


class Dropped(_Phase):
    """Break the connection.

    Args:
        delay: Seconds until it breaks; after the first content where ``after_content``.
        share: Share of the requests; the others are answered as usual.
        after_content: Whether a stream brings content first.
    """

    kind: Literal["dropped"] = "dropped"
    delay: Moment = 0.05
    share: Share = 1.0
    after_content: bool = False

    def reply(self, request: Request) -> Reply:
        """Break off."""
        if request.luck >= self.share:
            return request.answered()
        return request.broken(self.delay, dropped(), late=self.after_content)


class Silent(_Phase):
    """Accept requests and never answer; a caller without a timeout is reset at the phase's end.

    Args:
        share: Share of the requests; the others are answered as usual.
        after_content: Whether a stream brings content first.
    """

    kind: Literal["silent"] = "silent"
    share: Share = 1.0
    after_content: bool = False

    def reply(self, request: Request) -> Reply:
        """Hang."""
        if request.luck >= self.share:
            return request.answered()
        after = min(request.left, _KEPT_ALIVE)
        return request.broken(after, dropped(), late=self.after_content, quiet=True)


class Unreachable(_Phase):
    """Let nobody connect: packets are lost."""

    kind: Literal["unreachable"] = "unreachable"

    def reply(self, request: Request) -> Reply:  # noqa: ARG002 # every phase has it
        """Say nothing at all."""
        error = ConnectTimeoutError("simulated: no connection")
        return Reply(_CONNECTING, error, connected=False)


class RateLimited(_Phase):
    """Answer so many requests per window, and refuse the others with 429.

    Args:
        calls: Requests answered per window.
        window: Its length in seconds; the first begins with the phase.
        says_when: Whether Retry-After tells when the window ends.
        delay: Seconds until the refusal is there.
    """

    kind: Literal["rate_limited"] = "rate_limited"
    calls: Annotated[int, Field(ge=0)]
    window: Seconds
    says_when: bool = True
    delay: Moment = 0.05

    def reply(self, request: Request) -> Reply:
        """Answer, or refuse."""
        number = int(request.since // self.window)
        before = request.counts.get(number, 0)
        if before < self.calls:
            request.counts[number] = before + 1
            return request.answered()
        left = (number + 1) * self.window - request.since
        return Reply(self.delay, SimulatedError(429, None, left if self.says_when else None))


Phase = Annotated[
    Up
    | Slow
    | Failing
    | Recovering
    | Quota
    | RateLimited
    | Dropped
    | Silent
    | Unreachable
    | Recorded,
    Field(discriminator="kind"),
]
