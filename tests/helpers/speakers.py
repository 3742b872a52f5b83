"""Models of four formats that call tools for some rounds, behind providers that hold them to it.

Each call of the model gets two calls of a tool, until ``ROUNDS`` are over. A provider remembers
what it wrote and refuses, as its API does, whatever else stands in a history (`tests.helpers.
strict`), so that a 400 is a loop that could not move.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.helpers import wire
from tests.helpers.provider import Reply
from tests.helpers.strict import AnthropicRules, ChatRules, GoogleRules, ResponsesRules

if TYPE_CHECKING:
    from tests.helpers.provider import Provider, ProviderServer, SeenRequest
    from tests.helpers.wire import Json

CITIES = ("Oslo", "Rome")  # two calls at once
ROUNDS = 3
SIGNED = {f"signed-{number}" for number in range(ROUNDS)}  # Claude reads it, whoever asked for it
ENABLED = {"type": "enabled", "budget_tokens": 1024}
# How Claude is asked to think, and whether it does so before each of its calls.
MODES: dict[str, Json | None] = {
    "adaptive": {"type": "adaptive"},
    "interleaved": ENABLED,
    "off": None,
    "once": ENABLED,
}


def look_up(city: str) -> str:
    """Look up the weather."""
    return f"rain in {city}"


def rounds_of(body: Json) -> int:
    """Count the rounds of tools in a request: each of their results is in it once."""
    return json.dumps(body).count("rain in Oslo")


class Claude:
    """Messages, with a signed thought where it thinks, and at once or before each call."""

    rules = staticmethod(partial(AnthropicRules, thinks_by_default=False))

    def __init__(self, mode: str = "off") -> None:
        self.mode = mode
        self.thinking = MODES[mode]

    def calls(self, body: Json, says: str = "") -> Json:
        number = rounds_of(body)
        calls = [
            wire.tool_use(f"toolu_{number}_{at}", "look_up", {"city": city})
            for at, city in enumerate(CITIES)
        ]
        is_asked = body.get("thinking", {}).get("type") in {"adaptive", "enabled"}
        thinks = is_asked and not (number and self.mode == "once")
        thought = {"type": "thinking", "thinking": "Hm.", "signature": f"signed-{number}"}
        text = [wire.text_block(says)] * bool(says)
        return wire.message_answer(*[thought] * thinks, *text, *calls)


class Chat:
    rules = ChatRules

    def __init__(self, ids: str = "call:") -> None:
        self.ids = ids  # how they begin; those of some servers no other provider takes

    def calls(self, body: Json, says: str = "") -> Json:
        number = rounds_of(body)
        calls = [
            wire.chat_call(f"{self.ids}{number}_{at}", "look_up", {"city": city})
            for at, city in enumerate(CITIES)
        ]
        return wire.chat_answer(says or None, *calls)


class Responses:
    """Responses, with reasoning that only the account can read."""

    rules = ResponsesRules

    def calls(self, body: Json, says: str = "") -> Json:
        number = rounds_of(body)
        thought = {
            "type": "reasoning",
            "id": f"rs_{number}",
            "summary": [],
            "encrypted_content": f"hidden-{number}",
        }
        calls = [
            wire.response_call(f"fc_{number}_{at}", f"call_{number}_{at}", "look_up", {"city": c})
            for at, c in enumerate(CITIES)
        ]
        return wire.responses_answer(thought, *[wire.response_text(says)] * bool(says), *calls)


class Gemini:
    """generateContent, whose first call of a turn has a signature."""

    rules = GoogleRules

    def calls(self, body: Json, says: str = "") -> Json:
        calls = [wire.function_call("look_up", {"city": city}) for city in CITIES]
        calls[0]["thoughtSignature"] = "c2lnbmVk"
        return wire.gemini_answer(*[{"text": says}] * bool(says), *calls)


OTHERS: dict[str, Any] = {
    "chat": Chat(),
    "claude without": Claude("off"),
    "gemini": Gemini(),
    "responses": Responses(),
}
# In which of the loop's calls the primary is down: 1 where it is.
OUTAGES = ((1,), (0, 1), (0, 0, 1), (1, 0, 1), (0, 1, 0))


def serve(
    providers: ProviderServer, name: str, speaks: Any, down: tuple[int, ...] = (), says: str = ""
) -> Provider:
    """Serve a strict provider that calls tools for some rounds, down where it is told so.

    Before its calls it says a text, if it is given one.
    """
    rules = speaks.rules()
    rules.wrote |= SIGNED
    provider = providers.new(name, rules=rules)
    left = [*down]

    def answer(request: SeenRequest) -> Reply:
        if left and left.pop(0):
            return Reply(status=503)
        if rounds_of(request.body) < ROUNDS - 1:
            return Reply(body=speaks.calls(request.body, says))
        return Reply(text="It rains.")

    provider.standing = answer
    return provider


def serve_both(
    providers: ProviderServer, mode: str, other: str, down: tuple[int, ...], *, is_primary: bool
) -> tuple[list[Any], list[Provider]]:
    """Serve Claude and another one, the primary first; it is down where it is told so."""
    speakers = [Claude(mode), OTHERS[other]]
    if not is_primary:
        speakers.reverse()
    outages = (("primary-0", down), ("backup-1", ()))
    served = [
        serve(providers, name, speaker, outage)
        for speaker, (name, outage) in zip(speakers, outages, strict=True)
    ]
    return speakers, served


def thought_in(provider: Provider) -> list[bool]:
    """Tell of each request to a Claude whether it was asked to think."""
    modes = [body.get("thinking", {}).get("type") for body in provider.bodies]
    return [mode in {"adaptive", "enabled"} for mode in modes]
