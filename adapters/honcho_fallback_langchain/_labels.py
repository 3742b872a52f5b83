"""Labels: LangChain's tags, as far as they are true of whom a call asks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseLanguageModel
from langchain_core.output_parsers import BaseLLMOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableAssign,
    RunnableGenerator,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
    RunnablePick,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.configurable import (
    DynamicRunnable,
    RunnableConfigurableAlternatives,
    RunnableConfigurableFields,
)

from honcho_fallback import FallbackConfigError
from honcho_fallback.providers import route_in
from honcho_fallback_langchain._metadata import CALL_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from langchain_core.runnables import RunnableConfig

    from honcho_fallback import Attempt

_NONE = frozenset[str]()
_STEPS = (
    BaseLLMOutputParser,
    BasePromptTemplate,
    RunnableGenerator,
    RunnableLambda,
    RunnablePassthrough,
    RunnablePick,
)
# Fields that say how a model answers, and not who does.
_TUNING = frozenset(
    "max_tokens n reasoning_effort seed stop streaming temperature top_k top_p".split()
)


def labels_of(
    part: Any, config: RunnableConfig | None = None, outer: frozenset[str] = _NONE
) -> frozenset[str] | None:
    """Return the labels that everybody has whom a part of a candidate asks; None: it asks nobody.

    A tag around a part is said of all in it. Whom a config picks has its own tags alone, and whom
    nobody can see before a call, such as what a function asks, only those around it.

    Args:
        part: A candidate, or a part of one.
        config: The call's.
        outer: The tags around it.
    """
    if isinstance(part, RunnableBindingBase | DynamicRunnable):
        config = merge_configs(part.config, config)
        outer = outer.union((part.config or {}).get("tags") or ())
    if isinstance(part, RunnableBindingBase):
        config = merge_configs(config, *(make(config) for make in part.config_factories))
        # What was tagged before and what after it was bound cannot be told apart.
        return _NONE if route_in(part.kwargs) else labels_of(part.bound, config, outer)
    if isinstance(part, DynamicRunnable):
        return _labels_picked(part, merge_configs(config), outer)
    if isinstance(part, BaseLanguageModel):
        return outer.union(part.tags or ())
    steps = _steps_of(part)
    if steps is None:
        return None if _asks_nobody(part) else outer
    labels = [one for step in steps if (one := labels_of(step, config, outer)) is not None]
    return frozenset[str].intersection(*labels) if labels else None


def _labels_picked(
    part: DynamicRunnable[Any, Any], config: RunnableConfig, outer: frozenset[str]
) -> frozenset[str] | None:
    """Return the labels of whom a config picks, which is the default where it picks nobody."""
    configurable, default = config.get("configurable") or {}, part.default
    if isinstance(part, RunnableConfigurableFields):
        picked = {
            name
            for name, spec in part.fields.items()
            if not isinstance(spec, ConfigurableField)
            or (spec.id in configurable and configurable[spec.id] != getattr(default, name, None))
        }
        return labels_of(default, config, outer) if picked <= _TUNING else _NONE
    if not isinstance(part, RunnableConfigurableAlternatives):
        return _NONE
    which = configurable.get(part.which.id, part.default_key)
    if part.prefix_keys:
        prefix = f"{part.which.id}=={which}/"
        own = {key.removeprefix(prefix): value for key, value in configurable.items()}
        config = {**config, "configurable": own}
    if which == part.default_key:
        return labels_of(default, config, outer)
    alternative = part.alternatives.get(which)
    return labels_of(alternative, config) if isinstance(alternative, Runnable) else _NONE


def _steps_of(part: object) -> Iterable[Any] | None:
    """Return the parts of a composite all of whose parts can be seen; None of any other."""
    if isinstance(part, RunnableSequence):
        return part.steps
    if isinstance(part, RunnableParallel):
        return part.steps__.values()
    if isinstance(part, RunnableWithFallbacks):
        return part.runnables
    return [part.mapper] if isinstance(part, RunnableAssign) else None


def _asks_nobody(part: Any) -> bool:
    """Tell whether a part is a prompt, a parser or such a step that LangChain itself has made."""
    if not isinstance(part, _STEPS) or any(isinstance(one, Runnable) for one in vars(part).values()):
        return False
    # What a step calls; that of a generator has no public name.
    called = [getattr(part, name, None) for name in ("func", "afunc", "_transform", "_atransform")]
    return all(map(_is_theirs, [one for one in called if one is not None] or [part]))


def _is_theirs(code: Any) -> bool:
    while isinstance(code, partial):
        code = code.func
    author = str(getattr(code, "__module__", ""))
    return author == "operator" or author.startswith("langchain_")


class Boundary(BaseCallbackHandler):
    """Refuse a model before it is asked that is asked within an agent's attempt without the labels.

    Known is the attempt's own model, by its metadata, whoever has the tags itself, and what these
    ask themselves.

    Args:
        attempt: Whose metadata its model carries.
        required: The labels.
        around: The config around the attempt; its tags are inherited, and say nothing of a model.
    """

    raise_error = run_inline = True

    def __init__(
        self, attempt: Attempt, required: frozenset[str], around: RunnableConfig
    ) -> None:
        inherited = getattr(around.get("callbacks"), "inheritable_tags", ())
        self._attempt, self._required = attempt, required
        self._inherited = {*inherited, *(around.get("tags") or ())}
        self._known = set[object]()

    def on_chain_start(  # noqa: D102 # LangChain's
        self, serialized: Any, inputs: Any, *, run_id: UUID, **run: Any
    ) -> None:
        self._is_known(run_id, **run)

    def on_chat_model_start(  # noqa: D102 # LangChain's
        self, serialized: Any, messages: Any, *, run_id: UUID, **run: Any
    ) -> None:
        target = self._attempt.target
        route = route_in(run.get("options") or {}, target.model)
        if route is None and self._is_known(run_id, **run):
            return
        model = (run.get("metadata") or {}).get("ls_model_name") or "a model"
        raise FallbackConfigError.about(
            "require",
            f"within the attempt at {target.name} a middleware asks {model} without the label "
            f"{min(self._required)!r}",
            "give that model the tag, or put the middleware before FallbackMiddleware",
        )

    on_llm_start = on_chat_model_start

    def _is_known(
        self,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> bool:
        is_known = (
            parent_run_id in self._known
            or (metadata or {}).get(CALL_ID) == self._attempt.call_id
            or self._required <= {*(tags or ())} - self._inherited
        )
        if is_known:
            self._known.add(run_id)
        return is_known
