"""The options by name, and three sets of them that have one.

Each returns options, of which ``FallbackConfig.honcho(**more)`` and its like make a config.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import tenacity

from honcho_fallback._core.shared import Cooldown, RetryBudget
from honcho_fallback._values.failure import NOT_ACCEPTABLE, Failure
from honcho_fallback._values.failure import FailureKind as Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback._classify._rules import RulesSource
    from honcho_fallback._core.recovery import TransportRecovery
    from honcho_fallback._core.shared import CooldownStore, Sessions


class ConfigOptions(TypedDict, total=False):
    """Name the options that FallbackConfig, a policy and a single call take."""

    fallback_on: frozenset[Kind] | set[Kind] | set[str]
    switch_after: int | Mapping[Kind, int] | Mapping[str, int]
    max_attempts: int | None
    attempts_per_target: int | None
    wait: Callable[[Any], Any] | float
    retry_after_cap: float
    reset: Literal["iteration", "turn", "session"] | Sessions
    timeout: float | None
    connect_timeout: float | None
    check_responses: bool
    validate: Callable[[Any], object] | None
    on_exhausted: Literal["group", "last"]
    only_models: bool
    rules: RulesSource
    refine: Callable[[Failure, BaseException], Failure] | None
    cooldown: CooldownStore | None
    deadline: float | None
    first_token_timeout: float | None
    idle_timeout: float | None
    retry_budget: RetryBudget | None
    transport_recovery: TransportRecovery | None
    must_not_degrade: bool
    replay: Literal["any", "safe"]
    require: frozenset[str] | set[str]
    refusal_require: frozenset[str] | set[str]
    min_rate: float | None


_HERMES_DELAY = tenacity.wait_exponential(multiplier=2, max=60)
_PASSING = (Kind.OVERLOADED, Kind.SERVER_ERROR, Kind.TIMEOUT, Kind.CONNECTION)
# What the pull request names by class where an error has no status.
_BY_CLASS = frozenset({*_PASSING, Kind.RATE_LIMIT})


def honcho() -> ConfigOptions:
    """Return the options of Honcho's pull request 692: its table, three attempts."""
    return {"max_attempts": 3, "refine": _refine_as_honcho}


def hermes() -> ConfigOptions:
    """Return hermes-agent's options: what may pass is tried three times, the rest left at once.

    The cooldown is its newer one, which rests whoever failed and not only a rate-limited primary.
    """
    return {
        "fallback_on": frozenset(Kind) - {Kind.CANCELLED, Kind.LOCAL},
        "switch_after": dict.fromkeys((*_PASSING, Kind.MALFORMED_RESPONSE), 3),
        "attempts_per_target": 3,
        "retry_after_cap": 600.0,
        "reset": "turn",
        "on_exhausted": "last",
        "wait": _hermes_wait,
        "cooldown": Cooldown(after=1, base=60.0, cap=14400.0),
        "refine": _refine_as_hermes,
    }


def resilient() -> ConfigOptions:
    """Return the options recommended for agents in production, with a memory of their own."""
    return {
        "reset": "turn",
        "deadline": 120.0,
        "first_token_timeout": 10.0,
        "idle_timeout": 60.0,
        "cooldown": Cooldown(),
        "retry_budget": RetryBudget(),
    }


def _refine_as_honcho(failure: Failure, _: BaseException) -> Failure:
    """Switch on 408, 429, 5xx, timeouts and lost connections only."""
    # An answer that a validator refused is meant to engage the fallback there, as junk is.
    # And what a rule of the user's says holds under any preset.
    is_junk = failure.kind is Kind.MALFORMED_RESPONSE and failure.scope == "client"
    refused = is_junk or failure.reason == NOT_ACCEPTABLE
    if failure.by_rule or failure.kind is Kind.LOCAL or refused:
        return failure
    status = failure.status
    # Under an HTTP 200 stream the status says nothing about the error event inside it.
    if status is None or status < 400:
        wanted = failure.kind in _BY_CLASS
    else:
        wanted = status in {408, 429} or status >= 500
    return failure._replace(transient=wanted and failure.transient, switchable=wanted)


def _refine_as_hermes(failure: Failure, error: BaseException) -> Failure:
    """Take what nobody can explain for the provider's; the machine's own troubles stay local."""
    unknown = failure.kind is Kind.LOCAL and not failure.by_rule
    if not unknown or isinstance(error, OSError):
        return failure
    reason = "unknown, taken for the provider's"
    return Failure.of(Kind.SERVER_ERROR, reason=reason, error=failure.error)


def _hermes_wait(state: tenacity.RetryCallState) -> float:
    """Wait 2 s doubling to 60 s, and up to half as much again (hermes-agent's retry_utils)."""
    delay = _HERMES_DELAY(state)
    return delay + random.uniform(0, delay / 2)  # noqa: S311 # a jitter is no secret
