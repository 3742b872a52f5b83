"""LangChain chat models: one that plays a script, and the real ones over scripted providers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, PrivateAttr

from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from honcho_fallback_langchain._sdk import chat_model_of
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from langchain_core.messages import BaseMessage

    from tests.helpers.provider import Provider, ProviderServer

USAGE = {"input_tokens": 5, "output_tokens": 10, "total_tokens": 15}
NOWHERE = "http://127.0.0.1:1"


class Asked(NamedTuple):
    messages: list[BaseMessage]
    kwargs: dict[str, Any]


class ScriptedChat(BaseChatModel):
    """Say the entries of a script, the last again and again.

    An entry is a list of parts: words, whole chunks, functions to call in between, and errors to
    raise there. As with the SDKs, a stream begins with an empty chunk and ends with the usage; an
    answer in whole is what the stream adds up to, tool calls included.
    """

    model: str = "scripted"
    script: list[list[Any]] = Field(default_factory=list, exclude=True, repr=False)
    temperature: float | None = None
    streaming: bool = False

    _asked: list[Asked] = PrivateAttr(default_factory=list)
    _closed: list[str] = PrivateAttr(default_factory=list)
    _bindings: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @property
    def asked(self) -> list[Asked]:
        """Return what was asked so far; copies of a model share it."""
        return self._asked

    @property
    def closed(self) -> list[str]:
        return self._closed

    @property
    def bindings(self) -> list[dict[str, Any]]:
        return self._bindings

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model}  # the key of a cache

    def _parts(self, messages: list[BaseMessage], kwargs: dict[str, Any]) -> list[Any]:
        self._asked.append(Asked(messages, kwargs))
        place = min(len(self._asked), len(self.script)) - 1
        return self.script[place]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(iter(self._chunks(messages, {**kwargs, "stop": stop})))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        end = "left"
        try:
            for chunk in self._chunks(messages, {**kwargs, "stop": stop}):
                if run_manager:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk
            end = "whole"
        finally:
            self._closed.append(end)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        end = "left"
        try:
            for chunk in self._chunks(messages, {**kwargs, "stop": stop}):
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk
            end = "whole"
        finally:
            self._closed.append(end)

    def _chunks(
        self, messages: list[BaseMessage], kwargs: dict[str, Any]
    ) -> Iterator[ChatGenerationChunk]:
        parts = self._parts(messages, kwargs)
        yield _chunk(AIMessageChunk(content=""))
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            played = part() if callable(part) else part
            if isinstance(played, AIMessageChunk):
                yield _chunk(played)
            elif isinstance(played, str):
                yield _chunk(AIMessageChunk(content=played))
        metadata = {"model_name": kwargs.get("model", self.model)}
        yield _chunk(AIMessageChunk(content="", usage_metadata=USAGE, response_metadata=metadata))

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Bind tools in a form that tells whose it is."""
        self._bindings.append(kwargs)
        own = [{"for": self.model, **convert_to_openai_tool(one)} for one in tools]
        return self.bind(tools=own, **kwargs)


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message)


def chat(
    model: str, *entries: Any, kind: type[ScriptedChat] = ScriptedChat, **fields: Any
) -> ScriptedChat:
    """Make a scripted model; an entry that is no list stands for a list of one part."""
    script = [entry if isinstance(entry, list) else [entry] for entry in entries]
    return kind(model=model, script=script, **fields)


def dead(model: str = "primary", status: int = 503) -> ScriptedChat:
    return chat(model, StatusError(status))


def alive(model: str = "backup", *words: str, **fields: Any) -> ScriptedChat:
    return chat(model, list(words or ("from ", model)), **fields)


def with_fallbacks(primary: Any, fallbacks: Sequence[Any], **options: Any) -> Any:
    """Make a chain of models, or of chains, as ``primary.with_fallbacks(fallbacks)`` does."""
    are_models = all(chat_model_of(one) is not None for one in (primary, *fallbacks))
    made: Any = FallbackChatModel if are_models else FallbackRunnable
    return made(primary, *fallbacks, **options)


def failing_over(**options: Any) -> FallbackChatModel:
    return FallbackChatModel(dead(), alive(), **options)


def candidate(model: FallbackChatModel | FallbackRunnable[Any, Any], position: int) -> Any:
    return model.candidates[position]


def asked_of(model: Any) -> list[Any]:
    return [target.client for target in model.policy.targets]


@tool
def look_up(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


class Joke(BaseModel):
    """A joke."""

    setup: str


# The real ones.


def gpt(**fields: Any) -> ChatOpenAI:
    """Make OpenAI's chat model, which nobody answers unless a test says where to ask."""
    return ChatOpenAI(**{"model": "gpt-5.5", "api_key": "k", "base_url": NOWHERE, **fields})


def claude(**fields: Any) -> ChatAnthropic:
    """Make Anthropic's chat model, likewise."""
    given = {"model": "claude-sonnet-5", "api_key": "k", "base_url": NOWHERE}
    return ChatAnthropic(**{**given, **fields})


def _later(module: str, name: str, model: str) -> Callable[..., BaseChatModel]:
    """Return a function like these, which imports the package where it is used."""

    def make(**fields: Any) -> BaseChatModel:
        kind: Any = getattr(import_module(module), name)
        made: BaseChatModel = kind(
            **{"model": model, "api_key": "k", "base_url": NOWHERE, **fields}
        )
        return made

    make.__name__ = name
    return make


gemini = _later("langchain_google_genai", "ChatGoogleGenerativeAI", "gemini-2.5-flash")
groq = _later("langchain_groq", "ChatGroq", "llama")
mistral = _later("langchain_mistralai", "ChatMistralAI", "mistral")


def serve(
    providers: ProviderServer, kind: str, text: str = "", *, key: str | None = None, **reply: Any
) -> Provider:
    """Serve a provider for a chat model of its own.

    Args:
        providers: The server.
        kind: ``openai`` or ``anthropic``.
        text: What it says.
        key: The only API key that it takes, or None for any.
        **reply: What else it does with each request.
    """
    provider = providers.new(kind, key=key)  # integrations keep HTTP clients by their URL
    provider.standing = Reply(text=text, **reply)
    return provider


def model_at(provider: Provider, **fields: Any) -> BaseChatModel:
    make = gpt if provider.name.startswith("openai") else claude
    return make(**{"base_url": provider.url, **fields})


def keys(provider: Provider) -> list[str]:
    return [request.key for request in provider.requests]


def read_timeouts(provider: Provider) -> list[float | None]:
    """Return for how many seconds each of its requests was ready to wait, in order."""
    waits = [request.headers.get("x-stainless-read-timeout") for request in provider.requests]
    return [None if seconds in {None, "None"} else float(seconds) for seconds in waits]
