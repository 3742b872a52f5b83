"""One function for whatever there is: a chat model stays one, a chain stays a chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, overload

from honcho_fallback import FallbackConfigError
from honcho_fallback_langchain._candidates import chat_model_of, check_candidates
from honcho_fallback_langchain._chat_model import FallbackChatModel
from honcho_fallback_langchain._runnable import FallbackRunnable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.language_models import BaseChatModel, LanguageModelInput
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import Runnable
    from langchain_core.runnables.utils import Input, Output

    from honcho_fallback_langchain._options import FallbackOptions


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
    **options: Unpack[FallbackOptions],
) -> FallbackRunnable[Input, Output]: ...


def with_fallback_config(
    primary: Runnable[Any, Any],
    fallbacks: Iterable[Runnable[Any, Any]],
    **options: Unpack[FallbackOptions],
) -> FallbackChatModel | FallbackRunnable[Any, Any]:
    """Give a runnable fallbacks: chat models become a FallbackChatModel, the rest a runnable.

    Args:
        primary: Asked first.
        fallbacks: Asked in order when it fails.
        **options: As for ``FallbackChatModel.with_fallback_config``.

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
