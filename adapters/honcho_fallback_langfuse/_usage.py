"""Tokens as providers report them, in one form; by shape, without any SDK.

Providers disagree on what a count includes. ``Usage`` is inclusive, as OpenTelemetry means it:
``input`` holds the cached tokens, ``output`` those spent on reasoning. ``buckets`` turns it into
what Langfuse adds up and prices: every token in exactly one bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from honcho_fallback_langfuse._shape import at, part, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Source = Literal["provider", "estimated", "none"]
_Counts = dict[str, int]


class Usage(NamedTuple):
    """Count the tokens of a call, inclusively; None where nobody said.

    A tuple, because one is made at the end of each call.

    Args:
        input: All tokens of the input.
        output: All tokens of the output.
        cached: Those of the input that came from a cache.
        cache_creation: Those of the input that were written to a cache.
        reasoning: Those of the output that were spent on reasoning.
        total: As the provider says.
        cost: US dollars, where the provider or LiteLLM says.
        source: Who says.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_creation: int | None = None
    reasoning: int | None = None
    total: int | None = None
    cost: float | None = None
    source: Source = "provider"

    def buckets(self) -> dict[str, int]:
        """Return the counts as Langfuse prices them; what nobody said is left out."""
        found: dict[str, int] = {}
        if self.input is not None:
            found["input"] = max(0, self.input - (self.cached or 0) - (self.cache_creation or 0))
        if self.output is not None:
            found["output"] = max(0, self.output - (self.reasoning or 0))
        # The keys of Langfuse's own price table; others would cost nothing.
        details = {
            "input_cached_tokens": self.cached,
            "input_cache_creation": self.cache_creation,
            "output_reasoning_tokens": self.reasoning,
        }
        found |= {key: count for key, count in details.items() if count}
        if found:
            found["total"] = max(self.total or 0, sum(found.values()))
        return found


class _Dialect:
    """Say where a family of providers puts its counts.

    Args:
        input: The input's name.
        output: The output's name.
        total: The total's name, or an empty one.
        inside: Paths of details that input or output include.
        outside: Paths of details that they do not; their counts are kept under a plus sign.
    """

    __slots__ = ("details", "input", "output", "total")

    def __init__(
        self,
        input: str,  # noqa: A002 # the providers' word
        output: str,
        total: str,
        inside: Mapping[str, tuple[str, ...]] | None = None,
        outside: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.input, self.output, self.total = input, output, total
        signed = {f"+{name}": paths for name, paths in (outside or {}).items()}
        # By where they stand, because that is looked up once: "" is the usage itself.
        self.details: dict[str, list[tuple[str, str]]] = {}
        for name, paths in {**(inside or {}), **signed}.items():
            for path in paths:
                where, _, leaf = path.rpartition(".")
                self.details.setdefault(where, []).append((leaf, name))


# Of several paths for one detail the counts are added: langchain-anthropic splits cache_creation
# by lifetime and then sets the sum to 0. Where two paths tell the same, only one stands here.
_DIALECTS = (
    # OpenAI's chat completions, all servers that speak them, LiteLLM.
    _Dialect(
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        inside={
            "cached": ("prompt_tokens_details.cached_tokens",),
            "cache_creation": ("prompt_tokens_details.cache_creation_tokens",),
            "reasoning": ("completion_tokens_details.reasoning_tokens",),
        },
    ),
    # LangChain's usage_metadata and OpenAI's responses include, Anthropic's messages do not.
    _Dialect(
        "input_tokens",
        "output_tokens",
        "total_tokens",
        inside={
            "cached": ("input_token_details.cache_read", "input_tokens_details.cached_tokens"),
            "cache_creation": (
                "input_token_details.cache_creation",
                "input_token_details.ephemeral_5m_input_tokens",
                "input_token_details.ephemeral_1h_input_tokens",
            ),
            "reasoning": (
                "output_token_details.reasoning",
                "output_tokens_details.reasoning_tokens",
            ),
        },
        outside={
            "cached": ("cache_read_input_tokens",),
            "cache_creation": ("cache_creation_input_tokens",),
        },
    ),
    # google-genai, and the same over REST.
    _Dialect(
        "prompt_token_count",
        "candidates_token_count",
        "total_token_count",
        inside={"cached": ("cached_content_token_count",)},
        outside={
            "reasoning": ("thoughts_token_count",),
            "tools": ("tool_use_prompt_token_count",),
        },
    ),
    _Dialect(
        "promptTokenCount",
        "candidatesTokenCount",
        "totalTokenCount",
        inside={"cached": ("cachedContentTokenCount",)},
        outside={"reasoning": ("thoughtsTokenCount",), "tools": ("toolUsePromptTokenCount",)},
    ),
    # Bedrock's Converse.
    _Dialect(
        "inputTokens",
        "outputTokens",
        "totalTokens",
        outside={
            "cached": ("cacheReadInputTokens",),
            "cache_creation": ("cacheWriteInputTokens",),
        },
    ),
    # Ollama.
    _Dialect("prompt_eval_count", "eval_count", ""),
)

# Where an answer, a chunk or an event keeps its usage. The empty path is the thing itself.
_PLACES = (
    "usage",
    "usage_metadata",
    "usageMetadata",
    "message.usage",  # Anthropic's message_start
    "message.usage_metadata",  # LangChain's ChatGeneration
    "response.usage",  # the end of OpenAI's response stream
    "metadata.usage",  # the end of Bedrock's Converse stream
    "",
)

_SPLIT_PLACES = tuple((place, place.split(".") if place else []) for place in _PLACES)

_CHUNKED_SUMS = frozenset({"usage_metadata", "message.usage_metadata"})

_LITELLM_COST, _USAGE_COST = ("_hidden_params", "response_cost"), ("usage", "cost")

# Providers tell the usage with a stream's first or last chunks; looking into thousands in between
# would take milliseconds. LangChain's chunks are all looked at: each may carry a share.
_FIRST, _LAST = 8, 16


def read_usage(reported: Any, output: Any) -> Usage | None:
    """Return what a call cost, or None where nobody said.

    Args:
        reported: What the caller passed to ``succeed(usage=...)``, or None.
        output: The answer, or the tuple of a stream's chunks.
    """
    if reported is not None:
        said = _counts(reported)
        if said is not None:
            estimated = part(reported, "usage_source") == "estimated"
            cost = _cost(part(reported, "cost")) or _cost_of_answer(output)
            return _usage(said[1], cost, "estimated" if estimated else "provider")
    merged = _merged(_telling(output))
    if merged is None:
        return None
    return _usage(merged[1], _cost_of_answer(output), "provider")


def _telling(output: Any) -> tuple[Any, ...]:
    all_of_it = pieces(output)
    if len(all_of_it) <= _FIRST + _LAST:
        return all_of_it
    first = part(all_of_it[0], "message") or all_of_it[0]
    if part(first, "additional_kwargs") is not None:
        return all_of_it
    return all_of_it[:_FIRST] + all_of_it[-_LAST:]


def _merged(told: Iterable[Any]) -> tuple[_Dialect, _Counts] | None:
    dialect: _Dialect | None = None
    merged: _Counts = {}
    for piece in told:
        # A chunk that is plain text is the common case, and has none.
        if piece is None or isinstance(piece, str):
            continue
        for place, path in _SPLIT_PLACES:
            said = _counts(at(piece, path))
            if said is None:
                continue
            if dialect is None or said[0] is dialect:
                dialect, counts = said
                if place in _CHUNKED_SUMS and dialect.input == "input_tokens":
                    # LangChain's chunks each carry their share, all others what holds by then.
                    counts = {name: merged.get(name, 0) + count for name, count in counts.items()}
                merged.update(counts)
            break
    return None if dialect is None else (dialect, merged)


def _counts(value: Any) -> tuple[_Dialect, _Counts] | None:
    if value is None or isinstance(value, str):
        return None
    for dialect in _DIALECTS:
        asked, said = _count(part(value, dialect.input)), _count(part(value, dialect.output))
        if asked is None and said is None:
            continue
        found: _Counts = {}
        _note(found, "input", asked)
        _note(found, "output", said)
        if dialect.total:
            _note(found, "total", _count(part(value, dialect.total)))
        for where, leaves in dialect.details.items():
            held = part(value, where) if where else value
            for leaf, name in leaves if held is not None else ():
                count = _count(part(held, leaf))
                if count is not None:
                    found[name] = found.get(name, 0) + count
        return dialect, found
    return None


def _note(found: _Counts, name: str, count: int | None) -> None:
    if count is not None:
        found[name] = count


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def _usage(counts: _Counts, cost: float | None, source: Source) -> Usage:
    get = counts.get
    total, reasoning = get("total"), get("reasoning")
    asked, said = get("input"), get("output")
    for name in ("+cached", "+cache_creation", "+tools"):
        if asked is not None or get(name):
            asked = (asked or 0) + get(name, 0)
    if said is not None or get("+reasoning"):
        said = (said or 0) + get("+reasoning", 0)
    # Some servers that speak OpenAI's protocol leave reasoning out of completion_tokens: the
    # total tells.
    if reasoning and said is not None and total == (asked or 0) + said + reasoning:
        said += reasoning
    return Usage(
        input=asked,
        output=said,
        cached=_added(get("cached"), get("+cached")),
        cache_creation=_added(get("cache_creation"), get("+cache_creation")),
        reasoning=_added(reasoning, get("+reasoning")),
        total=total,
        cost=cost,
        source=source,
    )


def _added(inside: int | None, outside: int | None) -> int | None:
    return None if inside is None and outside is None else (inside or 0) + (outside or 0)


def _cost(cost: Any) -> float | None:
    return float(cost) if type(cost) in {int, float} and 0 < cost < float("inf") else None


def _cost_of_answer(output: Any) -> float | None:
    for piece in reversed(_telling(output)):
        if piece is None or isinstance(piece, str):
            continue
        # OpenRouter tells it in the usage, LiteLLM beside the answer.
        known = _cost(at(piece, _LITELLM_COST)) or _cost(at(piece, _USAGE_COST))
        if known:
            return known
    return None
