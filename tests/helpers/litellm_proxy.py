"""Processes of `litellm --config`, started and stopped as a user does it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.helpers.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.helpers.provider import ProviderServer

KEY = "sk-a-long-key-for-tests-on-loopback-only"
PACKAGES = ("apscheduler", "fastapi_sso", "uvicorn", "soundfile")
STARTUP_SECONDS = 300.0
_ENDS_WITHIN = 20.0
# None while it serves; uvicorn's 3 is a start that was refused, for which tests ask.
_EXPECTED_EXITS = frozenset({None, 3})


class ProxyProcess(NamedTuple):
    """A Proxy that has been started, with its address, its output and how many workers serve."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    workers: int


def start_proxy(
    config: Path,
    providers: ProviderServer,
    log: Path,
    environ: Mapping[str, str] | None = None,
    *,
    workers: int = 1,
) -> ProxyProcess:
    """Start a Proxy on a free port, and do not wait for it.

    Args:
        config: The YAML.
        providers: Who answers as OpenAI under ``primary`` and as Anthropic under ``backup``.
        log: Where its output goes.
        environ: What the environment has beside keys and addresses.
        workers: How many processes serve.
    """
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    environ = {
        **clean,
        "LITELLM_MASTER_KEY": KEY,
        "PYTHONFAULTHANDLER": "1",
        "OPENAI_API_KEY": "key-of-primary",
        "OPENAI_BASE_URL": f"{providers.url}/primary",
        "ANTHROPIC_API_KEY": "key-of-backup",
        "ANTHROPIC_BASE_URL": f"{providers.url}/backup",
        # Importing on a busy machine, a worker must not be taken for dead after uvicorn's 5 s.
        "TIMEOUT_WORKER_HEALTHCHECK": str(int(STARTUP_SECONDS)),
        **(environ or {}),
    }
    program = Path(sys.executable).parent / "litellm"
    options = {"--config": config, "--host": "127.0.0.1", "--port": port, "--num_workers": workers}
    command = [str(program), *(str(word) for option in options.items() for word in option)]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environ, cwd=log.parent, stdout=output, stderr=subprocess.STDOUT
        )
    return ProxyProcess(process, f"http://127.0.0.1:{port}", log, workers)


def wait_for_proxy(proxy: ProxyProcess) -> None:
    """Return once all workers serve; fail the test with the end of the log if they never do."""
    until = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < until and proxy.process.poll() is None:
        output = proxy.log.read_text("utf-8")
        # A single process listens only after its startup, several listen before theirs.
        listens = "Uvicorn running on" in output
        if listens and output.count("Application startup complete.") == proxy.workers:
            return
        time.sleep(0.1)
    pytest.fail(f"the Proxy did not start, {_state_of(proxy)}", pytrace=False)


def stop_proxies(*proxies: ProxyProcess) -> None:
    """End them together, by the signal on which uvicorn ends its workers, too.

    A Proxy that has ended by itself fails the test, with its exit code and the end of its log.
    """
    crashed = [proxy for proxy in proxies if proxy.process.poll() not in _EXPECTED_EXITS]
    for proxy in proxies:
        proxy.process.terminate()
    for proxy in proxies:
        try:
            proxy.process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            proxy.process.kill()
            proxy.process.wait()
    if crashed:
        states = "\n".join(_state_of(proxy) for proxy in crashed)
        pytest.fail(f"a Proxy ended by itself, {states}", pytrace=False)


def _state_of(proxy: ProxyProcess) -> str:
    log = proxy.log.read_text("utf-8", "replace")
    code = proxy.process.poll()
    return f"exit code {code} (None: it runs):\n{log[:5_000]}\n[...]\n{log[-10_000:]}"
