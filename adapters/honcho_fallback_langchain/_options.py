"""The keywords of ``with_fallback_config``: the policy's options, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from honcho_fallback import (
    ConfigOptions,
    FallbackConfig,
    FallbackConfigError,
    FallbackObserver,
    FallbackPolicy,
)
from honcho_fallback_langchain._candidates import targets_of
from honcho_fallback_langchain._sdk_retries import without_sdk_retries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_core.runnables import Runnable

SdkRetries = Literal["off", "keep"]


class FallbackOptions(ConfigOptions, total=False):
    """Name everything that ``with_fallback_config`` takes."""

    agent: str
    observers: Iterable[FallbackObserver]
    sdk_retries: SdkRetries


_BESIDE = FallbackOptions.__annotations__.keys() - ConfigOptions.__annotations__.keys()


@dataclass(frozen=True, slots=True)
class Options:
    """Hold the options of one runnable.

    Args:
        config: The policy's.
        agent: A label for logs and records.
        observers: Whom to tell.
        sdk_retries: ``"off"`` uses candidates through copies whose SDK does not retry by itself;
            ``"keep"`` leaves them alone.
    """

    config: FallbackConfig = field(default_factory=FallbackConfig)
    agent: str = "unknown"
    observers: tuple[FallbackObserver, ...] = ()
    sdk_retries: SdkRetries = "off"

    def updated(self, options: Mapping[str, Any]) -> Self:
        """Return a copy with other options.

        Args:
            options: By name, as ``with_fallback_config`` takes them.

        Raises:
            FallbackConfigError: One is unknown, of the wrong type or out of range.
        """
        beside = {name: options[name] for name in _BESIDE if name in options}
        if "observers" in beside:
            beside["observers"] = tuple(beside["observers"])
        retries = beside.get("sdk_retries", "off")
        if retries not in get_args(SdkRetries):
            raise FallbackConfigError.about(
                "sdk_retries", f"got {retries!r}", 'pass "off" or "keep"'
            )
        policy: Any = {name: value for name, value in options.items() if name not in beside}
        config = self.config.replace(**policy) if policy else self.config
        return replace(self, config=config, **beside)

    def plain(self) -> dict[str, Any]:
        """Return what differs from the defaults and is a plain value, in a fixed order."""
        told: dict[str, Any] = {}
        for name in sorted(self.config.model_fields_set):
            value = getattr(self.config, name)
            if isinstance(value, frozenset):
                value = sorted(value)
            if value is None or isinstance(value, str | int | float | list):
                told[name] = value
        for name in ("agent", "sdk_retries"):
            if getattr(self, name) != getattr(_DEFAULTS, name):
                told[name] = getattr(self, name)
        return told


_DEFAULTS = Options()


def policy_over(
    candidates: Sequence[Runnable[Any, Any]], options: Options, turns_of: FallbackPolicy | None
) -> FallbackPolicy:
    """Make the policy over candidates, their SDKs' retries off where that is asked for.

    Args:
        candidates: The primary first.
        options: The runnable's.
        turns_of: Whose turns it takes part in, or None.

    Raises:
        FallbackConfigError: An observer lacks a method, or the agent's name is empty.
    """
    if options.sdk_retries == "off":
        candidates = [without_sdk_retries(candidate) for candidate in candidates]
    policy = FallbackPolicy(
        targets_of(candidates),
        options.config,
        agent=options.agent,
        observers=options.observers,
    )
    return policy if turns_of is None else policy.sharing_turns_with(turns_of)
