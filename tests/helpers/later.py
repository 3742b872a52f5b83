"""A cooldown on a clock that a test may put forward, and a recovery that takes no time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback import Cooldown, TransportRecovery

if TYPE_CHECKING:
    from honcho_fallback import Failure, PendingAction, Target


class Later(Cooldown):
    """Remember as ever, some seconds ahead."""

    ahead = 0.0

    def update_and_select(self, reports: Any, offered: Any, now: float, /, *lease: Any) -> Any:
        return super().update_and_select(reports, offered, now + self.ahead, *lease)


class AtOnce(TransportRecovery):
    """Recover without the wait."""

    def action(self, target: Target, failure: Failure, failures: int) -> PendingAction | None:
        action = super().action(target, failure, failures)
        return action and action._replace(wait=0.0)
