"""LiteLLM over the fallback policy."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if find_spec("litellm") is None:
    raise ImportError(
        "honcho_fallback_litellm needs LiteLLM: pip install 'honcho-fallback[litellm]', "
        "in a checkout pip install '.[litellm]'"
    )

if TYPE_CHECKING:
    from honcho_fallback_litellm._proxy import FallbackProxyHandler, proxy_handler
    from honcho_fallback_litellm._strategy import FallbackRoutingStrategy
    from honcho_fallback_litellm._warm import warm_up

__all__ = [
    "FallbackProxyHandler",
    "FallbackRoutingStrategy",
    "proxy_handler",
    "warm_up",
]

# LiteLLM takes seconds and 190 MiB to import: a name loads it when it is first used.
_HOMES = {
    "FallbackProxyHandler": "_proxy",
    "FallbackRoutingStrategy": "_strategy",
    "proxy_handler": "_proxy",
    "warm_up": "_warm",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
