"""A LangChain chat model that fails on schedule: a copy, of a subclass made for it."""

from __future__ import annotations

import sys
from contextlib import aclosing, closing, nullcontext
from contextvars import ContextVar
from types import new_class
from typing import TYPE_CHECKING, Any

from honcho_fallback.testing._wire import provider_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback.testing._failing import Failing
    from honcho_fallback.testing._wire import Fault

# Models whose _generate reads their own _stream, and LangChain's own async methods, which call the
# sync ones in a thread with the same context, make one request and not two.
_inside: ContextVar[bool] = ContextVar("honcho_fallback_testing_inside", default=False)


def is_chat_model(subject: object) -> bool:
    """Tell LangChain's chat models, without importing LangChain."""
    return _base_of(type(subject)) is not None


def failing_model(model: Any, failing: Failing[Any]) -> Any:
    """Return a copy of a chat model that asks a schedule before each request.

    Its class is a subclass of the model's own, so what looks at classes, copies it, or binds tools
    to it finds what it finds on the original, which stays as it is.
    """
    kind: type[Any] = model.__class__
    ours = {
        "_generate": _generate,
        "_agenerate": _agenerate,
        "_stream": _stream,
        "_astream": _astream,
    }
    base = _base_of(kind)
    # The methods of LangChain's base class call one of the others. LangChain sees by a model's own
    # methods whether it streams.
    methods = {
        name: make(kind, failing)
        for name, make in ours.items()
        if getattr(kind, name) is not getattr(base, name)
    }
    names: dict[str, Any] = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "model_config": {"defer_build": True},
        **methods,
    }
    copy = model.model_copy()
    failing_kind = new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(names))
    object.__setattr__(copy, "__class__", failing_kind)
    return copy


def _base_of(kind: type[Any]) -> type[Any] | None:
    for base in kind.__mro__:
        if base.__name__ == "BaseChatModel" and base.__module__.startswith("langchain_core."):
            return base
    return None


def _raised(kind: type[Any], fault: Fault) -> BaseException:
    """Return what a model's integration raises: the SDK's error, or its own class over it."""
    error = fault.exception(provider_of(kind))
    if isinstance(fault.error, BaseException):
        return error
    for base in kind.__mro__:
        # langchain-openai and langchain-anthropic turn errors into classes of their own in two
        # functions each; an integration without them lets the SDK's error out.
        functions = vars(sys.modules.get(base.__module__, sys))
        ends = ("_bad_request",) if fault.status == 400 else ("_api_error",)
        names = [name for name in functions if name.startswith("_handle_") and name.endswith(ends)]
        for name in names:
            try:
                try:
                    raise error
                except type(error):
                    functions[name](error)
            except Exception as converted:  # noqa: BLE001 # of whatever class
                return converted.with_traceback(None)
    return error


def _generate(kind: Any, failing: Failing[Any]) -> Any:
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        fault = None if _inside.get() else failing.next()
        if fault is not None:
            raise _raised(kind, fault)
        token = _inside.set(True)
        try:
            return kind._generate(self, *args, **kwargs)  # noqa: SLF001 # what integrations override
        finally:
            _inside.reset(token)

    return generate


def _agenerate(kind: Any, failing: Failing[Any]) -> Any:
    async def agenerate(self: Any, *args: Any, **kwargs: Any) -> Any:
        fault = None if _inside.get() else failing.next()
        if fault is not None:
            raise _raised(kind, fault)
        token = _inside.set(True)
        try:
            return await kind._agenerate(self, *args, **kwargs)  # noqa: SLF001 # what integrations override
        finally:
            _inside.reset(token)

    return agenerate


def _stream(kind: Any, failing: Failing[Any]) -> Any:
    def stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        fault = None if _inside.get() else failing.next()
        if fault is None or fault.after_chunks:
            remaining = fault.after_chunks if fault else -1
            chunks = kind._stream(self, *args, **kwargs)  # noqa: SLF001 # what integrations override
            with closing(chunks) if hasattr(chunks, "close") else nullcontext():
                for chunk in chunks:
                    yield chunk
                    remaining -= 1
                    if not remaining:
                        break
        if fault is not None:
            raise _raised(kind, fault)

    return stream


def _astream(kind: Any, failing: Failing[Any]) -> Any:
    async def astream(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        fault = None if _inside.get() else failing.next()
        if fault is None or fault.after_chunks:
            remaining = fault.after_chunks if fault else -1
            chunks = kind._astream(self, *args, **kwargs)  # noqa: SLF001 # what integrations override
            async with aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext():
                async for chunk in chunks:
                    yield chunk
                    remaining -= 1
                    if not remaining:
                        break
        if fault is not None:
            raise _raised(kind, fault)

    return astream
