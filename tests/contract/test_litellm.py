"""Recorded provider answers through a real Router: sync on httpx, async on aiohttp."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("litellm")

import litellm
from litellm import Router
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.litellm_runs import THEIRS, deployment, text_of
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.vcr,
    *(pytest.mark.filterwarnings(warning) for warning in THEIRS),
]

SAY: Any = [{"role": "user", "content": "Answer with the one word: harbor"}]
DEPLOYMENTS = {
    "openai": ("openai/gpt-5.5", "https://api.openai.com/v1"),
    "anthropic": ("anthropic/claude-sonnet-5", "https://api.anthropic.com"),
    "local": ("lm_studio/tiny-local", "http://localhost:1234/v1"),
}


def chain(observer: Listener, *names: str) -> Router:
    """Make a chain of providers at their real addresses."""
    keys = {name: os.environ.get(f"{name.upper()}_API_KEY") or "none" for name in names}
    most: dict[str, Any] = {name: {} if name == "openai" else {"max_tokens": 16} for name in names}
    models = [
        deployment("chain", *DEPLOYMENTS[name], rank, name, api_key=keys[name], **most[name])
        for rank, name in enumerate(names)
    ]
    router = Router(model_list=models)
    FallbackRoutingStrategy(observers=[observer]).register(router)
    return router


@pytest.fixture
def default_cassette_name(request: pytest.FixtureRequest) -> str:
    """Name a cassette by what was said in it, so that sync and async share one."""
    return "-".join(request.node.get_closest_marker("upstream").args)


@pytest.fixture(autouse=True)
async def nothing_left_open() -> AsyncIterator[None]:
    yield
    await close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()


# What is said in turn, whether as a stream; what the first has to be taken for, and what is known.
CASES = [
    (("openai_rate_limit", "anthropic_message"), False, "rate_limit", {"retry_after": 20}),
    # LiteLLM makes 500 of Anthropic's 529.
    (("anthropic_overloaded", "openai_chat"), False, "overloaded", {"status": 529}),
    # Told by its code behind 429; an LM Studio-style host answers.
    (("openai_quota", "local_chat"), False, "quota", {"status": 429}),
    # Refused at the opening; Anthropic sends usage unasked.
    (("openai_rate_limit", "anthropic_stream"), True, "rate_limit", {"retry_after": 20}),
    # Told inside HTTP 200, before any content.
    (("anthropic_stream_error", "openai_stream"), True, "overloaded", {}),
]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("says", "stream", "kind", "facts"),
    [
        pytest.param(*one, marks=pytest.mark.upstream(*one[0]), id="-".join(one[0]))
        for one in CASES
    ],
)
async def test_the_next_one_stands_in(
    says: tuple[str, str], kind: str, facts: dict[str, Any], *, stream: bool, is_async: bool
) -> None:
    """Each failure is what it was at the provider; the answer comes in OpenAI's form."""
    listener = Listener()
    router = chain(listener, *(one.partition("_")[0] for one in says))
    text = text_of(await asked(router, is_async=is_async, stream=stream))
    assert "harbor" in text.lower() or (text and says[1] == "local_chat")
    record = listener.record
    assert listener.kinds == [kind, None]
    assert {name: getattr(record.attempts[0], name) for name in facts} == facts
    if says[1].startswith("anthropic"):
        assert record.usage is not None
        assert record.usage["output_tokens"] > 0


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.upstream("anthropic_bad_request")
async def test_a_wrong_request_surfaces(*, is_async: bool) -> None:
    """400: one request, LiteLLM's own class."""
    listener = Listener()
    with pytest.raises(litellm.BadRequestError):
        await asked(chain(listener, "anthropic", "openai"), is_async=is_async)
    assert listener.kinds == ["invalid_request"]


async def asked(router: Any, *, is_async: bool, stream: bool = False) -> Any:
    given = {"model": "chain", "messages": SAY, "stream": stream}
    if is_async:
        answer = await router.acompletion(**given)
        return [chunk async for chunk in answer] if stream else answer
    answer = router.completion(**given)
    return [*answer] if stream else answer
