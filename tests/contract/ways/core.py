"""OpenAI's SDK behind a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from honcho_fallback import ApiKey, FallbackPolicy, Target
from tests.contract.ways.way import CONTENT, FEATURES, Place, Way

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import Attempt, FallbackConfig


class Core(Way):
    name = "core"
    verbs, few = ("call", "acall", "stream", "astream"), ("call", "astream")
    offers = FEATURES - {CONTENT}  # the user's own function knows what it asks

    def chain(self, places: list[Place], config: FallbackConfig, observers: Iterable[Any]) -> Any:
        targets = [
            Target(
                place.model,
                "openai",
                f"{place.model} of {place.provider.name}",
                client={
                    kind: kind(
                        base_url=place.url,
                        api_key=place.secret,
                        max_retries=0,
                        timeout=place.timeout or 60.0,
                    )
                    for kind in (openai.OpenAI, openai.AsyncOpenAI)
                },
                endpoint=place.url,
                credential=ApiKey(place.secret),
                labels=place.labels,
            )
            for place in places
        ]
        return FallbackPolicy(targets, config, observers=observers)

    async def ask(self, chain: Any, verb: str, question: str, metadata: Any) -> str:
        kind = openai.AsyncOpenAI if verb.startswith("a") else openai.OpenAI
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": question}]}
        if "stream" in verb:
            asked |= {"stream": True, "stream_options": {"include_usage": True}}

        def create(attempt: Attempt) -> Any:
            client = attempt.target.client[kind]
            patience = min(attempt.timeout or client.timeout, client.timeout)
            return client.chat.completions.create(
                **asked, model=attempt.target.model, timeout=patience
            )

        answer: Any = getattr(chain, verb)(create, metadata=metadata)
        if verb == "stream":
            return "".join(map(_text_of, answer))
        if verb == "astream":
            return "".join([_text_of(chunk) async for chunk in answer])
        answer = await answer if verb == "acall" else answer
        return answer.choices[0].message.content or ""


def _text_of(chunk: Any) -> str:
    return "".join(choice.delta.content or "" for choice in chunk.choices)


WAYS: list[Way] = [Core()]
