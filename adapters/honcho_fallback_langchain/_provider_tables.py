"""What is known of providers: their names, tool-call ids, blocks, markers and settings.

Sources are the providers' API references, their refusals as public issues quote them, and the
converters of LangChain's integrations. A provider is named by its family: one name for each
message format.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOBODY: Final[frozenset[str]] = frozenset()


def _only(*families: str) -> frozenset[str]:
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
    "openai_compatible": "openai",
    "vertexai": "google",
}
KNOWN: Final = frozenset(
    {
        "anthropic",
        "bedrock",
        "cohere",
        "deepseek",
        "fireworks",
        "google",
        "groq",
        "litellm",
        "mistralai",
        "ollama",
        "openai",
        "openrouter",
        "perplexity",
        "together",
        "xai",
    }
)

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
        _only("anthropic"),
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
        _only("openai"),
    ),
    "code_execution_result": _only("google"),
    "executable_code": _only("google"),
    "reasoning_content": _only("bedrock"),
    "thinking": _only("anthropic", "google", "mistralai"),
    "tool_use": _only("anthropic", "bedrock"),
}

# Keys inside content blocks and tools, and where else than in the block they are found.
MARKERS: Final[Mapping[str, frozenset[str]]] = {
    "cachePoint": _only("bedrock"),
    "cache_control": _only("anthropic", "bedrock", "litellm", "openrouter"),
    "prompt_cache_breakpoint": _only("openai"),
}
MARKED_INSIDE: Final = frozenset({"content", "extras", "metadata"})

SETTINGS: Final[Mapping[str, frozenset[str]]] = {
    # whose account it is
    **dict.fromkeys(("api_base", "api_key", "base_url", "organization", "project"), _NOBODY),
    **dict.fromkeys(("extra_body", "extra_query", "user_profile_id"), _NOBODY),
    # what a provider keeps: caches, files, earlier answers
    "cache_control": _only("anthropic"),
    "cached_content": _only("google"),
    "container": _only("anthropic"),
    "conversation": _only("openai"),
    "previous_response_id": _only("openai"),
    "prompt_cache_key": _only("fireworks", "openai"),
    "prompt_cache_retention": _only("openai"),
    "store": _only("openai"),
    # how it thinks
    "effort": _only("anthropic"),
    "include_thoughts": _only("google"),
    "output_config": _only("anthropic"),
    "reasoning": _only("openai", "openrouter"),
    "reasoning_effort": _only("anthropic", "google", "groq", "litellm", "openai", "xai"),
    "reasoning_format": _only("groq"),
    "thinking": _only("anthropic", "litellm"),
    "thinking_budget": _only("google"),
    "thinking_level": _only("google"),
    # how it serves
    "background": _only("openai"),
    "betas": _only("anthropic"),
    "context_management": _only("anthropic", "openai"),
    "inference_geo": _only("anthropic"),
    "mcp_servers": _only("anthropic"),
    "safety_identifier": _only("openai"),
    "service_tier": _only("anthropic", "groq", "openai"),
    "truncation": _only("openai"),
    # how it answers
    "audio": _only("openai"),
    "generation_config": _only("google"),
    "include": _only("openai"),
    "logit_bias": _only("fireworks", "litellm", "openai"),
    "modalities": _only("openai", "openrouter"),
    "prediction": _only("openai"),
    "response_mime_type": _only("google"),
    "response_modalities": _only("google"),
    "safe_prompt": _only("mistralai"),
    "safety_settings": _only("google"),
    "search_parameters": _only("xai"),
    "top_k": _only("anthropic", "bedrock", "cohere", "fireworks", "google", "litellm", "ollama"),
    "verbosity": _only("openai"),
    "web_search_options": _only("openai", "perplexity"),
}

# By the start of their names.
HEADERS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("api-key", "authorization", "cookie", "x-api-key", "x-auth"), _NOBODY),
    "anthropic-": _only("anthropic"),
    "openai-": _only("openai"),
    "x-amz": _only("bedrock"),
    "x-amzn": _only("bedrock"),
    "x-goog": _NOBODY,  # keys and billing projects
    "x-session-affinity": _only("fireworks"),
}
HEADER_SETTINGS: Final = frozenset({"default_headers", "extra_headers", "headers"})
