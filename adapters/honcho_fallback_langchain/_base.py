"""What every runnable over a chain of candidates has: how it is called, its options, its copies.

``invoke``, ``ainvoke``, ``stream`` and ``astream`` ask the chain; ``batch`` and the rest follow
from them in LangChain itself. So each input of a batch switches, waits and times out by itself,
and a ``batch`` that a candidate has of its own is not used: over all inputs at once there would be
one attempt's timeout for all of them, and no fallback before the slowest of them has failed.
"""

from __future__ import annotations

from contextlib import aclosing, closing
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, cast

from langchain_core.runnables import Runnable, RunnableBinding, RunnableSerializable
from langchain_core.runnables.utils import Input, Output, get_unique_config_specs
from pydantic import ConfigDict, Field, InstanceOf

from honcho_fallback.redaction import label
from honcho_fallback_langchain._call import ChainCall
from honcho_fallback_langchain._candidates import Chain, check_candidates
from honcho_fallback_langchain._options import FallbackOptions, Options
from honcho_fallback_langchain._outputs import NO_ANSWER, NOTHING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.utils import ConfigurableFieldSpec

    from honcho_fallback import FallbackPolicy, Turn

Chunk_co = TypeVar("Chunk_co", covariant=True)


class FallbackBase(RunnableSerializable[Input, Output], Generic[Input, Output, Chunk_co]):
    """Ask the candidates in order, the primary first."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    candidates: list[Runnable[Any, Any]]
    options: InstanceOf[Options] = Field(default_factory=Options, exclude=True, repr=False)

    @cached_property
    def chain(self) -> Chain:
        """Return what is known of the candidates before anybody is asked."""
        return Chain.over(self.candidates, self.options, None)

    @property
    def policy(self) -> FallbackPolicy:
        """Return the chain and its options in the core."""
        return self.chain.policy

    def invoke(
        self,
        input: Input,  # noqa: A002 # LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Output:
        """Ask the chain for one answer."""
        with ChainCall(self.chain, self, input, config, kwargs) as call:
            try:
                answer: Output = call.policy.call(call.ask, run=call.open())
            except NO_ANSWER as error:
                answer = call.unparsed_answer(error)
            call.handed_out = [answer]
        return answer

    async def ainvoke(
        self,
        input: Input,  # noqa: A002 # LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Output:
        async with ChainCall(self.chain, self, input, config, kwargs) as call:
            try:
                answer: Output = await call.policy.acall(call.aask, run=call.open())
            except NO_ANSWER as error:
                answer = call.unparsed_answer(error)
            call.handed_out = [answer]
        return answer

    def stream(  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride] # a chat model's chunks are no answers
        self,
        input: Input,  # noqa: A002 # LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Generator[Chunk_co, None, None]:
        """Ask the chain for chunks; it may switch until the first with content."""
        with ChainCall(self.chain, self, input, config, kwargs) as call:
            run, shows = call.open(), call.shows
            chunks = call.policy.stream(
                call.ask_for_stream, has_content=shows, partial=call.partial, run=run
            )
            with closing(chunks):
                for chunk in chunks:
                    if chunk is not NOTHING:
                        yield call.hand_out(chunk)

    async def astream(  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride] # a chat model's chunks are no answers
        self,
        input: Input,  # noqa: A002 # LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Chunk_co, None]:
        async with ChainCall(self.chain, self, input, config, kwargs) as call:
            run, shows = call.open(), call.shows
            chunks = call.policy.astream(
                call.ask_for_astream, has_content=shows, partial=call.partial, run=run
            )
            async with aclosing(chunks):
                async for chunk in chunks:
                    if chunk is not NOTHING:
                        yield call.hand_out(chunk)

    def bind(self, **kwargs: Any) -> FallbackBinding[Input, Output]:
        """Bind keywords for every candidate; a chat model's ``model=`` is for the primary alone.

        Args:
            **kwargs: As for ``invoke``.
        """
        return FallbackBinding(bound=self, kwargs=kwargs, config={})

    def with_config(
        self, config: RunnableConfig | None = None, **kwargs: Any
    ) -> FallbackBinding[Input, Output]:
        """Bind a config; tags, metadata and callbacks reach every candidate.

        Args:
            config: LangChain's.
            **kwargs: Entries of it.
        """
        entries: Any = {**(config or {}), **kwargs}
        return FallbackBinding(bound=self, kwargs={}, config=entries)

    def with_fallback_config(self, **options: Unpack[FallbackOptions]) -> Self:
        """Return a copy with other options.

        Args:
            **options: Those of FallbackConfig, and ``agent``, ``credentials``,
                ``exceptions_to_handle`` (classes that a provider raises, where nothing else
                explains them), ``fallback_config``, ``observers``, ``partial``, ``sdk_retries``.

        Raises:
            FallbackConfigError: One is unknown, of the wrong type or out of range.
        """
        return self._derived(self.candidates, self.options.updated(options))

    def turn(self) -> Turn:
        """Open a user turn, for ``with`` or ``async with``: what a switch lasts for.

        A switch lasts so long with ``reset="turn"`` only; records and observers name the turn
        whatever ``reset`` is. It holds for whatever was derived from this model, too: with tools
        bound, with structured output, with other options. To another thread it travels as
        ``config={"configurable": {"fallback_turn": turn}}``.
        """
        return self.policy.turn()

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        return get_unique_config_specs(
            spec for candidate in self.candidates for spec in candidate.config_specs
        )

    def __repr_args__(self) -> Any:
        # What candidates print of themselves may hold headers and logins.
        return [("candidates", [label(target.name) for target in self.chain.targets])]

    def __getstate__(self) -> dict[Any, Any]:
        # The chain is made anew: what its candidates ask with holds locks and connections.
        state: Any = super().__getstate__()
        fields = {name: value for name, value in state["__dict__"].items() if name != "chain"}
        return {**state, "__dict__": fields}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self._derived(deepcopy(self.candidates, memo), self.options)

    def _asking_once(self) -> tuple[list[Runnable[Any, Any]], Options]:
        """Return the candidates as the policy calls them, and the options that leave them so."""
        clients = [target.client for target in self.chain.targets]
        return clients, replace(self.options, sdk_retries="keep")

    def _derived(self, candidates: list[Runnable[Any, Any]], options: Options) -> Self:
        chain = Chain.over(candidates, options, self.policy)
        changes = {"candidates": candidates, "options": options, "chain": chain}
        derived = self.model_copy(update=changes)
        vars(derived).pop("_serialized", None)
        return derived


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
        fields: Any = {"options": replace(options, config=config)}
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


class FallbackBinding(RunnableBinding[Input, Output]):  # type: ignore[no-redef] # its fields are redefined for the type arguments
    """Hold what was bound to a FallbackChatModel or a FallbackRunnable."""

    def __repr_args__(self) -> Any:
        return [("bound", self.bound), ("kwargs", [*self.kwargs])]  # their values may be headers

    def with_fallback_config(self, **options: Unpack[FallbackOptions]) -> Self:
        """Return a copy with other options; what is bound stays."""
        bound = cast("FallbackBase[Any, Any, Any]", self.bound)
        return self.model_copy(update={"bound": bound.with_fallback_config(**options)})
