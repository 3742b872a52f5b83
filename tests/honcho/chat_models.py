"""Honcho's deriver as a chat model, over scripted providers of each wire."""

from __future__ import annotations

import asyncio
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from honcho_fallback_honcho import load_chat_models
from tests.helpers.chat_runs import parts_by

if TYPE_CHECKING:
    from honcho_fallback_langchain import FallbackChatModel
    from tests.helpers.provider import ProviderServer

PRIMARY = "DERIVER_MODEL_CONFIG"
FALLBACK = f"{PRIMARY}__FALLBACK"
WIRES = ("openai", "anthropic", "gemini")
PAIRS = [(one, other) for one in WIRES for other in WIRES if one != other]
VERBS = ("invoke", "ainvoke", "stream", "astream")


def settings(server: ProviderServer, primary: str, fallback: str, **more: str) -> dict[str, str]:
    """Return settings whose transports all lead to scripted providers of their names."""
    transports = {*WIRES, "lmstudio", "nous"}
    return {
        f"{PRIMARY}__TRANSPORT": primary,
        f"{PRIMARY}__MODEL": "model-one",
        f"{FALLBACK}__TRANSPORT": fallback,
        f"{FALLBACK}__MODEL": "model-two",
        **{f"LLM_{name.upper()}_BASE_URL": server[name].url for name in transports},
        **{f"LLM_{name.upper()}_API_KEY": f"{name}-key" for name in transports - {"lmstudio"}},
        **more,
    }


def deriver(
    server: ProviderServer,
    primary: str = "openai",
    fallback: str = "",
    options: Any = None,
    **more: str,
) -> FallbackChatModel:
    """Load the deriver's chat model; any other provider is its fallback."""
    environ = settings(server, primary, fallback or other_than(primary), **more)
    return load_chat_models(environ, **(options or {}))["deriver"]


def other_than(transport: str) -> str:
    return "anthropic" if transport != "anthropic" else "openai"


def ask(model: Any, verb: str = "invoke", given: Any = "hi") -> Any:
    """Ask by a verb, a sync one in no loop; a stream is the message that its chunks add up to."""
    if verb.startswith("a"):
        return reduce(add, asyncio.run(parts_by(verb, model, given)))
    return model.invoke(given) if verb == "invoke" else reduce(add, model.stream(given))
