"""The openai SDK by itself and with this package's policy."""

from __future__ import annotations

from typing import Any

import openai

from failover.subject import KEY, MESSAGES, Place, Ready, Subject
from honcho_fallback import Attempt, FallbackConfig, FallbackPolicy, Target


def _clients(place: Place, kind: Any, **options: Any) -> tuple[Any, Any]:
    primary = kind(base_url=place.primary, api_key=KEY, **place.limit, **options)
    return primary, kind(base_url=place.backup, api_key=KEY, **options)


def _policy(place: Place, kind: Any) -> FallbackPolicy:
    primary, backup = _clients(Place(place.primary, place.backup), kind, max_retries=0)
    chain = [
        Target("a", provider="one", client=primary),
        Target("b", provider="two", client=backup),
    ]
    return FallbackPolicy(chain, FallbackConfig(**place.limit))


def _acall(place: Place) -> Ready:
    policy = _policy(place, openai.AsyncOpenAI)

    async def ask(attempt: Attempt) -> object:
        return await attempt.target.client.chat.completions.create(
            model=attempt.target.model, messages=MESSAGES, timeout=attempt.timeout
        )

    return Ready(lambda: policy.acall(ask))


def _call(place: Place) -> Ready:
    policy = _policy(place, openai.OpenAI)

    def ask(attempt: Attempt) -> object:
        return attempt.target.client.chat.completions.create(
            model=attempt.target.model, messages=MESSAGES, timeout=attempt.timeout
        )

    return Ready(lambda: policy.call(ask), sync=True)


def _plain(place: Place, **options: Any) -> Ready:
    primary, backup = _clients(place, openai.AsyncOpenAI, **options)

    async def ask() -> object:
        try:
            return await primary.chat.completions.create(model="a", messages=MESSAGES)
        except openai.OpenAIError:
            return await backup.chat.completions.create(model="b", messages=MESSAGES)

    return Ready(ask)


SUBJECTS = (
    Subject("openai SDK, `policy.acall`", _acall, ours=True),
    Subject("openai SDK, `policy.call`", _call, ours=True),
    Subject("openai SDK, defaults, `try`/`except`", _plain),
    Subject(
        "openai SDK, max_retries=0, `try`/`except`", lambda place: _plain(place, max_retries=0)
    ),
)
