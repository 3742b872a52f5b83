"""LangChain's messages as another provider accepts them: what ``portable`` does for plain dicts.

An answer carries more than text: signed thinking, encrypted reasoning, calls of a provider's own
tools, ids under which it is kept on a server. Another provider refuses them, and a switch in the
middle of a tool loop would end in a 400. Text and tool calls are what all of them share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.prompt_values import PromptValue

from honcho_fallback.providers import Provider, bound_to, can_think
from honcho_fallback_langchain._outputs import KEY
from honcho_fallback_langchain._sdk import differ, first_chat_model, integration_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from honcho_fallback import Target
    from honcho_fallback.providers import CallIds

Block = str | dict[str, Any]

RESPONSES: Final = "openai-responses"  # beside "openai", because it takes other blocks


class Reader(NamedTuple):
    """Say who reads a history."""

    target: Target  # who is asked
    chain: Sequence[Target]  # the primary first
    provider: Provider
    writes: Provider  # whose format its integration writes, or RESPONSES
    is_primarys: bool  # whether the caller wrote for this provider

    @classmethod
    def of(cls, target: Target, chain: Sequence[Target]) -> Reader:
        provider = Provider.named(target.provider or "")
        writes = Provider.named(_format_of(target) or provider.family)
        return cls(target, chain, provider, writes, _is_same_provider(target, chain[0]))

    def may_read(self, writer: str, author: str | None) -> bool:
        """Tell whether an answer may come back whole, by the format and the target it names."""
        if author == self.target.name:
            return True
        source = Provider.named(writer)
        if source.family not in {self.provider.family, self.writes.family}:
            return False
        if not source.per_account:
            return True
        accounts = set[str | None]()  # of the provider's
        for target in self.chain:
            family = Provider.named(target.provider or "").family
            if target.name == author or author is None:  # then it counts as the primary's
                return target.endpoint == self.target.endpoint and family == self.provider.family
            if family == self.provider.family:
                accounts.add(target.endpoint)
        # Another chain's: where this one has two accounts, nobody knows which of them it was.
        return source.family == self.provider.family and len(accounts) < 2

    def unmarked(self, content: Any) -> Any:
        """Return blocks without other providers' markers; a primary that nobody knows gets all."""
        if self.is_primarys and not self.provider.is_known:
            return content
        return self.provider.unmarked(content)


def _format_of(target: Target) -> str | None:
    model: Any = first_chat_model(target.client)
    writes = integration_of(model).writes
    if writes != "openai":
        return writes
    responses = (
        getattr(model, "use_responses_api", None) is True
        or getattr(model, "output_version", None) == "responses/v1"
    )
    return RESPONSES if responses else "openai"


def _is_same_provider(one: Target, other: Target) -> bool:
    """Tell whether two targets ask one provider.

    A chat model that does not say whom it asks is named after its class in traces; two of a class
    may ask different providers.
    """
    model = first_chat_model(one.client)
    is_named = model is None or type(model)._get_ls_params is not BaseChatModel._get_ls_params  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # what every integration overrides
    return one is other or (is_named and one.provider == other.provider)


def for_provider(given: Any, reader: Reader) -> Any:
    """Return a chat model's input as a provider accepts it, the same object where it does.

    An answer of another provider keeps its text and its tool calls, and is left out where it has
    neither; consecutive messages of a user are what every provider accepts. Cache markers go
    where they are known, and tool-call ids are made valid and distinct in calls and results alike.
    What users and tools send is left as it is: LangChain's integrations translate its standard
    blocks, and a provider refuses what it cannot take; then the next one is asked.
    """
    given = given.to_messages() if isinstance(given, PromptValue) else given
    if not is_list(given) or all(map(_is_plain, given)):
        return given
    messages, ids = convert_to_messages(given), reader.writes.call_ids()
    converted: list[BaseMessage] = []
    for message in messages:
        copy = _with(message, _changes(message, reader))
        if copy is message or not _says_nothing(copy):
            converted.append(copy if ids is None else _with(copy, _valid_ids(copy, ids, reader)))
    same = len(converted) == len(messages) and not differ(converted, messages)
    return given if same else converted


def as_it_thinks(
    given: Any, reader: Reader, settings: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return a chat model's input and settings, as Anthropic's model takes them in a tool loop.

    Where it is asked to think, it refuses a turn whose tools another model has called: then it is
    not asked to. Where it is not, it refuses the thoughts of that turn; those of another model go.
    One that thinks adaptively takes either, and what is of no turn at hand is ignored.

    Args:
        given: As ``for_provider`` returns it.
        reader: Who is asked.
        settings: Of the call; ``thinking`` is None afterwards where it has to be switched off.
    """
    if reader.writes.family != "anthropic":
        return given, settings
    thinking = settings.get("thinking") or reader.target.params.get("thinking")
    mode = thinking.get("type") if isinstance(thinking, Mapping) else None
    if mode == "adaptive":
        return given, settings
    messages = convert_to_messages(given) if is_list(given) else []
    keep_of: str | None = reader.target.model
    if mode == "enabled":
        if can_think([_outline(one) for one in messages], made_by="openai"):
            return given, settings
        settings, keep_of = {**settings, "thinking": None}, None
    plain = [_without_thoughts(one, keep_of) for one in messages]
    if not differ(plain, messages):
        return given, settings
    return [one for one in plain if not _says_nothing(one)], settings


def _without_thoughts(message: BaseMessage, keep_of: str | None) -> BaseMessage:
    """Return an answer without its thoughts; those of a model of this name, or of nobody, stay."""
    plain = [one for one in _blocks(message) if not _is_thought(one)]
    is_kept = keep_of is not None and _author_of(message, "model") in {None, keep_of}
    if is_kept or len(plain) == len(_blocks(message)):
        return message
    return message.model_copy(update={"content": plain})


def _outline(message: BaseMessage) -> dict[str, Any]:
    """Say whose a message is, and of an answer whose its calls are and whether it thought."""
    if not isinstance(message, AIMessage):
        return {"role": "tool" if isinstance(message, ToolMessage) else "user"}
    thinks = any(map(_is_thought, _blocks(message)))
    return {"role": "assistant", "tool_calls": message.tool_calls, "thinking_blocks": thinks}


def _is_thought(block: Block) -> bool:
    return is_block(block) and block.get("type") in _THOUGHTS


def tools_for(
    reader: Reader, tools: Iterable[Any], settings: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return tools, described or as objects, and what is bound with them, as a provider takes it.

    The primary's cache markers and settings, what its provider runs, and the choice of it, go to
    no other.
    """
    primarys = Provider.named(reader.chain[0].provider or "")
    is_elsewhere = primarys.is_known and primarys.family != reader.provider.family
    cleaned, left_out = list[Any](), list[dict[str, Any]]()
    for tool in tools:
        if is_elsewhere and _is_hosted(tool):
            left_out.append(tool)
        elif isinstance(tool, dict) or getattr(tool, "extras", None) is None:
            cleaned.append(reader.unmarked(tool))
        else:
            cleaned.append(_with(tool, {"extras": reader.unmarked(tool.extras) or None}))
    choice = _choice_for(reader, settings.get("tool_choice"), left_out)
    chosen = {"tool_choice": choice} if cleaned and choice is not None else {}
    known = settings if reader.is_primarys else reader.writes.settings(settings)
    return cleaned, {**_without(known, "tool_choice"), **chosen}


def _is_hosted(tool: Any) -> bool:
    is_described = not is_block(tool) or not _DESCRIBES.isdisjoint(tool)
    return not is_described and bound_to({"tools": [tool]}) is not None


def _choice_for(reader: Reader, choice: Any, left_out: Sequence[dict[str, Any]]) -> Any:
    """Return a choice among tools in LangChain's own words, which every integration knows."""
    kind, chosen = choice.get("type") if is_block(choice) else None, choice
    if kind is not None:
        is_named = kind in {"function", "tool"}
        chosen = choice.get("function", choice).get("name") if is_named else kind
    if any(chosen in (tool.get("name"), tool.get("type")) for tool in left_out):
        return None
    is_claude = reader.writes.family == "anthropic"
    if kind is not None and (kind not in _CHOICES or (is_claude and kind != "function")):
        return choice  # its own form; that of a tool that a provider runs has no other
    if chosen == "none" and is_claude:
        return {"type": "none"}
    return "any" if chosen is True or chosen == "required" else chosen


def is_block(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tell a content block or a tool's description from text."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_plain(message: Any) -> bool:
    """Tell text that a person or a program wrote: there is nothing in it to translate."""
    return type(message) in _PLAIN and type(message.content) is str


def _changes(message: BaseMessage, reader: Reader) -> dict[str, Any]:
    if isinstance(message, AIMessage) and _is_foreign(message, reader):
        return _shared_by_all(message)
    return {"content": reader.unmarked(message.content)} if is_list(message.content) else {}


# What AI wrote.


def _says_nothing(message: BaseMessage) -> bool:
    """Tell an answer of which nothing is left: an empty one is refused by some."""
    return isinstance(message, AIMessage) and not (
        message.content or message.tool_calls or message.invalid_tool_calls
    )


def _is_foreign(message: AIMessage, reader: Reader) -> bool:
    writer = message.response_metadata.get("model_provider")
    if isinstance(writer, str):
        return not reader.may_read(writer, _author_of(message))
    readers = (reader.provider, reader.writes)
    if reader.is_primarys and not any(provider.is_known for provider in readers):
        return False
    types = (str(block.get("type")) for block in filter(is_block, _blocks(message)))
    return not all(any(one.may_have_written(kind) for one in readers) for kind in types)


def _author_of(message: BaseMessage, what: str = "target") -> str | None:
    """Name the target that gave an answer, or its model, if a chain of ours asked it."""
    described = message.response_metadata.get(KEY)
    attempts = described.get("attempts") if is_block(described) else None
    return str(attempts[-1].get(what)) if attempts else None


def _shared_by_all(message: AIMessage) -> dict[str, Any]:
    """Return what has to change for only text and tool calls to remain."""
    text: Any = message.content
    given = message.response_metadata
    is_kept = str(given.get("id")).startswith(_SERVER_IDS)
    fields: dict[str, Any] = {"response_metadata": _without(given, "id") if is_kept else given}
    if is_list(text) and not all(map(_is_plain_text, text)):
        text = _text_in(message)
        fields["response_metadata"] = _without(fields["response_metadata"], "output_version")
    extra = message.additional_kwargs
    if any(extra[name] for name in extra.keys() - _SHARED_KWARGS):
        text = text or extra.get("refusal") or ""
        fields["additional_kwargs"] = _without(extra, *(extra.keys() - _SHARED_KWARGS))
    if (message.id or "").startswith(_SERVER_IDS):
        fields["id"] = None
    if isinstance(text, str) and not text.strip():
        text = ""  # some refuse blank text; none at all is no text block
    return {**fields, "content": text}


def _text_in(message: AIMessage) -> str:
    content = cast("Block | list[Block]", message.content)
    texts = (
        one if isinstance(one, str) else one.get(_TEXT_IN.get(str(one.get("type")), ""))
        for one in ([content] if isinstance(content, str) else content)
    )
    return "".join(str(text) for text in texts if text)


def _without(entries: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if name not in names}


def _is_plain_text(block: Block) -> bool:
    return isinstance(block, str) or (
        block.get("type") == "text" and block.keys() == {"type", "text"}
    )


# Tool-call ids: valid for the reader, and distinct over the whole history.


def _valid_ids(message: BaseMessage, ids: CallIds, reader: Reader) -> dict[str, Any]:
    """Return what of a message names its calls, or their results, with ids that are taken."""
    if isinstance(message, AIMessage):
        return _valid_calls(message, ids, reader)
    if not isinstance(message, ToolMessage):
        return {"content": _results_renamed(message.content, ids.of_result)}
    # A block of a tool's message is the same result; one of another call is left alone.
    own_id = {message.tool_call_id: ids.of_result(message.tool_call_id)}
    content = _results_renamed(message.content, lambda call_id: own_id.get(call_id, call_id))
    return {"tool_call_id": own_id[message.tool_call_id], "content": content}


def _results_renamed(content: Any, rename: Callable[[str], str]) -> Any:
    if not is_list(content):
        return content
    return [
        {**one, "tool_use_id": rename(one["tool_use_id"])}
        if is_block(one) and "tool_use_id" in one
        else one
        for one in content
    ]


def _valid_calls(message: AIMessage, ids: CallIds, reader: Reader) -> dict[str, Any]:
    # An answer with a new id keeps its text and its calls: its blocks name the old one.
    calls: dict[str, list[Any]] = {
        "tool_calls": message.tool_calls,
        "invalid_tool_calls": message.invalid_tool_calls,
    }
    call_ids: list[Any] = [one["id"] for some in calls.values() for one in some if one["id"]]
    writer = message.response_metadata.get("model_provider")
    own = isinstance(writer, str) and reader.may_read(writer, _author_of(message))
    new_ids = ids.of_calls(call_ids, own=own) if call_ids else []
    if new_ids == call_ids:
        return {}
    left = iter(new_ids)
    renamed = {
        name: [{**call, "id": next(left) if call["id"] else None} for call in some]
        for name, some in calls.items()
    }
    return {"content": _text_in(message), **renamed}


def _with(message: BaseMessage, fields: Mapping[str, Any]) -> BaseMessage:
    changes = {name: one for name, one in fields.items() if one != getattr(message, name)}
    return message.model_copy(update=changes) if changes else message


def _blocks(message: BaseMessage) -> list[Block]:
    content = cast("str | list[Block]", message.content)
    return content if isinstance(content, list) else []


_THOUGHTS: Final = frozenset({"reasoning", "redacted_thinking", "thinking"})
_PLAIN: Final = frozenset({HumanMessage, SystemMessage})
_DESCRIBES: Final = frozenset({"title", "toolSpec"})  # functions: a bare schema, Bedrock's form
_CHOICES: Final = frozenset({"any", "auto", "function", "none", "tool"})
# The only additional keyword that is not specific to a provider.
_SHARED_KWARGS: Final = frozenset({"name"})
_SERVER_IDS: Final = ("msg_", "resp_")  # OpenAI looks for what such an id names
_TEXT_IN: Final = {"text": "text", "output_text": "text", "refusal": "refusal"}
