"""Record every cassette anew: ``python recording/record.py [pytest arguments]``.

The clients keep the providers' real addresses; a mitmproxy between sends each request to a
stand-in on this machine, or, where OPENAI_API_KEY or ANTHROPIC_API_KEY is set, to the real
provider for what it says on demand. Errors that nobody can order stay simulated. Each cassette's
first line says which it was.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "contract"
# mitmproxy pins many versions exactly, so it gets an environment of its own.
PROXY_VENV = ROOT / ".venv-record"
PROXY = "mitmproxy>=11,<13"
STARTUP_SECONDS = 30.0


def proxy_program() -> Path:
    """Return mitmdump, installed on the first use."""
    folder = PROXY_VENV / ("Scripts" if os.name == "nt" else "bin")
    program = folder / "mitmdump"
    if not program.exists():
        venv.create(PROXY_VENV, with_pip=True)
        subprocess.run([folder / "python", "-m", "pip", "install", "-q", PROXY], check=True)
    return program


def proxy_version(program: Path) -> str:
    """Return what the proxy calls itself."""
    output = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    return output.stdout.splitlines()[0].replace("Mitmproxy: ", "mitmproxy ")


@contextmanager
def proxy(program: Path, folder: Path, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """Run the proxy, and tell clients by environment variables to use and trust it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    authority = folder / "mitmproxy-ca-cert.pem"
    # Lazily, because the upstream is known only once the request has been read.
    command: list[str | Path] = [
        program, "-q", "--set", f"confdir={folder}", "--set", "connection_strategy=lazy",
        "--set", "upstream_cert=false", "--listen-host", "127.0.0.1", "-p", str(port),
        "-s", ROOT / "recording" / "routes.py",
    ]  # fmt: skip
    running = subprocess.Popen(command, env=env)
    try:
        _wait_for(port, authority)
        address = f"http://127.0.0.1:{port}"
        yield {
            "HTTPS_PROXY": address,
            "HTTP_PROXY": address,
            "NO_PROXY": "",
            "AIOHTTP_TRUST_ENV": "True",
            "SSL_CERT_FILE": str(authority),
        }
    finally:
        running.terminate()
        running.wait()


def _wait_for(port: int, authority: Path) -> None:
    until = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < until:
        if authority.exists():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                pass
            else:
                return
        time.sleep(0.1)
    raise TimeoutError(f"mitmdump did not listen within {STARTUP_SECONDS:.0f} s")


def main(arguments: list[str]) -> int:
    """Record, then replay what was recorded with the network blocked."""
    program = proxy_program()
    if not arguments:
        shutil.rmtree(ROOT / "cassettes", ignore_errors=True)  # also what no test asks for now
    with TemporaryDirectory() as name:
        folder = Path(name)
        routes = folder / "routes.json"
        routes.write_text("{}", "utf-8")
        env = {**os.environ, "RECORDING_ROUTES": str(routes), "PYTHONPATH": str(ROOT)}
        with proxy(program, folder, env) as through:
            env = {**env, **through, "RECORDING_PROXY": proxy_version(program)}
            status = _pytest(
                ["-p", "recording.plugin", "-m", "vcr", "--record-mode=rewrite", *arguments], env
            )
    if status:
        return status
    loopback = "--allowed-hosts=127.0.0.1,localhost,::1"
    replay = ["--record-mode=none", "--block-network", loopback, *arguments]
    return _pytest(replay, dict(os.environ))


def _pytest(arguments: list[str], env: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", str(TESTS), "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
