"""What a guard knows of a run: plain data, so that it can live in a graph's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from honcho_fallback.tools._failure import ToolFailure

LONGEST_CYCLE = 4  # rounds: A, B, C, D, A, B, C, D


@dataclass(frozen=True, slots=True)
class ToolLoopLimits:
    """Say when to nudge and when to halt; the figures are openhuman's, in rounds of calls.

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
            coming in turn, whatever comes of them; with a failure in them that may pass by itself
            it is recoverable_identical. A nudge comes when the turn is made a second time.
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
        identical: The failures of the last round by digest, and how often in a row each came.
        varied: Rounds in a row in which all calls failed.
        recoverable_varied: The same for failures that may pass by themselves.
        rounds: Digests of the latest rounds.
        repeats: How many rounds in a row were the same as the one before them, as the second
            before them, and so on.
        output: Digest of the model's last output.
        outputs: How often in a row.
        iterations: Rounds of tool calls.
    """

    identical: Mapping[str, int] = field(default_factory=dict[str, int])
    varied: int = 0
    recoverable_varied: int = 0
    rounds: tuple[str, ...] = ()
    repeats: tuple[int, ...] = ()
    output: str = ""
    outputs: int = 0
    iterations: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for a checkpoint or for JSON."""
        values = asdict(self)
        return {name: [*one] if isinstance(one, tuple) else one for name, one in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> ToolLoopState:
        """Build it from plain values; what is missing counts from nought.

        Args:
            values: From ``to_dict``, or None at the beginning of a run.

        Raises:
            FallbackConfigError: They are not.
        """
        state = dict(values or {})
        for name in state.keys() & {"rounds", "repeats"}:
            if isinstance(state[name], list):  # JSON has no tuples
                state[name] = tuple(state[name])
        known = {count.name for count in fields(cls)}
        for name, value in state.items():
            default = getattr(cls(), name, None) if name in known else None
            if default is None or _sort(default) != _sort(value):
                raise FallbackConfigError.about(
                    f"state.{name}", "it is not from to_dict()", "pass what to_dict() returned"
                )
        return cls(**state)


def _sort(value: object) -> str:
    kinds: dict[str, type[Any]] = {"map": Mapping, "row": tuple, "text": str, "number": int}
    return next((name for name, kind in kinds.items() if isinstance(value, kind)), "")


class Verdict(NamedTuple):
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


CONTINUE = Verdict()
