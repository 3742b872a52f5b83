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
from langchain_core.runnables.configurable import (
    DynamicRunnable,
    RunnableConfigurableAlternatives,
    RunnableConfigurableFields,
)

from honcho_fallback import FallbackConfigError
from honcho_fallback.providers import route_in
from honcho_fallback_langchain._outputs import CALL_ID

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
    {"max_tokens", "n", "reasoning_effort", "seed", "stop", "streaming", "temperature", "top_p"}
)


def labels_of(
    part: Any, picked: Mapping[str, Any] | None, outer: frozenset[str] = _NONE
) -> frozenset[str] | None:
    """Return the labels that everybody has whom a part of a candidate asks; None: it asks nobody.

    A tag around a part is said of all in it. Whom nobody can see before a call, such as what a
    function asks, has only those around it; whom a config picks in place of a default has none.
    What a call's config picks is None where nobody knows it.
    """
    if isinstance(part, RunnableBindingBase | DynamicRunnable):
        own = part.config or {}
        outer = outer.union(own.get("tags") or ())
        if picked is not None:
            picked = {**(own.get("configurable") or {}), **picked}
    if isinstance(part, RunnableBindingBase):
        picked = None if part.config_factories else picked
        # What was tagged before and what after it was bound cannot be told apart.
        return _NONE if route_in(part.kwargs) else labels_of(part.bound, picked, outer)
    if isinstance(part, DynamicRunnable):
        is_default = picked is not None and _is_default(part, picked)
        return labels_of(part.default, picked, outer) if is_default else _NONE
    if isinstance(part, BaseLanguageModel):
        return outer.union(part.tags or ())
    steps = _steps_of(part)
    if steps is None:
        return None if _asks_nobody(part) else outer
    labels = [one for step in steps if (one := labels_of(step, picked, outer)) is not None]
    return frozenset[str].intersection(*labels) if labels else None


def _is_default(part: DynamicRunnable[Any, Any], picked: Mapping[str, Any]) -> bool:
    """Tell whether a config picks nobody else than a default asks."""
    if isinstance(part, RunnableConfigurableAlternatives):
        which = picked.get(part.which.id, part.default_key)
        return which == part.default_key and not part.prefix_keys
    return isinstance(part, RunnableConfigurableFields) and all(
        name in _TUNING or (isinstance(one, ConfigurableField) and one.id not in picked)
        for name, one in part.fields.items()
    )


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
    if not isinstance(part, _STEPS) or any(
        isinstance(one, Runnable) for one in vars(part).values()
    ):
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
    """Refuse a model without the labels that is about to be asked within an agent's attempt.

    The attempt's own model is known by its metadata, as long as it is asked as it was made; any
    other by its tags, but for those that it inherits. Whom these ask has what they have.
    """

    raise_error = run_inline = True

    def __init__(self, required: frozenset[str], around: RunnableConfig, attempt: Attempt) -> None:
        inherited = getattr(around.get("callbacks"), "inheritable_tags", ())
        self._attempt, self._required = attempt, required
        self._inherited = {*inherited, *(around.get("tags") or ())}
        self._known = set[object]()

    def on_chain_start(self, *_: Any, run_id: UUID, **run: Any) -> None:
        self._note(run_id, run)

    def on_chat_model_start(self, *_: Any, run_id: UUID, **run: Any) -> None:
        self._note(run_id, run)
        if run_id not in self._known:
            raise FallbackConfigError.about(
                "require",
                f"within the attempt at {self._attempt.target.name} a middleware asks "
                f"{(run.get('metadata') or {}).get('ls_model_name') or 'a model'}, which lacks "
                f"the label {min(self._required)!r} or is asked otherwise than it was made",
                "give it the label as a tag, or put the middleware before FallbackMiddleware",
            )

    on_llm_start = on_chat_model_start

    def _note(self, run_id: UUID, run: Mapping[str, Any]) -> None:
        if (run.get("metadata") or {}).get(CALL_ID) == self._attempt.call_id:
            target = self._attempt.target
            sent: Mapping[str, Any] = run.get("invocation_params") or {}
            changed = {one: sent[one] for one in sent if sent[one] != target.params.get(one)}
            is_known = route_in(changed, target.model) is None
        else:
            tags = {*(run.get("tags") or ())} - self._inherited
            is_known = run.get("parent_run_id") in self._known or tags >= self._required
        if is_known:
            self._known.add(run_id)
