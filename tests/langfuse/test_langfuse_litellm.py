"""Over LiteLLM's Router: one clean generation per call."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from honcho_fallback_langfuse import LangfuseCallbackHandler
from tests.helpers.langfuse_scenarios import check, play, spread
from tests.helpers.langfuse_speakers import MESSAGES, SECRET

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from honcho_fallback import FallbackObserver
    from tests.helpers.langfuse_memory import Memory

# Before the first import of LiteLLM, which would fetch a price list.
pytest.importorskip("litellm")

import openai
from litellm import Router
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from honcho_fallback_litellm import FallbackRoutingStrategy, warm_up
from tests.helpers.litellm_runs import litellm_left_clean

pytestmark = pytest.mark.filterwarnings("ignore")  # LiteLLM's own, and what it leaves open


class RouterCalls:
    """Ask a Router."""

    def __init__(self, router: Any) -> None:
        self._router = router
        self._asked: dict[str, Any] = {"model": "deriver", "messages": MESSAGES, "top_p": 0.9}

    def call(self) -> Any:
        return self._router.completion(**self._asked)

    async def acall(self) -> Any:
        try:
            return await self._router.acompletion(**self._asked)
        finally:
            await close_litellm_async_clients()

    def stream(self) -> Any:
        return self._router.completion(**self._asked, stream=True)

    async def astream(self) -> AsyncGenerator[Any]:
        try:
            chunks = await self._router.acompletion(**self._asked, stream=True)
            try:
                async for chunk in chunks:
                    yield chunk
            finally:
                await chunks.aclose()
        finally:
            await close_litellm_async_clients()


class OverLiteLLM:
    """Ask deployments behind a Router."""

    parameters: ClassVar[dict[str, Any]] = {"top_p": 0.9}
    provider: str
    raises: tuple[type[BaseException], ...] = (openai.OpenAIError,)
    blurred_kinds: ClassVar[dict[str, str]] = {}

    def __init__(self, url: str) -> None:
        self._url = url

    def calls(self, chain: Sequence[str], observer: FallbackObserver) -> RouterCalls:
        router = Router(
            model_list=[
                {
                    "model_name": "deriver",
                    "litellm_params": {
                        "model": f"{self.provider}/{behaviour}-model",
                        "api_base": f"{self._url}/{behaviour}",
                        "api_key": SECRET,
                    },
                    "model_info": {"id": behaviour, "fallback_rank": rank},
                }
                for rank, behaviour in enumerate(chain)
            ]
        )
        FallbackRoutingStrategy(observers=[observer]).register(router)
        return RouterCalls(router)

    def has_content(self, chunk: Any) -> object:
        return chunk.choices and chunk.choices[0].delta.content


class OpenAIDeployments(OverLiteLLM):
    """Ask OpenAI's protocol."""

    provider = "openai"


class AnthropicDeployments(OverLiteLLM):
    """Ask Anthropic's protocol, of whose errors in a stream LiteLLM makes a 500."""

    provider = "anthropic"
    blurred_kinds: ClassVar[dict[str, str]] = {"interrupted": "server_error"}


SPEAKERS = {"openai": OpenAIDeployments, "anthropic": AnthropicDeployments}


@pytest.fixture(scope="module", autouse=True)
def warmed() -> None:
    """Pay LiteLLM's lazy imports once, outside of any test's time."""
    warm_up()


@pytest.fixture(autouse=True)
def clean_litellm() -> Iterator[None]:
    """Leave LiteLLM's global lists as they were: every Router adds to them."""
    with litellm_left_clean():
        yield


@pytest.mark.parametrize(("mode", "name", "who", "nested"), spread([*SPEAKERS], [False, True]))
def test_one_generation_tells_the_call(
    mode: str, name: str, who: str, nested: bool, memory: Memory, providers: str
) -> None:
    """HON-061 to HON-066, HON-069: the same over LiteLLM's Router, also in the user's trace."""
    speaker = SPEAKERS[who](providers)
    handler = LangfuseCallbackHandler(memory.client)
    outer: Any = nullcontext()
    if nested:
        outer = memory.client.start_as_current_observation(name="request")
    with outer as request:
        play(mode, name, speaker, handler)
    one = memory.stored()[0]
    assert len(memory.stored()) == 1 + nested
    assert one.parent_id == (request.id if nested else None)
    check(one, mode, name, speaker)
    assert SECRET not in repr(memory.spans())
    assert len(handler._calls) == 0
