"""Any runnable with fallbacks: whole chains, parsers included, or a function."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, Unpack

from langchain_core.runnables.utils import Input, Output

from honcho_fallback_langchain._base import FallbackBase
from honcho_fallback_langchain._candidates import check_candidates
from honcho_fallback_langchain._chain import Chain
from honcho_fallback_langchain._options import FallbackOptions, Options

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig

    from honcho_fallback import FallbackPolicy


class FallbackRunnable(FallbackBase[Input, Output, Output]):
    """Ask the next runnable on the first failure of the one before.

    Args:
        *candidates: The primary first; all take the same input.
        name: Of its runs.
        **options: As for ``.with_fallback_config``.

    Raises:
        FallbackConfigError: There is no candidate, one is no Runnable, or an option is wrong.
    """

    def __init__(
        self,
        *candidates: Runnable[Input, Output],
        name: str | None = None,
        **options: Unpack[FallbackOptions],
    ) -> None:
        given: Any = {**options}
        updated_options = given.pop("options", Options()).updated(given)
        listed: Any = check_candidates(candidates, chat_models=False)
        fields: Any = {"candidates": listed, "options": updated_options, "name": name}
        super().__init__(**fields)
        _ = self.policy  # what is wrong with the options is said here and now

    @classmethod
    def over(
        cls, candidates: list[Runnable[Any, Any]], options: Options, before: FallbackPolicy
    ) -> Self:
        """Make one of candidates that a chat model has derived, with its options and policy.

        They ask nobody but their model, and an integration's parser reads its answer.
        """
        config = options.config.replace(only_models=True)
        changed = replace(options, config=config, sdk_retries="keep")
        fields: Any = {"options": changed}
        runnable = cls(*candidates, **fields)
        vars(runnable)["chain"] = Chain.over(candidates, runnable.options, before)
        return runnable

    @property
    def InputType(self) -> Any:  # noqa: N802 # LangChain's name
        return self.candidates[0].InputType

    @property
    def OutputType(self) -> Any:  # noqa: N802 # LangChain's name
        return self.candidates[0].OutputType

    def get_input_schema(self, config: RunnableConfig | None = None) -> Any:
        return self.candidates[0].get_input_schema(config)

    def get_output_schema(self, config: RunnableConfig | None = None) -> Any:
        return self.candidates[0].get_output_schema(config)
