"""Who plays: a policy, a config, a model of what others do, or one of them read from a file."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from honcho_fallback import (
    Cooldown,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    RetryBudget,
    TransportRecovery,
    classify,
)
from honcho_fallback.simulate._scenario import explain, read_toml, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback import Failure
    from honcho_fallback.simulate._scenario import Scenario

RETRY_THEN_NEXT = "retry-then-next"
_OVERFLOWS = frozenset({FailureKind.CONTEXT_OVERFLOW, FailureKind.PAYLOAD_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class RetryThenNext:
    """Model an SDK under a list of fallbacks: retry the same target, then ask the next.

    A target is retried on 408, 409, 429, 5xx, timeouts and lost connections. After that, and on
    any other error, the next one is asked at once; nothing is remembered from call to call. The
    defaults are those of OpenAI's Python SDK (openai 2.54); others resemble them.

    Args:
        retries: Of one target, after its first failure.
        wait: Seconds before the first retry; doubled with each.
        longest_wait: Seconds that a wait never exceeds.
        jitter: The share of a wait that is left out at most.
        retry_after_cap: Seconds of Retry-After that are obeyed; with more, the target is left.
        timeout: Seconds for an answer, for a stream's first content, and between two chunks.
        connect_timeout: Seconds to connect.
    """

    retries: int = 2
    wait: float = 0.5
    longest_wait: float = 8.0
    jitter: float = 0.25
    retry_after_cap: float = 120.0
    timeout: float = 600.0
    connect_timeout: float = 5.0

    def config(self) -> FallbackConfig:
        """Return the same behaviour as options of a policy."""
        return FallbackConfig(
            fallback_on=frozenset(FailureKind) - {FailureKind.CANCELLED},
            switch_after=self.retries + 1,
            attempts_per_target=self.retries + 1,
            wait=self._wait,
            retry_after_cap=self.retry_after_cap,
            timeout=self.timeout,
            connect_timeout=self.connect_timeout,
            idle_timeout=self.timeout,
            refine=self._refine,
        )

    def _wait(self, state: Any) -> float:
        stated = classify(state.outcome.exception()).retry_after
        if stated is not None:
            return stated
        retry: int = state.attempt_number - 1
        backoff = min(self.wait * 2.0**retry, self.longest_wait)
        return backoff * (1 - self.jitter * random.random())  # noqa: S311 # a jitter is no secret

    def _refine(self, failure: Failure, _: BaseException) -> Failure:
        status, stated = failure.status, failure.retry_after or 0.0
        retried = status is None or status >= 500 or status in {408, 409, 429}
        # Those who try the next model on any error do not compare context windows.
        kind = FailureKind.INVALID_REQUEST if failure.kind in _OVERFLOWS else failure.kind
        transient = retried and stated <= self.retry_after_cap
        return failure._replace(kind=kind, transient=transient, switchable=True)


Contender: TypeAlias = FallbackPolicy | FallbackConfig | RetryThenNext

_PRESETS: Mapping[str, Callable[..., FallbackConfig]] = {
    "default": FallbackConfig,
    "resilient": FallbackConfig.resilient,
    "honcho": FallbackConfig.honcho,
    "hermes": FallbackConfig.hermes,
}
# Options that are objects: in a file they are tables with the arguments of these.
_TABLES: Mapping[str, Callable[..., object]] = {
    "cooldown": Cooldown,
    "retry_budget": RetryBudget,
    "transport_recovery": TransportRecovery,
}
# Options that are code: a file never names any, so that reading one never runs any.
_CODE = {"classify", "local_errors", "provider_errors", "rebuild", "refine", "validate"}


class _PolicyFile(BaseModel):
    """Hold what is in a policy file; what is no field is an option of FallbackConfig."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: Annotated[str, Field(min_length=1)] | None = None
    preset: str = "default"
    targets: list[str] | None = None


def load_policy(source: str | Path, scenario: Scenario) -> tuple[str, Contender]:
    """Read a policy: by name (a preset, or ``retry-then-next``), or from a TOML file.

    A file holds ``name`` (default: the file's), ``preset`` (such as ``"resilient"``), ``targets``
    (names of the scenario's, in order; default: all) and those options of FallbackConfig that are
    no code. ``cooldown``, ``retry_budget`` and ``transport_recovery`` are tables; ``false`` takes
    out what a preset has.

    Args:
        source: Such as ``"resilient"`` or ``"policy.toml"``.
        scenario: Where it is going to be played.

    Returns:
        Its name, and the policy.

    Raises:
        FallbackConfigError: There is none, or a key or value is wrong.
    """
    name = str(source)
    if name == RETRY_THEN_NEXT:
        return name, RetryThenNext()
    if name in _PRESETS:
        return name, FallbackPolicy(scenario.chain(), _PRESETS[name](), agent=name)
    try:
        file = _PolicyFile.model_validate(read_toml(source, (*_PRESETS, RETRY_THEN_NEXT)))
    except ValidationError as error:
        raise FallbackConfigError(explain(error, name)) from None
    try:
        if file.preset not in _PRESETS:
            fix = suggestion(file.preset, _PRESETS)
            raise FallbackConfigError.about("preset", f"got {file.preset!r}", fix)
        options = {key: _option(key, value) for key, value in (file.model_extra or {}).items()}
        chain, config = scenario.chain(file.targets), _PRESETS[file.preset](**options)
        agent = file.name or Path(source).stem
        return agent, FallbackPolicy(chain, config, agent=agent)
    except FallbackConfigError as error:
        message = "\n".join(f"{source}: {line}" for line in str(error).splitlines())
        raise FallbackConfigError(message) from None


def _option(key: str, given: Any) -> Any:
    value: object = given
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else dict[str, Any]()
    for code in _CODE & {key, *table}:
        raise FallbackConfigError.about(code, "it is code", "leave it out, or simulate in Python")
    field = FallbackConfig.model_fields.get(key)
    if value is False and field is not None and not isinstance(field.default, bool):
        return None
    if key not in _TABLES:
        return given  # FallbackConfig says what is wrong with it
    if value is not True and not isinstance(value, dict):
        fix = f"pass a table, such as {key} = {{}}, or false"
        raise FallbackConfigError.about(key, f"got {given!r}", fix)
    try:
        return _TABLES[key](**table)
    except TypeError as error:
        problem = str(error).partition("() ")[2]
        raise FallbackConfigError.about(key, problem, "correct its table") from None
