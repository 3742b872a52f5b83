"""The first failure in a fresh process: what a switch needs was made when it was loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers.provider import ROOT
from tests.honcho.chat_models import settings

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

# LangChain's tracing and the event loop's backend come with the first call, whoever is asked.
FEW = 40
PROBE = """
import asyncio, json, sys
from honcho_fallback_honcho import load_chat_models

async def streamed():
    return "".join([chunk.text async for chunk in model.astream("hi")])

model = load_chat_models(json.loads(sys.argv[1]))["deriver"]
types = sys.modules.get("google.genai.types")
built = types is None or types.GenerateContentConfig.__pydantic_complete__
before = set(sys.modules)
text = model.invoke("hi").text if sys.argv[2] == "invoke" else asyncio.run(streamed())
print(json.dumps({
    "text": text,
    "before": sorted({name.partition(".")[0] for name in before}),
    "new": sorted(set(sys.modules) - before),
    "built": built,
}))
"""


@pytest.mark.parametrize(
    ("primary", "fallback", "verb"),
    [("openai", "gemini", "invoke"), ("gemini", "anthropic", "astream")],
)
def test_the_first_switch_imports_no_sdk(
    providers: ProviderServer, primary: str, fallback: str, verb: str
) -> None:
    """A switch finds its SDK imported, and what it builds lazily built; nobody else's is."""
    providers[primary].fail(503)
    environ = json.dumps(settings(providers, primary, fallback))
    path = f"{ROOT}:{ROOT / 'adapters'}"
    process = subprocess.run(
        [sys.executable, "-c", PROBE, environ, verb],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    seen = json.loads(process.stdout)
    assert seen["text"] == f"hello from {fallback}"
    assert providers.order == [primary, fallback]
    assert ("anthropic" in seen["before"]) is (fallback == "anthropic")
    assert {name.partition(".")[0] for name in seen["new"]} <= {*seen["before"]}
    sdks = ("anthropic.", "google.", "httpx.", "httpx2.", "langchain_anthropic.", "openai.")
    assert not [name for name in seen["new"] if name.startswith(sdks)]
    assert len(seen["new"]) < FEW
    assert seen["built"]
