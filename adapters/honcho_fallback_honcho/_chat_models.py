"""Honcho's agents as LangChain chat models."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Unpack

from honcho_fallback_honcho._extras import import_extra
from honcho_fallback_honcho._keys import NO_KEY
from honcho_fallback_honcho._parameters import known_to
from honcho_fallback_honcho._policies import LoadOptions, plan_agents

if find_spec("langchain_core") is None:  # its own adapter would name an extra that is not enough
    import_extra("langchain_core", "providers")

from honcho_fallback_honcho._model_plan import ModelPlan
from honcho_fallback_langchain import FallbackChatModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.language_models import BaseChatModel

    from honcho_fallback import Credential
    from honcho_fallback_honcho._chain import PlannedTarget

_FIXED = {"set", "not needed"}  # keys that stay as they are


def load_chat_models(
    source: Mapping[str, str] | None = None, **options: Unpack[LoadOptions]
) -> dict[str, FallbackChatModel]:
    """Read Honcho's own names and return a chat model for each of its nine agents.

    Each asks its targets in order, over LangChain's own packages of the providers; those are
    imported here and now, so that the first switch to another provider waits for nothing. What a
    provider's API lacks is left out. A target whose key is missing fails as a refused key does,
    and no request is sent.

    Args:
        source: Environment variables; default: those of the process at the time of the call.
        **options: As for ``load_policies``.

    Returns:
        Chat models by ``deriver``, ``dialectic.minimal`` to ``dialectic.max``, ``summary``,
        ``dream.deduction`` and ``dream.induction``.

    Raises:
        FallbackConfigError: A value is not one that could be used, or, with ``strict``, something
            is missing or misnamed.
        ImportError: The extra ``honcho`` or ``providers`` is not installed.
    """
    return {
        plan.agent: FallbackChatModel(
            *map(chat_model, plan.chain),
            agent=plan.agent,
            credentials=[_credential_of(planned) for planned in plan.chain],
            fallback_config=plan.config,
            observers=plan.observers,
        )
        for plan in plan_agents(source, **options)
    }


def _credential_of(planned: PlannedTarget) -> Credential | None:
    """Return what gives the key of each request: a token that is refreshed, or a refusal."""
    is_kept_by_model = planned.key in _FIXED or planned.endpoint.wire == "gemini"
    return None if is_kept_by_model else planned.target.credential


def chat_model(planned: PlannedTarget) -> BaseChatModel:
    """Build the chat model of one target."""
    target, endpoint, credential = planned.target, planned.endpoint, planned.target.credential
    key = NO_KEY
    if planned.key in _FIXED and credential is not None:
        key = str(credential.get())
    params = known_to(endpoint.wire, endpoint.transport, target.params)
    missing = credential if planned.key == "missing" else None
    return _make_model(ModelPlan(target.model, endpoint, key, params, missing))


def _make_model(plan: ModelPlan) -> BaseChatModel:
    """Import the provider's package and build the model."""
    if plan.endpoint.wire == "openai":
        import_extra("langchain_openai", "providers")
        from honcho_fallback_honcho._openai_model import make_model as openai  # noqa: PLC0415 # of the extra

        return openai(plan)
    if plan.endpoint.wire == "anthropic":
        import_extra("langchain_anthropic", "providers")
        from honcho_fallback_honcho._anthropic_model import make_model as anthropic  # noqa: PLC0415 # of the extra

        return anthropic(plan)
    import_extra("langchain_google_genai", "providers")
    from honcho_fallback_honcho._gemini_model import make_model as gemini  # noqa: PLC0415 # of the extra

    return gemini(plan)
