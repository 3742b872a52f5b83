"""The Agents SDK and Pydantic AI, each over both of OpenAI's endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import agents
import pydantic_ai
from pydantic_ai.exceptions import ModelHTTPError

from honcho_fallback import Target
from tests.agents.frameworks import FRAMEWORKS, PydanticAI
from tests.contract.ways.way import FEATURES, METADATA, REJECTED, Page, Place, Way

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import FallbackConfig


class OfFramework(Way):
    """A FallbackModel in an agent of the framework.

    Args:
        framework: Its name.
        api: The endpoint that is asked: ``chat`` or ``responses``.
    """

    verbs = ("run", "stream")
    offers = FEATURES - {METADATA}

    def __init__(self, framework: str, api: str) -> None:
        self.name = f"{framework}, {api}"
        self._framework, self._api = FRAMEWORKS[framework], api
        self.few = self.verbs if api == "chat" else ("stream",)
        if framework == "pydantic-ai":
            self.raises = Way.raises | {REJECTED: ModelHTTPError}

    def model(self, place: Place, **fields: Any) -> Any:
        return Target(
            place.model,
            name=f"{place.model} of {place.provider.name}",
            client=self._framework.model(
                place.provider,
                api=self._api,
                host=place.host,
                name=place.model,
                key=place.secret,
                timeout=place.timeout,
                **fields,
            ),
            labels=place.labels,
        )

    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        return self._framework.chain(*models, config=config, observers=observers)

    async def read(self, chain: Any, verb: str, question: str, metadata: Any = None) -> Page:
        page = Page()
        if verb == "run":
            page.show(await self._framework.run(chain, question=question))
        elif isinstance(self._framework, PydanticAI):
            await _read_pydantic(page, chain, question)
        else:
            await _read_openai(page, chain, question)
        return page


async def _read_openai(page: Page, model: Any, question: str) -> None:
    settings = agents.ModelSettings(include_usage=True)
    one = agents.Agent("one", model=model, model_settings=settings)
    run = agents.Runner.run_streamed(one, question)
    async for event in run.stream_events():
        if event.type != "raw_response_event":
            continue
        if event.data.type == "response.output_text.delta":
            page.show(event.data.delta)
        elif event.data.type == "response.completed":
            page.model = event.data.response.model
    page.has_usage = run.context_wrapper.usage.total_tokens > 0


async def _read_pydantic(page: Page, model: Any, question: str) -> None:
    async with pydantic_ai.Agent(model).run_stream(question) as result:
        async for text in result.stream_text(delta=True):
            page.show(text)
        page.model = result.response.model_name
        page.has_usage = result.response.usage.has_values()


WAYS: list[Way] = [OfFramework(name, api) for name in FRAMEWORKS for api in ("chat", "responses")]
