"""LiteLLM's Router with the strategy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
from litellm import Router
from litellm.exceptions import Timeout
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.contract.ways.way import LATE, Page, Place, Way
from tests.helpers.litellm_runs import deployment, litellm_left_clean, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from honcho_fallback import FallbackConfig

GROUP, IN_A_LOOP = "group", " in a loop"


class OfRouter(Way):
    """A Router's methods: in a thread of its own, in a thread with a loop, and in a task."""

    name = "router"
    verbs: tuple[str, ...] = (
        "completion",
        f"completion{IN_A_LOOP}",
        "acompletion",
        "stream",
        f"stream{IN_A_LOOP}",
        "astream",
    )
    few: tuple[str, ...] = ("completion", "acompletion", "stream", "astream")
    # LiteLLM's callers know its own classes, which are OpenAI's.
    raises = dict.fromkeys(Way.raises, openai.APIError) | {LATE: Timeout}

    def clean(self) -> AbstractContextManager[None]:
        return litellm_left_clean()

    async def close(self) -> None:
        await close_litellm_async_clients()

    def model(self, place: Place, **fields: Any) -> Any:
        timeout = {} if place.timeout is None else {"timeout": place.timeout}
        model, name = f"{self.form}/{place.model}", f"{place.model} of {place.provider.name}"
        given = {"api_key": place.secret, "tags": [*place.labels], **timeout, **fields}
        return deployment(GROUP, model, place.url, None, name, **given)

    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        for rank, model in enumerate(models):
            model["model_info"]["fallback_rank"] = rank
        # Its own memory counts a minute's calls; whom that leaves out is tests/litellm's subject.
        router = Router([*models], disable_cooldowns=True)
        # What LiteLLM loads late is loaded once for all Routers.
        FallbackRoutingStrategy(config, observers=observers).register(router, warm=False)
        return router

    async def read(self, chain: Any, verb: str, question: str, metadata: Any = None) -> Page:
        asked: dict[str, Any] = {
            "model": GROUP,
            "messages": [{"role": "user", "content": question}],
            "stream": "stream" in verb,
            "top_p": 0.9,
        }
        if "stream" in verb:
            asked["stream_options"] = {"include_usage": True}
        if metadata is not None:
            asked["metadata"] = metadata

        def ask() -> Any:
            answer = chain.completion(**asked)
            return [*answer] if "stream" in verb else answer

        if verb == "acompletion":
            answer: Any = await chain.acompletion(**asked)
        elif verb == "astream":
            answer = [chunk async for chunk in await chain.acompletion(**asked)]
        else:
            answer = ask() if verb.endswith(IN_A_LOOP) else await asyncio.to_thread(ask)
        page = Page()
        if "stream" not in verb:
            page.show(text_of(answer))
            return page
        for chunk in answer:
            page.show_chunk(chunk, by_id=True)
        return page


class OfRouterToAnthropic(OfRouter):
    name, form = "router to Anthropic", "anthropic"
    verbs, few = ("completion", "astream"), ("astream",)


WAYS: list[Way] = [OfRouter(), OfRouterToAnthropic()]
