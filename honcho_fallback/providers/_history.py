"""A history that another provider accepts, and what of a request it cannot take."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from honcho_fallback import FallbackConfigError
from honcho_fallback.providers._formats import (
    FORMATS,
    Call,
    Foreign,
    Message,
    Part,
    Result,
    blocks_of,
    cannot_write,
)
from honcho_fallback.providers._provider import CallIds, Provider, takers, without_markers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ANY_ID = "(?s:.*)"
_THOUGHTS = frozenset({"redacted_thinking", "thinking"})
_KEPT_BY_SERVER = (
    "previous_response_id",
    "conversation",
    "container",
    "cached_content",
    "cachedContent",
    "prompt",
)
_FILES = ("file_id", "file_uri", "fileUri")
# Tools that the caller's own program describes and runs, by the type that they say they have.
_OWN_TOOLS = frozenset({None, "custom", "function"})
_GOOGLES_OWN = frozenset({"function_declarations", "functionDeclarations"})


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
    for name, value in (("made_by", made_by), ("for_", for_)):
        if value not in FORMATS:
            raise FallbackConfigError.unknown(value, FORMATS, name)
    try:
        read = [*FORMATS[made_by].read([_plain(message) for message in messages])]
    except (AttributeError, KeyError, TypeError) as error:
        problem = f"no history of {made_by}: {type(error).__name__} {error}"
        fix = "pass what its SDK takes, or name its format"
        raise FallbackConfigError.about("messages", problem, fix) from error
    call_ids = Provider.named(for_).call_ids() or CallIds(_ANY_ID, 32)
    shared = (_accepted(one, for_, call_ids, is_its_own=made_by == for_) for one in read)
    return FORMATS[for_].write([message for message in shared if message.parts])


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
    is_result = str(item.get("type")).endswith("_output")
    return "tool" if is_result else str(item.get("role", "assistant"))


_STEPS: Final = {
    "anthropic": _steps_of_anthropic,
    "openai": _steps_of_chat,
    "openai-responses": _steps_of_items,
}


def _plain(value: Any) -> Any:
    """Return an SDK's object as the dict that it stands for, also inside a message."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _accepted(message: Message, for_: str, ids: CallIds, *, is_its_own: bool) -> Message:
    """Give calls and results valid ids; refuse what cannot be said, and drop others' markers."""
    calls = [part.id for part in message.parts if isinstance(part, Call)]
    new_ids = iter(ids.of_calls(calls))

    def accepted(part: Part) -> Part:
        match part:
            case Call():
                return part._replace(id=next(new_ids))
            case Result(call_id, parts):
                return part._replace(
                    call_id=ids.of_result(call_id), parts=tuple(map(accepted, parts))
                )
            case Foreign() if not is_its_own:
                raise cannot_write(part, for_)
            case Foreign(block):
                return Foreign(without_markers(block, frozenset(takers("markers"))))
            case _:
                return part

    return message._replace(parts=tuple(map(accepted, message.parts)))


def bound_to(request: Mapping[str, Any]) -> str | None:
    """Say what of a request binds it to its provider, or None where it can go to another.

    What a server keeps (earlier responses, conversations, files, caches, stored prompts) and tools
    that it runs itself are not there for anybody else: pass the reason for every target of another
    provider or account, as in ``policy.call(ask, unfit={1: reason} if reason else None)``.

    Args:
        request: The keyword arguments for an SDK's method, of OpenAI, Anthropic or Google; left
            as they are.
    """
    config = request.get("config") or {}
    config = config if isinstance(config, Mapping) else vars(config)
    for name in _KEPT_BY_SERVER:
        value = request.get(name) or config.get(name)
        if value and (name != "prompt" or isinstance(value, Mapping)):
            return f"{name} names what its provider keeps"
    for tool in (*(request.get("tools") or ()), *(config.get("tools") or ())):
        hosted = _hosted(tool)
        if hosted is not None:
            return f"its provider runs the tool {hosted}"
    history = [request.get(name) for name in ("messages", "input", "contents")]
    file = _file_in(history)
    return None if file is None else f"{file} names what its provider keeps"


def _hosted(tool: Any) -> str | None:
    """Name a tool that the provider runs, or made its model for."""
    tool = _plain(tool)
    if not isinstance(tool, Mapping):
        return None  # a function of the caller's
    kind = tool.get("type")
    if kind is not None:
        return None if kind in _OWN_TOOLS else str(kind)
    others = [name for name in tool if name not in _GOOGLES_OWN]
    described = {"name", "function", "input_schema"} & tool.keys()
    return str(others[0]) if others and not described else None


def _file_in(value: Any) -> str | None:
    """Find the name of a file, or of an item, that a server keeps."""
    if isinstance(value, list | tuple):
        return next((name for name in map(_file_in, value) if name is not None), None)
    if not isinstance(value, Mapping):
        return None
    if value.get("type") == "item_reference":
        return "item_reference"
    for name in _FILES:
        # Google takes any address where it takes a file of its own.
        if value.get(name) and (name == "file_id" or "generativelanguage" in str(value[name])):
            return name
    return next((name for name in map(_file_in, value.values()) if name is not None), None)
