"""A chain and its options, resolved once, so that a call looks nothing up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from honcho_fallback._checks import require_text, require_type
from honcho_fallback._classify import classify
from honcho_fallback._classify._answers import check_response
from honcho_fallback._errors import FallbackConfigError
from honcho_fallback._failure import KINDS, Failure, FailureKind
from honcho_fallback._observer import Observers, logger
from honcho_fallback._target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from honcho_fallback._config import FallbackConfig

_LARGER_WINDOW = frozenset({FailureKind.CONTEXT_OVERFLOW, FailureKind.PAYLOAD_TOO_LARGE})


class Plan:
    """Hold what every call on a policy shares; nothing in it changes.

    Args:
        chain: As ``check_chain`` returns it.
        config: The options.
        agent: A label for logs and records.
        told: The observers, or None.

    Raises:
        FallbackConfigError: The label is empty.
    """

    def __init__(
        self, chain: tuple[Target, ...], config: FallbackConfig, agent: str, told: Observers | None
    ) -> None:
        require_text("agent", agent, "pass a name or leave it out")
        self.chain, self.config, self.agent, self.observers = chain, config, agent, told
        # What every call asks for is looked up once.
        self.timeout, self.connect_timeout = config.timeout, config.connect_timeout
        self.validate = config.validate_answer
        self.check = check_response if config.check_responses else None
        each = config.attempts_per_target
        attempts = len(chain) * each if each else max(3, len(chain))
        self.max_attempts = config.max_attempts or attempts
        self.turn_scoped = config.reset == "turn"
        self.grouped = config.on_exhausted == "group" and len(chain) > 1
        self.reach = 1 if config.must_not_degrade else len(chain)
        watched = (config.cooldown, config.deadline, config.retry_budget)
        self.watchful = any(
            option is not None for option in (*watched, config.transport_recovery)
        ) or any(target.credential is not None for target in chain)

    def classify(self, error: BaseException) -> Failure:
        """Say what an exception means under these options.

        Args:
            error: What was raised.
        """
        config = self.config
        failure = classify(
            error, local_errors=config.local_errors, provider_errors=config.provider_errors
        )
        # A cancellation never switches, whatever the config says.
        if config.classify is not None and failure.kind is not FailureKind.CANCELLED:
            failure = _asked("classify", failure, partial(config.classify, error))
        if config.refine is not None and failure.kind is not FailureKind.CANCELLED:
            failure = _asked("refine", failure, partial(config.refine, failure, error))
        return failure

    def switches(self, failure: Failure) -> bool:
        """Tell whether a failure is one that another target may be asked for.

        A kind that the table does not switch on does so once it is named in ``fallback_on``.

        Args:
            failure: What went wrong.
        """
        return failure.kind in self.config.fallback_on and (
            failure.switchable or not KINDS[failure.kind].switchable
        )

    def candidates(self, failure: Failure, position: int) -> Sequence[int]:
        """List the targets down the chain that could take the request.

        Args:
            failure: What went wrong.
            position: Where it went wrong.
        """
        following = range(position + 1, self.reach) if self.switches(failure) else ()
        if failure.kind not in _LARGER_WINDOW:
            return following
        window = self.chain[position].context_window
        if window is None:  # unknown is never smaller than anything
            return ()
        return [n for n in following if (self.chain[n].context_window or 0) > window]

    def switch_after(self, kind: FailureKind) -> int:
        """Return how many failures of a kind one target may have before the switch.

        Args:
            kind: What went wrong.
        """
        allowed = self.config.switch_after
        return allowed.get(kind, 1) if isinstance(allowed, Mapping) else allowed


def check_chain(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the chain as a tuple.

    Args:
        targets: The targets, the primary first.

    Raises:
        FallbackConfigError: It is empty, holds something else, or two targets share a name.
    """
    if isinstance(targets, str | Target):
        found = f"got a single {type(targets).__name__}"
        raise FallbackConfigError.about("targets", found, "pass a list of Target objects")
    chain = tuple(targets)
    if not chain:
        fix = "pass at least one Target"
        raise FallbackConfigError.about("targets", "the chain is empty", fix)
    for position, target in enumerate(chain):
        fix = "pass a Target, such as Target('gpt-5.5', provider='openai')"
        require_type(f"targets[{position}]", target, Target, fix)
        name = target.name
        if name in [one.name for one in chain[:position]]:
            field, found = f"targets[{position}].name", f"{name!r} is in the chain twice"
            raise FallbackConfigError.about(field, found, "give one of them another name=")
    return chain


def _asked(option: str, before: Failure, own: Callable[[], Failure]) -> Failure:
    try:
        answer = own()
    except Exception as broken:  # noqa: BLE001 # an outage is no time to lose the provider's error
        logger.error("%s raised %s; it is passed over", option, type(broken).__name__)
        return before
    if not isinstance(answer, Failure):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
        logger.error("%s returned no Failure; it is passed over", option)
        return before
    return answer
