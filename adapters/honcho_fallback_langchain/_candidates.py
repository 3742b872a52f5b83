"""The candidates of a chain: what a user passes, the chain made of it, and what is rebound."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.output_parsers import BaseLLMOutputParser
from langchain_core.runnables import Runnable, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from honcho_fallback import FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.providers import distinct_name
from honcho_fallback_langchain._labels import labels_of
from honcho_fallback_langchain._message_history import Reader
from honcho_fallback_langchain._outputs import reading_messages
from honcho_fallback_langchain._sdk import (
    chat_model_of,
    check_takes_keys,
    first_chat_model,
    identity_of,
    public_endpoint_of,
    within_attempts,
    without_sdk_retries,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from honcho_fallback import Credential
    from honcho_fallback_langchain._options import Options

_PARAMETERS = ("temperature", "max_tokens", "stop")
_BOUND_TOOLS = frozenset({"tool_choice", "tools"})


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


def _targets_of(
    candidates: Sequence[Runnable[Any, Any]],
    credentials: Sequence[Credential | None],
    earlier_targets: Sequence[Target | None],
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


class Link(NamedTuple):
    """Hold what is known of one candidate."""

    model: BaseChatModel | None  # the chat model in it
    # Who reads a history there; None where no provider is known, or a prompt comes first.
    reader: Reader | None
    parses: bool  # whether it is a chain that ends in a parser


@dataclass(frozen=True, slots=True)
class Chain:
    """Hold the policy over some candidates, and what its calls would otherwise ask each time."""

    policy: FallbackPolicy
    options: Options  # of the policy, and what stands beside them
    targets: tuple[Target, ...]  # of the policy, the primary first
    links: tuple[Link, ...] = field(repr=False)  # what is known of each

    @classmethod
    def over(
        cls,
        candidates: Sequence[Runnable[Any, Any]],
        options: Options,
        before: FallbackPolicy | None,
        *,
        replaced: int = 0,
    ) -> Self:
        """Make the chain of candidates, their SDKs' retries off where that is asked for.

        Turns of the policy before go on, and what it learned of the targets that are the same:
        all but the first few that are replaced.
        """
        if options.sdk_retries == "off":
            candidates = [within_attempts(without_sdk_retries(one)) for one in candidates]
        earlier = () if before is None else (*[None] * replaced, *before.targets[replaced:])
        config = options.config
        # A chain may ask a retriever or another service, too; a chat model asks nobody else.
        if all(chat_model_of(one) is not None for one in candidates):
            config = config.replace(only_models=True)
        policy = FallbackPolicy(
            _targets_of(candidates, options.credentials, earlier),
            reading_messages(config),
            agent=options.agent,
            observers=options.observers,
            turns_of=before,
        )
        targets = policy.targets
        return cls(policy, options, targets, tuple(_link(one, targets) for one in targets))


def _link(target: Target, targets: tuple[Target, ...]) -> Link:
    part: Any = target.client
    while isinstance(part, RunnableBindingBase):
        part = part.bound
    is_sequence = isinstance(part, RunnableSequence)
    takes_messages = target.provider and first_chat_model(part.first if is_sequence else part)
    reader = Reader.of(target, targets) if takes_messages else None
    parses = is_sequence and isinstance(part.last, BaseLLMOutputParser)
    return Link(chat_model_of(target.client), reader, parses)


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


# What is bound, retried or configured around a model stays around the changed one.


def _rebound(
    candidate: Runnable[Any, Any], change: Callable[[BaseChatModel], Runnable[Any, Any]]
) -> Runnable[Any, Any]:
    """Return a candidate whose chat model was changed, retries and bindings but for tools kept."""
    if isinstance(candidate, RunnableBindingBase):
        kwargs = {key: value for key, value in candidate.kwargs.items() if key not in _BOUND_TOOLS}
        bound = _rebound(candidate.bound, change)
        return candidate.model_copy(update={"bound": bound, "kwargs": kwargs})
    if isinstance(candidate, DynamicRunnable):
        return _on_dynamic(candidate, change(cast("BaseChatModel", candidate.default)))
    return change(cast("BaseChatModel", candidate))


def with_each_model(
    candidates: Sequence[Runnable[Any, Any]],
    change: Callable[[int, BaseChatModel], Runnable[Any, Any]],
    what: str,
) -> list[Runnable[Any, Any]]:
    """Change the chat model of every candidate, each by its position."""
    changed: list[Runnable[Any, Any]] = []
    for position, candidate in enumerate(candidates):
        try:
            changed.append(_rebound(candidate, partial(change, position)))
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
