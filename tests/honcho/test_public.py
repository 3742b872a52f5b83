"""What the two packages show, and what importing them costs."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

PACKAGES = ["honcho_fallback.settings", "honcho_fallback.tools"]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_and_documented(name: str) -> None:
    """`__all__` names exactly what a package shows, each with a docstring where it is no text."""
    module = importlib.import_module(name)
    shown = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and not isinstance(value, type(module))
    }
    assert module.__all__ == sorted(shown)
    for key in module.__all__:
        value = getattr(module, key)
        assert isinstance(value, str) or value.__doc__, key


@pytest.mark.parametrize("name", PACKAGES)
def test_importing_loads_no_sdk_and_no_settings_library(name: str) -> None:
    """What asks a provider, and what reads the environment, is imported when it is needed."""
    code = f"import json, sys, {name}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"anthropic", "google.genai", "httpx", "httpx2", "openai", "pydantic_settings", "rich"}
    assert not heavy & set(json.loads(done.stdout))


@pytest.mark.parametrize("wire", ["openai", "anthropic", "gemini"])
def test_a_missing_sdk_is_named(wire: str) -> None:
    """Without its SDK a target cannot be asked, and the ImportError says what to install."""
    sdk = {"gemini": "google.genai"}.get(wire, wire)
    code = (
        f"import sys; sys.modules[{sdk!r}] = None\n"
        "from honcho_fallback import Target\n"
        "from honcho_fallback.settings import Endpoint, build_client\n"
        f"try:\n    build_client(Target('m', client=Endpoint({wire!r}, api_key='k')))\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'honcho-fallback[providers]'" in done.stdout
