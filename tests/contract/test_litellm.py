"""Recorded provider answers through a real Router: sync on httpx, async on aiohttp."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("litellm")

import litellm
from litellm import Router
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from honcho_fallback import FailureKind
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.litellm_runs import THEIRS
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.vcr,
    *(pytest.mark.filterwarnings(warning) for warning in THEIRS),
]

SAY: Any = [{"role": "user", "content": "Answer with the one word: harbor"}]
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "openai": {"model": "openai/gpt-5.5", "api_base": "https://api.openai.com/v1"},
    "anthropic": {
        "model": "anthropic/claude-sonnet-5",
        "api_base": "https://api.anthropic.com",
        "max_tokens": 16,
    },
    "local": {
        "model": "lm_studio/tiny-local",
        "api_base": "http://localhost:1234/v1",
        "max_tokens": 16,
    },
}


class Asker(Listener):
    """Ask one chain, sync or async, and keep the record."""

    def __init__(self, *, is_async: bool) -> None:
        super().__init__()
        self.is_async = is_async

    def router(self, *names: str) -> Any:
        """Make a chain of providers at their real addresses."""
        made = Router(
            model_list=[
                {
                    "model_name": "chain",
                    "litellm_params": {
                        "api_key": os.environ.get(f"{name.upper()}_API_KEY") or "none",
                        **DEPLOYMENTS[name],
                    },
                    "model_info": {"id": name, "fallback_rank": rank},
                }
                for rank, name in enumerate(names)
            ]
        )
        FallbackRoutingStrategy(observers=[self]).register(made)
        return made

    async def say(self, *names: str, stream: bool = False) -> str:
        """Ask for a word, whole or chunk by chunk."""
        router, asked = self.router(*names), {"model": "chain", "messages": SAY, "stream": stream}
        answer = await router.acompletion(**asked) if self.is_async else router.completion(**asked)
        if not stream:
            return str(answer.choices[0].message.content or "")
        chunks = [chunk async for chunk in answer] if self.is_async else [*answer]
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@pytest.fixture
def default_cassette_name(request: pytest.FixtureRequest) -> str:
    """Name a cassette by what was said in it, so that sync and async share one."""
    return "-".join(request.node.get_closest_marker("upstream").args)


@pytest.fixture(params=["sync", "async"])
async def asker(request: pytest.FixtureRequest) -> AsyncIterator[Asker]:
    """Ask in both ways."""
    yield Asker(is_async=request.param == "async")
    await close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()


@pytest.mark.upstream("openai_rate_limit", "anthropic_message")
async def test_anthropic_stands_in_for_openai(asker: Asker) -> None:
    """429 with Retry-After, then Anthropic's answer in OpenAI's form, with its usage."""
    assert "harbor" in (await asker.say("openai", "anthropic")).lower()
    assert asker.kinds == [FailureKind.RATE_LIMIT, None]
    assert asker.record.attempts[0].retry_after == 20
    assert asker.record.usage is not None
    assert asker.record.usage["output_tokens"] > 0


@pytest.mark.upstream("anthropic_overloaded", "openai_chat")
async def test_529_is_an_overload(asker: Asker) -> None:
    """LiteLLM makes 500 of Anthropic's 529; the record says what it was."""
    assert "harbor" in (await asker.say("anthropic", "openai")).lower()
    assert asker.kinds == [FailureKind.OVERLOADED, None]
    assert asker.record.attempts[0].status == 529


@pytest.mark.upstream("openai_quota", "local_chat")
async def test_a_local_host_stands_in_for_openai(asker: Asker) -> None:
    """A used-up quota behind 429 is told by its code; an LM Studio-style host answers."""
    assert await asker.say("openai", "local")
    assert asker.kinds == [FailureKind.QUOTA, None]


@pytest.mark.upstream("anthropic_bad_request")
async def test_a_wrong_request_surfaces(asker: Asker) -> None:
    """400: one request, LiteLLM's own class."""
    with pytest.raises(litellm.BadRequestError):
        await asker.say("anthropic", "openai")
    assert asker.kinds == [FailureKind.INVALID_REQUEST]


@pytest.mark.upstream("openai_rate_limit", "anthropic_stream")
async def test_anthropics_stream_stands_in(asker: Asker) -> None:
    """Refused at the opening; the record has the usage that Anthropic sends unasked."""
    assert "harbor" in (await asker.say("openai", "anthropic", stream=True)).lower()
    assert asker.kinds == [FailureKind.RATE_LIMIT, None]
    assert asker.record.usage is not None


@pytest.mark.upstream("anthropic_stream_error", "openai_stream")
async def test_an_error_inside_a_good_stream_is_recovered(asker: Asker) -> None:
    """An overload told inside HTTP 200, before any content."""
    assert "harbor" in (await asker.say("anthropic", "openai", stream=True)).lower()
    assert asker.kinds == [FailureKind.OVERLOADED, None]
