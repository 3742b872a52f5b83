"""Messages: nudges for the model and summaries for the person, without any text of a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback.tools._failure import ToolFailureCategory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback.tools._failure import ToolFailure

LONGEST = 600  # characters
_LONGEST_NAME = 60
_SHOWN_NAMES = 4

TERMINAL: Mapping[str, str] = {
    "budget_exhausted": (
        "I stopped: the model that a tool hands its work to has no budget left, so trying again "
        "would change nothing. Add credit or raise the limit with its provider, then ask again."
    ),
    "provider_config": (
        "I stopped: the model that a tool hands its work to cannot be used with the present "
        "settings, so trying again would change nothing. Check its name, key, region and "
        "parameters, then ask again."
    ),
}


def failed_alike(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the person that the same call failed the same way."""
    return _summary(f"I stopped: {_name(tool)} failed {times} times in the same way.", failure)


def failed_in_a_row(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the person that call after call failed."""
    event = f"I stopped: {times} calls of tools failed in a row, the last one of {_name(tool)}."
    return _summary(event, failure)


def refused(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the person that what the model wants is not allowed."""
    event = f"I stopped: {_name(tool)} was not allowed, after {times} refusals in a row."
    return _summary(event, failure)


def same_batch(tools: Sequence[str], times: int) -> str:
    """Tell the person that the same calls succeeded again and again."""
    names = ", ".join(_name(tool) for tool in tools[:_SHOWN_NAMES])
    more = f" and {len(tools) - _SHOWN_NAMES} more" if len(tools) > _SHOWN_NAMES else ""
    return _cut(
        f"I stopped: {names}{more} gave the same results {times} times in a row, and I made no "
        "progress. Tell me what is missing, or ask in another way."
    )


def same_output(times: int) -> str:
    """Tell the person that the model repeats itself."""
    return (
        f"I stopped: I have asked for the same thing {times} times in a row. "
        "Tell me what is missing, or ask in another way."
    )


def too_many_iterations(cap: int) -> str:
    """Tell the person that the run has become too long."""
    return (
        f"I stopped after {cap} rounds of tool calls, the most that a run may have. "
        "What I found so far stands above; ask me to go on if it is not enough."
    )


def nudge_alike(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the model not to make the same call again."""
    return _cut(
        f"{_name(tool)} has failed {times} times in the same way with the same arguments. "
        f"{failure.cause} Do not make this call again: change the arguments, use another tool, or "
        "say what is in the way."
    )


def nudge_in_a_row(failure: ToolFailure, times: int) -> str:
    """Tell the model to try something else."""
    return _cut(
        f"The last {times} calls of tools have all failed. {failure.cause} Stop and think: take "
        "another way, or say what is in the way and what you need."
    )


def _summary(event: str, failure: ToolFailure) -> str:
    needs_person = failure.category is ToolFailureCategory.NEEDS_USER_CONFIRMATION
    advice = f"I need your help: {failure.next_action}" if needs_person else failure.next_action
    # "It is tried again" is true of one failure, not of a run that was stopped.
    if failure.recoverable:
        advice = "Ask again later, or look into what the tool needs."
    return _cut(f"{event} {failure.cause} {advice}")


def _name(tool: str) -> str:
    shown = "".join(sign for sign in tool if sign.isprintable()) or "a tool without a name"
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}…"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
