"""What the adapter shows, and what importing it costs."""

from __future__ import annotations

import json
import subprocess
import sys

import honcho_fallback_honcho


def test_all_is_sorted_and_documented() -> None:
    """Each name of `__all__` exists and has a docstring; there is no other public name."""
    assert honcho_fallback_honcho.__all__ == sorted(honcho_fallback_honcho.__all__)
    for name in honcho_fallback_honcho.__all__:
        assert getattr(honcho_fallback_honcho, name).__doc__, name
    assert dir(honcho_fallback_honcho) == honcho_fallback_honcho.__all__


def test_policies_load_no_framework_and_no_sdk() -> None:
    """Who makes policies from settings or objects pays for no LangChain, no LiteLLM, no SDK."""
    code = (
        "import json, sys\n"
        "from honcho_fallback_honcho import load_policies, policy_from\n"
        "load_policies({'LLM_OPENAI_API_KEY': 'k'})\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"anthropic", "google.genai", "httpx", "httpx2", "langchain_core", "litellm", "openai"}
    assert not heavy & {*json.loads(done.stdout)}


def test_policies_from_objects_need_no_extra() -> None:
    """Honcho's own objects are read without pydantic-settings."""
    code = (
        "import sys\n"
        "for name in ('pydantic_settings', 'dotenv'): sys.modules[name] = None\n"
        "from types import SimpleNamespace\n"
        "from honcho_fallback_honcho import policy_from\n"
        "print(policy_from(SimpleNamespace(model='m', transport='openai')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "<FallbackPolicy unknown: openai/m>"


def test_chat_models_name_the_extra_that_is_enough() -> None:
    """Without LangChain the message names the extra that brings the providers' packages, too."""
    code = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "try:\n    from honcho_fallback_honcho import load_chat_models\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'honcho-fallback[providers]'" in done.stdout
