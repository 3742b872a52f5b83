"""What a guard knows of a run: plain data, so that it can live in a graph's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from honcho_fallback.tools._failure import ToolFailure

_KEPT = 128  # signatures; those of recoverable failures outlive a success


@dataclass(frozen=True, slots=True)
class ToolLoopLimits:
    """Say when to nudge and when to halt; the figures are openhuman's.

    Args:
        identical_failures: The same call failing the same way.
        varied_failures: Any failures in a row.
        identical_nudge: Tell the model at this many identical failures; below the halt.
        varied_nudge: Tell the model at this many failures in a row; below the halt.
        recoverable_identical: As identical_failures, for failures that may pass by themselves.
        recoverable_varied: As varied_failures, for the same.
        policy_rejections: Calls that policy or a person refused.
        identical_batches: The same calls succeeding again and again.
        identical_outputs: The model saying and calling the same again and again.
        max_iterations: Rounds of tool calls in a run, or None.
        autonomous_max_iterations: The same where nobody watches; counts where it is larger.

    Raises:
        FallbackConfigError: A limit is no positive number, or a nudge is not below its halt.
    """

    identical_failures: int = 3
    varied_failures: int = 6
    identical_nudge: int = 2
    varied_nudge: int = 4
    recoverable_identical: int = 8
    recoverable_varied: int = 12
    policy_rejections: int = 2
    identical_batches: int = 3
    identical_outputs: int = 4
    max_iterations: int | None = None
    autonomous_max_iterations: int | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is None and limit.name.endswith("max_iterations"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise FallbackConfigError.about(
                    limit.name, f"got {value!r}", "pass a whole number of 1 or more"
                )
        for nudge, halt in _NUDGES.items():
            if getattr(self, nudge) >= getattr(self, halt):
                raise FallbackConfigError.about(
                    nudge, f"it is not below {halt}", "nudge before the halt, not after it"
                )

    def iteration_cap(self, *, autonomous: bool) -> int | None:
        """Return how many rounds of tool calls a run may have, or None.

        Args:
            autonomous: Whether nobody watches it.
        """
        cap, lifted = self.max_iterations, self.autonomous_max_iterations
        if cap is None or not autonomous or lifted is None:
            return cap
        return max(cap, lifted)


_NUDGES = {"identical_nudge": "identical_failures", "varied_nudge": "varied_failures"}


@dataclass(frozen=True, slots=True)
class ToolLoopState:
    """Count what has happened in a run; digests and numbers, no argument and no text.

    Args:
        identical: Failures by signature since the last success.
        varied: Failures since the last success.
        recoverable_identical: Failures that may pass, by signature, since the run began.
        recoverable_varied: The same since the last success, all together.
        rejections: Refusals by policy or a person since the last success.
        batch: Digest of the last batch that succeeded.
        batches: How often in a row.
        output: Digest of the model's last output.
        outputs: How often in a row.
        iterations: Rounds of tool calls.
    """

    identical: Mapping[str, int] = field(default_factory=dict[str, int])
    varied: int = 0
    recoverable_identical: Mapping[str, int] = field(default_factory=dict[str, int])
    recoverable_varied: int = 0
    rejections: int = 0
    batch: str = ""
    batches: int = 0
    output: str = ""
    outputs: int = 0
    iterations: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for a checkpoint or for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> ToolLoopState:
        """Build it from plain values; what is missing counts from nought.

        Args:
            values: From ``to_dict``, or None at the beginning of a run.

        Raises:
            FallbackConfigError: They are not.
        """
        state = dict(values or {})
        known = {count.name for count in fields(cls)}
        for name, value in state.items():
            default = getattr(cls(), name, None) if name in known else None
            if default is None or isinstance(default, Mapping) != isinstance(value, Mapping):
                raise FallbackConfigError.about(
                    f"state.{name}", "it is not from to_dict()", "pass what to_dict() returned"
                )
        return cls(**state)


def counted(counts: Mapping[str, int], signature: str) -> tuple[Mapping[str, int], int]:
    """Count one more, forgetting the oldest where there are too many."""
    number = counts.get(signature, 0) + 1
    kept = [item for item in counts.items() if item[0] != signature][-(_KEPT - 1) :]
    return {**dict(kept), signature: number}, number


class Verdict(NamedTuple):
    """Say whether to go on.

    Args:
        action: ``continue``, ``nudge`` (tell the model ``message``) or ``halt`` (end the run, tell
            the person ``message``).
        message: What to say, or empty; at most 600 characters.
        reason: Which limit it was, such as ``identical_failures``, or empty.
        failure: What went wrong last, or None.
    """

    action: Literal["continue", "nudge", "halt"] = "continue"
    message: str = ""
    reason: str = ""
    failure: ToolFailure | None = None


CONTINUE = Verdict()
