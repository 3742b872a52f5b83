"""The keywords of ``.with_fallback_config``: the policy's options, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from honcho_fallback import (
    ConfigOptions,
    Credential,
    FallbackConfig,
    FallbackConfigError,
    FallbackObserver,
    check_observers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langchain_core.callbacks import Callbacks
    from langchain_core.language_models import ModelProfile

Partial = Literal["final", "replace"]
SdkRetries = Literal["off", "keep"]

_CHOICES = {"partial": get_args(Partial), "sdk_retries": get_args(SdkRetries)}


class FallbackOptions(ConfigOptions, total=False):
    """Name everything that ``.with_fallback_config`` takes."""

    agent: str
    credentials: Iterable[Credential | None]
    exceptions_to_handle: tuple[type[Exception], ...]
    fallback_config: FallbackConfig
    observers: Iterable[FallbackObserver]
    partial: Partial
    sdk_retries: SdkRetries


class ChatModelOptions(FallbackOptions, total=False):
    """Name everything that a FallbackChatModel takes: its options and fields of a chat model."""

    callbacks: Callbacks
    metadata: dict[str, Any] | None
    name: str | None
    profile: ModelProfile | None
    tags: list[str] | None
    verbose: bool


_BESIDE = FallbackOptions.__annotations__.keys() - ConfigOptions.__annotations__.keys()
_HANDLED = "named in exceptions_to_handle"


def _handling(classes: object) -> list[dict[str, Any]]:
    """Return the rule under which an error of some classes that says no more is a provider's."""
    listed = [*classes] if isinstance(classes, tuple | list) else [classes]
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in listed):
        fix = "pass exception classes, such as (MyClientError,)"
        raise FallbackConfigError.about("exceptions_to_handle", "got something else", fix)
    rule = {"error": listed, "kind": "server_error", "default": True, "source": _HANDLED}
    return [rule] if listed else []


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
    credentials: tuple[Credential | None, ...] = field(default=(), repr=False)
    observers: tuple[FallbackObserver, ...] = ()
    partial: Partial = "final"
    sdk_retries: SdkRetries = "off"

    def updated(self, options: Mapping[str, Any]) -> Self:
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
            problem = f"got a {type(config).__name__}"
            raise FallbackConfigError.about("fallback_config", problem, "pass a FallbackConfig")
        # They stand until they are given anew, whatever becomes of other rules.
        named: list[Any] = [one for one in config.rules if one.source == _HANDLED]
        named = named if handled is None else _handling(handled)
        config = config.replace(**policy) if policy else config
        if handled is not None or "rules" in policy:
            own = [one for one in config.rules if one.source != _HANDLED]
            config = config.replace(rules=[*own, *named])
        return replace(self, config=config, **beside)
