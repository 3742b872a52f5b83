"""The record of a call that no machine of ours made: a peer's attempts, as a ``CallRecord``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback import AttemptRecord, CallRecord, Failure, classify

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import Outcome
    from honcho_fallback.testing.simulate._exchange import Limits
    from honcho_fallback.testing.simulate._world import World


class Ledger:
    """Send requests and write them down; for a ``Caller`` of one's own, too.

    Args:
        world: Whom to ask.
        agent: Who asks.
        call_id: The call's name.
        chain: The targets' names, the primary first.
    """

    def __init__(self, world: World, agent: str, call_id: str, chain: tuple[str, ...]) -> None:
        self.world = world
        self.chain = chain
        self._agent = agent
        self._call_id = call_id
        self._started = world.clock.now
        self._attempts: list[AttemptRecord] = []
        self._first: float | None = None

    @property
    def interrupted(self) -> bool:
        """Tell whether content was handed out before something broke."""
        return self._first is not None

    def ask(
        self, position: int, limits: Limits, wait: float = 0.0
    ) -> Generator[float, None, Failure | None]:
        """Wait, then send one request.

        Args:
            position: To whom.
            limits: How long to wait for its answer.
            wait: Seconds to sleep before.

        Returns:
            What went wrong, or None for an answer.
        """
        if wait:
            yield wait
        clock, target = self.world.clock, self.chain[position]
        began = clock.now
        exchange = self.world.ask(target, limits)
        yield exchange.seconds
        failure = None if exchange.error is None else classify(exchange.error)
        if exchange.first is not None:
            self._first = began + exchange.first - self._started
        provider, slash, model = target.partition("/")
        self._attempts.append(
            AttemptRecord(
                target=target,
                model=model if slash else target,
                provider=provider if slash else None,
                number=len(self._attempts) + 1,
                position=position,
                started=began - self._started,
                seconds=exchange.seconds,
                wait=wait,
                kind=failure.kind if failure else None,
                status=failure.status if failure else None,
                code=failure.code if failure else None,
                error=failure.error if failure else None,
                retry_after=failure.retry_after if failure else None,
                next_action=failure.next_action if failure else None,
            )
        )
        return failure

    def close(self) -> CallRecord:
        """Return the record: whoever answered last has answered."""
        last = self._attempts[-1] if self._attempts else None
        answered = last if last is not None and last.kind is None else None
        asked = {attempt.target for attempt in self._attempts}
        untried = tuple(
            (name, "another target answered first" if answered else "it was not asked")
            for name in self.chain
            if name not in asked
        )
        unanswered: Outcome = "interrupted" if self.interrupted else "exhausted"
        return CallRecord(
            call_id=self._call_id,
            agent=self._agent,
            chain=self.chain,
            attempts=tuple(self._attempts),
            outcome="success" if answered else unanswered,
            answered_by=answered.target if answered else None,
            is_fallback=answered is not None and answered.position > 0,
            started_at=self.world.scenario.started_at + self._started,
            seconds=self.world.clock.now - self._started,
            usage=None,
            time_to_first_token=self._first,
            untried=untried,
        )
