"""invoke, ainvoke, stream and astream over a chain; batch and the rest follow from them."""

from __future__ import annotations

from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.runnables.utils import Input, Output

from honcho_fallback_langchain._call import Call
from honcho_fallback_langchain._chunks import NOTHING, has_content, merged
from honcho_fallback_langchain._over_chain import OverChain
from honcho_fallback_langchain._sdk_timeouts import in_time, in_time_to_start

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from langchain_core.runnables import RunnableConfig

Chunk_co = TypeVar("Chunk_co", covariant=True)


class Verbs(OverChain[Input, Output], Generic[Input, Output, Chunk_co]):
    """Ask the chain."""

    def invoke(
        self,
        input: Input,  # noqa: A002 # LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Output:
        """Ask the chain for one answer."""
        call = Call(self, input, config, kwargs)
        callbacks = call.managed(CallbackManager)
        manager = callbacks and callbacks.on_chain_start(None, input, **call.named())
        try:
            answer: Output = self.policy.call(in_time(call.ask), run=call.open(manager))
        except BaseException as error:
            if manager is not None:
                manager.on_chain_error(error)
            raise
        if manager is not None:
            manager.on_chain_end(answer)
        return answer

    async def ainvoke(
        self,
        input: Input,  # noqa: A002 # LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Output:
        """Ask the chain for one answer, in this task."""
        call = Call(self, input, config, kwargs)
        callbacks = call.managed(AsyncCallbackManager)
        manager = callbacks and await callbacks.on_chain_start(None, input, **call.named())
        try:
            answer: Output = await self.policy.acall(call.aask, run=call.open(manager))
        except BaseException as error:
            if manager is not None:
                await manager.on_chain_error(error)
            raise
        if manager is not None:
            await manager.on_chain_end(answer)
        return answer

    def stream(
        self,
        input: Input,  # noqa: A002 # LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Generator[Chunk_co, None, None]:
        """Ask the chain for chunks; it may switch until the first with content."""
        call = Call(self, input, config, kwargs)
        callbacks = call.managed(CallbackManager)
        manager = callbacks and callbacks.on_chain_start(None, input, **call.named())
        output_chunks: list[Any] = []  # filled only where somebody listens
        try:
            run = call.open(manager)
            ask = in_time_to_start(call.ask_for_stream)
            chunks = self.policy.stream(ask, has_content=has_content, run=run)
            with closing(chunks):
                for chunk in chunks:
                    if chunk is not NOTHING:
                        output_chunk = call.passing(chunk)
                        if manager is not None:
                            output_chunks.append(output_chunk)
                        yield output_chunk
        except GeneratorExit:  # the reader has enough; that is no error
            if manager is not None:
                manager.on_chain_end(merged(output_chunks))
            raise
        except BaseException as error:
            if manager is not None:
                manager.on_chain_error(error)
            raise
        if manager is not None:
            manager.on_chain_end(merged(output_chunks))

    async def astream(
        self,
        input: Input,  # noqa: A002 # LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Chunk_co, None]:
        """Ask the chain for chunks, in this task; it may switch until the first with content."""
        call = Call(self, input, config, kwargs)
        callbacks = call.managed(AsyncCallbackManager)
        manager = callbacks and await callbacks.on_chain_start(None, input, **call.named())
        output_chunks: list[Any] = []  # filled only where somebody listens
        try:
            run = call.open(manager)
            chunks = self.policy.astream(call.ask_for_astream, has_content=has_content, run=run)
            async with aclosing(chunks):
                async for chunk in chunks:
                    if chunk is not NOTHING:
                        output_chunk = call.passing(chunk)
                        if manager is not None:
                            output_chunks.append(output_chunk)
                        yield output_chunk
        except GeneratorExit:  # the reader has enough; that is no error
            if manager is not None:
                await manager.on_chain_end(merged(output_chunks))
            raise
        except BaseException as error:
            if manager is not None:
                await manager.on_chain_error(error)
            raise
        if manager is not None:
            await manager.on_chain_end(merged(output_chunks))
