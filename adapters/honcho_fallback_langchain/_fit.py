"""Who can take a request: what profiles say of candidates, before one of them is asked.

Asking one that cannot costs a refused request; passing over one that could costs the answer. So
only what a profile denies counts, and a window only where the input is well beyond it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.prompt_values import PromptValue
from langchain_core.tools import BaseTool

from honcho_fallback import FallbackConfigError
from honcho_fallback_langchain._candidates import chain_inside, taker_of
from honcho_fallback_langchain._history import unsendable
from honcho_fallback_langchain._options import Options
from honcho_fallback_langchain._providers import is_list

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from honcho_fallback import FallbackPolicy, Target

MARGIN: Final = 1.25  # how far beyond a window an approximate count has to be
CHARS_PER_TOKEN: Final = 4.0
SCHEMA: Final = "schema"  # structured output, in whichever way a candidate has it

# What a message or a tool may add to its text, so that most requests need no count.
_TOKENS_PER_MESSAGE, _TOKENS_PER_TOOL = 20, 1_000
_LACKS: Final = {
    "image_inputs": "it takes no images",
    "image_url_inputs": "it takes no images by address",
    "image_tool_message": "it takes no images from tools",
    "audio_inputs": "it takes no audio",
    "video_inputs": "it takes no video",
    "pdf_inputs": "it takes no PDFs",
    "pdf_tool_message": "it takes no PDFs from tools",
    "tool_calling": "it calls no tools",
    "structured_output": "it has no structured output of its own",
}
_TEXT: Final = frozenset({"reasoning", "text", "thinking", "tool_result", "tool_use"})
# What makes a tool a function; a provider's own, such as a search, may be there without calls.
_FUNCTION: Final = frozenset({"function", "function_declarations", "input_schema", "parameters"})
_ANSWERS: Final = frozenset({"ai", "AIMessageChunk"})
OTHER_MODEL: Final = frozenset({"model", "model_name"})  # per call: one of the same provider
_SHORTENED: Final = ("context_management", "truncation")  # by the provider, before it counts


class Reason(NamedTuple):
    """Say why a candidate cannot take a request."""

    sentence: str  # for the record, without anything of a message
    is_size: bool = False  # the input is too large, and nothing else is missing


class Question:
    """Hold a request as far as candidates are judged by it.

    It needs some keys of LangChain's model profiles, or ``SCHEMA``; the configurable may name
    another model; translated, a candidate gets the messages as its provider takes them.
    """

    __slots__ = (
        "_tokens",
        "blocks",
        "configurable",
        "messages",
        "most_tokens",
        "needs",
        "translated",
    )

    def __init__(
        self,
        messages: Sequence[BaseMessage],
        needs: Collection[str] = (),
        configurable: Mapping[str, Any] | None = None,
        *,
        translated: bool = True,
    ) -> None:
        characters = 0
        self.blocks: list[BaseMessage] = []
        for message in messages:
            content = message.content
            if type(content) is not str:
                content = message.text
                self.blocks.append(message)
            characters += len(content)
            # Asked by name: whether a message is of a class takes longer than all of the rest.
            if message.type in _ANSWERS and (calls := getattr(message, "tool_calls", None)):
                characters += len(repr(calls))
        self.messages = messages
        self.most_tokens = characters / CHARS_PER_TOKEN + _TOKENS_PER_MESSAGE * len(messages)
        self.needs = {*needs, *(need for message in self.blocks for need in _media_in(message))}
        self.configurable = configurable or {}
        self.translated = translated
        self._tokens: int | None = None

    def tokens(self, tools: Sequence[Any]) -> int:
        """Count approximately; what is not text counts as nothing."""
        if self._tokens is None:
            texts = [one.model_copy(update={"content": str(one.text)}) for one in self.messages]
            self._tokens = count_tokens_approximately(texts, chars_per_token=CHARS_PER_TOKEN)
        countable = [tool for tool in tools if isinstance(tool, BaseTool | dict)]
        return self._tokens + count_tokens_approximately(
            [], chars_per_token=CHARS_PER_TOKEN, tools=countable
        )


def is_history(value: Any) -> TypeGuard[list[BaseMessage]]:
    """Tell a list of messages; class by class, because LangChain's are slow to be asked."""
    return type(value) is list and all(
        issubclass(kind, BaseMessage) for kind in {*map(type, value)}
    )


def messages_in(call_input: Any, *, convert: bool) -> list[BaseMessage] | None:
    """Return the messages of an input, or None; only a chat model's lists may hold others."""
    if isinstance(call_input, str):
        return [HumanMessage(call_input)]
    if isinstance(call_input, PromptValue):
        return call_input.to_messages()
    if is_history(call_input):
        return call_input
    try:
        return convert_to_messages(call_input) if convert and is_list(call_input) else None
    except Exception:  # noqa: BLE001 # whoever is asked says what is wrong with it
        return None


def require_fit(
    policy: FallbackPolicy, question: Question, kwargs: Mapping[str, Any], *, models: bool
) -> dict[int, str] | None:
    """Return who cannot take a request and why, by position; None where everybody can.

    ContextOverflowError says that it is too large for everybody, FallbackConfigError that nobody
    can take it. Of candidates that are chat models, only the primary gets ``model=``.
    """
    reasons = _reasons(policy, question, kwargs, models=models)
    if not reasons:
        return None
    if len(reasons) < len(_asked(policy)):
        return {position: reason.sentence for position, reason in reasons.items()}
    problem = f"none of them can take this request ({_listed(policy, reasons)})"
    fix = 'change the request, add one that can take it, or set fit="ask anyway"'
    if all(reason.is_size for reason in reasons.values()):
        raise ContextOverflowError(f"candidates: {problem}; {fix}")
    raise FallbackConfigError.about("candidates", problem, fix)


def _asked(policy: FallbackPolicy) -> tuple[Target, ...]:
    config = policy.config
    fallbacks = 0 if config.must_not_degrade else None
    return policy.targets if fallbacks is None else policy.targets[: 1 + fallbacks]


def _reasons(
    policy: FallbackPolicy, question: Question, kwargs: Mapping[str, Any], *, models: bool
) -> dict[int, Reason]:
    reasons: dict[int, Reason] = {}
    for position, target in enumerate(_asked(policy)):
        reason = _reason(target, policy, question, kwargs)
        if reason is not None:
            reasons[position] = reason
        if models and position == 0 and not OTHER_MODEL.isdisjoint(kwargs):
            kwargs = {name: kwargs[name] for name in kwargs.keys() - OTHER_MODEL}
    return reasons


def _reason(
    target: Target, policy: FallbackPolicy, question: Question, kwargs: Mapping[str, Any]
) -> Reason | None:
    taker, kwargs = taker_of(target.client, kwargs, question.configurable)
    inside = chain_inside(taker)
    if inside is not None:
        return _reason_inside(taker, inside, question, kwargs)
    if not isinstance(taker, BaseChatModel) or not OTHER_MODEL.isdisjoint(kwargs):
        return None
    given = kwargs.get("tools")
    tools: Sequence[Any] = given if isinstance(given, list | tuple) else ()
    sentence = _lack(question.needs | _needs_of(tools, kwargs), taker.profile or {})
    if sentence is None and question.translated and question.blocks and target.provider:
        sentence = unsendable(question.messages, target, policy.targets)
    if sentence is not None:
        return Reason(sentence)
    return _too_large(question, tools, kwargs, taker, target.context_window)


def _lack(needs: set[str], profile: Mapping[str, Any]) -> str | None:
    if SCHEMA in needs and profile.get("structured_output") is False:
        needs.add("tool_calling")  # it is asked for a call instead
    lacks = (name for name in _LACKS if name in needs and profile.get(name) is False)
    return _LACKS.get(next(lacks, ""))


def _too_large(
    question: Question,
    tools: Sequence[Any],
    kwargs: Mapping[str, Any],
    model: BaseChatModel,
    window: int | None,
) -> Reason | None:
    if window is None or question.most_tokens + _TOKENS_PER_TOOL * len(tools) <= window * MARGIN:
        return None
    if any(kwargs.get(name) or getattr(model, name, None) for name in _SHORTENED):
        return None
    try:
        tokens = question.tokens(tools)
    except Exception:  # noqa: BLE001 # what LangChain cannot count, a provider may take
        return None
    if tokens <= window * MARGIN:
        return None
    return Reason(f"about {tokens:,} tokens do not fit its window of {window:,}", is_size=True)


def _reason_inside(
    chain: Any, policy: FallbackPolicy, question: Question, kwargs: Mapping[str, Any]
) -> Reason | None:
    """Judge a chain that is a candidate: it can take what one of its own candidates can."""
    options = getattr(chain, "options", None)
    if not isinstance(options, Options) or options.fit != "check":
        return None
    reasons = _reasons(policy, question, kwargs, models=isinstance(chain, BaseChatModel))
    if len(reasons) < len(_asked(policy)):
        return None
    is_size = all(reason.is_size for reason in reasons.values())
    return Reason(f"none of its candidates can take it ({_listed(policy, reasons)})", is_size)


def _listed(policy: FallbackPolicy, reasons: Mapping[int, Reason]) -> str:
    names = [target.name for target in policy.targets]
    return "; ".join(f"{names[position]}: {one.sentence}" for position, one in reasons.items())


def _needs_of(tools: Sequence[Any], kwargs: Mapping[str, Any]) -> set[str]:
    needs: set[str] = set()
    if any(not isinstance(tool, dict) or not _FUNCTION.isdisjoint(tool) for tool in tools):
        needs.add("tool_calling")
    # What every integration binds for tracing tells the method, too.
    traced = kwargs.get("ls_structured_output_format")
    if traced and traced.get("kwargs", {}).get("method") == "json_schema":
        needs.add("structured_output")
    return needs


def _media_in(message: BaseMessage) -> set[str]:
    """Name what a message's blocks need; an answer's go back only to who gave it."""
    content = message.content
    if isinstance(message, AIMessage) or all(
        isinstance(block, str) or block.get("type") in _TEXT for block in content
    ):
        return set()
    try:
        blocks = message.content_blocks
    except Exception:  # noqa: BLE001 # what LangChain cannot read, a provider may take
        return set()
    needs: set[str] = set()
    for block in blocks:
        is_pdf = block["type"] == "file" and block.get("mime_type") == "application/pdf"
        kind = "pdf" if is_pdf else block["type"]
        needs.add(f"{kind}_inputs")
        if isinstance(message, ToolMessage):
            needs.add(f"{kind}_tool_message")
        if kind == "image" and "url" in block:
            needs.add("image_url_inputs")
    return needs
