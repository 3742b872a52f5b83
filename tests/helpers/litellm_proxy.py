"""A process of `litellm --config`, started and stopped as a user does it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tests.helpers.provider import ProviderServer

KEY = "sk-a-long-key-for-tests-on-loopback-only"
PACKAGES = ("apscheduler", "fastapi_sso", "uvicorn", "soundfile")
_STARTS_WITHIN = 150
_ENDS_WITHIN = 20.0


@contextmanager
def litellm_proxy(
    config: Path, providers: ProviderServer, log: Path, environ: Mapping[str, str], *, workers: int
) -> Generator[str, None, None]:
    """Run a Proxy on a free port until the block ends; yield its address once all workers serve.

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
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_KEY": "key-of-primary",
        "OPENAI_BASE_URL": f"{providers.url}/primary",
        "ANTHROPIC_API_KEY": "key-of-backup",
        "ANTHROPIC_BASE_URL": f"{providers.url}/backup",
        # Importing on a busy machine, a worker must not be taken for dead after uvicorn's 5 s.
        "TIMEOUT_WORKER_HEALTHCHECK": str(_STARTS_WITHIN),
        **environ,
    }
    program = Path(sys.executable).parent / "litellm"
    options = {"--config": config, "--host": "127.0.0.1", "--port": port, "--num_workers": workers}
    command = [str(program), *(str(word) for option in options.items() for word in option)]
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, env=environ, cwd=log.parent, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            _wait(process, log, workers)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)  # on which uvicorn ends its workers, too
            try:
                process.wait(_ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(process: subprocess.Popen[bytes], log: Path, workers: int) -> None:
    until = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < until and process.poll() is None:
        if log.read_text("utf-8").count("Application startup complete.") == workers:
            return
        time.sleep(0.1)
    pytest.fail("the Proxy did not start:\n" + log.read_text("utf-8")[-3000:], pytrace=False)
