"""What a model says of itself has no key, no header and no login in it."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from honcho_fallback import ApiKey
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.canaries import KEY, canaries_in


class Token:
    """A credential of somebody's own, which shows what it holds."""

    def __repr__(self) -> str:
        return f"Token({KEY!r})"

    def get(self) -> str:
        return KEY

    def refresh(self) -> None:
        """Nothing to do."""


def models() -> list[Any]:
    headers = {"Authorization": f"Bearer {KEY}", "x-team": KEY}
    openai = ChatOpenAI(
        model="gpt-5.5",
        api_key=KEY,
        base_url=f"https://me:{KEY}@127.0.0.1:9/v1?api_key={KEY}",
        default_headers=headers,
        model_kwargs={"user": KEY},
    )
    anthropic = ChatAnthropic(
        model="claude-sonnet-5",
        api_key=KEY,
        default_headers=headers,
    )
    return [openai, anthropic]


def shown_of(one: Any) -> list[Any]:
    """Return an object and what is made of it, or holds it."""
    return [
        one, one.bind(extra_headers={"x-key": KEY}), one.with_config(metadata={"key": KEY}),
        one.with_fallback_config(max_attempts=1), one.policy, one.policy.targets, one.chain,
        one.options, one.policy.start(), one | RunnableLambda(str),
    ]  # fmt: skip


@pytest.mark.parametrize("derive", ["", "bind_tools", "with_structured_output"])
def test_a_chat_model_shows_the_names_of_its_candidates(derive: str) -> None:
    """Also what was derived from it, and whatever its candidates show of themselves."""
    model: Any = FallbackChatModel(*models(), credentials=[Token(), ApiKey(KEY)])
    if derive:
        tool = {"title": "f", "description": "x", "type": "object", "properties": {}}
        model = getattr(model, derive)([tool] if derive == "bind_tools" else tool)
        model = getattr(model, "bound", model)
    for one in shown_of(model):
        assert canaries_in([repr(one), str(one), f"{one}"]) == []
    for name in ("openai/gpt-5.5", "anthropic/claude-sonnet-5"):
        assert name in repr(model)


def test_a_chain_and_a_middleware_do_not_show_what_is_in_them() -> None:
    """Models inside a sequence are there, too."""
    chains = [RunnableLambda(str) | model for model in models()]
    runnable: Any = FallbackRunnable(*chains)
    for one in (*shown_of(runnable), FallbackMiddleware(*models())):
        assert canaries_in([repr(one), str(one)]) == []
