"""One clean trace per call: a Langfuse generation, or an OpenTelemetry GenAI span.

Either class asks only for its own framework, and only when it is used: Langfuse needs the extra
``langfuse``, OpenTelemetry the extra ``otel``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from honcho_fallback_langfuse._handler import LangfuseCallbackHandler
    from honcho_fallback_langfuse._otel import OpenTelemetryHandler

# Class: the module it stands in, the framework it needs, the extra that brings it.
_CLASSES = {
    "LangfuseCallbackHandler": ("_handler", "langfuse", "langfuse"),
    "OpenTelemetryHandler": ("_otel", "opentelemetry.trace", "otel"),
}

__all__ = ["LangfuseCallbackHandler", "OpenTelemetryHandler"]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, framework, extra = _CLASSES[name]
    if not _is_installed(framework):
        raise ImportError(
            f"{name} needs {framework}: pip install 'honcho-fallback[{extra}]', "
            f"in a checkout pip install '.[{extra}]'"
        )
    attribute = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return attribute


def __dir__() -> list[str]:
    return __all__


def _is_installed(framework: str) -> bool:
    # find_spec imports the parents of a dotted name, and raises where one is missing or blocked.
    try:
        return find_spec(framework) is not None
    except (ImportError, ValueError):
        return False
