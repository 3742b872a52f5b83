"""One chain has one set of names, whatever the framework: logs and alerts know targets by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import agents
import pytest
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import honcho_fallback_langchain
import honcho_fallback_openai_agents
import honcho_fallback_pydantic_ai
from honcho_fallback_honcho import policy_from
from tests.helpers.honcho import ConfiguredModelSettings

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = ["gpt-4o", "gpt-4o-mini", "gpt-4o"]


def by_agents_sdk() -> Any:
    """Build the chain of the Agents SDK."""
    client = AsyncOpenAI(api_key="key")
    models = [agents.OpenAIChatCompletionsModel(name, client) for name in MODELS]
    return honcho_fallback_openai_agents.FallbackModel(*models).policy


def by_pydantic_ai() -> Any:
    """Build the chain of Pydantic AI."""
    place = OpenAIProvider(api_key="key")
    models = [OpenAIChatModel(name, provider=place) for name in MODELS]
    return honcho_fallback_pydantic_ai.FallbackModel(*models).policy


def by_langchain() -> Any:
    """Build the chain of LangChain."""
    models = [ChatOpenAI(model=name, api_key="key") for name in MODELS]
    return honcho_fallback_langchain.FallbackChatModel(*models).policy


def by_honcho() -> Any:
    """Build the chain of Honcho, whose third entry differs by a parameter."""
    settings = ConfiguredModelSettings
    last = settings(model=MODELS[2], transport="openai", thinking_budget_tokens=9)
    middle = settings(model=MODELS[1], transport="openai", fallback=last)
    return policy_from(settings(model=MODELS[0], transport="openai", fallback=middle))


@pytest.mark.parametrize("chain", [by_agents_sdk, by_pydantic_ai, by_langchain, by_honcho])
def test_a_name_that_is_taken_gets_its_place(chain: Callable[[], Any]) -> None:
    """The third target is number 3 everywhere."""
    names = [target.name for target in chain().targets]
    assert names == ["openai/gpt-4o", "openai/gpt-4o-mini", "openai/gpt-4o#3"]
