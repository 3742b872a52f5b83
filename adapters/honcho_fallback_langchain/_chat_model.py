"""A chat model that asks its candidates in order: what a chat model can do, it can."""

from __future__ import annotations

from contextlib import aclosing, closing
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

from honcho_fallback import FallbackConfigError
from honcho_fallback_langchain._base import FallbackBase, FallbackBinding, FallbackRunnable
from honcho_fallback_langchain._candidates import check_candidates, with_each_model
from honcho_fallback_langchain._message_history import tools_for
from honcho_fallback_langchain._options import ChatModelOptions, FallbackOptions, Options
from honcho_fallback_langchain._sdk import chat_model_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import ModelProfile
    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.runnables import Runnable, RunnableConfig


# A candidate's business: one for all of them would be nobody's, or keep one's answer for another.
_CANDIDATES = frozenset(
    {"cache", "custom_get_token_ids", "disable_streaming", "output_version", "rate_limiter"}
)
# By them create_agent decides whether a model takes a schema.
_NAMES = frozenset({"model", "model_id", "model_name"})
_FIELDS = ChatModelOptions.__annotations__.keys() - FallbackOptions.__annotations__.keys()
_UNHEARD: RunnableConfig = {"callbacks": []}
_VERSION = version("honcho-fallback")


class FallbackChatModel(  # type: ignore[misc] # pyright: ignore[reportIncompatibleMethodOverride] # what it returns is more than theirs
    FallbackBase[LanguageModelInput, AIMessage, AIMessageChunk], BaseChatModel
):
    """Ask the next chat model on the first failure of the one before.

    It is a chat model: in an LCEL chain, in ``create_agent``, with tools bound, with structured
    output. Each call is one chain run, each candidate asked a run under it, and the answer says
    who gave it: ``answer.response_metadata["fallback"]``.

    What the primary's integration has beside a chat model's fields can be read here, too:
    ``model.max_tokens``.

    Args:
        *candidates: The primary first: chat models, what was bound to one, or names for
            ``init_chat_model``.
        **options: As for ``.with_fallback_config``, and the fields of a chat model (``name``,
            ``tags``, ``metadata``, ``callbacks``, ``profile``, ``verbose``); others are a
            candidate's, which is given them itself.

    Raises:
        FallbackConfigError: There is no candidate, one is no chat model, or an option is wrong.
    """

    # One of its own would keep a fallback's answer under the primary's key.
    cache: Any = Field(default=False, exclude=True)

    def __init__(
        self, *candidates: Runnable[Any, Any] | str, **options: Unpack[ChatModelOptions]
    ) -> None:
        given: dict[str, Any] = {**options}
        for name in sorted(_CANDIDATES & given.keys()):
            raise FallbackConfigError.about(name, "a chain has none", "give it to each candidate")
        added = type(self).model_fields.keys() - FallbackChatModel.model_fields.keys()
        fields = {name: given.pop(name) for name in (_FIELDS | added) & given.keys()}
        updated_options = given.pop("options", Options()).updated(given)
        listed = check_candidates(candidates, chat_models=True)
        super().__init__(candidates=listed, options=updated_options, **fields)
        self._add_version("honcho-fallback", _VERSION)
        _ = self.policy  # what is wrong with the options is said here and now

    if not TYPE_CHECKING:  # delegation is no excuse for a name that is misspelt

        def __getattr__(self, name: str) -> Any:
            """Read what else the primary has, as ``with_fallbacks`` does.

            Agents take a model's name for what it can do: it is told where every candidate can.
            """
            if name.startswith("_") or "candidates" not in vars(self):
                return super().__getattr__(name)
            if name in _NAMES and not (self.profile or {}).get("structured_output"):
                fix = f"read .candidates[0].{name}: the candidates differ in what they can do"
                raise AttributeError(
                    f"{type(self).__name__} has no {name!r}; {fix}", name=name, obj=self
                )
            return getattr(self._primary, name)

    def bind_tools(
        self, tools: Sequence[Any], **kwargs: Any
    ) -> FallbackBinding[LanguageModelInput, AIMessage]:
        """Bind tools to every candidate, each in its own format.

        Args:
            tools: As for a chat model.
            **kwargs: As for each candidate's ``bind_tools``.

        Raises:
            FallbackConfigError: A fallback cannot take them.
        """

        def change(position: int, model: BaseChatModel) -> Runnable[Any, Any]:
            reader = self.chain.links[position].reader
            own, settings = tools_for(reader, tools, kwargs) if reader else (tools, kwargs)
            return model.bind_tools(own, **settings) if own or settings or not tools else model

        clients, options = self._asking_once()
        return self._derived(with_each_model(clients, change, "tools"), options).bind()

    def with_structured_output(
        self, schema: Any, **kwargs: Any
    ) -> FallbackRunnable[LanguageModelInput, Any]:
        """Return what answers in a schema: each candidate by its own method.

        Args:
            schema: As for a chat model.
            **kwargs: As for each candidate's ``with_structured_output``.

        Raises:
            FallbackConfigError: A fallback cannot do it.
        """

        def change(_position: int, model: BaseChatModel) -> Runnable[Any, Any]:
            return model.with_structured_output(schema, **kwargs)

        clients, options = self._asking_once()
        changed = with_each_model(clients, change, "structured output")
        return FallbackRunnable.over(changed, options, self.policy)

    @property
    def _llm_type(self) -> str:
        return "honcho-fallback"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"candidates": [target.name for target in self.chain.targets]}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self._primary._get_ls_params(stop=stop, **kwargs)  # noqa: SLF001 # its own base

    def _resolve_model_profile(self) -> ModelProfile | None:
        """Promise what all candidates can do: the smallest of each size, an ability of all."""
        models = [cast("BaseChatModel", chat_model_of(one)) for one in self.candidates]
        profiles: list[Any] = [model.profile or {} for model in models]
        shared = set(profiles[0]).intersection(*profiles[1:])
        values = {name: [profile[name] for profile in profiles] for name in shared}
        joined: Any = {
            name: min(some)
            for name, some in values.items()
            if all(isinstance(value, int) for value in some)  # so a bool is
        }
        return joined or None

    def get_token_ids(self, text: str) -> list[int]:
        return self._primary.get_token_ids(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        return self._primary.get_num_tokens_from_messages(messages, tools)

    # LangChain has opened a run where it calls these: that one reports the tokens and their cost.

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 # see above
        **kwargs: Any,
    ) -> ChatResult:
        answer = self._unheard.invoke(messages, _UNHEARD, stop=stop, **kwargs)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 # see above
        **kwargs: Any,
    ) -> ChatResult:
        answer = await self._unheard.ainvoke(messages, _UNHEARD, stop=stop, **kwargs)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 # see above
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with closing(self._unheard.stream(messages, _UNHEARD, stop=stop, **kwargs)) as chunks:
            for chunk in chunks:
                yield ChatGenerationChunk(message=_as_chunk(chunk))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 # see above
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        # A reader that leaves does not wait for the garbage collector to close the connection.
        async with aclosing(
            self._unheard.astream(messages, _UNHEARD, stop=stop, **kwargs)
        ) as chunks:
            async for chunk in chunks:
                yield ChatGenerationChunk(message=_as_chunk(chunk))

    @property
    def _unheard(self) -> Self:
        """Return this model without callbacks of its own: they hear of the run that is open."""
        return self.model_copy(update={"callbacks": None}) if self.callbacks else self

    @property
    def _primary(self) -> BaseChatModel:
        return cast("BaseChatModel", chat_model_of(self.candidates[0]))


def _as_chunk(message: AIMessage) -> AIMessageChunk:
    if isinstance(message, AIMessageChunk):
        return message  # a candidate that does not stream gives a whole message
    return AIMessageChunk(**message.model_dump(exclude={"type"}), chunk_position="last")
