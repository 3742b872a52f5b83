"""pydantic-ai's FallbackModel, called directly."""

# Installed in the peers' environment only.
# pyright: reportMissingImports=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from failover.subject import KEY, PROMPT, Place, Ready, Subject


def _made(place: Place, **options: Any) -> Ready:
    def model(url: str, settings: dict[str, Any]) -> Any:
        provider = OpenAIProvider(base_url=url, api_key=KEY)
        return OpenAIChatModel("m", provider=provider, settings=settings or None)

    both = FallbackModel(
        model(place.primary, {**place.limit, **options}), model(place.backup, options)
    )
    return Ready(lambda: model_request(both, [ModelRequest.user_text_prompt(PROMPT)]))


SUBJECTS = (
    Subject("pydantic-ai `FallbackModel`, defaults", _made),
    Subject(
        "pydantic-ai `FallbackModel`, max_retries=0", lambda place: _made(place, max_retries=0)
    ),
)
