"""A chat model that asks its candidates in order: what a chat model can do, it can."""

from __future__ import annotations

import inspect
import re
from functools import wraps
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import Runnable
from pydantic import Field

from honcho_fallback import FallbackConfigError, has_content
from honcho_fallback_langchain._base import FallbackBase, FallbackBinding
from honcho_fallback_langchain._call import InnerCall
from honcho_fallback_langchain._candidates import (
    chat_model_of,
    check_candidates,
    each,
    given_candidates,
    identify,
    rebound,
)
from honcho_fallback_langchain._fit import OTHER_MODEL, is_history
from honcho_fallback_langchain._history import for_provider
from honcho_fallback_langchain._options import ChatModelOptions, Options
from honcho_fallback_langchain._providers import is_same_provider, settings_for
from honcho_fallback_langchain._runnable import FallbackRunnable
from honcho_fallback_langchain._sdk import in_time, in_time_to_start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from langchain_core.callbacks import (
        AsyncCallbackManagerForLLMRun,
        CallbackManagerForLLMRun,
    )
    from langchain_core.language_models import ModelProfile
    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.outputs import ChatGenerationChunk, ChatResult
    from langchain_core.runnables.utils import Input, Output

    from honcho_fallback import Attempt
    from honcho_fallback_langchain._options import FallbackOptions, RunnableOptions

# A candidate's business: what the wrapper is given of these goes to every candidate. A cache of
# the wrapper's own would keep a fallback's answer under the primary's key.
_PASSED_ON = frozenset(
    {"cache", "custom_get_token_ids", "disable_streaming", "output_version", "rate_limiter"}
)
_BOUND_TOOLS = frozenset({"tool_choice", "tools"})
_VERSIONS = {"lc_versions"}
# By these an agent decides on its own whether a model takes native structured output: some names
# are enough for it, and a Gemini before the third takes none beside tools.
_MODEL_NAMES = frozenset({"model", "model_id", "model_name"})
_NATIVE_BY_NAME = re.compile("claude|gpt|grok", re.IGNORECASE)
_GEMINI_BEFORE_3 = re.compile("gemini(?!-3)", re.IGNORECASE)
_VERSION = version("honcho-fallback")


class FallbackChatModel(  # type: ignore[misc] # pyright: ignore[reportIncompatibleMethodOverride] # what it returns is more than theirs
    FallbackBase[LanguageModelInput, AIMessage, AIMessageChunk], BaseChatModel
):
    """Ask the next chat model on the first failure of the one before.

    It is a chat model: in an LCEL chain, in ``create_agent``, with tools bound, with structured
    output. Each call is one chain run, each candidate asked a run under it, and the answer says
    who gave it: ``answer.response_metadata["fallback"]``.

    What it has not itself is the primary's: ``model.client``, ``model.temperature``, an
    integration's own methods. Such a method is called on the primary alone, without fallbacks;
    where it returns another runnable, it is called on every candidate, and what comes back has
    the fallbacks. Names with an underscore are never the primary's, and ``model``, ``model_id``
    and ``model_name`` are not where an agent would take them for a promise of native structured
    output that not every candidate keeps.

    Args:
        *candidates: The primary first: chat models, or what was bound to one.
        **options: As for ``with_fallback_config``, and the fields of a chat model (``name``,
            ``tags``, ``metadata``, ``callbacks``, ``verbose``; ``cache``, ``rate_limiter``,
            ``disable_streaming``, ``output_version`` go to every candidate).

    Raises:
        FallbackConfigError: There is no candidate, one is no chat model, or an option is wrong.
    """

    cache: Any = Field(default=False, exclude=True)

    def __init__(
        self, *candidates: Runnable[Any, Any], **options: Unpack[ChatModelOptions]
    ) -> None:
        fields = type(self).model_fields
        given: dict[str, Any] = {**options}
        listed = given_candidates(candidates, given, chat_models=True)
        candidate_fields = {name: given.pop(name) for name in _PASSED_ON & given.keys()}
        own = {name: given.pop(name) for name in fields.keys() & given.keys()}
        if candidate_fields:
            listed = [
                rebound(one, lambda model: model.model_copy(update=candidate_fields))
                for one in listed
            ]
        updated_options = own.pop("options", Options()).updated(given)
        own |= {"candidates": listed, "options": updated_options}
        super().__init__(**own)
        self._add_version("honcho-fallback", _VERSION)
        _ = self.policy  # what is wrong with the options is said here and now

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
        changed = each(
            self._clients(), lambda model: model.bind_tools(tools, **kwargs), "tools", _BOUND_TOOLS
        )
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

    if not TYPE_CHECKING:  # or a type checker would let any name pass

        def __getattr__(self, name: str) -> Any:
            # What the class has raised by itself; and a copy is made before it has candidates.
            if name.startswith("_") or hasattr(type(self), name) or "candidates" not in vars(self):
                return super().__getattr__(name)
            return self._of_primary(name)

    def _of_primary(self, name: str) -> Any:
        if name in _MODEL_NAMES and self._name_misleads():
            raise AttributeError(
                f"FallbackChatModel has no {name!r} of its own: an agent would take the primary's "
                "for a promise of native structured output, which not every candidate keeps; "
                f"read it of model.candidates[0]"
            )
        value = getattr(self._primary, name)
        if not inspect.ismethod(value) or inspect.iscoroutinefunction(value):
            return value

        @wraps(value)
        def on_primary(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            if not isinstance(result, Runnable):
                return result
            changed = each(
                self._clients(), lambda model: getattr(model, name)(*args, **kwargs), name
            )
            if all(chat_model_of(candidate) is not None for candidate in changed):
                return self._derived(changed, self.options, prepared=True)
            return FallbackRunnable.over(changed, self.options, self.policy)

        return on_primary

    def _name_misleads(self) -> bool:
        name = identify(self._primary).model
        native = (self.profile or {}).get("structured_output")
        return not native and len(self.candidates) > 1 and bool(_NATIVE_BY_NAME.search(name))

    def own_callbacks(self) -> tuple[Any, bool, list[str] | None, dict[str, Any] | None]:
        """Return what the chain run gets and its candidates do not."""
        # Versions alone, which every model has, are worth nothing to a run that nobody hears of.
        metadata = self.metadata if self.metadata and self.metadata.keys() != _VERSIONS else None
        return self.callbacks, self.verbose, self.tags, metadata

    def request_for(
        self, attempt: Attempt, call_input: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the input and the keywords for one attempt, as its provider takes them."""
        provider = attempt.target.provider
        messages = call_input
        if provider is not None and not isinstance(messages, str):
            if not is_history(messages):
                messages = self._convert_input(messages).to_messages()
            messages = for_provider(messages, attempt.target, self.policy.targets)
        if kwargs and attempt.position > 0:
            kwargs = {key: kwargs[key] for key in kwargs.keys() - OTHER_MODEL}
            if provider is not None and not is_same_provider(
                attempt.target, self.policy.targets[0]
            ):
                kwargs = settings_for(provider, kwargs)
        return messages, kwargs

    @property
    def _llm_type(self) -> str:
        return "honcho-fallback"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"candidates": [target.name for target in self.policy.targets]}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self._primary._get_ls_params(stop=stop, **kwargs)  # noqa: SLF001 # its own base

    def _resolve_model_profile(self) -> ModelProfile | None:
        models = [cast("BaseChatModel", chat_model_of(one)) for one in self.candidates]
        profile = joined_profile([model.profile for model in models])
        old = [bool(_GEMINI_BEFORE_3.search(identify(model).model)) for model in models]
        if profile and any(old) and not old[0]:  # the primary's own name would tell
            return {**profile, "structured_output": False}
        return profile

    def get_token_ids(self, text: str) -> list[int]:
        """Return the primary's tokens."""
        return self._primary.get_token_ids(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Count as the primary counts."""
        return self._primary.get_num_tokens_from_messages(messages, tools)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 # no run for the candidates
        **kwargs: Any,
    ) -> ChatResult:
        call = InnerCall(self, messages, {"stop": stop, **kwargs})
        result: ChatResult = self.policy.call(in_time(call.ask), run=call.run)
        return result

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 # no run for the candidates
        **kwargs: Any,
    ) -> ChatResult:
        call = InnerCall(self, messages, {"stop": stop, **kwargs})
        return await self.policy.acall(call.aask, run=call.run)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 # no run for the candidates
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = InnerCall(self, messages, {"stop": stop, **kwargs})
        ask = in_time_to_start(call.ask_for_stream)
        return self.policy.stream(ask, has_content=has_content, run=call.run)

    def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 # no run for the candidates
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = InnerCall(self, messages, {"stop": stop, **kwargs})
        return self.policy.astream(call.ask_for_astream, has_content=has_content, run=call.run)

    @property
    def _primary(self) -> BaseChatModel:
        return cast("BaseChatModel", chat_model_of(self.candidates[0]))


def joined_profile(profiles: Sequence[ModelProfile | None]) -> ModelProfile | None:
    """Join profiles conservatively: all for an ability, the smallest for a size.

    What one of them does not tell is not promised, and what they disagree on is left out.
    """
    if None in profiles:
        return None
    entries = cast("Sequence[dict[str, Any]]", profiles)
    shared = set(entries[0]).intersection(*entries[1:])
    joined = {name: _join([profile[name] for profile in entries]) for name in sorted(shared)}
    return cast("ModelProfile", {name: one for name, one in joined.items() if one is not None})


def _join(values: list[Any]) -> Any:
    if all(type(value) is bool for value in values):
        return all(values)
    if all(type(value) in {int, float} for value in values):
        return min(values)
    return values[0] if all(value == values[0] for value in values) else None


@overload
def with_fallback_config(  # type: ignore[overload-overlap] # pyright: ignore[reportOverlappingOverload] # a chat model is no chain
    primary: BaseChatModel,
    fallbacks: Iterable[Runnable[Any, Any]],
    **options: Unpack[FallbackOptions],
) -> FallbackChatModel: ...


@overload
def with_fallback_config(  # type: ignore[overload-overlap] # what was bound to one is one, too
    primary: Runnable[LanguageModelInput, AIMessage],
    fallbacks: Iterable[Runnable[Any, Any]],
    **options: Unpack[FallbackOptions],
) -> FallbackChatModel | FallbackRunnable[LanguageModelInput, AIMessage]: ...


@overload
def with_fallback_config(
    primary: Runnable[Input, Output],
    fallbacks: Iterable[Runnable[Any, Any]],
    **options: Unpack[RunnableOptions],
) -> FallbackRunnable[Input, Output]: ...


def with_fallback_config(
    primary: Runnable[Any, Any], fallbacks: Iterable[Runnable[Any, Any]], **options: Any
) -> FallbackChatModel | FallbackRunnable[Any, Any]:
    """Give a runnable fallbacks: chat models become a FallbackChatModel, the rest a runnable.

    Args:
        primary: Asked first.
        fallbacks: Asked in order when it fails.
        **options: As for ``FallbackChatModel.with_fallback_config``; for chains, as for a
            FallbackRunnable.

    Raises:
        FallbackConfigError: There is no fallback, chat models stand beside chains, or an option is
            wrong.
    """
    if callable(getattr(fallbacks, "invoke", None)):
        raise FallbackConfigError.about(
            "fallbacks", f"got a single {type(fallbacks).__name__}", "pass a list of them"
        )
    listed = list(fallbacks)
    if not listed:
        raise FallbackConfigError.about("fallbacks", "there is none", "pass at least one")
    candidates = check_candidates([primary, *listed], chat_models=False)
    are_models = [chat_model_of(candidate) is not None for candidate in candidates]
    if all(are_models):
        return FallbackChatModel(*candidates, **options)
    if any(are_models):
        position = are_models.index(not are_models[0])
        raise FallbackConfigError.about(
            f"fallbacks[{position - 1}]",
            "chat models and chains are mixed, and do not answer in the same form",
            "pass whole chains, or chat models only",
        )
    return FallbackRunnable(*candidates, **options)
