"""Answers as providers write them, built from the rows of answers.json."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic.types
import httpx
import httpx2
import pytest
from anthropic._models import construct_type as of_anthropic
from google.genai import types as genai
from openai._models import construct_type as of_openai
from openai.types import Completion, chat, responses

from tests.helpers import wire

if TYPE_CHECKING:
    from tests.helpers.wire import Json

ANSWERS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "unit" / "answers.json").read_text("utf-8")
)


def built(row: Any) -> Any:
    """Build the document of a row, whose keys the head of answers.json explains."""
    if isinstance(row, list):
        return [built(one) for one in row]
    form = next((name for name in _FORMS if isinstance(row, dict) and name in row), None)
    if form is None:
        return row
    more = {name: value for name, value in row.items() if name != form}
    if "response" in more:
        more["response"] = built(more["response"])
    return _FORMS[form](row[form], **more)


def answered_in_turn(sdk: Any, *documents: Json) -> Any:
    """Make an SDK's client whose requests are answered with these documents, on no network."""
    left = [*documents]
    library: Any = httpx2 if isinstance(sdk(api_key="k")._client, httpx2.Client) else httpx
    transport = library.MockTransport(lambda _: library.Response(200, json=left.pop(0)))
    return sdk(api_key="k", http_client=library.Client(transport=transport))


def _legacy(text: str) -> Json:
    choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
    document = {"id": "1", "object": "text_completion", "created": 1, "model": "m"}
    return {**document, "choices": [choice], "usage": wire.CHAT_USAGE}


def _message(name: str) -> Any:
    def build(fields: Json) -> Any:
        return getattr(pytest.importorskip("langchain_core.messages"), name)(**fields)

    return build


def _made(place: str, **fields: Any) -> Any:
    module, _, name = place.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LiteLLM's import warns of its own types
        cls = getattr(pytest.importorskip(module), name)
    return cls(**{name: _made_within(value) for name, value in fields.items()})


def _made_within(value: Any) -> Any:
    if isinstance(value, list):
        return [_made_within(one) for one in value]
    return built(value) if isinstance(value, dict) and "made" in value else value


def _chat(message: Json, finish: str = "stop", **more: Any) -> Json:
    return {**wire.chat_answer(model="m", finish=finish, **message), **more}


def _claude(blocks: list[Json], stop: str = "end_turn", **more: Any) -> Json:
    return {**wire.message_answer(*blocks, model="m", stop=stop), **more}


_FORMS: dict[str, Any] = {
    "made": _made,  # before the others, whose names are those of its fields
    "event": lambda name, **more: {"type": f"response.{name}", **more},
    "chat": _chat,
    "delta": lambda delta, finish=None, **more: wire.chat_chunk(delta, finish, model="m", **more),
    "legacy": _legacy,
    "output": lambda items, **more: {**wire.responses_answer(*items, model="m"), **more},
    "claude": _claude,
    "starts": lambda blocks: wire.message_start(_claude(blocks)),
    "block": lambda block, index=0: wire.block_start(block, index),
    "block_delta": lambda delta, index=0: wire.block_delta(delta, index),
    "ends": lambda stop, **more: {**wire.message_delta(_claude([], stop)), **more},
    "parts": lambda parts, finish="STOP", **more: {
        **wire.gemini_answer(*parts, model="m", finish=finish),
        **more,
    },
    "AIMessage": _message("AIMessage"),
    "AIMessageChunk": _message("AIMessageChunk"),
}

# What an SDK makes of a document: by the beginning of its object or type, or by a field that no
# other has. OpenAI's and Anthropic's do it without a check, whatever the provider sent.
_CLASSES: dict[str, tuple[Any, Any]] = {
    "chat.completion.chunk": (of_openai, chat.ChatCompletionChunk),
    "text_completion": (of_openai, Completion),
    "response.": (of_openai, responses.ResponseStreamEvent),
    "message_": (of_anthropic, anthropic.types.RawMessageStreamEvent),
    "content_block": (of_anthropic, anthropic.types.RawMessageStreamEvent),
    "choices": (of_openai, chat.ChatCompletion),
    "sequence_number": (of_openai, responses.ResponseStreamEvent),
    "output": (of_openai, responses.Response),
    "stop_reason": (of_anthropic, anthropic.types.Message),
}


def as_object(document: Any) -> Any:
    """Make of a document what its SDK makes of it; what none knows stays as it is."""
    if isinstance(document, list):
        return [as_object(one) for one in document]
    if not isinstance(document, dict):
        return document
    if not {"candidates", "promptFeedback"}.isdisjoint(document):  # it checks, and spells anew
        return genai.GenerateContentResponse.model_validate(document)
    kind = str(document.get("object") or document.get("type"))
    for name, (construct, cls) in _CLASSES.items():
        if kind.startswith(name) or name in document:
            return construct(value=document, type_=cls)
    return document


def forms_of(row: Any) -> list[Any]:
    """Build the answer of a row: a document, its SDK's object; LangChain's, bare and wrapped."""
    document = built(row)
    some = document if isinstance(document, list) else [document]
    if not some or "AIMessage" not in type(some[0]).__name__:
        return [document, as_object(document)]
    outputs = pytest.importorskip("langchain_core.outputs")
    names = {"AIMessage": "ChatGeneration", "AIMessageChunk": "ChatGenerationChunk"}
    around = [getattr(outputs, names[type(one).__name__])(message=one) for one in some]
    return [document, around] if some is document else [document, *around]
