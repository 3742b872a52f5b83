"""The candidates of a chain: what a user passes, the targets made of it, and what is rebound."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableParallel, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from honcho_fallback import FallbackConfigError, Target
from honcho_fallback.providers import distinct_name
from honcho_fallback_langchain._labels import labels_of
from honcho_fallback_langchain._sdk import check_takes_keys, identity_of, public_endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from honcho_fallback import Credential

_PARAMETERS = ("temperature", "max_tokens", "stop")


def chat_model_of(candidate: object) -> BaseChatModel | None:
    """Find the chat model under bindings and retries, or None."""
    while isinstance(candidate, RunnableBindingBase | DynamicRunnable):
        candidate = (
            candidate.bound if isinstance(candidate, RunnableBindingBase) else candidate.default
        )
    return candidate if isinstance(candidate, BaseChatModel) else None


def _names_of(
    candidate: Runnable[Any, Any], model: BaseChatModel | None
) -> tuple[str, str | None, int | None]:
    """Read model, provider and the largest input in tokens as LangChain's tracing reads them."""
    if model is None:
        return candidate.get_name(), None, None
    params = model._get_ls_params()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # what every integration overrides
    window = (model.profile or {}).get("max_input_tokens")
    return (
        params.get("ls_model_name") or type(model).__name__,
        params.get("ls_provider") or None,
        window if type(window) is int and window > 0 else None,
    )


def parameters_of(candidate: object, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a candidate's model that LangChain's tracing knows."""
    model = first_chat_model(candidate)
    if model is None:
        return {}
    params: Mapping[str, Any] = model._get_ls_params(**kwargs)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # as in _names_of
    given = {name: params.get(f"ls_{name}") for name in _PARAMETERS}
    return {name: value for name, value in given.items() if value is not None}


def _own_parameters_of(candidate: object) -> dict[str, Any]:
    bound: dict[str, Any] = {}
    while isinstance(candidate, RunnableBindingBase):
        bound = {**candidate.kwargs, **bound}
        candidate = candidate.bound
    model = first_chat_model(candidate)
    own: Mapping[str, Any] = {} if model is None else model._identifying_params  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # as in _names_of
    return {**own, **bound}


def streams(model: BaseChatModel | None) -> bool:
    """Tell whether a model hands out its answer in pieces where somebody reads tokens."""
    if model is None or model.disable_streaming:
        return False
    # What an integration that streams implements, as LangChain itself looks for it.
    return any(
        getattr(type(model), name) is not getattr(BaseChatModel, name)
        for name in ("_stream", "_astream")
    )


def targets_of(
    candidates: Sequence[Runnable[Any, Any]],
    credentials: Sequence[Credential | None] = (),
    earlier_targets: Sequence[Target | None] = (),
) -> list[Target]:
    """Make the targets of a chain, each with a name of its own."""
    if len(credentials) > len(candidates):
        raise FallbackConfigError.about(
            "credentials", "there are more than candidates", "pass one for each, or None"
        )
    targets: list[Target] = []
    known = zip_longest(candidates, credentials, earlier_targets)
    for position, (candidate, credential, before) in enumerate(known):
        inside = first_chat_model(candidate)
        model, provider, window = _names_of(candidate, inside)
        # The same model may come again, with another key or in another chain.
        name = f"{provider}/{model}" if provider else model
        name = distinct_name(name, [one.name for one in targets])
        if credential is not None:
            check_takes_keys(candidate, position)
        # A model's own key is no credential: nobody can refresh it.
        identity = None if credential else identity_of(inside, model, provider)
        if identity is None and before is not None and before.credential is credential:
            identity = before.identity
        elif identity is None and getattr(credential, "fingerprint", None) is None:
            # Not left to the target: what is bound anew may have another name, and is the same.
            identity = f"here:{token_hex(12)}"
        target = Target(
            model,
            provider,
            name=name,
            client=candidate,
            params=_own_parameters_of(candidate),
            context_window=window,
            endpoint=public_endpoint_of(inside),
            credential=credential,
            identity=identity or "",
            labels=labels_of(candidate, {}) or frozenset(),
        )
        targets.append(target)
    return targets


def check_candidates(
    candidates: Iterable[object], *, chat_models: bool
) -> list[Runnable[Any, Any]]:
    entries = list(candidates)
    if not entries:
        raise FallbackConfigError.about(
            "candidates", "there is none", "pass the primary, then its fallbacks"
        )
    listed: list[Runnable[Any, Any]] = []
    for position, entry in enumerate(entries):
        what = f"candidates[{position}]"
        candidate = model_of(entry, what)
        if not isinstance(candidate, Runnable):
            kind = candidate if isinstance(candidate, type) else type(candidate)
            raise FallbackConfigError.about(
                what, f"got {kind.__name__}, not a Runnable", "pass a chat model or a chain"
            )
        if chat_models and chat_model_of(candidate) is None:
            raise FallbackConfigError.about(
                what,
                f"got a {type(candidate).__name__}, not a chat model",
                "pass chat models only, or whole chains to FallbackRunnable(chain, chain)",
            )
        listed.append(candidate)
    return listed


def model_of(given: object, what: str) -> Any:
    """Return what was given, or the chat model of a name such as ``"openai:gpt-5.5"``.

    What makes its model for each call is refused: nobody knows before whom it will ask.
    """
    model: Any = given
    if isinstance(given, str):
        try:
            from langchain.chat_models import init_chat_model  # noqa: PLC0415 # not with this extra

            model = init_chat_model(given)
        except (ImportError, ValueError) as error:
            raise FallbackConfigError.about(
                what,
                f"no chat model can be made of {given!r}: {error}",
                "pip install 'honcho-fallback[agents]', and name it as in \"openai:gpt-5.5\"",
            ) from error
    if type(model).__module__.startswith("langchain.chat_models."):
        raise FallbackConfigError.about(
            what,
            "a model of init_chat_model with configurable_fields is made anew for each call",
            "pass init_chat_model(name) without them; a chat model has configurable_fields(), too",
        )
    return model


def first_chat_model(candidate: object) -> BaseChatModel | None:
    """Find the first chat model that a candidate asks, or None."""
    while isinstance(candidate, RunnableBindingBase):
        candidate = candidate.bound
    # A map of one is how structured output keeps its raw message.
    if isinstance(candidate, RunnableParallel) and len(candidate.steps__) == 1:
        (candidate,) = candidate.steps__.values()
        return first_chat_model(candidate)
    if isinstance(candidate, RunnableSequence):
        models = (first_chat_model(step) for step in candidate.steps)
        return next((model for model in models if model is not None), None)
    return chat_model_of(candidate)


# What is bound, retried or configured around a model stays around the changed one.


def rebound(
    candidate: Runnable[Any, Any],
    change: Callable[[BaseChatModel], Runnable[Any, Any]],
    replaced: Collection[str] = (),
) -> Runnable[Any, Any]:
    """Return a candidate whose chat model was changed, bindings and retries kept."""
    if isinstance(candidate, RunnableBindingBase):
        kwargs = {key: value for key, value in candidate.kwargs.items() if key not in replaced}
        bound = rebound(candidate.bound, change, replaced)
        return candidate.model_copy(update={"bound": bound, "kwargs": kwargs})
    if isinstance(candidate, DynamicRunnable):
        return _on_dynamic(candidate, change(cast("BaseChatModel", candidate.default)))
    return change(cast("BaseChatModel", candidate))


def each(
    candidates: Sequence[Runnable[Any, Any]],
    change: Callable[[int, BaseChatModel], Runnable[Any, Any]],
    what: str,
    replaced: Collection[str] = (),
) -> list[Runnable[Any, Any]]:
    """Change the chat model of every candidate, each by its position."""
    changed: list[Runnable[Any, Any]] = []
    for position, candidate in enumerate(candidates):
        try:
            changed.append(rebound(candidate, partial(change, position), replaced))
        except Exception as error:
            if position == 0 and not isinstance(error, NotImplementedError):
                raise
            raise FallbackConfigError.about(
                f"candidates[{position}]",
                f"a {type(candidate).__name__} cannot take {what} ({type(error).__name__})",
                "take it out of the chain, or put in a model that can",
            ) from error
    return changed


def _on_dynamic(
    dynamic: DynamicRunnable[Any, Any], changed: Runnable[Any, Any]
) -> Runnable[Any, Any]:
    # What is configured per call is the model; what was made of its default is carried over.
    if isinstance(changed, RunnableBindingBase) and changed.bound is dynamic.default:
        return changed.model_copy(update={"bound": dynamic})
    if isinstance(changed, RunnableSequence):
        return changed.model_copy(update={"first": _on_dynamic(dynamic, changed.first)})
    raise FallbackConfigError.about(
        "candidates",
        f"a configurable {type(dynamic.default).__name__} cannot be changed like this",
        "bind first, and make the result configurable",
    )
