"""A chat model that asks its candidates in order: what a chat model can do, it can."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self, cast

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field, InstanceOf

from honcho_fallback import has_content
from honcho_fallback_langchain._binding import FallbackBinding
from honcho_fallback_langchain._candidates import chat_model_of, given_candidates
from honcho_fallback_langchain._messages import for_provider
from honcho_fallback_langchain._options import Options
from honcho_fallback_langchain._profile import joined_profile
from honcho_fallback_langchain._providers import settings_for
from honcho_fallback_langchain._rebound import configurable, each, rebound
from honcho_fallback_langchain._runnable import FallbackRunnable
from honcho_fallback_langchain._sdk_timeouts import in_time, in_time_to_start
from honcho_fallback_langchain._silent import Silent
from honcho_fallback_langchain._verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_core.callbacks import (
        AsyncCallbackManagerForLLMRun,
        CallbackManagerForLLMRun,
    )
    from langchain_core.language_models import ModelProfile
    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.outputs import ChatGenerationChunk, ChatResult
    from langchain_core.runnables.utils import AnyConfigurableField

    from honcho_fallback import Attempt

# A candidate's business: what the wrapper is given of these goes to every candidate. A cache of
# the wrapper's own would keep a fallback's answer under the primary's key.
_PASSED_ON = frozenset(
    {"cache", "custom_get_token_ids", "disable_streaming", "output_version", "rate_limiter"}
)
_BOUND_TOOLS = frozenset({"tool_choice", "tools"})
# Named per call, a model is one of the primary's provider.
_PRIMARY_ONLY = frozenset({"model", "model_name"})
_VERSIONS = {"lc_versions"}
_VERSION = version("honcho-fallback")


class FallbackChatModel(Verbs[LanguageModelInput, AIMessage, AIMessageChunk], BaseChatModel):
    """Ask the next chat model on the first failure of the one before.

    It is a chat model: in an LCEL chain, in ``create_agent``, with tools bound, with structured
    output. Each call is one chain run, each candidate asked a run under it, and the answer says
    who gave it: ``answer.response_metadata["fallback"]``.

    Args:
        *candidates: The primary first: chat models, or what was bound to one.
        **options: As for ``with_fallback_config``, and the fields of a chat model (``name``,
            ``tags``, ``metadata``, ``callbacks``, ``verbose``; ``cache``, ``rate_limiter``,
            ``disable_streaming``, ``output_version`` go to every candidate).

    Raises:
        FallbackConfigError: There is no candidate, one is no chat model, or an option is wrong.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    candidates: list[Runnable[Any, Any]]
    options: InstanceOf[Options] = Field(default_factory=Options, exclude=True, repr=False)
    cache: Any = Field(default=False, exclude=True)

    def __init__(self, *candidates: Runnable[Any, Any], **options: Any) -> None:
        fields = type(self).model_fields
        listed = given_candidates(candidates, options, chat_models=True)
        candidate_fields = {name: options.pop(name) for name in _PASSED_ON & options.keys()}
        own = {name: options.pop(name) for name in fields.keys() & options.keys()}
        if candidate_fields:
            listed = [
                rebound(one, lambda model: model.model_copy(update=candidate_fields))
                for one in listed
            ]
        updated_options = own.pop("options", Options()).updated(options)
        own |= {"candidates": listed, "options": updated_options}
        super().__init__(**own)
        self._add_version("honcho-fallback", _VERSION)
        _ = self.policy  # what is wrong with the options is said here and now

    def bind(self, **kwargs: Any) -> FallbackBinding[LanguageModelInput, AIMessage]:  # type: ignore[override] # a RunnableBinding, as there
        """Bind keywords for every candidate; ``model=`` is for the primary alone.

        Args:
            **kwargs: As for ``invoke``.
        """
        return FallbackBinding(bound=self, kwargs=kwargs, config={})

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

        def change(model: BaseChatModel) -> Runnable[Any, Any]:
            return model.bind_tools(tools, **kwargs)

        changed = each(self._clients(), change, "tools", _BOUND_TOOLS)
        return self._derived(changed, self.options, prepared=True).bind()

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

        def change(model: BaseChatModel) -> Runnable[Any, Any]:
            return model.with_structured_output(schema, **kwargs)

        changed = each(self._clients(), change, "structured output", _BOUND_TOOLS)
        return FallbackRunnable.over(changed, self.options, self.policy)

    def with_retry(self, **kwargs: Any) -> Self:
        """Retry every candidate before the next is asked.

        Args:
            **kwargs: As for any runnable.
        """
        changed = [candidate.with_retry(**kwargs) for candidate in self._clients()]
        return self._derived(changed, self.options, prepared=True)

    def configurable_fields(self, **fields: AnyConfigurableField) -> Self:
        """Make fields of the candidates configurable per call.

        Args:
            **fields: As for any runnable; each candidate gets those that it has.

        Raises:
            FallbackConfigError: No candidate has one of them.
        """
        changed = configurable(self._clients(), fields)
        return self._derived(changed, self.options, prepared=True)

    def own_callbacks(self) -> tuple[Any, bool, list[str] | None, dict[str, Any] | None]:
        """Return what the chain run gets and its candidates do not."""
        # Versions alone, which every model has, are worth nothing to a run that nobody hears of.
        metadata = self.metadata if self.metadata and self.metadata.keys() != _VERSIONS else None
        return self.callbacks, self.verbose, self.tags, metadata

    def ask_for(
        self, attempt: Attempt, asked: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the input and the keywords for one attempt, as its provider takes them.

        Args:
            attempt: The attempt that calls a candidate.
            asked: The caller's input.
            kwargs: The caller's keywords.
        """
        provider = attempt.target.provider
        if provider is not None and not isinstance(asked, str):
            if type(asked) is not list or not all(isinstance(one, BaseMessage) for one in asked):
                asked = self._convert_input(asked).to_messages()
            asked = for_provider(asked, provider)
        if kwargs and attempt.position > 0:
            kwargs = {key: kwargs[key] for key in kwargs.keys() - _PRIMARY_ONLY}
            if provider is not None and provider != self.policy.targets[0].provider:
                kwargs = settings_for(provider, kwargs)
        return asked, kwargs

    @property
    def _llm_type(self) -> str:
        return "honcho-fallback"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"candidates": [target.name for target in self.policy.targets]}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self._primary._get_ls_params(stop=stop, **kwargs)  # noqa: SLF001 # its own base

    def _resolve_model_profile(self) -> ModelProfile | None:
        models = map(chat_model_of, self.candidates)
        return joined_profile([model.profile if model else None for model in models])

    def get_token_ids(self, text: str) -> list[int]:
        """Return the primary's tokens.

        Args:
            text: What to count.
        """
        return self._primary.get_token_ids(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Count as the primary counts.

        Args:
            messages: What to count.
            tools: As for a chat model.
        """
        return self._primary.get_num_tokens_from_messages(messages, tools)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 # no run for the candidates
        **kwargs: Any,
    ) -> ChatResult:
        silent = self._silent(messages, stop, kwargs)
        return self.policy.call(in_time(silent.generate), run=silent.run)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 # no run for the candidates
        **kwargs: Any,
    ) -> ChatResult:
        silent = self._silent(messages, stop, kwargs)
        return await self.policy.acall(silent.agenerate, run=silent.run)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 # no run for the candidates
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        silent = self._silent(messages, stop, kwargs)
        ask = in_time_to_start(silent.stream)
        return self.policy.stream(ask, has_content=has_content, run=silent.run)

    def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 # no run for the candidates
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        silent = self._silent(messages, stop, kwargs)
        return self.policy.astream(silent.astream, has_content=has_content, run=silent.run)

    def _silent(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> Silent:
        call_kwargs = {"stop": stop, **kwargs}
        return Silent(self.policy, self.ask_for, messages, call_kwargs, self.observers)

    @property
    def _primary(self) -> BaseChatModel:
        return cast("BaseChatModel", chat_model_of(self.candidates[0]))

    def _clients(self) -> list[Runnable[Any, Any]]:
        """Return the candidates as the policy calls them, without the retries of their SDKs."""
        return [target.client for target in self.policy.targets]
