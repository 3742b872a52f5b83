"""Messages: nudges for the model and summaries for the person, without any text of a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback.tools._failure import ToolFailureCategory, ToolFailureKind
from honcho_fallback.tools._state import ToolLoopVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback.tools._failure import ToolFailure

_LONGEST_NAMES = 200  # characters; a model may call a tool whatever it likes

_ALIKE = "I stopped: {tools} failed {times} times in the same way ({kind}). {failure}"
_IN_A_ROW = (
    "I stopped: tools failed {times} times in a row, the last one was {tools} ({kind}). {failure}"
)
# To the person, by the limit that was reached.
_HALTS = {
    "budget_exhausted": (
        "I stopped: the model that {tools} hands its work to has no budget left, so trying again "
        "would change nothing. Add credit or raise the limit with its provider, then ask again."
    ),
    "provider_config": (
        "I stopped: the model that {tools} hands its work to cannot be used with the present "
        "settings, so trying again would change nothing. Check its name, key, region and "
        "parameters, then ask again."
    ),
    "identical_failures": _ALIKE,
    "recoverable_identical": _ALIKE,
    "varied_failures": _IN_A_ROW,
    "recoverable_varied": _IN_A_ROW,
    "policy_rejections": (
        "I stopped: the same call of {tools} was refused {times} times ({kind}). {failure}"
    ),
    "identical_batches": (
        "I stopped: I have called {tools} in the same way {times} times in a row, and I made no "
        "progress. Tell me what is missing, or ask in another way."
    ),
    "repeated_cycle": (
        "I stopped: I have made the same calls in turn {times} times, the last of {tools}, and I "
        "made no progress. Tell me what is missing, or ask in another way."
    ),
    "polls": (
        "I stopped: I have made the same calls {times} times, the last of {tools}. Their results "
        "changed, but I came to no end. Ask me to go on if it is worth waiting."
    ),
    "identical_outputs": (
        "I stopped: I have said the same and called {tools} {times} times in a row, and I made no "
        "progress. Tell me what is missing, or ask in another way."
    ),
    "max_iterations": (
        "I stopped after {times} rounds of tool calls, the most that a run may have, before I "
        "called {tools}. What I found so far stands above; ask me to go on if it is not enough."
    ),
}
# To the model.
_NUDGES = {
    "identical_failures": (
        "{tools} has failed {times} times in the same way with the same arguments. {failure} Do "
        "not make this call again: change the arguments, use another tool, or say what is in the "
        "way."
    ),
    "varied_failures": (
        "Tools have failed {times} times in a row, the last one was {tools}. {failure} Stop and "
        "think: take another way, or say what is in the way and what you need."
    ),
    "repeated_cycle": (
        "You have made the same calls in turn {times} times, the last of {tools}, and nothing new "
        "has come of it. Stop and think: take another way, or say what is in the way and what you "
        "need."
    ),
}


def halt(
    reason: str, tools: Sequence[str], times: int = 1, failure: ToolFailure | None = None
) -> ToolLoopVerdict:
    """End the run, and tell the person why."""
    kind, advice = _advice(failure) if failure else ("", "")
    facts = {"tools": _shown(tools), "times": times, "kind": kind, "failure": advice}
    message = _HALTS[reason].format(**facts)
    return ToolLoopVerdict("halt", message, reason, failure, _names(tools))


def nudge(
    reason: str, tools: Sequence[str], times: int, failure: ToolFailure | None = None
) -> ToolLoopVerdict:
    """Tell the model to try something else."""
    cause = failure.cause if failure else ""
    message = _NUDGES[reason].format(tools=_shown(tools), times=times, failure=cause)
    return ToolLoopVerdict("nudge", message, reason, failure, _names(tools))


def _advice(failure: ToolFailure) -> tuple[str, str]:
    """Say what kind of failure it is, and what the person can do about it."""
    is_unknown = failure.kind is ToolFailureKind.UNKNOWN
    kind = "unknown failure" if is_unknown else failure.kind.value.replace("_", " ")
    # "It is tried again" is true of one failure, not of a run that was stopped.
    if failure.recoverable:
        return kind, f"{failure.cause} Ask again later, or look into what the tool needs."
    needs_person = failure.category is ToolFailureCategory.NEEDS_USER_CONFIRMATION
    request = "I need your help: " if needs_person else ""
    return kind, f"{failure.cause} {request}{failure.next_action}"


def _names(tools: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(tools))


def _shown(tools: Sequence[str]) -> str:
    if not tools:
        return "no tool"
    shown = "".join(filter(str.isprintable, _names(tools))) or "a tool without a name"
    return shown if len(shown) <= _LONGEST_NAMES else f"{shown[:_LONGEST_NAMES]}…"
