"""The policy's options, validated at the border."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self, TypedDict, Unpack

import tenacity
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, field_validator
from pydantic.type_adapter import TypeAdapter
from pydantic.types import ImportString

from honcho_fallback._budget import RetryBudget
from honcho_fallback._cooldown import Cooldown, CooldownStore
from honcho_fallback._errors import FallbackConfigError
from honcho_fallback._failure import KINDS, Failure, FailureKind
from honcho_fallback._recovery import TransportRecovery
from honcho_fallback._tables import read
from honcho_fallback._wait import DEFAULT_WAIT

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

DEFAULT_FALLBACK_ON = frozenset(kind for kind, facts in KINDS.items() if facts.switchable)


_PRESETS = read("presets")
_BY_NAME: TypeAdapter[Any] = TypeAdapter(ImportString)


class ConfigOptions(TypedDict, total=False):
    """Name the options that a single call may override."""

    fallback_on: frozenset[FailureKind] | set[FailureKind] | set[str]
    switch_after: int | Mapping[FailureKind, int]
    max_attempts: int | None
    attempts_per_target: int | None
    wait: Callable[[Any], Any] | float
    switch_wait: Callable[[Any], Any] | float | None
    retry_after_cap: float
    reset: Literal["iteration", "turn"]
    timeout: float | None
    connect_timeout: float | None
    check_responses: bool
    validate: Callable[[Any], object] | None
    on_exhausted: Literal["group", "last"]
    local_errors: tuple[type[BaseException], ...]
    provider_errors: tuple[type[BaseException], ...]
    classify: Callable[[BaseException], Failure] | None
    refine: Callable[[Failure, BaseException], Failure] | None
    cooldown: CooldownStore | None
    deadline: float | None
    reserve: float | None
    first_token_timeout: float | None
    idle_timeout: float | None
    retry_budget: RetryBudget | None
    transport_recovery: TransportRecovery | None
    must_not_degrade: bool


class FallbackConfig(BaseModel):
    """Hold the options of a policy; frozen, unknown keys refused.

    Where a function is asked for, ``"package.module:name"`` does too, so that files can name one.

    Args:
        fallback_on: The kinds that switch; default: those that another target may help with.
        switch_after: Failures on one target before the switch: a number, or a number per kind
            (1 for kinds not named). A failure that is not transient always switches at once.
        max_attempts: Per call, all targets together; default 3, or the chain's length if longer.
        attempts_per_target: Per call and target; with it, max_attempts is by default that many
            for each target of the chain (hermes-agent gives every target its own budget).
        wait: Before asking the *same* target again: a tenacity wait strategy, or seconds.
        switch_wait: Before asking the next target: the same, or None for no wait (Honcho main
            waits before the fallback as before a retry).
        retry_after_cap: Retry-After is obeyed up to this many seconds, and never while another
            target is free.
        reset: How long a switch lasts: ``"iteration"`` (each call starts on the primary) or
            ``"turn"`` (within ``policy.turn()``).
        timeout: Seconds per attempt, or None. Enforced in ``acall`` and, up to the first content,
            in ``astream``; handed to ``ask`` everywhere (Honcho's pull request 692: 180).
        connect_timeout: Seconds to connect, or None; handed to ``ask``.
        check_responses: Whether answers and streams that failed under HTTP 200 (see
            ``check_response``) are failures of their kind.
        validate_answer: Given as ``validate=``: a callable on the answer of ``call`` and
            ``acall``; False or raising means malformed_response.
        on_exhausted: ``"group"`` raises FallbackExhausted with every error, ``"last"`` the last
            provider error.
        local_errors: Exception classes that are the program's own, never a provider's.
        provider_errors: Exception classes that a provider raises, where nothing else tells.
        classify: Replaces the classifier.
        refine: Corrects what the classifier said, given its failure and the exception; how the
            presets are made. It never sees a cancellation.
        cooldown: Remember across calls who is down: ``Cooldown()``, or None.
        deadline: Seconds for the whole call, waits included, or None; for a stream up to its first
            content. Enforced where ``timeout`` is, else by what is handed to ``ask``.
        reserve: Seconds of the deadline kept for each fallback not yet asked; default a third of
            it, at least 1. Where that is more than there is, they share what is left.
        first_token_timeout: Seconds up to a stream's first content, or None. Enforced in
            ``astream``; ``stream`` hands it to ``ask`` where ``attempt.timeout`` is longer, and an
            SDK that takes it for the longest silence then holds it after that content, too.
        idle_timeout: Seconds between two chunks after that, or None; only in ``astream``.
        retry_budget: Bound repeats over all calls: ``RetryBudget()``, or None.
        transport_recovery: Give a lost connection to the primary one more chance before the
            switch: ``TransportRecovery()``, or None.
        must_not_degrade: Never ask a fallback: for judges and gates.

    Raises:
        FallbackConfigError: An option is unknown, of the wrong type or out of range.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    fallback_on: frozenset[FailureKind] = DEFAULT_FALLBACK_ON
    switch_after: Count | Mapping[FailureKind, Count] = 1
    max_attempts: Count | None = None
    attempts_per_target: Count | None = None
    wait: Callable[[Any], Any] = DEFAULT_WAIT
    switch_wait: Callable[[Any], Any] | None = None
    retry_after_cap: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0
    reset: Literal["iteration", "turn"] = "iteration"
    timeout: Seconds | None = 180.0
    connect_timeout: Seconds | None = 5.0
    check_responses: bool = True
    validate_answer: Callable[[Any], object] | None = Field(default=None, alias="validate")
    on_exhausted: Literal["group", "last"] = "group"
    local_errors: tuple[type[BaseException], ...] = ()
    provider_errors: tuple[type[BaseException], ...] = ()
    classify: Callable[[BaseException], Failure] | None = None
    refine: Callable[[Failure, BaseException], Failure] | None = None
    cooldown: CooldownStore | None = None
    deadline: Seconds | None = None
    reserve: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    first_token_timeout: Seconds | None = None
    idle_timeout: Seconds | None = None
    retry_budget: RetryBudget | None = None
    transport_recovery: InstanceOf[TransportRecovery] | None = None
    must_not_degrade: bool = False

    def __init__(self, **options: Unpack[ConfigOptions]) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise FallbackConfigError(_explain(error)) from None

    @field_validator("classify", "refine", "switch_wait", "validate_answer", "wait", mode="before")
    @classmethod
    def _found_by_name(cls, option: Any) -> Any:
        return _BY_NAME.validate_python(option) if isinstance(option, str) else option

    @field_validator("wait", "switch_wait", mode="before")
    @classmethod
    def _seconds_are_a_strategy(cls, wait: Any) -> Any:
        if isinstance(wait, int | float) and not isinstance(wait, bool):
            if not 0 <= wait < float("inf"):
                raise ValueError("pass 0 or more seconds")
            return tenacity.wait_fixed(wait)
        return wait

    @field_validator("fallback_on")
    @classmethod
    def _cancellation_never_switches(cls, kinds: frozenset[FailureKind]) -> frozenset[FailureKind]:
        if FailureKind.CANCELLED in kinds:
            raise ValueError("leave 'cancelled' out, a cancelled call stays cancelled")
        return kinds

    def replace(self, **options: Unpack[ConfigOptions]) -> Self:
        """Return a copy with other options, validated as at construction.

        Args:
            **options: As for the constructor.
        """
        fields, given = type(self).model_fields, self.model_fields_set
        kept: Any = {fields[name].alias or name: getattr(self, name) for name in given}
        return type(self)(**(kept | options))

    @classmethod
    def honcho(cls, **options: Unpack[ConfigOptions]) -> Self:
        """Return the table of Honcho's pull request 692.

        A switch on 408, 429, 5xx, timeouts and lost connections, and on nothing else.

        Args:
            **options: Further options, as for the constructor.
        """
        return cls._preset("honcho", options)

    @classmethod
    def honcho_main(cls, **options: Unpack[ConfigOptions]) -> Self:
        """Return what Honcho does today: the fallback on the last attempt, whatever the error.

        Primary, primary, fallback, with 4 s before each (Honcho main, 2026-08-20). With one
        attempt it is the primary that is asked; Honcho would ask the fallback.

        Args:
            **options: Further options, as for the constructor.
        """
        attempts = options.get("max_attempts") or 3
        return cls._preset("honcho_main", {"switch_after": max(1, attempts - 1), **options})

    @classmethod
    def hermes(cls, **options: Unpack[ConfigOptions]) -> Self:
        """Return hermes-agent's rules: at once where waiting is useless, else after three tries.

        A switch lasts for the turn; three attempts for each target, 2 s doubling to 60 s.

        Args:
            **options: Further options, as for the constructor.
        """
        return cls._preset("hermes", options)

    @classmethod
    def resilient(cls, **options: Unpack[ConfigOptions]) -> Self:
        """Return what is recommended for agents in production.

        - ``reset="turn"``: a dead or hanging primary costs a turn one attempt, not one per
          iteration; and a model does not change back in the middle of a task.
        - ``cooldown``: nor does it cost every turn one. It rests for 60 s, then one call looks.
        - ``deadline`` of 120 s: the patience of a person who waits for an agent's step; a third
          of it is kept for each fallback, so that a chain of two is never slower than that.
        - ``first_token_timeout`` of 20 s: ten times what a busy provider takes for a first token,
          and far below what makes people give up.
        - ``idle_timeout`` of 60 s: a model that thinks between two chunks does so for less.
        - ``retry_budget``: in an outage 1.1 requests per call, not 3.

        Each call of it makes a new cooldown and a new budget; share the config to share them.

        Args:
            **options: Further options, as for the constructor.
        """
        kept: ConfigOptions = {"cooldown": Cooldown(), "retry_budget": RetryBudget()}
        return cls._preset("resilient", {**kept, **options})

    @classmethod
    def _preset(cls, name: str, options: ConfigOptions) -> Self:
        preset: Any = {**_PRESETS[name], **options}
        return cls(**preset)


def _explain(error: ValidationError) -> str:
    known = ", ".join(field.alias or name for name, field in FallbackConfig.model_fields.items())
    lines: list[str] = []
    for detail in error.errors(include_url=False, include_input=False):
        path, unknown = ".".join(map(str, detail["loc"])), detail["type"] == "extra_forbidden"
        said = f"no such option; choose from {known}" if unknown else detail["msg"]
        lines.append(f"{path}: {said}")
    return "\n".join(lines)
