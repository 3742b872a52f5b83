"""What a guard is told and what it knows of a run: limits, counts as plain data, its verdicts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback.tools._failure import ToolFailure

NUDGES = {"identical_failures": "identical_nudge", "varied_failures": "varied_nudge"}


@dataclass(frozen=True, slots=True)
class ToolLoopLimits:
    """Say when to nudge and when to halt, in rounds of calls.

    The calls that a model makes at once are one round. "Again" means in the next round; another
    call in between starts such a count anew, and so does a success.

    Args:
        identical_failures: The same call failing the same way again.
        varied_failures: Any failures in a row.
        identical_nudge: Tell the model at this many identical failures; below the halt.
        varied_nudge: Tell the model at this many failures in a row; below the halt.
        recoverable_identical: As identical_failures, for failures that may pass by themselves.
        recoverable_varied: As varied_failures, for the same.
        policy_rejections: The same call being refused again, by policy or a person.
        identical_batches: The same calls succeeding again and again, or the same few rounds
            coming in turn, each time with the same results; with a failure in them that may pass
            by itself it is recoverable_identical. A nudge comes when the turn is made a second
            time.
        polls: The same calls, or the same few rounds in turn, with results that change; where
            identical_batches is more, it counts.
        identical_outputs: The model saying the same, its calls included, again. A failure, a round
            of exempt tools and a result that changed start it anew.
        max_iterations: Rounds of tool calls in a run, or None.
        autonomous_max_iterations: The same in a run that is unattended, where it is more.

    Raises:
        FallbackConfigError: A limit is no positive number, a nudge is not below its halt, or
            autonomous_max_iterations has nothing to lift.
    """

    identical_failures: int = 3
    varied_failures: int = 6
    identical_nudge: int = 2
    varied_nudge: int = 4
    recoverable_identical: int = 8
    recoverable_varied: int = 12
    policy_rejections: int = 2
    identical_batches: int = 3
    polls: int = 100
    identical_outputs: int = 4
    max_iterations: int | None = None
    autonomous_max_iterations: int | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is None and limit.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise FallbackConfigError.about(
                    limit.name, f"got {value!r}", "pass a whole number of 1 or more"
                )
        for halt, nudge in NUDGES.items():
            if getattr(self, nudge) >= getattr(self, halt):
                raise FallbackConfigError.about(
                    nudge, f"it is not below {halt}", "nudge before the halt, not after it"
                )
        if self.max_iterations is None and self.autonomous_max_iterations is not None:
            raise FallbackConfigError.about(
                "autonomous_max_iterations",
                "without max_iterations no run has a cap that it could lift",
                "set max_iterations, too",
            )


@dataclass(frozen=True, slots=True)
class ToolLoopState:
    """Count what has happened in a run; digests and numbers, no argument and no text.

    Args:
        identical: The failures of the last round by digest, and how often in a row each came.
        varied: Rounds in a row in which all calls failed.
        recoverable_varied: The same for failures that may pass by themselves.
        rounds: Digests of the latest rounds, each of its calls and of what came of them.
        repeats: How many rounds in a row were the same as the one before them, as the second
            before them, and so on.
        iterations: Rounds of tool calls.
        call_repeats: As repeats, whatever the results, for rounds in which a call succeeded.
        output: Digest of what the model said last.
        outputs: How often in a row.
    """

    identical: Mapping[str, int] = field(default_factory=dict[str, int])
    varied: int = 0
    recoverable_varied: int = 0
    rounds: tuple[str, ...] = ()
    repeats: tuple[int, ...] = ()
    iterations: int = 0
    call_repeats: tuple[int, ...] = ()
    output: str = ""
    outputs: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for a checkpoint or for JSON."""
        return {**asdict(self), **{name: [*getattr(self, name)] for name in sorted(_TUPLES)}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> ToolLoopState:
        """Build it from plain values; what is missing counts from nought.

        Args:
            values: From ``to_dict``, or None at the beginning of a run.

        Raises:
            FallbackConfigError: They are not.
        """
        counts = dict(values or {})
        try:
            # JSON has no tuples.
            counts.update({name: tuple(counts[name]) for name in counts.keys() & _TUPLES})
            return cls(**counts)
        except TypeError as error:
            raise FallbackConfigError.about(
                "state", "it is not from to_dict()", "pass what to_dict() returned"
            ) from error


_TUPLES = frozenset({"rounds", "repeats", "call_repeats"})


class ToolLoopVerdict(NamedTuple):
    """Say whether to go on.

    Args:
        action: ``continue``, ``nudge`` (tell the model ``message``) or ``halt`` (end the run, tell
            the person ``message``).
        message: What to say, or empty; at most 600 characters.
        reason: Which limit it was, such as ``identical_failures``, or empty.
        failure: What went wrong last, or None.
        tool: Which tool it is about, by the name that the model called; of several that were
            called at once, their names with ", " between. Empty where it goes on.
    """

    action: Literal["continue", "nudge", "halt"] = "continue"
    message: str = ""
    reason: str = ""
    failure: ToolFailure | None = None
    tool: str = ""
