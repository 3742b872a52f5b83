"""What the packages show, and what importing them costs."""

from __future__ import annotations

import importlib
import json
from importlib.metadata import distribution
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.processes import python

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

ADAPTERS = {
    "honcho_fallback_langchain": ("langchain_core", "langchain"),
    "honcho_fallback_langfuse": ("langfuse", "langfuse"),
    "honcho_fallback_litellm": ("litellm", "litellm"),
    "honcho_fallback_otel": ("opentelemetry", "otel"),
    "honcho_fallback_prometheus": ("prometheus_client", "prometheus"),
}

FRAMEWORKS = {
    *(framework for framework, _ in ADAPTERS.values()),
    *("aiohttp", "anthropic", "botocore", "google", "httpx", "httpx2", "llmock", "openai"),
    *("requests", "rich", "typer"),
}


def is_editable() -> bool:
    """Tell whether the source tree itself is installed, not a wheel."""
    direct_url: str | None = distribution("honcho-fallback").read_text("direct_url.json")
    facts: dict[str, Any] = json.loads(direct_url or "{}")
    return bool(facts.get("dir_info", {}).get("editable"))


def public(module: ModuleType) -> list[str]:
    """List the names that a module shows, without its submodules."""
    if "__dir__" in vars(module):  # lazy names say themselves what there is
        return sorted(dir(module))
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith(("_", "@"))  # @: what pytest adds to a module that it rewrites
        and not (isinstance(value, type(module)) and value.__name__.startswith(module.__name__))
        and name not in {"Any", "TYPE_CHECKING", "annotations", "find_spec", "import_module"}
    )


@pytest.mark.parametrize("name", ["honcho_fallback", *ADAPTERS])
def test_all_is_what_is_visible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`__all__` is sorted and names exactly what a package shows, once asked for it."""
    if name in ADAPTERS:
        pytest.importorskip(ADAPTERS[name][0], exc_type=ImportError)
    module = importlib.import_module(name)
    for shown in module.__all__:
        getattr(module, shown)  # what is loaded lazily is visible from then on
    assert list(module.__all__) == sorted(module.__all__)
    assert module.__all__ == public(module)


def test_import_loads_no_framework(tmp_path: Path) -> None:
    """Importing the core loads no SDK, no transport and no framework."""
    code = "import json, sys, honcho_fallback; print(json.dumps(sorted(sys.modules)))"
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not FRAMEWORKS & set(json.loads(done.stdout))


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_names_its_extra(name: str, tmp_path: Path) -> None:
    """Where an adapter's framework is missing, the ImportError says what to type."""
    framework, extra = ADAPTERS[name]
    code = f"import sys; sys.modules[{framework!r}] = None; from {name} import *"
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"pip install 'honcho-fallback[{extra}]'" in last
    assert last.endswith(f"in a checkout pip install '.[{extra}]'")


@pytest.mark.skipif(is_editable(), reason="the source tree holds the folder; a wheel must not")
def test_a_wheel_installs_no_adapters_package(tmp_path: Path) -> None:
    """`adapters` is the name of another distribution; an installed wheel does not take it."""
    done = python("-c", "import adapters", cwd=tmp_path)
    assert done.returncode == 1
    assert "No module named 'adapters'" in done.stderr
