"""What an import loads and what a first failure finds loaded; nobody notices how it got there."""

# LiteLLM's objects have whatever shape they have.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import wait
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import litellm
import pytest
from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.thread_pool_executor import executor

from honcho_fallback_litellm import warm_up

ROOT = Path(__file__).resolve().parents[2]
OPENAI, ANTHROPIC = ("openai/gpt-4o-mini", "/v1"), ("anthropic/claude-3-5-haiku-latest", "")

# The providers are in the process itself: each request notes what is loaded when it arrives. What
# a program imports is imported once; each call is made by a child that has loaded nothing else.
FIRST_FAILURES = """
import json, os, sys
import litellm
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger
from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.litellm_runs import ask_in, deployment
from tests.helpers.provider import ProviderServer, Reply

def ask(chain, way, stream):
    litellm.callbacks = [CustomLogger()]
    loaded = {}

    def provider(name, status):
        def note(request):
            loaded[name] = set(sys.modules)
            return Reply(status=status)
        return note

    with ProviderServer() as providers:
        models = []
        for rank, (name, (model, path)) in enumerate(zip(("primary", "backup"), chain)):
            providers[name].standing = provider(name, 200 if rank else 500)
            models.append(deployment("deriver", model, providers[name].url + path, rank))
        router = Router(model_list=models)
        FallbackRoutingStrategy().register(router)
        ask_in(way, router, stream=stream)
        late = sorted(loaded["backup"] - loaded["primary"])
        print(json.dumps([providers.order, late]), flush=True)
    os._exit(0)

for call in json.load(sys.stdin):
    child = os.fork()
    if not child:
        ask(*call)
    assert os.waitpid(child, 0)[1] == 0
"""
FIRST_CALLS = (
    ((OPENAI, OPENAI), "sync", False),
    ((OPENAI, OPENAI), "async", False),
    ((OPENAI, ANTHROPIC), "async", False),
    ((ANTHROPIC, OPENAI), "async", True),
)


@pytest.mark.timeout(180)  # another process imports LiteLLM first, which takes seconds
def test_a_first_failure_loads_nothing() -> None:
    """No module is loaded between the failing answer and the fallback's request."""
    printed = subprocess.check_output(
        [sys.executable, "-c", FIRST_FAILURES], cwd=ROOT, input=json.dumps(FIRST_CALLS), text=True
    )
    assert list(map(json.loads, printed.splitlines())) == [[["primary", "backup"], []]] * 4


def test_nobody_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No callback of the user's is called, not by a late thread of LiteLLM's either.

    A model that was tried is not tried again: whoever registers another Router waits for nothing.
    """
    listener = create_autospec(CustomLogger, instance=True)
    is_over, logs, submit = threading.Event(), list[Any](), executor.submit

    def late(log: Any, *args: Any, **kwargs: Any) -> Any:
        is_over.wait(0.2)  # LiteLLM looks for callbacks when the thread comes to run
        return log(*args, **kwargs)

    def in_a_late_thread(log: Any, *args: Any, **kwargs: Any) -> Any:
        logs.append(submit(late, log, *args, **kwargs))
        return logs[-1]

    monkeypatch.setattr(executor, "submit", in_a_late_thread)
    monkeypatch.setattr(litellm, "callbacks", [])
    for name in ("failure_callback", "success_callback", "_async_success_callback"):
        monkeypatch.setattr(litellm, name, [listener])
    warm_up(["openai/tried-by-nobody"])
    is_over.set()
    wait(logs)
    assert logs
    tried = len(logs)
    warm_up(["openai/tried-by-nobody"])
    assert len(logs) == tried
    assert not [one for one, *_ in listener.method_calls if one.endswith("_event")]
    assert litellm.callbacks == []


def test_importing_loads_no_litellm(tmp_path: Path) -> None:
    """(12) LiteLLM takes seconds and 190 MiB; it comes with the first name that needs it."""
    code = "import sys, honcho_fallback_litellm; assert 'litellm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
