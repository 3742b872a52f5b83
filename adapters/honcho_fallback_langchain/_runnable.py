"""Any runnable with fallbacks: whole chains, parsers included, or a function."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, Unpack

from langchain_core.runnables import Runnable, RunnableSerializable
from langchain_core.runnables.utils import get_unique_config_specs
from pydantic import ConfigDict, Field, InstanceOf

from honcho_fallback_langchain._binding import FallbackBinding
from honcho_fallback_langchain._candidates import given_candidates
from honcho_fallback_langchain._options import FallbackOptions, Options, policy_over
from honcho_fallback_langchain._rebound import configurable
from honcho_fallback_langchain._verbs import Verbs

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.utils import AnyConfigurableField, ConfigurableFieldSpec

    from honcho_fallback import Attempt, FallbackObserver, FallbackPolicy, Turn


class FallbackRunnable(Verbs, RunnableSerializable[Any, Any]):
    """Ask the next runnable on the first failure of the one before.

    Args:
        *candidates: The primary first; all take the same input.
        **options: As for ``with_fallback_config``, and ``name``.

    Raises:
        FallbackConfigError: There is no candidate, one is no Runnable, or an option is wrong.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    candidates: list[Runnable[Any, Any]]
    options: InstanceOf[Options] = Field(default_factory=Options, exclude=True, repr=False)

    def __init__(self, *candidates: Runnable[Any, Any], **options: Any) -> None:
        listed = given_candidates(candidates, options, chat_models=False)
        own = {name: options.pop(name) for name in ("name",) if name in options}
        held = options.pop("options", Options()).updated(options)
        own |= {"candidates": listed, "options": held}
        super().__init__(**own)
        _ = self.policy  # what is wrong with the options is said here and now

    @classmethod
    def over(
        cls, candidates: list[Runnable[Any, Any]], options: Options, turns_of: FallbackPolicy
    ) -> Self:
        """Make one of candidates that are ready to be asked.

        Args:
            candidates: The primary first, their SDKs' retries settled.
            options: The chat model's they were made from.
            turns_of: Whose turns it takes part in.
        """
        made = cls(candidates=candidates, options=replace(options, sdk_retries="keep"))
        made.policy.sharing_turns_with(turns_of)
        return made

    @cached_property
    def policy(self) -> FallbackPolicy:
        """Return the chain and its options."""
        return policy_over(self.candidates, self.options, None)

    @property
    def observers(self) -> tuple[FallbackObserver, ...]:
        """Return whom to tell."""
        return self.options.observers

    def with_fallback_config(self, **options: Unpack[FallbackOptions]) -> Self:
        """Return a copy with other options.

        Args:
            **options: As for ``FallbackChatModel.with_fallback_config``.

        Raises:
            FallbackConfigError: One is unknown, of the wrong type or out of range.
        """
        return self._derived(self.candidates, self.options.updated(options))

    def turn(self) -> Turn:
        """Open a user turn, for ``with`` or ``async with``: what a switch lasts for.

        Only ``reset="turn"`` makes use of it.
        """
        return self.policy.turn()

    def bind(self, **kwargs: Any) -> FallbackBinding:
        """Bind keywords for every candidate.

        Args:
            **kwargs: As for ``invoke``.
        """
        return FallbackBinding(bound=self, kwargs=kwargs, config={})

    def with_config(self, config: RunnableConfig | None = None, **kwargs: Any) -> FallbackBinding:
        """Bind a config; tags, metadata and callbacks reach every candidate.

        Args:
            config: LangChain's.
            **kwargs: Keys of it.
        """
        merged: Any = {**(config or {}), **kwargs}
        return FallbackBinding(bound=self, kwargs={}, config=merged)

    def with_retry(self, **kwargs: Any) -> Self:
        """Retry every candidate before the next is asked.

        Args:
            **kwargs: As for any runnable.
        """
        return self._derived(
            [candidate.with_retry(**kwargs) for candidate in self.candidates], self.options
        )

    def configurable_fields(self, **fields: AnyConfigurableField) -> Self:
        """Make fields of the candidates configurable per call.

        Args:
            **fields: As for any runnable; each candidate gets those that it has.

        Raises:
            FallbackConfigError: No candidate has one of them.
        """
        return self._derived(configurable(self.candidates, fields), self.options)

    @property
    def InputType(self) -> Any:  # noqa: N802 # LangChain's name
        """Return the primary's."""
        return self.candidates[0].InputType

    @property
    def OutputType(self) -> Any:  # noqa: N802 # LangChain's name
        """Return the primary's."""
        return self.candidates[0].OutputType

    def get_input_schema(self, config: RunnableConfig | None = None) -> Any:
        """Return the primary's.

        Args:
            config: LangChain's.
        """
        return self.candidates[0].get_input_schema(config)

    def get_output_schema(self, config: RunnableConfig | None = None) -> Any:
        """Return the primary's.

        Args:
            config: LangChain's.
        """
        return self.candidates[0].get_output_schema(config)

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """Return what can be configured per call in any candidate."""
        return get_unique_config_specs(
            spec for candidate in self.candidates for spec in candidate.config_specs
        )

    def own_callbacks(self) -> tuple[Any, bool, list[str] | None, dict[str, Any] | None]:
        """Return nothing: a runnable that is no model has none of its own."""
        return None, False, None, None

    def ask_for(
        self, _attempt: Attempt, asked: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the caller's input and keywords as they are.

        Args:
            asked: The caller's input.
            kwargs: The caller's keywords.
        """
        return asked, kwargs

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
        state = super().__getstate__()
        held = {name: value for name, value in state["__dict__"].items() if name != "policy"}
        return {**state, "__dict__": held}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        copied = [deepcopy(candidate, memo) for candidate in self.candidates]
        return self._derived(copied, self.options)

    def _derived(self, candidates: list[Runnable[Any, Any]], options: Options) -> Self:
        policy = policy_over(candidates, options, self.policy)
        changes = {"candidates": candidates, "options": options, "policy": policy}
        return self.model_copy(update=changes)
