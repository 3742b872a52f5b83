"""The strategy under LangChain's wrapper of a Router."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("langchain_litellm")

from langchain_litellm import ChatLiteLLMRouter

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
def test_chat_litellm_router_switches(
    way: str, bench: Any, providers: ProviderServer, run: Any
) -> None:
    """Through ChatLiteLLMRouter, in its four ways: one request at the primary."""
    providers["primary"].fail(500)
    router, listener = bench.managed()
    model = ChatLiteLLMRouter(router=router, model_name="deriver", model="deriver")

    async def inside() -> str:
        if way == "ainvoke":
            return str((await model.ainvoke("hello")).content)
        return "".join([str(chunk.content) async for chunk in model.astream("hello")])

    if way.startswith("a"):
        said = run(inside())
    else:
        chunks = [model.invoke("hello")] if way == "invoke" else model.stream("hello")
        said = "".join(str(chunk.content) for chunk in chunks)
    assert said == "hello from backup"
    assert providers.order == ["primary", "backup"]
    assert listener.record.answered_by == "backup"
