"""A chat model asks nobody but a model, whatever its client's address; a chain may ask others."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from honcho_fallback import FallbackConfig
from tests.helpers.chat_models import alive, chat, with_fallbacks

PAGE = httpx.Request("GET", "https://gateway.example/run")


def down() -> httpx.ConnectError:
    return httpx.ConnectError("All connection attempts failed", request=PAGE)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("own", [None, FallbackConfig(timeout=5)])
def test_a_chat_models_own_client_is_the_models(bound: bool, own: Any) -> None:
    """In-house chat models talk to gateways of any address; a config for the call leaves it so."""
    primary: Any = chat("primary", down())
    model = with_fallbacks(primary.bind(stop=["."]) if bound else primary, [alive()])
    config: Any = {"configurable": {"fallback_config": own}} if own else {}
    assert isinstance(model.invoke("hi", config), AIMessage)


def test_a_chain_may_ask_another_service() -> None:
    """What a step of it asks over HTTP is looked at as anywhere else."""

    def look_up(_: Any) -> Any:
        raise down()

    asked: list[str] = []
    backup = RunnableLambda(asked.append)
    chain = with_fallbacks(RunnableLambda(look_up) | chat("primary", "hi"), [backup])
    with pytest.raises(httpx.ConnectError):
        chain.invoke("hi")
    assert asked == []
    assert with_fallbacks(RunnableLambda(look_up), [RunnableLambda(len)], only_models=True).invoke(
        "hi"
    ) == len("hi")
