"""For tests: a chat model that fails on schedule, around one that is healthy.

A model that takes an HTTP client, such as ``ChatOpenAI(http_client=...)``, can fail by
``honcho_fallback.testing.FaultTransport`` as well; then its integration's own classes of errors
come out.
"""

# pyright: reportPrivateUsage=false
# What is called of the model inside is what LangChain asks every integration to override.

from __future__ import annotations

from contextlib import aclosing, closing, nullcontext
from importlib import import_module
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel

from honcho_fallback.testing import FaultSchedule, FaultTransport, StatusError
from honcho_fallback_langchain._sdk import by_class, with_changed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatGenerationChunk, ChatResult
    from langchain_core.runnables import Runnable

    from honcho_fallback.testing import Fault

__all__ = ["FaultyChatModel"]


class FaultyChatModel(BaseChatModel):
    """Ask a chat model, and fail the requests that a schedule says.

    What comes out is the exception of the SDK that the model stands on (openai, anthropic, groq),
    with status, headers and body; of any other model a ``StatusError``, a ``TimeoutError`` or a
    ``ConnectionError``. It has the model's names in records and traces. A request is one call of
    the model; a chunk is one that the model yields, those without content included.

    Args:
        model: The healthy model; it is not changed.
        faults: Which requests fail, and how; what is bound or copied from here goes by it, too.
    """

    model: BaseChatModel
    faults: FaultSchedule

    def __init__(self, model: BaseChatModel, faults: FaultSchedule, **fields: Any) -> None:
        streams = _has_stream(type(model))
        fields.setdefault("disable_streaming", model.disable_streaming if streams else True)
        fields.setdefault("profile", model.profile)
        named: dict[str, Any] = {**fields, "model": model, "faults": faults}
        super().__init__(**named)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        """Bind tools as the model does; the schedule stays around it."""
        bound: Runnable[Any, Any] = with_changed(
            self.model.bind_tools(tools, **kwargs), self._around
        )
        return bound

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[Any, Any]:
        """Ask for structured output as the model does; the schedule stays around it."""
        structured: Runnable[Any, Any] = with_changed(
            self.model.with_structured_output(schema, **kwargs), self._around
        )
        return structured

    @property
    def _llm_type(self) -> str:
        return self.model._llm_type  # noqa: SLF001 # overridden by every integration

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return dict(self.model._identifying_params)  # noqa: SLF001 # overridden by every integration

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self.model._get_ls_params(stop, **kwargs)  # noqa: SLF001 # overridden by every integration

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        fault = self.faults.next()
        if fault is not None:
            raise self._error(fault)
        return self.model._generate(messages, stop, run_manager, **kwargs)  # noqa: SLF001 # overridden by every integration

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        fault = self.faults.next()
        if fault is not None:
            raise self._error(fault)
        return await self.model._agenerate(messages, stop, run_manager, **kwargs)  # noqa: SLF001 # overridden by every integration

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        fault = self.faults.next()
        if fault is not None and not fault.after_chunks:
            raise self._error(fault)
        chunks: Any = self.model._stream(messages, stop, run_manager, **kwargs)  # noqa: SLF001 # overridden by every integration
        with closing(chunks) if hasattr(chunks, "close") else nullcontext():
            yield from chunks if fault is None else islice(chunks, fault.after_chunks)
        if fault is not None:
            raise self._error(fault)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        fault = self.faults.next()
        if fault is not None and not fault.after_chunks:
            raise self._error(fault)
        chunks: Any = self.model._astream(messages, stop, run_manager, **kwargs)  # noqa: SLF001 # overridden by every integration
        number = 0
        async with aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext():
            async for chunk in chunks:
                yield chunk
                number += 1
                if fault is not None and number == fault.after_chunks:
                    break
        if fault is not None:
            raise self._error(fault)

    def _around(self, model: BaseChatModel) -> FaultyChatModel:
        return self.model_copy(update={"model": model})

    def _error(self, fault: Fault) -> BaseException:
        if isinstance(fault.error, BaseException):
            return fault.error
        sdk = by_class(self.model, _SDKS)
        if sdk is not None:
            # Over a transport that fails so, the SDK makes its own error: class, headers, body.
            transport = FaultTransport().every(
                1,
                status=fault.status,
                retry_after=fault.retry_after,
                code=fault.code,
                error=fault.error,
            )
            try:
                _ask(transport, *sdk)
            except Exception as error:  # noqa: BLE001 # of whatever class
                return error.with_traceback(None)
        if fault.status is not None:
            return StatusError(fault.status, retry_after=fault.retry_after, code=fault.code)
        kind = TimeoutError if fault.error == "timeout" else ConnectionError
        return kind("a fault of the test")


def _has_stream(kind: type[BaseChatModel]) -> bool:
    """Tell whether a model streams: LangChain's own methods call one of the others."""
    return kind._stream is not BaseChatModel._stream or (  # noqa: SLF001 # as LangChain compares
        kind._astream is not BaseChatModel._astream  # noqa: SLF001 # as LangChain compares
    )


def _ask(transport: FaultTransport, module: str, client_class: str, api: str) -> None:
    sdk: Any = import_module(module)  # only where a model stands on it
    with sdk.DefaultHttpxClient(transport=transport) as http_client:
        client = getattr(sdk, client_class)(api_key="none", max_retries=0, http_client=http_client)
        attrgetter(api)(client).create(model="none", messages=[], max_tokens=1)


_SDKS: Final = {
    ("langchain_anthropic", "ChatAnthropic"): ("anthropic", "Anthropic", "messages"),
    ("langchain_groq", "ChatGroq"): ("groq", "Groq", "chat.completions"),
    ("langchain_openai", "BaseChatOpenAI"): ("openai", "OpenAI", "chat.completions"),
}
