"""OpenAI's SDK behind a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from honcho_fallback import ApiKey, FallbackPolicy, Target
from tests.contract.ways.way import CONTENT, FEATURES, Page, Place, Way

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import Attempt, FallbackConfig


class Core(Way):
    name = "core"
    verbs, few = ("call", "acall", "stream", "astream"), ("call", "astream")
    offers = FEATURES - {CONTENT}  # the user's own function knows what it asks

    def model(self, place: Place, **fields: Any) -> Target:
        return Target(
            place.model,
            "openai",
            f"{place.model} of {place.provider.name}",
            client={
                kind: kind(
                    base_url=place.url,
                    api_key=place.secret,
                    max_retries=0,
                    timeout=place.timeout or 60.0,
                    **(fields if kind is openai.OpenAI else {}),
                )
                for kind in (openai.OpenAI, openai.AsyncOpenAI)
            },
            endpoint=place.url,
            credential=ApiKey(place.secret),
            labels=place.labels,
            prefill=place.prefill,
        )

    def over(self, *models: Any, config: FallbackConfig, observers: Iterable[Any] = ()) -> Any:
        return FallbackPolicy(models, config, observers=observers)

    async def read(self, chain: Any, verb: str, question: str, metadata: Any = None) -> Page:
        answer = self.answer(chain, verb, question, metadata=metadata)
        page = Page()
        if verb == "stream":
            self.show(page, answer)
        elif verb == "astream":
            self.show(page, [chunk async for chunk in answer])
        else:
            answer = await answer if verb == "acall" else answer
            page.show(answer.choices[0].message.content or "")
        return page

    def answer(self, chain: Any, verb: str, question: str, **options: Any) -> Any:
        kind = openai.AsyncOpenAI if verb.startswith("a") else openai.OpenAI
        messages: list[Any] = [{"role": "user", "content": question}]
        streamed = {"stream": True, "stream_options": {"include_usage": True}}

        def create(attempt: Attempt) -> Any:
            """Ask: with the beginning of the answer, where there is one."""
            client = attempt.target.client[kind]
            begun = [{"role": "assistant", "content": attempt.partial}] * bool(attempt.partial)
            return client.chat.completions.create(
                model=attempt.target.model,
                messages=[*messages, *begun],
                timeout=min(attempt.timeout or client.timeout, client.timeout),
                **(streamed if "stream" in verb else {}),
            )

        if "stream" in verb:
            options["partial"] = self.partial
        return getattr(chain, verb)(create, **options)

    def show(self, page: Page, chunks: Iterable[Any]) -> None:
        for chunk in chunks:
            page.show_chunk(chunk, by_id=self.partial == "replace")


WAYS: list[Way] = [Core()]
