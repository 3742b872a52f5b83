"""Any runnable with fallbacks: whole chains, parsers included, or a function."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables import Runnable, RunnableSerializable
from langchain_core.runnables.utils import Input, Output
from pydantic import ConfigDict, Field, InstanceOf

from honcho_fallback_langchain._binding import FallbackBinding
from honcho_fallback_langchain._candidates import given_candidates
from honcho_fallback_langchain._options import Options, policy_over
from honcho_fallback_langchain._rebound import configurable
from honcho_fallback_langchain._verbs import Verbs

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.utils import AnyConfigurableField

    from honcho_fallback import Attempt, FallbackPolicy


class FallbackRunnable(Verbs[Input, Output, Output], RunnableSerializable[Input, Output]):
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

    def __init__(self, *candidates: Runnable[Input, Output], **options: Any) -> None:
        listed = given_candidates(candidates, options, chat_models=False)
        own = {name: options.pop(name) for name in ("name",) if name in options}
        updated_options = options.pop("options", Options()).updated(options)
        own |= {"candidates": listed, "options": updated_options}
        super().__init__(**own)
        _ = self.policy  # what is wrong with the options is said here and now

    @classmethod
    def over(
        cls, candidates: list[Runnable[Any, Any]], options: Options, before: FallbackPolicy
    ) -> Self:
        """Make one of candidates that are ready to be asked.

        Args:
            candidates: The primary first, their SDKs' retries settled.
            options: The chat model's they were made from.
            before: The chat model's policy.
        """
        runnable = cls(candidates=candidates, options=replace(options, sdk_retries="keep"))
        vars(runnable)["policy"] = policy_over(candidates, runnable.options, before)
        return runnable

    def bind(self, **kwargs: Any) -> FallbackBinding[Input, Output]:
        """Bind keywords for every candidate.

        Args:
            **kwargs: As for ``invoke``.
        """
        return FallbackBinding(bound=self, kwargs=kwargs, config={})

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

    def own_callbacks(self) -> tuple[Any, bool, list[str] | None, dict[str, Any] | None]:
        """Return nothing: a runnable that is no model has none of its own."""
        return None, False, None, None

    def ask_for(
        self,
        attempt: Attempt,  # noqa: ARG002 # its candidates take what they are given
        asked: Any,
        kwargs: dict[str, Any],
    ) -> tuple[Any, dict[str, Any]]:
        """Return the caller's input and keywords as they are.

        Args:
            attempt: The attempt that calls a candidate.
            asked: The caller's input.
            kwargs: The caller's keywords.
        """
        return asked, kwargs
