"""A history that the deployment at hand accepts, where a chain has several providers or accounts.

LiteLLM writes what a provider says beside text into fields of its own, and sends them with the
next request to whoever that goes to: signed thinking to OpenAI, signatures of Google's within ids.
A field stays with those who can have written it; no message says who did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from honcho_fallback.providers import Provider, can_think, portable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from honcho_fallback import Target
    from honcho_fallback.providers import CallIds

_CLAUDE, _GOOGLE, _LITELLM, _OPENAI = "anthropic", "google", "litellm", "openai"
_OF_AN_ANSWER = frozenset(
    {"annotations", "images", "provider_specific_fields", "reasoning_content", "thinking_blocks"}
)
_THOUGHTS = frozenset({"reasoning_content", "thinking_blocks"})
_OF_A_CALL = frozenset({"index", "provider_specific_fields"})
_CLOUDS_OF_CLAUDE = frozenset({"azure_ai", "bedrock", "vertex_ai"})
# Who refuses what others wrote and did not sign, such as reasoning_content. Gateways get it back.
_STRICT = frozenset({_CLAUDE, _GOOGLE, _OPENAI, "bedrock", "groq", "mistralai"})
# LiteLLM puts Google's signature behind the id of a call.
_SIGNED_ID = "__thought__"
# And OpenAI's reasoning into a redacted thought, which it takes out again for Anthropic.
_PACKED = "litellm_encrypted_reasoning:"


def provider_of(target: Target) -> Provider:
    """Return whose messages a deployment writes: Claude's are the same on each of these clouds."""
    is_claude = target.provider in _CLOUDS_OF_CLAUDE and "claude" in target.model.lower()
    return Provider.named(_CLAUDE if is_claude else target.provider or "")


def accepted_chat(messages: Sequence[Any], provider: Provider) -> list[Any]:
    """Return a copy of a chat as a provider accepts it; what it may have written stays."""
    if not all(isinstance(one, dict | BaseModel) for one in messages):
        return [*messages]  # LiteLLM says what is wrong with it
    call_ids = provider.call_ids()
    return [_accepted_message(_fields_of(one), provider, call_ids) for one in messages]


def as_it_thinks(
    messages: list[Any], asked: Mapping[str, Any], *, made_by: str, others_think: bool
) -> tuple[list[Any], dict[str, None]]:
    """Return a history as Anthropic's model takes it in a tool loop, and what it is not asked.

    Where it is asked to think, by the settings of ``asked``, it refuses a turn whose tools another
    model has called: then it is not asked to. Where it is not, it refuses the thoughts of that
    turn, which are another deployment's.
    """
    if not all(isinstance(one, dict) for one in messages):
        return messages, {}  # LiteLLM says what is wrong with it
    signed = [*map(_with_signed_thoughts, messages)]
    if can_think(signed, made_by=made_by) if asked else not others_think:
        return messages, {}
    if made_by == "openai":
        plain = [_without(one, _THOUGHTS) for one in messages]
    else:
        plain = portable(messages, made_by=made_by, for_=made_by)
    return plain, dict.fromkeys(asked)


def _with_signed_thoughts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what LiteLLM packs into a thought for another provider."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [one for one in content if not _is_packed(one)]}


def _is_packed(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("data")).startswith(_PACKED)


def accepted_items(items: list[Any], provider: Provider, *, is_stranger: bool) -> list[Any]:
    """Return the input of a Responses request as a deployment accepts it.

    The primary gets its own reasoning back, until a deployment of another API has answered; a
    stranger, which has another account than the primary, gets none.
    """
    others = {_OPENAI, _LITELLM} - {_OPENAI if provider.family == _OPENAI else _LITELLM}
    if not is_stranger and others.isdisjoint(map(_maker_of, items)):
        return items
    return portable(items, made_by="openai-responses", for_="openai-responses")


def _accepted_message(
    message: dict[str, Any], provider: Provider, call_ids: CallIds | None
) -> dict[str, Any]:
    role = message.get("role")
    if role == "tool" and call_ids is not None:
        return {**message, "tool_call_id": call_ids.of_result(str(message.get("tool_call_id")))}
    if role != "assistant":
        return message
    calls = [*map(_fields_of, message.get("tool_calls") or ())]
    signer = _signer_of(message, calls)
    is_own = signer == provider.family
    if not is_own and (signer or provider.family in _STRICT):
        message = _without(message, _OF_AN_ANSWER)
        calls = [_without(call, _OF_A_CALL) for call in calls]
    if calls and call_ids is not None:
        new_ids = call_ids.of_calls([str(call.get("id")) for call in calls], own=is_own)
        calls = [{**call, "id": new} for call, new in zip(calls, new_ids, strict=True)]
    return {**message, "tool_calls": calls} if calls else message


def _fields_of(value: Any) -> dict[str, Any]:
    """Return a message or a call as a dict, as LiteLLM makes of its own objects and of SDKs'."""
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value


def _signer_of(message: dict[str, Any], calls: Sequence[dict[str, Any]]) -> str | None:
    """Name the family that signed an answer."""
    fields: dict[str, Any] = message.get("provider_specific_fields") or {}
    if fields.get("thought_signatures") or any(_SIGNED_ID in str(one.get("id")) for one in calls):
        return _GOOGLE
    blocks: Sequence[Any] = message.get("thinking_blocks") or ()
    return _CLAUDE if any(one.get("signature") or one.get("data") for one in blocks) else None


def _without(fields: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _maker_of(item: Any) -> str | None:
    """Name who made an item: OpenAI, or LiteLLM out of an answer of another API."""
    fields = item if isinstance(item, dict) else vars(item)
    item_id = fields.get("id")
    if not item_id:
        return None
    # Ids of OpenAI's own have no hyphen, and nothing of the call's.
    return _LITELLM if "-" in item_id or item_id == f"fc_{fields.get('call_id')}" else _OPENAI
