"""The policy's options, validated at the border, and three sets of them that have a name."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self, TypedDict, Unpack, get_args

import tenacity
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from honcho_fallback._classify._rules import Rule, RulesSource, load_rules
from honcho_fallback._core.recovery import TransportRecovery
from honcho_fallback._core.shared import Cooldown, CooldownStore, RetryBudget, Sessions
from honcho_fallback._values.errors import FallbackConfigError, nearest, shown, unknown_name
from honcho_fallback._values.failure import KINDS, NOT_ACCEPTABLE, Failure, FailureKind


def taking(values: str) -> Any:
    """Say what an option takes: the second half of the sentence that refuses something else."""
    return Field(description=values)


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
SecondsOrNone = Annotated[Positive | None, taking("seconds as a number above 0, or None")]
CountOrNone = Annotated[Count | None, taking("a whole number, 1 or more, or None")]
Labels = Annotated[
    frozenset[Annotated[str, Field(min_length=1, strict=True)]],
    taking("a set of texts, such as {'eu'}"),
]

DEFAULT_FALLBACK_ON = frozenset(kind for kind, facts in KINDS.items() if facts.switchable)

# Full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter"): 0.5 s doubling to 8 s.
DEFAULT_WAIT = tenacity.wait_random_exponential(multiplier=0.5, max=8)

_TRANSIENT = tuple(kind for kind in FailureKind if KINDS[kind].transient)
_HERMES_DELAY = tenacity.wait_exponential(multiplier=2, max=60)
_WAIT = "a tenacity wait strategy, or seconds as a number such as 1.5"


class ConfigOptions(TypedDict, total=False):
    """Name the options that FallbackConfig, a policy and a single call take."""

    fallback_on: frozenset[FailureKind] | set[FailureKind] | set[str]
    switch_after: int | Mapping[FailureKind, int] | Mapping[str, int]
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


class FallbackConfig(BaseModel):
    """Hold the options of a policy; frozen, unknown keys refused.

    Its presets and ``replace`` take further options, as the constructor does.

    Args:
        fallback_on: The kinds that switch; default: those that another target may help with.
        switch_after: Failures on one target before the switch: a number, or a number per kind
            (1 for kinds not named). A failure that is not transient always switches at once. Where
            the provider stated a wait, one of at most 2 s is obeyed; for a longer one another
            target is asked, as long as there is one. A request is kept for each other target.
        max_attempts: Requests per call, all targets together; default 3, or as many as
            switch_after takes to reach the chain's end.
        attempts_per_target: Requests per call and target; with it, max_attempts is by default that
            many for each target of the chain.
        wait: How long to wait before the *same* target is asked again: a tenacity wait strategy,
            or seconds.
        retry_after_cap: Retry-After is obeyed up to this many seconds, and never while another
            target is free.
        reset: How long a switch lasts: ``"iteration"`` (each call starts on the primary),
            ``"turn"`` (within ``policy.turn()``), or ``"session"``, short for ``Sessions()``
            (within ``policy.session(id)``, while the provider's prompt cache is warm).
        timeout: Seconds per attempt, or None. Enforced in ``acall`` and, up to the first content,
            in ``astream``; handed to ``ask`` everywhere.
        connect_timeout: Seconds to connect, or None; handed to ``ask``.
        check_responses: Whether answers and streams that failed under HTTP 200 (see
            ``check_response``) are failures of their kind.
        validate_answer: Given as ``validate=``: a callable on the answer, of a stream on all of it
            put together: its text, or a message with tool calls; chunks that add up, as
            LangChain's, are added up. LangChain's adapter passes the message, and where a parser
            has made something of it, that. False or raising means malformed_response; an
            AttributeError, NameError or TypeError is a mistake of its own, and comes out, unless
            it is about None. ``acall`` and ``astream`` await an async one, as long as the
            attempt's ``timeout`` allows; where that runs out, it has said no.
        on_exhausted: ``"group"`` raises FallbackExhausted with every error, ``"last"`` the last
            provider error.
        only_models: Whether ``ask`` asks nobody but a model. Then any HTTP client's failure is the
            model's; else one at another service's address is local. The adapters of models
            set it.
        rules: Your own rules of what errors mean: the path of a TOML file with ``[[rule]]``
            tables, a dict, or a list of these. They are read here and now, and are asked in their
            order, after cancellation and before everything else; those with ``default`` last, for
            what nothing else explains.
        refine: Corrects what a rule or the classifier said, given its failure and the exception.
            The presets use it, and keep what a rule said. A failure that only got another
            ``kind`` gets that kind's answers, too. It never sees a cancellation; never async. With
            another ``scope`` it reaches others: who shares what failed is passed over.
        cooldown: Remember across calls which targets are down: ``Cooldown()``, or None.
        deadline: Seconds for the whole call, waits included, or None; for a stream up to its first
            content. Enforced where ``timeout`` is, else by what is handed to ``ask``. A third of
            it, at least 1, is kept for each fallback not yet asked; where less is left than they
            need, they share it.
        first_token_timeout: Seconds up to a stream's first content or thinking, or None. Enforced
            in ``astream``; ``stream`` hands it to ``ask`` where ``attempt.timeout`` is longer, and
            an SDK that takes it for the longest silence then holds it after that content, too.
        idle_timeout: Seconds between two chunks after that, or None; only in ``astream``. A model
            that thinks without saying so is silent, too.
        retry_budget: Bound repeats over all calls: ``RetryBudget()``, or None.
        transport_recovery: Give a lost connection to the primary one more chance before the
            switch: ``TransportRecovery()``, or None.
        must_not_degrade: Never ask a fallback: for judges and gates.
        replay: ``"any"``, or ``"safe"``: after a failure that leaves open whether the request had
            an effect (``Failure.reached``) nobody is asked again, and OutcomeUnknown comes out.
        require: Labels that a target must have to be asked; the others are passed over.
        refusal_require: Labels that a target must have to be asked after a refusal, which switches
            with ``"refusal"`` in fallback_on: one after some text does, too, where nobody has read
            it.
        min_rate: Characters of content per second under which a stream is a timeout, over ten
            seconds of waiting for it, or None; only in ``stream`` and ``astream``.

    Raises:
        FallbackConfigError: An option is unknown, of the wrong type or out of range.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        defer_build=True,  # a fifth of the package's import; the first config pays for it
    )

    fallback_on: Annotated[
        frozenset[FailureKind],
        taking(
            "a set of kinds such as {'rate_limit', 'timeout'}, without 'cancelled': a cancelled "
            "call stays cancelled"
        ),
    ] = DEFAULT_FALLBACK_ON
    switch_after: Annotated[
        Count | Mapping[FailureKind, Count],
        taking("a whole number, 1 or more, or one per kind, such as {'timeout': 2}"),
    ] = 1
    max_attempts: CountOrNone = None
    attempts_per_target: CountOrNone = None
    wait: Annotated[Callable[[Any], Any], taking(_WAIT)] = DEFAULT_WAIT
    retry_after_cap: Annotated[NotNegative, taking("seconds as a number, 0 or more")] = 30.0
    reset: Annotated[
        Literal["iteration", "turn", "session"] | Sessions,
        taking("'iteration', 'turn', 'session' or Sessions()"),
    ] = "iteration"
    timeout: SecondsOrNone = 180.0
    connect_timeout: SecondsOrNone = 5.0
    check_responses: Annotated[bool, taking("True or False")] = True
    validate_answer: Annotated[
        Callable[[Any], object] | None, taking("a callable on the answer, or None")
    ] = Field(default=None, alias="validate")
    on_exhausted: Annotated[Literal["group", "last"], taking("'group' or 'last'")] = "group"
    only_models: Annotated[bool, taking("True or False")] = False
    rules: Annotated[
        tuple[Rule, ...], taking("the path of a TOML file, a dict, or a list of these")
    ] = ()
    refine: Annotated[
        Callable[[Failure, BaseException], Failure] | None,
        taking("a callable on the failure and the exception that returns a Failure, or None"),
    ] = None
    cooldown: Annotated[CooldownStore | None, taking("Cooldown(), RedisCooldown() or None")] = None
    deadline: SecondsOrNone = None
    first_token_timeout: SecondsOrNone = None
    idle_timeout: SecondsOrNone = None
    retry_budget: Annotated[RetryBudget | None, taking("RetryBudget() or None")] = None
    transport_recovery: Annotated[
        InstanceOf[TransportRecovery] | None, taking("TransportRecovery() or None")
    ] = None
    must_not_degrade: Annotated[bool, taking("True or False")] = False
    replay: Annotated[Literal["any", "safe"], taking("'any' or 'safe'")] = "any"
    require: Labels = frozenset()
    refusal_require: Labels = frozenset()
    min_rate: Annotated[Positive | None, taking("characters as a number above 0, or None")] = None

    def __init__(self, **options: Unpack[ConfigOptions]) -> None:
        if "rules" in options:
            options["rules"] = load_rules(options["rules"])
        if options.get("reset") == "session":
            options["reset"] = Sessions()
        if isinstance(options.get("cooldown"), type):  # it has a store's methods, too
            raise FallbackConfigError.about("cooldown", "got a class", "pass an object of it")
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise FallbackConfigError(_explain(error, {**options})) from None
        if is_async(self.refine):
            fix = "write it without async; of the hooks only validate may be awaited"
            raise FallbackConfigError.about("refine", "it is async", fix)

    @field_validator("wait", mode="before")
    @classmethod
    def _seconds_are_a_strategy(cls, wait: Any) -> Any:
        if isinstance(wait, int | float) and not isinstance(wait, bool):
            if not 0 <= wait < float("inf"):
                raise PydanticCustomError("range", "out of range")
            return tenacity.wait_fixed(wait)
        return wait

    @field_validator("fallback_on")
    @classmethod
    def _cancellation_never_switches(cls, kinds: frozenset[FailureKind]) -> frozenset[FailureKind]:
        if FailureKind.CANCELLED in kinds:
            raise PydanticCustomError("cancelled", "a cancelled call stays cancelled")
        return kinds

    def replace(self, **options: Unpack[ConfigOptions]) -> Self:
        """Return a copy with other options, validated as at construction."""
        fields, given = type(self).model_fields, self.model_fields_set
        kept: Any = {fields[name].alias or name: getattr(self, name) for name in given}
        return type(self)(**(kept | options))

    @classmethod
    def honcho(cls, **options: Unpack[ConfigOptions]) -> Self:
        """Return the table of Honcho's pull request 692.

        A switch on 408, 429, 5xx, timeouts and lost connections, and on nothing else.
        """
        preset: ConfigOptions = {"max_attempts": 3, "refine": _refine_as_honcho}
        return cls(**preset | options)

    @classmethod
    def hermes(cls, **options: Unpack[ConfigOptions]) -> Self:
        """Return hermes-agent's rules: at once where waiting is useless, else after three tries.

        A switch lasts for the turn; three attempts for each target, 2 s doubling to 60 s. A
        primary that failed rests for the next turns: for the time that its provider named,
        otherwise for 60 s doubling to four hours. Each call of it makes a new cooldown.
        """
        preset: ConfigOptions = {
            "fallback_on": frozenset(FailureKind) - {FailureKind.CANCELLED, FailureKind.LOCAL},
            "switch_after": {kind: 3 for kind in _TRANSIENT if kind.value != "rate_limit"},
            "attempts_per_target": 3,
            "retry_after_cap": 600.0,
            "reset": "turn",
            "on_exhausted": "last",
            "wait": _hermes_wait,
            # Its newer one, which rests whoever failed and not only a rate-limited primary.
            "cooldown": Cooldown(after=1, base=60.0, cap=14400.0),
            "refine": _refine_as_hermes,
        }
        return cls(**preset | options)

    @classmethod
    def resilient(cls, **options: Unpack[ConfigOptions]) -> Self:
        """Return what is recommended for agents in production.

        - ``reset="turn"``: a dead or hanging primary costs a turn one attempt, not one per
          iteration; and a model does not change back in the middle of a task.
        - ``cooldown``: nor does it cost every turn one. After three failures in a row, or one
          timeout, it rests for 2 s and, as long as it is down, for up to five minutes.
        - ``deadline`` of 120 s: the patience of a person who waits for an agent's step; a third
          of it is kept for each fallback, so that a chain of two is never slower than that.
        - ``first_token_timeout`` of 10 s: five times what a busy provider takes for a first token,
          and before people give up.
        - ``idle_timeout`` of 60 s: a model that thinks between two chunks does so for less.
        - ``retry_budget``: in an outage 1.1 requests per call, not 3.

        Each call of it makes a new cooldown and a new budget; share the config to share them.
        """
        preset: ConfigOptions = {
            "reset": "turn",
            "deadline": 120.0,
            "first_token_timeout": 10.0,
            "idle_timeout": 60.0,
            "cooldown": Cooldown(),
            "retry_budget": RetryBudget(),
        }
        return cls(**preset | options)


def _refine_as_honcho(failure: Failure, _: BaseException) -> Failure:
    """Switch on 408, 429, 5xx, timeouts and lost connections only."""
    # An answer that a validator refused is meant to engage the fallback there, as junk is.
    # And what a rule of the user's says holds under any preset.
    is_junk = failure.kind is FailureKind.MALFORMED_RESPONSE and failure.scope == "client"
    refused = is_junk or failure.reason == NOT_ACCEPTABLE
    if failure.by_rule or failure.kind is FailureKind.LOCAL or refused:
        return failure
    # Under an HTTP 200 stream the status says nothing about the error event inside it.
    status = failure.status or 0
    wanted = status in {408, 429} or status >= 500
    if status < 400:  # these are what the pull request names by class
        wanted = failure.kind in {*_TRANSIENT} - {FailureKind.MALFORMED_RESPONSE}
    return failure._replace(transient=wanted and failure.transient, switchable=wanted)


def _refine_as_hermes(failure: Failure, error: BaseException) -> Failure:
    """Take what nobody can explain for the provider's; the machine's own troubles stay local."""
    unknown = failure.kind is FailureKind.LOCAL and not failure.by_rule
    if not unknown or isinstance(error, OSError):
        return failure
    reason = "unknown, taken for the provider's"
    return Failure.of(FailureKind.SERVER_ERROR, reason=reason, error=failure.error)


def _hermes_wait(state: tenacity.RetryCallState) -> float:
    """Wait 2 s doubling to 60 s, and up to half as much again (hermes-agent's retry_utils)."""
    delay = _HERMES_DELAY(state)
    return delay + random.uniform(0, delay / 2)  # noqa: S311 # a jitter is no secret


def is_async(hook: object) -> bool:
    """Tell whether a hook has to be awaited."""
    call = getattr(hook, "__call__", None)  # noqa: B004 # its kind matters, not if it is there
    return any(map(inspect.iscoroutinefunction, (hook, call)))


def takes() -> dict[str, Any]:
    """Return pydantic's field of each option, whose description says what it takes."""
    return {field.alias or name: field for name, field in FallbackConfig.model_fields.items()}


def _explain(error: ValidationError, options: dict[str, Any]) -> str:
    fields, lines = takes(), dict[str, None]()
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        name = str(detail["loc"][0]) if detail["loc"] else ""
        if name in fields:
            given, field = options.get(name), fields[name]
            guess = _nearest_words(given, _words(field.annotation))
            lines[f"{name}: got {shown(given)}; {guess}pass {field.description}"] = None
        else:
            lines[f"{name}: no such option; {unknown_name(name, fields)}"] = None
    return "\n".join(lines)


def _words(annotation: Any) -> list[str]:
    """List the words that a type allows, for "did you mean"."""
    if annotation is FailureKind:
        return [*FailureKind]
    if isinstance(annotation, str):
        return [annotation]
    return [word for part in get_args(annotation) for word in _words(part)]


def _nearest_words(given: object, words: list[str]) -> str:
    parts: list[object] = [given]
    if isinstance(given, set | frozenset | list | tuple | dict):
        parts = [*given, *(given.values() if isinstance(given, dict) else ())]  # pyright: ignore[reportUnknownArgumentType] # anybody's container
    wrong = [part for part in parts if isinstance(part, str) and part not in words]
    guesses = [guess for part in wrong if (guess := nearest(part, words))]
    return f"did you mean {', '.join(guesses)}? " if guesses else ""
