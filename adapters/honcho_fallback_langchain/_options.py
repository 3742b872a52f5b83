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
    call_metadata,
    check_observers,
)
from honcho_fallback_langchain._candidates import targets_of
from honcho_fallback_langchain._sdk import within_attempts, without_sdk_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from langchain_core.caches import BaseCache
    from langchain_core.callbacks import Callbacks
    from langchain_core.language_models import ModelProfile
    from langchain_core.rate_limiters import BaseRateLimiter
    from langchain_core.runnables import Runnable, RunnableConfig

Partial = Literal["final", "replace"]
SdkRetries = Literal["off", "keep"]

_CHOICES = {
    "partial": get_args(Partial),
    "sdk_retries": get_args(SdkRetries),
}

# Where a call's own policy stands in a config. A remote caller can put strings and dicts there, so
# only the very classes count.
CONFIG_KEY, TURN_KEY = "fallback_config", "fallback_turn"
AGENT_KEY = "lc_agent_name"  # where create_agent(name=...) puts it in a config's metadata

# Of a config's metadata: what LangChain, LangGraph and this package say of a run, not its caller.
_THEIRS = ("__", "checkpoint_", "fallback_", "is_fallback", "langgraph_", "lc_", "ls_")
_THREAD = "thread_id"  # LangGraph copies it from what is configurable; it names the conversation


class FallbackOptions(ConfigOptions, total=False):
    """Name everything that ``with_fallback_config`` takes."""

    agent: str
    credentials: Iterable[Credential | None]
    exceptions_to_handle: tuple[type[Exception], ...]
    fallback_config: FallbackConfig
    observers: Iterable[FallbackObserver]
    partial: Partial
    sdk_retries: SdkRetries


class ChatModelOptions(FallbackOptions, total=False):
    """Name everything that a FallbackChatModel takes: its options and a chat model's fields."""

    cache: BaseCache | bool | None
    callbacks: Callbacks
    custom_get_token_ids: Callable[[str], list[int]] | None
    disable_streaming: bool | Literal["tool_calling"]
    metadata: dict[str, Any] | None
    name: str | None
    output_version: str | None
    profile: ModelProfile | None
    rate_limiter: BaseRateLimiter | None
    tags: list[str] | None
    verbose: bool


class RunnableOptions(FallbackOptions, total=False):
    """Name everything that a FallbackRunnable takes."""

    name: str | None


_BESIDE = FallbackOptions.__annotations__.keys() - ConfigOptions.__annotations__.keys()


@dataclass(frozen=True, slots=True)
class Options:
    """Hold the options of one runnable.

    Args:
        config: The policy's.
        agent: A label for logs and records; by default the name that ``create_agent`` was given.
        credentials: What each candidate is asked with; None, or nothing, for its own key.
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
    observers: tuple[FallbackObserver, ...] = ()
    partial: Partial = "final"
    sdk_retries: SdkRetries = "off"

    def updated(self, options: Mapping[str, Any]) -> Self:
        """Return a copy with other options."""
        beside = {name: options[name] for name in _BESIDE if name in options}
        if "credentials" in beside:
            beside["credentials"] = tuple(beside["credentials"])
        if "observers" in beside:
            beside["observers"] = check_observers(beside["observers"])
        for name, choices in _CHOICES.items():
            if beside.get(name, choices[0]) not in choices:
                fix = "pass " + " or ".join(f'"{choice}"' for choice in choices)
                raise FallbackConfigError.about(name, f"got {beside[name]!r}", fix)
        policy: Any = {name: value for name, value in options.items() if name not in beside}
        for name in sorted(policy.keys() - ConfigOptions.__annotations__.keys()):
            known = [*ConfigOptions.__annotations__, *sorted(_BESIDE)]
            raise FallbackConfigError.unknown(name, known)
        config = beside.pop("fallback_config", self.config)
        handled = beside.pop("exceptions_to_handle", None)
        if not isinstance(config, FallbackConfig):
            raise FallbackConfigError.about(
                "fallback_config", f"got a {type(config).__name__}", "pass a FallbackConfig"
            )
        if handled is not None:  # LangChain's name
            policy = {"provider_errors": handled, **policy}
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
        for name in ("agent", *_CHOICES):
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
    config: RunnableConfig, policy: FallbackPolicy
) -> tuple[FallbackPolicy, Turn | None]:
    """Return the policy and the turn that a config asks for, or the policy and no turn.

    A policy without a label of its own has the name of the agent that it is asked in.
    """
    configurable = config.get("configurable") or {}
    own, turn = configurable.get(CONFIG_KEY), configurable.get(TURN_KEY)
    name = (config.get("metadata") or {}).get(AGENT_KEY)
    if isinstance(own, FallbackConfig) or name:
        policy = _policy_for(policy, own, name)
    return policy, turn if isinstance(turn, Turn) else None


def _policy_for(policy: FallbackPolicy, own: object, name: object) -> FallbackPolicy:
    agent = policy.agent
    if agent == _DEFAULTS.agent:
        agent = name if isinstance(name, str) and name else agent
    if isinstance(own, FallbackConfig):
        return FallbackPolicy(
            policy.targets, own, agent=agent, observers=policy.observers, turns_of=policy
        )
    return policy if agent is policy.agent else policy.labelled(agent)


def metadata_for_this_call(config: RunnableConfig, **run: object) -> dict[str, Any] | None:
    """Return what a record says of a call by its config: the caller's metadata and the run.

    Args:
        config: LangChain's, as it was merged for the call.
        **run: The run's name and id, where the caller gave one.
    """
    metadata: dict[Any, Any] = config.get("metadata") or {}  # named by whoever called
    if not (metadata or any(run.values())):
        return None
    run = {name: str(value) for name, value in run.items() if value}
    # What is configurable is for the models, keys included; older LangGraphs copy all of it.
    configurable = config.get("configurable") or {}
    for name, value in metadata.items():
        if isinstance(name, str) and (
            name == _THREAD or not (name.startswith(_THEIRS) or name in configurable)
        ):
            run[name] = value
    return call_metadata(run)
