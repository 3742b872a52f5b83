from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
from rich.console import Console

from honcho_fallback.cli._demo import DemoError, run

# The Proxy alone imports for 15 seconds of a processor, on a machine that may be busy.
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed"),
]

PROXY_PACKAGES = ("apscheduler", "fastapi_sso", "uvicorn", "soundfile")
BROKEN = """
import sys
from rich.console import Console
from honcho_fallback.cli import _via
_via._CASES = (_via._CASES[-1]._replace(fault=lambda simulator: simulator.fail(429)),)
sys.exit(_via.run("litellm", Console(width=200)))
"""


def run_demo(via: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as a user does, with a terminal wide enough not to wrap, and no network."""
    given = {
        "COLUMNS": "200",
        "OPENAI_API_KEY": "",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    return subprocess.run(
        [sys.executable, "-m", "honcho_fallback.cli", "demo", "--via", via],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("via", ["litellm", "proxy"])
def test_the_demo_ends_as_it_should_without_key_and_network(via: str) -> None:
    """The dead primary sees one request per call, a 400 stays the caller's, and status is 0."""
    if via == "proxy" and not all(find_spec(needed) for needed in PROXY_PACKAGES):
        pytest.skip("the Proxy's own packages are not installed")
    done = run_demo(via)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("requests at the primary: 1, expected 1") == 4
    answered = re.findall(r"answered by: (\w+), attempts: (\d)", done.stdout)
    # A stream's headers are on their way before it is known who answers.
    recovered = [("backup", "2")] if via == "litellm" else []
    assert answered == [("backup", "2"), *recovered, ("primary", "1")]
    assert "the caller got: BadRequestError" in done.stdout
    assert ("reason=rate_limit" in done.stdout) == (via == "litellm")
    assert "All 4 calls ended as they should." in done.stdout
    assert "FAILED" not in done.stdout


def test_a_call_that_ends_otherwise_gives_status_1() -> None:
    """Each check can say no: here the primary fails where it was to answer."""
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAILED: the one who answered: 'backup', expected 'primary'" in done.stdout
    assert "1 of 1 calls ended otherwise." in done.stdout


def test_routed_demos_play_simulated_providers_only() -> None:
    """Real targets are for the others; nothing is started."""
    with pytest.raises(DemoError, match="leave --primary and --fallback out"):
        run("openai/one", "openai/two", Console(), "litellm")


def test_a_missing_litellm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says what to install."""
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(DemoError, match=r"pip install 'honcho-fallback\[litellm\]'"):
        run(None, None, Console(), "litellm")
