"""The keywords of ``with_fallback_config``: the policy's options, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from honcho_fallback import (
    ConfigOptions,
    Credential,
    FallbackConfig,
    FallbackConfigError,
    FallbackObserver,
    FallbackPolicy,
    Turn,
)
from honcho_fallback_langchain._candidates import targets_of
from honcho_fallback_langchain._sdk import within_attempts, without_sdk_retries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_core.runnables import Runnable, RunnableConfig

Fit = Literal["check", "ask anyway"]
Partial = Literal["final", "replace"]
SdkRetries = Literal["off", "keep"]

_CHOICES = {
    "fit": get_args(Fit),
    "partial": get_args(Partial),
    "sdk_retries": get_args(SdkRetries),
}

# Where a call's own policy stands in a config. A remote caller can put strings and dicts there, so
# only the very classes count.
CONFIG_KEY, TURN_KEY = "fallback_config", "fallback_turn"
AGENT_KEY = "lc_agent_name"  # where create_agent(name=...) puts it in a config's metadata


class FallbackOptions(ConfigOptions, total=False):
    """Name everything that ``with_fallback_config`` takes."""

    agent: str
    credentials: Iterable[Credential | None]
    fallback_config: FallbackConfig
    fit: Fit
    observers: Iterable[FallbackObserver]
    partial: Partial
    sdk_retries: SdkRetries


_BESIDE = FallbackOptions.__annotations__.keys() - ConfigOptions.__annotations__.keys()


@dataclass(frozen=True, slots=True)
class Options:
    """Hold the options of one runnable.

    Args:
        config: The policy's.
        agent: A label for logs and records; by default the name that ``create_agent`` was given.
        credentials: What each candidate is asked with; None, or nothing, for its own key.
        fit: ``"check"`` passes over a candidate that cannot take a request, before it is asked;
            ``"ask anyway"`` leaves that to the provider.
        observers: The observers of each call.
        partial: ``"final"``: what a reader has seen of an answer stays, and a break after it is
            StreamInterrupted; ``"replace"``: the call goes on, and the next candidate's answer
            takes the place of what was seen.
        sdk_retries: ``"off"`` uses candidates through copies whose SDK does not retry by itself,
            and gives up when an attempt's time is over; ``"keep"`` leaves them alone.
    """

    config: FallbackConfig = field(default_factory=FallbackConfig)
    agent: str = "unknown"
    credentials: tuple[Credential | None, ...] = ()
    fit: Fit = "check"
    observers: tuple[FallbackObserver, ...] = ()
    partial: Partial = "final"
    sdk_retries: SdkRetries = "off"

    def updated(self, options: Mapping[str, Any]) -> Self:
        """Return a copy with other options."""
        beside = {name: options[name] for name in _BESIDE if name in options}
        for name in ("credentials", "observers"):
            if name in beside:
                beside[name] = tuple(beside[name])
        for name, choices in _CHOICES.items():
            if beside.get(name, choices[0]) not in choices:
                fix = "pass " + " or ".join(f'"{choice}"' for choice in choices)
                raise FallbackConfigError.about(name, f"got {beside[name]!r}", fix)
        policy: Any = {name: value for name, value in options.items() if name not in beside}
        config = beside.pop("fallback_config", self.config)
        if not isinstance(config, FallbackConfig):
            raise FallbackConfigError.about(
                "fallback_config", f"got a {type(config).__name__}", "pass a FallbackConfig"
            )
        return replace(self, config=config.replace(**policy) if policy else config, **beside)

    def plain(self) -> dict[str, Any]:
        """Return what differs from the defaults and is a plain value, in a fixed order."""
        values: dict[str, Any] = {}
        for name in sorted(self.config.model_fields_set):
            value = getattr(self.config, name)
            if isinstance(value, frozenset):
                value = sorted(value)
            if value is None or isinstance(value, str | int | float | list):
                values[name] = value
        for name in ("agent", "fit", "partial", "sdk_retries"):
            if getattr(self, name) != getattr(_DEFAULTS, name):
                values[name] = getattr(self, name)
        return values


_DEFAULTS = Options()


def policy_over(
    candidates: Sequence[Runnable[Any, Any]],
    options: Options,
    before: FallbackPolicy | None,
    *,
    replaced: int = 0,
) -> FallbackPolicy:
    """Make the policy over candidates, their SDKs' retries off where that is asked for."""
    if options.sdk_retries == "off":
        candidates = [within_attempts(without_sdk_retries(one)) for one in candidates]
    earlier_targets = () if before is None else (*[None] * replaced, *before.targets[replaced:])
    return FallbackPolicy(
        targets_of(candidates, options.credentials, earlier_targets),
        options.config,
        agent=options.agent,
        observers=options.observers,
        turns_of=before,
    )


def for_this_call(
    config: RunnableConfig, policy: FallbackPolicy, observers: Iterable[FallbackObserver]
) -> tuple[FallbackPolicy, Turn | None]:
    """Return the policy and the turn that a config asks for, or the policy and no turn.

    A policy without a label of its own has the name of the agent that it is asked in.
    """
    configurable = config.get("configurable") or {}
    own, turn = configurable.get(CONFIG_KEY), configurable.get(TURN_KEY)
    agent = policy.agent
    if agent == _DEFAULTS.agent:
        name = (config.get("metadata") or {}).get(AGENT_KEY)
        agent = name if isinstance(name, str) and name else agent
    if isinstance(own, FallbackConfig):
        policy = FallbackPolicy(
            policy.targets, own, agent=agent, observers=observers, turns_of=policy
        )
    elif agent is not policy.agent:
        policy = policy.labelled(agent)
    return policy, turn if isinstance(turn, Turn) else None
