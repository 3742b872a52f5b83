"""Who is asked, and what of a request's settings, tools and blocks may go there.

Sources of the tables at the end are the providers' API references, their refusals as public issues
quote them, and the converters of LangChain's integrations. A provider is named by its family: one
name for each message format.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from langchain_core.language_models import BaseChatModel

from honcho_fallback_langchain._candidates import chat_model_of
from honcho_fallback_langchain._sdk import differ, integration_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback import Target


class Reader(NamedTuple):
    """Say who reads a history.

    Args:
        target: Who is asked.
        chain: The targets, the primary first.
        family: Of the provider.
        format: That its integration writes: a family too, or RESPONSES.
        is_primarys: Whether the caller wrote for this provider.
        markers: Those of other providers, which this one is not known to take.
    """

    target: Target
    chain: Sequence[Target]
    family: str
    format: str
    is_primarys: bool
    markers: frozenset[str]

    @classmethod
    def of(cls, target: Target, chain: Sequence[Target]) -> Reader:
        """Describe a target of a chain."""
        family = family_of(target.provider or "")
        is_primarys = is_same_provider(target, chain[0])
        known = family in KNOWN or not is_primarys
        markers = markers_unknown_to(family) if known else _NOBODY
        return cls(target, chain, family, _format_of(target) or family, is_primarys, markers)

    def may_read(self, writer: str, author: str | None) -> bool:
        """Tell whether an answer may come back whole, by the format and the target it names."""
        if author == self.target.name:
            return True
        family = family_of(writer)
        if family != self.family and family != family_of(self.format):
            return False
        if family not in BOUND_TO_ACCOUNTS:
            return True
        for target in self.chain:
            if target.name == author or author is None:  # then it counts as the primary's
                return target.endpoint == self.target.endpoint and (
                    family_of(target.provider or "") == self.family
                )
        return family == self.family


def _format_of(target: Target) -> str | None:
    model: Any = chat_model_of(target.client)
    integration = integration_of(model)
    if integration is None or integration.writes != "openai":
        return integration and integration.writes
    responses = (
        getattr(model, "use_responses_api", None) is True
        or getattr(model, "output_version", None) == "responses/v1"
    )
    return RESPONSES if responses else "openai"


def is_same_provider(one: Target, other: Target) -> bool:
    """Tell whether two targets ask one provider.

    A chat model that does not say whom it asks is named after its class in traces; two of a class
    may ask different providers.
    """
    if one is other:
        return True
    model = chat_model_of(one.client)
    named = model is None or type(model)._get_ls_params is not BaseChatModel._get_ls_params  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # what every integration overrides
    return named and one.provider == other.provider


def family_of(provider: str) -> str:
    """Return the name under which the tables know a provider: one for each message format."""
    name = provider.lower()
    return FAMILIES.get(name, name)


def settings_for(family: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return per-call settings as a candidate of another provider may get them.

    A setting that only some providers know stays with them (`SETTINGS`), headers alike
    (`HEADERS`); what belongs to an account goes to nobody else. Other settings travel: tools,
    temperature, stop words, response formats, whatever is not in the tables.
    """
    family_settings = {
        name: value
        for name, value in settings.items()
        if name not in SETTINGS or family in SETTINGS[name]
    }
    for name in HEADER_SETTINGS & family_settings.keys():
        family_settings[name] = _headers_for(family, family_settings[name])
        if not family_settings[name]:
            del family_settings[name]
    tools = family_settings.get("tools")
    if is_list(tools):
        family_settings["tools"] = tools_for(family, tools)
    return family_settings


def tools_for(family: str, tools: list[Any]) -> list[Any]:
    """Return tools without other providers' cache markers: the same list where there are none."""
    markers = markers_unknown_to(family)
    cleaned = [_tool_without(tool, markers) for tool in tools]
    return cleaned if differ(cleaned, tools) else tools


def markers_unknown_to(family: str) -> frozenset[str]:
    """Name the markers that a provider is not known to take."""
    return frozenset(name for name, families in MARKERS.items() if family not in families)


def without_markers(block: dict[str, Any], markers: frozenset[str]) -> dict[str, Any]:
    """Return a block or tool without markers, the same object where it has none."""
    cleaned = block
    if not markers.isdisjoint(block):
        cleaned = {name: value for name, value in block.items() if name not in markers}
    for name in MARKED_INSIDE & cleaned.keys():
        inside = _inside_without(cleaned[name], markers)
        if inside is not cleaned[name]:
            cleaned = {**cleaned, name: inside}
    return cleaned


def _inside_without(inside: Any, markers: frozenset[str]) -> Any:
    if is_block(inside):
        return without_markers(inside, markers)
    if not is_list(inside):
        return inside
    cleaned = [_inside_without(block, markers) for block in inside]
    return cleaned if differ(cleaned, inside) else inside


def is_block(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tell a content block or a tool's description from text."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Tell a list of blocks from text."""
    return isinstance(value, list)


def _tool_without(tool: Any, markers: frozenset[str]) -> Any:
    if is_block(tool):
        return without_markers(tool, markers)
    extras = getattr(tool, "extras", None)
    cleaned = _inside_without(extras, markers)
    return tool if cleaned is extras else tool.model_copy(update={"extras": cleaned or None})


def _headers_for(family: str, headers: Any) -> Any:
    if not hasattr(headers, "items"):
        return None  # in a form that cannot be told apart, a key would go to another provider
    return {
        name: value
        for name, value in headers.items()
        if all(
            family in families
            for start, families in HEADERS.items()
            if str(name).lower().startswith(start)
        )
    }


# The tables.

_NOBODY: Final[frozenset[str]] = frozenset()


def only(*families: str) -> frozenset[str]:
    """Name those that take something."""
    return frozenset(families)


# One API under several names: traces, messages and integrations do not agree.
FAMILIES: Final = {
    "amazon_bedrock": "bedrock",
    "anthropic-bedrock": "anthropic",
    "aws": "bedrock",
    "azure": "openai",
    "azure_openai": "openai",
    "bedrock_converse": "bedrock",
    "google_genai": "google",
    "google_vertexai": "google",
    "lmstudio": "openai",
    "mistral": "mistralai",
    "nous": "openai",
    "openai-codex": "openai",
    "openai-responses": "openai",
    "openai_compatible": "openai",
    "vertexai": "google",
}
# Beside "openai", because it takes other blocks.
RESPONSES: Final = "openai-responses"
# What they write beside text can be read by the account that it was written for, and nobody else.
# Anthropic's signatures hold on every platform that serves its models.
BOUND_TO_ACCOUNTS: Final = frozenset({"openai"})

# What a tool-call id must look like, and how long ours are. OpenAI's chat API takes 40 characters
# (Responses 64); Anthropic, Bedrock and Mistral name their pattern when they refuse one.
TOOL_CALL_IDS: Final[Mapping[str, tuple[re.Pattern[str], int]]] = {
    "anthropic": (re.compile(r"[a-zA-Z0-9_-]+"), 32),
    "bedrock": (re.compile(r"[a-zA-Z0-9_-]{1,64}"), 32),
    "mistralai": (re.compile(r"[a-zA-Z0-9]{9}"), 9),
    "openai": (re.compile(r".{1,40}", re.DOTALL), 32),
}

# Who writes blocks of a type, for messages that do not say who wrote them.
BLOCK_WRITERS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        (
            "bash_code_execution_tool_result",
            "code_execution_tool_result",
            "mcp_tool_result",
            "mcp_tool_use",
            "redacted_thinking",
            "server_tool_use",
            "text_editor_code_execution_tool_result",
            "tool_search_tool_result",
            "web_fetch_tool_result",
            "web_search_tool_result",
        ),
        only("anthropic"),
    ),
    **dict.fromkeys(
        (
            "apply_patch_call",
            "code_interpreter_call",
            "compaction",
            "computer_call",
            "custom_tool_call",
            "file_search_call",
            "function_call",
            "image_generation_call",
            "mcp_approval_request",
            "mcp_call",
            "mcp_list_tools",
            "output_text",
            "refusal",
            "tool_search_call",
            "web_search_call",
        ),
        only("openai"),
    ),
    "code_execution_result": only("google"),
    "executable_code": only("google"),
    "reasoning_content": only("bedrock"),
    "thinking": only("anthropic", "google", "mistralai"),
    "tool_use": only("anthropic", "bedrock"),
}

# Keys inside content blocks and tools, and where else than in the block they are found.
MARKERS: Final[Mapping[str, frozenset[str]]] = {
    "cachePoint": only("bedrock"),
    "cache_control": only("anthropic", "bedrock", "litellm", "openrouter"),
    "prompt_cache_breakpoint": only("openai"),
}
MARKED_INSIDE: Final = frozenset({"content", "extras", "metadata"})

SETTINGS: Final[Mapping[str, frozenset[str]]] = {
    # whose account it is
    **dict.fromkeys(("api_base", "api_key", "base_url", "organization", "project"), _NOBODY),
    **dict.fromkeys(("extra_body", "extra_query", "user_profile_id"), _NOBODY),
    # what a provider keeps: caches, files, earlier answers
    **dict.fromkeys(("cache_control", "container"), only("anthropic")),
    "cached_content": only("google"),
    **dict.fromkeys(("conversation", "previous_response_id", "store"), only("openai")),
    "prompt_cache_key": only("fireworks", "openai"),
    "prompt_cache_retention": only("openai"),
    # how it thinks
    **dict.fromkeys(("effort", "output_config"), only("anthropic")),
    **dict.fromkeys(("include_thoughts", "thinking_budget", "thinking_level"), only("google")),
    "reasoning": only("openai", "openrouter"),
    "reasoning_effort": only("anthropic", "google", "groq", "litellm", "openai", "xai"),
    "reasoning_format": only("groq"),
    "thinking": only("anthropic", "litellm"),
    # how it serves
    **dict.fromkeys(("background", "safety_identifier", "truncation"), only("openai")),
    **dict.fromkeys(("betas", "inference_geo", "mcp_servers"), only("anthropic")),
    "context_management": only("anthropic", "openai"),
    "service_tier": only("anthropic", "groq", "openai"),
    # how it answers
    **dict.fromkeys(("audio", "include", "prediction", "verbosity"), only("openai")),
    **dict.fromkeys(("generation_config", "response_mime_type"), only("google")),
    **dict.fromkeys(("response_modalities", "safety_settings"), only("google")),
    "logit_bias": only("fireworks", "litellm", "openai"),
    "modalities": only("openai", "openrouter"),
    "safe_prompt": only("mistralai"),
    "search_parameters": only("xai"),
    "top_k": only("anthropic", "bedrock", "cohere", "fireworks", "google", "litellm", "ollama"),
    "web_search_options": only("openai", "perplexity"),
}

# By the start of their names.
HEADERS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("api-key", "authorization", "cookie", "x-api-key", "x-auth"), _NOBODY),
    "anthropic-": only("anthropic"),
    "openai-": only("openai"),
    "x-amz": only("bedrock"),
    "x-goog": _NOBODY,  # keys and billing projects
    "x-session-affinity": only("fireworks"),
}
HEADER_SETTINGS: Final = frozenset({"default_headers", "extra_headers", "headers"})
# Of others nothing is known, and the tables do not speak for them.
KNOWN: Final = frozenset[str]().union(
    *BLOCK_WRITERS.values(), *MARKERS.values(), *SETTINGS.values()
)
