"""What a chat model and a runnable over a chain share: options, turns, copies, what is written."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast

from langchain_core.runnables.utils import Input, Output, get_unique_config_specs

from honcho_fallback_langchain._binding import FallbackBinding
from honcho_fallback_langchain._options import FallbackOptions, Options, policy_over

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langchain_core.runnables.utils import ConfigurableFieldSpec

    from honcho_fallback import Attempt, FallbackObserver, FallbackPolicy, Turn

# Cached properties: ours, and the one that LangChain keeps for tracing.
_CACHED = frozenset({"_serialized", "policy"})


class OverChain(Generic[Input, Output]):
    """Hold what belongs to the chain, for a pydantic model with ``candidates`` and ``options``."""

    if TYPE_CHECKING:  # fields of the models, which pydantic would otherwise look for here
        candidates: list[Runnable[Any, Any]]
        options: Options

        def get_name(self, suffix: str | None = None, *, name: str | None = None) -> str:
            """Return the name of its runs."""
            ...

        def own_callbacks(self) -> tuple[Any, bool, list[str] | None, dict[str, Any] | None]:
            """Return the callbacks, verbosity, tags and metadata given to it for itself."""
            ...

        def ask_for(
            self, attempt: Attempt, asked: Any, kwargs: dict[str, Any]
        ) -> tuple[Any, dict[str, Any]]:
            """Return the input and the keywords for one attempt."""
            ...

    @cached_property
    def policy(self) -> FallbackPolicy:
        """Return the chain and its options."""
        return policy_over(self.candidates, self.options, None)

    @property
    def observers(self) -> tuple[FallbackObserver, ...]:
        """Return the observers of the chain's calls."""
        return self.options.observers

    def with_fallback_config(self, **options: Unpack[FallbackOptions]) -> Self:
        """Return a copy with other options."""
        return self._derived(self.candidates, self.options.updated(options))

    def turn(self) -> Turn:
        """Open a user turn, for ``with`` or ``async with``: what a switch lasts for.

        Only ``reset="turn"`` makes use of it. It holds for whatever was derived from this model,
        too: with tools bound, with structured output, with other options. To another thread it
        travels as ``config={"configurable": {"fallback_turn": turn}}``.
        """
        return self.policy.turn()

    def with_config(
        self, config: RunnableConfig | None = None, **kwargs: Any
    ) -> FallbackBinding[Input, Output]:
        """Bind a config; tags, metadata and callbacks reach every candidate."""
        merged: Any = {**(config or {}), **kwargs}
        return FallbackBinding(bound=cast("Runnable[Any, Any]", self), kwargs={}, config=merged)

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """Return what can be configured per call in any candidate."""
        return get_unique_config_specs(
            spec for candidate in self.candidates for spec in candidate.config_specs
        )

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Serialize, if the candidates do."""
        return True

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Return the public path; the module that holds the class is private."""
        return ["honcho_fallback_langchain"]

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """Return the options that are plain values; callables and observers are not written."""
        return self.options.plain()

    def __getstate__(self) -> dict[Any, Any]:
        state: Any = super().__getstate__()
        fields = {name: value for name, value in state["__dict__"].items() if name not in _CACHED}
        return {**state, "__dict__": fields}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        copied = [deepcopy(candidate, memo) for candidate in self.candidates]
        return self._derived(copied, self.options)

    def _derived(
        self, candidates: list[Runnable[Any, Any]], options: Options, *, prepared: bool = False
    ) -> Self:
        policy_options = options if not prepared else replace(options, sdk_retries="keep")
        policy = policy_over(candidates, policy_options, self.policy)
        changes = {"candidates": candidates, "options": options, "policy": policy}
        derived: Self = cast("Any", self).model_copy(update=changes)
        vars(derived).pop("_serialized", None)
        return derived
