"""Who plays: a preset, a model of what others do, or what a file says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from honcho_fallback import (
    Cooldown,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    RetryBudget,
    TransportRecovery,
    classify,
)
from honcho_fallback.simulate._scenario import read_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback import Failure

# Seconds of a Retry-After that OpenAI's SDK obeys; with more, the target is left.
_LONGEST_RETRY_AFTER = 120.0


def retry_then_next(retries: int = 2, timeout: float = 600.0) -> FallbackConfig:
    """Model an SDK under a list of fallbacks: retry the same target, then ask the next.

    A target is retried on 408, 409, 429, 5xx, timeouts and lost connections. After that, and on
    any other error, the next one is asked at once; nothing is remembered from call to call. Waits
    and defaults are those of OpenAI's Python SDK (openai 2.54); others resemble them.

    Args:
        retries: Of one target, after its first failure.
        timeout: Seconds for an answer, for a stream's first content, and between two chunks.
    """
    return FallbackConfig(
        fallback_on=frozenset(FailureKind) - {FailureKind.CANCELLED},
        switch_after=retries + 1,
        attempts_per_target=retries + 1,
        wait=_sdk_wait,
        retry_after_cap=_LONGEST_RETRY_AFTER,
        timeout=timeout,
        idle_timeout=timeout,
        refine=_as_an_sdk_retries,
    )


def _sdk_wait(state: Any) -> float:
    stated = classify(state.outcome.exception()).retry_after
    if stated is not None:
        return stated
    longest: float = min(0.5 * 2.0 ** (state.attempt_number - 1), 8.0)
    return longest * random.uniform(0.75, 1.0)  # noqa: S311 # a jitter is no secret


def _as_an_sdk_retries(failure: Failure, _: BaseException) -> Failure:
    status, stated = failure.status, failure.retry_after or 0.0
    retried = status is None or status >= 500 or status in {408, 409, 429}
    transient = retried and stated <= _LONGEST_RETRY_AFTER
    return failure._replace(transient=transient, switchable=True)


_PRESETS: Mapping[str, Callable[..., FallbackConfig]] = {
    "default": FallbackConfig,
    "resilient": FallbackConfig.resilient,
    "honcho": FallbackConfig.honcho,
    "hermes": FallbackConfig.hermes,
    "retry-then-next": retry_then_next,
}
# Options that are objects: in a file they are tables with the arguments of these.
_TABLES: Mapping[str, Callable[..., object]] = {
    "cooldown": Cooldown,
    "retry_budget": RetryBudget,
    "transport_recovery": TransportRecovery,
}


def load_policy(source: str | Path) -> tuple[str, FallbackConfig]:
    """Read a policy: a preset or ``retry-then-next`` by name, or a TOML file.

    A file holds ``preset`` (such as ``"resilient"``) and those options of FallbackConfig that are
    no code. ``cooldown``, ``retry_budget`` and ``transport_recovery`` are tables.

    Args:
        source: Such as ``"resilient"`` or ``"policy.toml"``.

    Returns:
        Its name, the file's without its ending, and what ``simulate`` takes.

    Raises:
        FallbackConfigError: There is none, or a key or value is wrong.
    """
    name = str(source)
    if name in _PRESETS:
        return name, _PRESETS[name]()
    options = read_toml(source, _PRESETS)
    preset = options.pop("preset", "default")
    try:
        if preset not in _PRESETS:
            raise FallbackConfigError.unknown(str(preset), _PRESETS, "preset")
        given = {key: _option(key, value) for key, value in options.items()}
        return Path(source).stem, _PRESETS[preset](**given)
    except FallbackConfigError as error:
        message = "\n".join(f"{source}: {line}" for line in str(error).splitlines())
        raise FallbackConfigError(message) from None


def _option(key: str, given: Any) -> Any:
    if key not in _TABLES or not isinstance(given, dict):
        return given  # FallbackConfig says what is wrong with it
    try:
        return _TABLES[key](**cast("dict[str, Any]", given))
    except TypeError as error:
        raise FallbackConfigError.about(key, str(error), "correct its table") from None
