"""Haystack's FallbackChatGenerator."""

# Installed in the peers' environment only.
# pyright: reportMissingImports=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import os
from typing import Any

from failover.subject import KEY, PROMPT, Place, Ready, Subject

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack.components.generators.chat import (  # after the variable that it reads
    FallbackChatGenerator,
    OpenAIChatGenerator,
)
from haystack.dataclasses import ChatMessage  # as above
from haystack.utils import Secret  # as above


def _made(place: Place, **options: Any) -> Ready:
    def generator(url: str, **more: Any) -> Any:
        key = Secret.from_token(KEY)
        return OpenAIChatGenerator(api_key=key, model="m", api_base_url=url, **options, **more)

    both = FallbackChatGenerator(
        [generator(place.primary, **place.limit), generator(place.backup)]
    )
    return Ready(lambda: both.run_async([ChatMessage.from_user(PROMPT)]))


SUBJECTS = (
    Subject("Haystack `FallbackChatGenerator`, defaults", _made),
    Subject(
        "Haystack `FallbackChatGenerator`, max_retries=0",
        lambda place: _made(place, max_retries=0),
    ),
)
