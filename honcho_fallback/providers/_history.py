"""A history that another provider accepts."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from honcho_fallback import FallbackConfigError
from honcho_fallback.providers._formats import (
    FORMATS,
    Call,
    Foreign,
    Format,
    Media,
    Message,
    Part,
    Result,
    blocks_of,
    cannot_write,
)
from honcho_fallback.providers._provider import CallIds, Provider, takers, without_markers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_THOUGHTS = frozenset({"redacted_thinking", "thinking"})


def portable(messages: Iterable[Any], *, made_by: str, for_: str) -> list[dict[str, Any]]:
    """Return a history as another provider accepts it: text, attachments, tool calls, results.

    What one provider alone can read stays behind: signed thinking, encrypted reasoning, calls of
    tools that it runs itself, ids of what it keeps, cache markers. Ids of tool calls are made
    valid and distinct, in calls and results alike. An answer of which nothing is left is left out,
    and a system message becomes the user's where a format has none among the messages.

    Args:
        messages: The history in one format; objects of an SDK may stand among the dicts. They are
            left as they are.
        made_by: The format that it has: ``"openai"`` (chat completions, which other servers speak
            as well), ``"openai-responses"``, ``"anthropic"`` or ``"google"``.
        for_: The format to return. The same as ``made_by`` is another provider, or another
            account, of one format.

    Raises:
        FallbackConfigError: A format is unknown, or a user sent what ``for_`` cannot express.
    """
    source, wanted = _format("made_by", made_by), _format("for_", for_)
    try:
        read = [*source.read([_plain(message) for message in messages])]
    except (AttributeError, KeyError, TypeError) as error:
        problem = f"no history of {made_by}: {type(error).__name__} {error}"
        fix = "pass what its SDK takes, or name its format"
        raise FallbackConfigError.about("messages", problem, fix) from error
    call_ids = Provider.named(wanted.family).call_ids()
    same = source is wanted
    shared = (_accepted(message, wanted, call_ids, same=same) for message in read)
    return wanted.write([message for message in shared if message.parts])


def can_think(messages: Sequence[Mapping[str, Any]], *, made_by: str = "anthropic") -> bool:
    """Tell whether Anthropic's extended thinking may be switched on for a history.

    Its API refuses to think in the middle of a turn that did not begin with a thought, as where
    another model made the calls. Without thinking it may refuse the thoughts of that turn, which
    ``portable`` leaves out: ``portable(messages, made_by="anthropic", for_="anthropic")``. A model
    that thinks adaptively (``{"type": "adaptive"}``) takes either.

    Args:
        messages: The history; objects of an SDK may stand among the dicts.
        made_by: The format that it has: ``"anthropic"``, or what a gateway makes Anthropic's of:
            ``"openai"``, with LiteLLM's ``thinking_blocks``, or ``"openai-responses"``.

    Raises:
        FallbackConfigError: The format is none of these.
    """
    if made_by not in _STEPS:
        raise FallbackConfigError.unknown(made_by, _STEPS, "made_by")
    turn: list[tuple[bool, list[str]]] = []  # of its answers that call tools
    for step in _STEPS[made_by]([_plain(message) for message in messages]):
        if step is None:
            turn = []
        elif step[1]:
            turn.append(step)
    # It thinks at the start of a turn, and only where asked to before each of its later calls.
    return all(
        begins_with_thought or (place and all(one.startswith("toolu_") for one in call_ids))
        for place, (begins_with_thought, call_ids) in enumerate(turn)
    )


# The steps of a history: of an answer, whether it begins with a thought and the ids of its calls;
# None where a user begins a turn.


def _steps_of_anthropic(messages: Iterable[Any]) -> Iterator[tuple[bool, list[str]] | None]:
    for message in messages:
        blocks = blocks_of(message["content"])
        kinds = [block["type"] for block in blocks]
        if message["role"] == "assistant":
            calls = [str(block["id"]) for block in blocks if block["type"] == "tool_use"]
            yield not _THOUGHTS.isdisjoint(kinds[:1]), calls
        elif "tool_result" not in kinds:
            yield None


def _steps_of_chat(messages: Iterable[Any]) -> Iterator[tuple[bool, list[str]] | None]:
    for message in messages:
        if message["role"] == "assistant":
            calls = [str(one["id"]) for one in message.get("tool_calls") or ()]
            yield bool(message.get("thinking_blocks")), calls
        elif message["role"] == "user":
            yield None


def _steps_of_items(items: Iterable[Any]) -> Iterator[tuple[bool, list[str]] | None]:
    for side, some in groupby(items, _side_of):
        if side == "assistant":
            answer = [*some]
            calls = [str(one["call_id"]) for one in answer if "call_id" in one]
            yield answer[0].get("type") == "reasoning", calls
        elif side == "user":
            yield None


def _side_of(item: Mapping[str, Any]) -> str:
    """Say who an item is from: a side of the talk, or a tool."""
    is_result = str(item.get("type")).endswith("_output")
    return "tool" if is_result else str(item.get("role", "assistant"))


_STEPS: Final = {
    "anthropic": _steps_of_anthropic,
    "openai": _steps_of_chat,
    "openai-responses": _steps_of_items,
}


def _format(name: str, value: str) -> Format:
    if value not in FORMATS:
        raise FallbackConfigError.unknown(value, FORMATS, name)
    return FORMATS[value]


def _plain(value: Any) -> Any:
    """Return an SDK's object as the dict that it stands for, also inside a message."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _accepted(message: Message, wanted: Format, ids: CallIds | None, *, same: bool) -> Message:
    """Give calls and results valid ids; refuse what cannot be said, and drop others' markers."""
    new_ids: Iterator[str] = iter(())
    if ids is not None:
        calls = [part.id for part in message.parts if isinstance(part, Call)]
        new_ids = iter(ids.of_calls(calls)) if calls else new_ids

    def accepted(part: Part) -> Part:
        match part:
            case Call() if ids is not None:
                return part._replace(id=next(new_ids))
            case Result(call_id, parts):
                new_id = call_id if ids is None else ids.of_result(call_id)
                return part._replace(call_id=new_id, parts=tuple(map(accepted, parts)))
            case Foreign() if not same:
                raise cannot_write(part, wanted.family)
            case Foreign(block):
                return Foreign(without_markers(block, frozenset(takers("markers"))))
            case Media() | _:
                return part

    return message._replace(parts=tuple(map(accepted, message.parts)))
