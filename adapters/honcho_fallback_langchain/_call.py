"""One logical call: a chain run around the attempts, each candidate a child of it.

The loop over the chain is the core's; here is what LangChain wants of it: one run that starts and
ends exactly once, each candidate under it, and an answer that says who gave it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables.config import ensure_config

from honcho_fallback_langchain._candidates import may_be_asked_for_usage, parameters_of
from honcho_fallback_langchain._chunks import ato_its_end, ends_message, to_its_end
from honcho_fallback_langchain._marks import attempt_metadata, describe, mark, usage_of
from honcho_fallback_langchain._misread import MISREAD, check_misread
from honcho_fallback_langchain._options import for_this_call
from honcho_fallback_langchain._reported_once import in_place_of, take_out
from honcho_fallback_langchain._sdk_keys import awith_key, with_key
from honcho_fallback_langchain._silent import unheard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from langchain_core.callbacks import (
        AsyncCallbackManager,
        AsyncCallbackManagerForChainRun,
        CallbackManager,
        CallbackManagerForChainRun,
    )
    from langchain_core.runnables import RunnableConfig

    from honcho_fallback import Attempt, FallbackRun
    from honcho_fallback_langchain._over_chain import OverChain

    Manager = CallbackManagerForChainRun | AsyncCallbackManagerForChainRun


class Call:
    """Hold one call while it runs."""

    __slots__ = (
        "attempt",
        "chained",
        "config",
        "input",
        "kwargs",
        "manager",
        "replaced",
        "run",
        "run_id",
        "run_name",
        "usage",
        "wants_content",
    )

    def __init__(
        self,
        chained: OverChain[Any, Any],
        call_input: Any,
        config: RunnableConfig | None,
        kwargs: dict[str, Any],
    ) -> None:
        self.chained = chained
        self.input = call_input
        self.kwargs = kwargs
        self.config = ensure_config(config)
        # Both are for this run and no child of it.
        self.run_name = self.config.pop("run_name", None)
        self.run_id = self.config.pop("run_id", None)
        self.manager: Manager | None = None
        self.usage: dict[str, int] = {}
        # The Langfuse handlers that an observer replaces, and the id of their run.
        self.replaced: tuple[list[object], object] = ([], None)

    def managed(self, kind: type[CallbackManager | AsyncCallbackManager]) -> Any:
        """Return the callback manager, or None where nobody listens.

        A run that nobody hears of need not be opened at all.
        """
        config = self.config
        callbacks, verbose, tags, metadata = self.chained.own_callbacks()
        manager = kind.configure(
            config.get("callbacks"),
            callbacks,
            verbose,
            config.get("tags"),
            tags,
            config.get("metadata"),
            metadata,
        )
        handlers = take_out(manager, self.chained.observers)
        if handlers:
            self.replaced = handlers, manager.parent_run_id
            config["callbacks"] = manager
        if not manager.handlers:
            return None
        config["callbacks"] = manager
        return manager

    def named(self) -> dict[str, Any]:
        """Return the run's name and id."""
        name = self.run_name or self.chained.get_name()
        return {"name": name, "run_id": self.run_id}

    def open(self, manager: Manager | None) -> FallbackRun:
        """Start the core's run.

        Args:
            manager: Of the chain run, or None.
        """
        self.manager = manager
        observers = self.chained.observers
        policy, turn = for_this_call(self.config, self.chained.policy, observers)
        with in_place_of(*self.replaced, observers):
            self.run = run = policy.start(turn=turn)
        self.wants_content = policy.wants_content
        run.report(input=self.input)
        return run

    def prepare(self, attempt: Attempt) -> tuple[Any, RunnableConfig, dict[str, Any]]:
        """Return the input, config and keywords for a candidate."""
        candidate_input, kwargs = self.chained.ask_for(attempt, self.input, self.kwargs)
        if self.wants_content:
            self.run.report(parameters=parameters_of(attempt.target.client, kwargs))
        config = self.config
        if self.manager is not None:
            child = self.manager.get_child()
            if attempt.number > 1:
                primary = self.chained.policy.targets[0]
                child.add_metadata(attempt_metadata(self.run, attempt, primary))
                child.add_tags([f"fallback:attempt:{attempt.number}"])
            config = cast("RunnableConfig", {**config, "callbacks": child})
        return candidate_input, config, kwargs

    def prepare_stream(self, attempt: Attempt) -> tuple[Any, RunnableConfig, dict[str, Any]]:
        """Prepare a stream, which is asked what it cost where somebody wants to know."""
        self.attempt = attempt  # a stream without content is handed out after its call has ended
        candidate_input, config, kwargs = self.prepare(attempt)
        if self.wants_content and may_be_asked_for_usage(attempt.target.client):
            kwargs = {"stream_usage": True, **kwargs}
        return candidate_input, config, kwargs

    def finish(self, attempt: Attempt, answer: Any) -> Any:
        """Note what an answer cost, and return it marked."""
        usage = usage_of(answer)
        if usage is not None:
            self.run.report(usage=usage)
        return mark(answer, describe(self.run, attempt))

    def ask(self, attempt: Attempt) -> Any:
        """Ask one candidate."""
        candidate = with_key(attempt.target)
        candidate_input, config, kwargs = self.prepare(attempt)
        silent = unheard(candidate, candidate_input, kwargs) if self.manager is None else None
        try:
            if silent is not None:
                answer = silent.invoke()
            else:
                answer = candidate.invoke(candidate_input, config, **kwargs)
        except MISREAD as error:
            check_misread(error)
            raise
        return self.finish(attempt, answer)

    async def aask(self, attempt: Attempt) -> Any:
        """Ask one candidate."""
        candidate = await awith_key(attempt.target)
        candidate_input, config, kwargs = self.prepare(attempt)
        silent = unheard(candidate, candidate_input, kwargs) if self.manager is None else None
        try:
            if silent is not None:
                answer = await silent.ainvoke()
            else:
                answer = await candidate.ainvoke(candidate_input, config, **kwargs)
        except MISREAD as error:
            check_misread(error)
            raise
        return self.finish(attempt, answer)

    def ask_for_stream(self, attempt: Attempt) -> Iterator[Any]:
        """Ask one candidate for its chunks."""
        candidate = with_key(attempt.target)
        candidate_input, config, kwargs = self.prepare_stream(attempt)
        return to_its_end(candidate.stream(candidate_input, config, **kwargs))

    async def ask_for_astream(self, attempt: Attempt) -> AsyncIterator[Any]:
        """Ask one candidate for its chunks."""
        candidate = await awith_key(attempt.target)
        candidate_input, config, kwargs = self.prepare_stream(attempt)
        return ato_its_end(candidate.astream(candidate_input, config, **kwargs))

    def passing(self, chunk: Any) -> Any:
        """Note what a chunk says of its cost, and mark the message's last."""
        usage = usage_of(chunk)
        if usage is not None:
            # Each chunk of a message carries its share.
            before = self.usage
            self.usage = before | {name: before.get(name, 0) + usage[name] for name in usage}
            self.run.report(usage=self.usage)
        if ends_message(chunk):
            return mark(chunk, describe(self.run, self.attempt))
        return chunk
