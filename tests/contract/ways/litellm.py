"""LiteLLM's Router with the strategy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
from litellm import Router
from litellm.exceptions import Timeout
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.contract.ways.way import LATE, Place, Way
from tests.helpers.litellm_runs import deployment, litellm_left_clean, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from honcho_fallback import FallbackConfig

IN_A_LOOP = " in a loop"


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

    def chain(self, places: list[Place], config: FallbackConfig, observers: Iterable[Any]) -> Any:
        models = [
            deployment(
                "group",
                f"{self.form}/{place.model}",
                place.url,
                rank,
                f"{place.model} of {place.provider.name}",
                api_key=place.secret,
                tags=[*place.labels],
                **({} if place.timeout is None else {"timeout": place.timeout}),
            )
            for rank, place in enumerate(places)
        ]
        router = Router(models)
        # What LiteLLM loads late is loaded once for all Routers.
        FallbackRoutingStrategy(config, observers=observers).register(router, warm=False)
        return router

    async def ask(self, chain: Any, verb: str, question: str, metadata: Any) -> str:
        asked: dict[str, Any] = {
            "model": "group",
            "messages": [{"role": "user", "content": question}],
            "stream": "stream" in verb,
            "top_p": 0.9,
        }
        if metadata is not None:
            asked["metadata"] = metadata
        if verb == "acompletion":
            return text_of(await chain.acompletion(**asked))
        if verb == "astream":
            return text_of([chunk async for chunk in await chain.acompletion(**asked)])

        def ask() -> str:
            answer = chain.completion(**asked)
            return text_of([*answer] if "stream" in verb else answer)

        return ask() if verb.endswith(IN_A_LOOP) else await asyncio.to_thread(ask)


class OfRouterToAnthropic(OfRouter):
    name, form = "router to Anthropic", "anthropic"
    verbs, few = ("completion", "astream"), ("astream",)


WAYS: list[Way] = [OfRouter(), OfRouterToAnthropic()]
