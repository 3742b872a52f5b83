"""The Agents SDK and Pydantic AI, each over both of OpenAI's endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai.exceptions import ModelHTTPError

from honcho_fallback import Target
from tests.agents.frameworks import FRAMEWORKS
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
        if verb == "run":
            return Page(await self._framework.run(chain, question=question))
        seen = await self._framework.read(chain, question=question)
        return Page(seen.text, None, seen.model, seen.cost[1] > 0, seen.void)


WAYS: list[Way] = [OfFramework(name, api) for name in FRAMEWORKS for api in ("chat", "responses")]
