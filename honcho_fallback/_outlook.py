"""What one call looks at beyond itself: time left, who cools down, what may still be repeated."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from honcho_fallback._cooldown import Report
from honcho_fallback._failure import KINDS, FailureKind
from honcho_fallback._recovery import Errand, RecoveryGuards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback._failure import Failure, Health
    from honcho_fallback._plan import Plan
    from honcho_fallback._record import Outcome
    from honcho_fallback._target import Attempt, Target

    Places = Sequence[int]


_PROBE = "a probe after its cooldown"


class Outlook:
    """Hold it for one call; made where an option asks for it, or something failed.

    Args:
        plan: The chain and its options.
        now: The call's start.
    """

    granted = 0  # requests on top of max_attempts: those after a recovery
    permit: str | None = None
    note = ""  # on the attempt at hand
    why: str | None = None  # the call ended though more could have been asked
    late = False  # because time ran out
    _generation: object = None

    def __init__(self, plan: Plan, now: float) -> None:
        self._plan = plan
        self._config = config = plan.config
        deadline, kept = config.deadline, config.reserve
        self._ends = inf if deadline is None else now + deadline
        self._reserve = max(1.0, (deadline or 0.0) / 3) if kept is None else kept
        self.guards = RecoveryGuards()
        self.passed: dict[int, str] = {}

    def timeout(self, position: int, now: float) -> float | None:
        """Tell how long an attempt may take, what is kept for the targets behind it left out.

        Args:
            position: Whom it asks.
            now: When it begins.
        """
        timeout, share = self._config.timeout, self._share(position, now)
        limit = min(share, inf if timeout is None else timeout)
        return None if limit == inf else limit

    def _share(self, position: int, now: float) -> float:
        behind = self._plan.reach - 1 - position
        left = self._ends - now
        # Where the reserves would leave it less, the targets share what is left alike.
        return left - min(behind * self._reserve, left * behind / (behind + 1))

    def in_time(self, position: int, now: float, wait: float = 0.0) -> bool:
        """Tell whether an attempt that begins after a wait has any time.

        Args:
            position: Whom it asks.
            now: The time.
            wait: Seconds waited before it.
        """
        if now < self._ends and wait < self._share(position, now):
            return True
        self.late = True
        self.why = f"the deadline of {self._config.deadline:g} s left no time for more"
        return False

    def may_repeat(self, attempt: Attempt, now: float, wait: float) -> bool:
        """Tell whether time and the retry budget allow one more request to the same target.

        Args:
            attempt: The one that failed.
            now: The time.
            wait: Seconds waited before the next.
        """
        if not self.in_time(attempt.position, now, wait):
            return False
        budget, target = self._config.retry_budget, attempt.target
        if budget is None or budget.repeat(target.identity, now):
            return True
        self.why = f"the retry budget for {target.name} was used up"
        return False

    def refresh(self, failure: Failure, target: Target) -> Errand | None:
        """Return how a new credential may help: after a 401, or a 403 about credentials, once.

        Args:
            failure: What went wrong.
            target: Where.
        """
        credential: Any = target.credential
        asked = self.guards.credential_refresh or failure.kind is not FailureKind.AUTHENTICATION
        if asked or credential is None:
            return None
        self.guards.credential_refresh = True
        renew = getattr(credential, "renew", None)
        refresh = partial(renew, self._generation) if renew else credential.refresh
        return Errand("refresh", refresh, blocks=True, note="after a refresh of its credential")

    def rebuild(self, failure: Failure, attempt: Attempt, retries: int) -> Errand | None:
        """Return how time may help the primary's transport, or None.

        Args:
            failure: What went wrong.
            attempt: The one that failed.
            retries: Requests to it that were repeated.
        """
        recovery = self._config.transport_recovery
        if recovery is None or attempt.position or self.guards.transport_recovery:
            return None
        errand = recovery.errand(attempt.target, failure.kind, retries)
        self.guards.transport_recovery = errand is not None
        return errand

    def news(self, offered: Places) -> Errand | None:
        """Return what a driver has to do to learn what other processes know, or None.

        Args:
            offered: Positions, in the order of the chain.
        """
        shared = self._config.cooldown.shared if self._config.cooldown else None
        if shared is None:
            return None
        known = self._identities(offered)
        return Errand("cooldown", partial(shared.pull, known), partial(shared.apull, known))

    def arrive(self, offered: Places, left: Target, failure: Failure | None, now: float) -> int:
        """Choose whom to ask and note that it is asked for the first time in this call.

        Args:
            offered: Positions, in the order of the chain.
            left: The target that was at hand.
            failure: What failed there, or None.
            now: The time.

        Returns:
            The position.
        """
        position, store, self.note = offered[0], self._config.cooldown, ""
        if store is not None:
            reports = self._reports(left, failure)
            choice = store.exchange(reports, self._identities(offered), now)
            position, self.permit = offered[choice.place], choice.permit
            for place, seconds in choice.passed:
                why = f"it was cooling down for another {seconds:.0f} s"
                self.passed[offered[place]] = why if seconds else "another call was probing it"
            if choice.permit is not None or choice.forced:
                self.note = _PROBE if choice.permit else "all were cooling down, it was due first"
        target = self._plan.chain[position]
        self.late, self.why = False, None
        if target is not left:
            self.guards = RecoveryGuards()
        if target.credential is not None:
            self._generation = getattr(target.credential, "generation", None)
        if self._config.retry_budget is not None:
            self._config.retry_budget.first(target.identity, now)
        return position

    def close(
        self, target: Target, outcome: Outcome, failure: Failure | None, now: float
    ) -> Errand | None:
        """Note how the call ended, and return the errand of telling others, or None.

        Args:
            target: Who was asked last.
            outcome: How it ended.
            failure: The last failure, or None.
            now: The time.
        """
        if outcome == "exhausted":
            self.in_time(self._plan.reach - 1, now)
        store = self._config.cooldown
        if store is None:
            return None
        reports = self._reports(target, failure, outcome)
        if reports:
            store.exchange(reports, (), now)
        self.permit, shared = None, store.shared
        return None if shared is None else Errand("cooldown", shared.push, shared.apush)

    def _identities(self, offered: Places) -> list[str]:
        return [self._plan.chain[position].identity for position in offered]

    def _reports(
        self, target: Target, failure: Failure | None, outcome: Outcome = "exhausted"
    ) -> tuple[Report, ...]:
        health: Health = "up" if outcome == "success" else "unknown"
        asked = None
        if failure is not None and outcome in {"exhausted", "rejected", "interrupted"}:
            health, asked = KINDS[failure.kind].health, failure.retry_after
        if health != "down" and self.permit is None:
            return ()  # no news: nobody was missing it
        return (Report(target.identity, health, asked, self.permit),)
