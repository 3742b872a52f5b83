"""What all calls on a policy share, looked up once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from honcho_fallback._classify import classify
from honcho_fallback._classify._answers import check_response
from honcho_fallback._core.config import is_async
from honcho_fallback._core.observers import logger
from honcho_fallback._core.target import Target
from honcho_fallback._values.errors import (
    FallbackConfigError,
    TargetUnavailable,
    require_text,
    require_type,
)
from honcho_fallback._values.failure import KINDS, Failure, FailureKind
from honcho_fallback.redaction import label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback._core.config import FallbackConfig
    from honcho_fallback._core.observers import Observers


class ResolvedPolicy:
    """What every call on a policy shares, looked up once; nothing in it changes.

    A ``classifier`` stands in place of ``classify``: rules are its own to ask.
    """

    def __init__(
        self,
        chain: tuple[Target, ...],
        config: FallbackConfig,
        agent: str,
        observers: Observers | None,
        classifier: Callable[[BaseException], Failure] | None = None,
    ) -> None:
        require_text("agent", agent, "pass a name or leave it out")
        self.chain, self.config, self.observers = chain, config, observers
        # What records say: an address that names an agent or a target may hold a login or a key.
        self.agent = label(agent)
        self.names = tuple(label(target.name) for target in chain)
        self.models = tuple(label(target.model) for target in chain)
        self.providers = tuple(target.provider and label(target.provider) for target in chain)
        # How long an attempt may take at most, and a probe keeps others away.
        bounds = [one for one in (config.timeout, config.deadline) if one is not None]
        self.lease = min(bounds, default=None)
        self.validate = config.validate_answer
        self.validate_is_async = is_async(self.validate)
        self.leaves_refusals = FailureKind.REFUSAL in config.fallback_on
        check = partial(check_response, refusals=self.leaves_refusals)
        self.check = check if config.check_responses else None
        each, after = config.attempts_per_target, config.switch_after
        most = after if isinstance(after, int) else max(after.values(), default=1)
        attempts = len(chain) * each if each else max(3, (len(chain) - 1) * most + 1)
        self.max_attempts = config.max_attempts or attempts
        self.turn_scoped = config.reset != "iteration"
        self.grouped = config.on_exhausted == "group" and len(chain) > 1
        self.unfit = self._unfit_for("require", config.require)
        self.unfit_after_refusal = self._unfit_for("refusal_require", config.refusal_require)
        # Only such a call looks at more than its own attempts before it asks.
        limits = (config.cooldown, config.deadline, config.retry_budget, config.transport_recovery)
        credentials = (target.credential for target in chain)
        self.has_call_limits = any(one is not None for one in (*limits, *credentials))
        if config.refine is not None:
            _failures()  # made here and now: an outage is no time for it
        self.classifier = classifier
        self.classify: Callable[[BaseException], Failure] = classifier or partial(
            classify, rules=config.rules, only_models=config.only_models
        )

    def _unfit_for(self, option: str, labels: frozenset[str]) -> Mapping[int, str]:
        """Say by position who lacks a label or would degrade the call; somebody has to be left."""
        unfit = dict[int, str]()
        for position, target in enumerate(self.chain):
            if missing := sorted(labels - target.labels):
                unfit[position] = f"it lacks the label {missing[0]!r}"
            elif position and self.config.must_not_degrade:
                unfit[position] = "the call must not degrade"
        if (reasons := self.nobody_fits(unfit)) is not None:
            fix = "add a target that has it, or give it to one with Target(labels={...})"
            if self.config.must_not_degrade:
                fix = "begin with a target that has it, or leave must_not_degrade out"
            raise FallbackConfigError.about(option, f"nobody may be asked: {reasons}", fix)
        return unfit

    def labelled(self, agent: str) -> ResolvedPolicy:
        """Return a copy under another label."""
        require_text("agent", agent, "pass a name or leave it out")
        policy = object.__new__(ResolvedPolicy)
        policy.__dict__.update(self.__dict__, agent=label(agent))
        return policy

    def classification(self, error: BaseException, base: Failure | None = None) -> Failure:
        """Say what an exception means under these options.

        ``base`` is what it means unless the options say otherwise, where that is known already:
        for an error that stands for an answer.
        """
        failure, refine = base, self.config.refine
        if failure is None:
            failure = self.classify(error)
        elif self.config.rules and not failure.by_rule:
            ruled = self.classify(error)
            failure = ruled if ruled.by_rule else failure
        # A cancellation never switches, whatever the config says; and a target that the program
        # itself says it cannot ask is no matter of opinion.
        is_cancelled = failure.kind is FailureKind.CANCELLED
        if refine is None or is_cancelled or isinstance(error, TargetUnavailable):
            return failure
        refined = _refined(refine, failure, error)
        if refined.kind is not failure.kind:
            # A kind brings its answers with it: _replace(kind=...) keeps the old ones.
            known = KINDS[refined.kind]
            if refined[1:3] == failure[1:3]:
                refined = refined._replace(transient=known.transient, switchable=known.switchable)
            if refined.scope == failure.scope == KINDS[failure.kind].scope:
                refined = refined._replace(scope=known.scope)
        return refined

    def nobody_fits(self, unfit: Mapping[int, str]) -> str | None:
        """Say of the targets that a call may ask why none of them fits; None where one does."""
        if len(unfit) < len(self.chain):
            return None
        return "; ".join(f"{name}: {unfit[n]}" for n, name in enumerate(self.names))


# What reads a failure that is written by hand: its kind may be a word.
_failures = cache(lambda: TypeAdapter(Failure))


def _refined(
    refine: Callable[[Failure, BaseException], object], before: Failure, error: BaseException
) -> Failure:
    """Ask ``refine`` for a failure; where it breaks, an outage is no time to lose the error."""
    try:
        result = refine(before, error)
    except Exception as broken:  # noqa: BLE001 # see above
        # Its frames could show what a call carries.
        logger.error("refine raised %s; it is passed over", type(broken).__name__)
        return before
    try:
        after = _failures().validate_python(result)
    except ValidationError:
        logger.error("refine returned no Failure; it is passed over")
        return before
    # One that is made anew, as Failure.of does, has no facts: those of the exception stay, unless
    # it states what became of the request, unlike its kind.
    facts, known = ((one.error, one.status, one.provider_message) for one in (after, before))
    if facts != known and before.scope != KINDS[before.kind].scope:
        after = after._replace(scope=before.scope)
    is_stated = after.reached != KINDS[after.kind].reached
    return after if facts == known or is_stated else after._replace(reached=before.reached)


def check_chain(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the chain as a tuple."""
    if isinstance(targets, str | Target) or not isinstance(targets, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
        problem = f"got a single {type(targets).__name__}"
        raise FallbackConfigError.about("targets", problem, "pass a list of Target objects")
    chain = tuple(targets)
    if not chain:
        fix = "pass at least one Target"
        raise FallbackConfigError.about("targets", "the chain is empty", fix)
    for position, target in enumerate(chain):
        fix = "pass a Target, such as Target('gpt-5.5', provider='openai')"
        require_type(f"targets[{position}]", target, Target, fix)
        name = target.name
        if name in [one.name for one in chain[:position]]:
            field, problem = f"targets[{position}].name", f"{label(name)!r} is in the chain twice"
            raise FallbackConfigError.about(field, problem, "give one of them another name=")
    return chain
