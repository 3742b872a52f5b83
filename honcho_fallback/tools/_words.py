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

_TERMINAL: Mapping[str, str] = {
    "budget_exhausted": (
        "I stopped: the model that {} hands its work to has no budget left, so trying again "
        "would change nothing. Add credit or raise the limit with its provider, then ask again."
    ),
    "provider_config": (
        "I stopped: the model that {} hands its work to cannot be used with the present "
        "settings, so trying again would change nothing. Check its name, key, region and "
        "parameters, then ask again."
    ),
}


def terminal(tool: str, reason: str) -> str:
    """Tell the person that a model that a tool needs is gone for good."""
    return _TERMINAL[reason].format(_name(tool))


def failed_alike(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the person that the same call failed the same way."""
    return _summary(f"I stopped: {_name(tool)} failed {times} times in the same way.", failure)


def failed_in_a_row(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the person that call after call failed."""
    event = f"I stopped: tools failed {times} times in a row, the last one was {_name(tool)}."
    return _summary(event, failure)


def refused(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the person that what the model wants is not allowed."""
    event = f"I stopped: the same call of {_name(tool)} was refused {times} times."
    return _summary(event, failure)


def same_batch(tools: Sequence[str], times: int) -> str:
    """Tell the person that the same calls succeeded again and again."""
    return _cut(
        f"I stopped: I have called {_names(tools)} in the same way {times} times in a row, and I "
        "made no progress. Tell me what is missing, or ask in another way."
    )


def same_cycle(tools: Sequence[str], times: int) -> str:
    """Tell the person that the same few rounds came in turn."""
    return _cut(
        f"I stopped: I have made the same calls in turn {times} times, the last of "
        f"{_names(tools)}, and I made no progress. "
        "Tell me what is missing, or ask in another way."
    )


def same_output(tools: Sequence[str], times: int) -> str:
    """Tell the person that the model repeats itself."""
    return _cut(
        f"I stopped: I have asked {_names(tools)} for the same thing {times} times in a row. "
        "Tell me what is missing, or ask in another way."
    )


def too_many_iterations(tools: Sequence[str], cap: int) -> str:
    """Tell the person that the run has become too long."""
    return _cut(
        f"I stopped after {cap} rounds of tool calls, the most that a run may have, before I "
        f"called {_names(tools)}. "
        "What I found so far stands above; ask me to go on if it is not enough."
    )


def nudge_alike(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the model not to make the same call again."""
    return _cut(
        f"{_name(tool)} has failed {times} times in the same way with the same arguments. "
        f"{failure.cause} Do not make this call again: change the arguments, use another tool, or "
        "say what is in the way."
    )


def nudge_in_a_row(tool: str, failure: ToolFailure, times: int) -> str:
    """Tell the model to try something else."""
    return _cut(
        f"Tools have failed {times} times in a row, the last one was {_name(tool)}. "
        f"{failure.cause} Stop and think: take another way, or say what is in the way and what "
        "you need."
    )


def nudge_cycle(tools: Sequence[str], times: int) -> str:
    """Tell the model that it goes round in a circle."""
    return _cut(
        f"You have made the same calls in turn {times} times, the last of {_names(tools)}, and "
        "nothing new has come of it. Stop and think: take another way, or say what is in the way "
        "and what you need."
    )


def _summary(event: str, failure: ToolFailure) -> str:
    needs_person = failure.category is ToolFailureCategory.NEEDS_USER_CONFIRMATION
    advice = f"I need your help: {failure.next_action}" if needs_person else failure.next_action
    # "It is tried again" is true of one failure, not of a run that was stopped.
    if failure.recoverable:
        advice = "Ask again later, or look into what the tool needs."
    return _cut(f"{event} {failure.cause} {advice}")


def _names(tools: Sequence[str]) -> str:
    different = list(dict.fromkeys(tools))
    names = ", ".join(map(_name, different[:_SHOWN_NAMES]))
    more = len(different) - _SHOWN_NAMES
    return f"{names} and {more} more" if more > 0 else names


def _name(tool: str) -> str:
    shown = "".join(sign for sign in tool if sign.isprintable()) or "a tool without a name"
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}…"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
