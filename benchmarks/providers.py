"""Scripted providers in a process of their own: they take no time from what is measured.

``python -m benchmarks.providers`` prints its port and ends when its input does;
``ProviderProcess`` runs it and speaks to its path ``/_control``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.helpers.provider import Provider, ProviderServer, Reply

if TYPE_CHECKING:
    from tests.helpers.provider import SeenRequest
    from tests.helpers.wire import Json

ROOT = Path(__file__).resolve().parent.parent
CONTROL = "_control"


class ControlledServer(ProviderServer):
    """Do what another process wants."""

    def take(self, name: str, request: SeenRequest) -> tuple[Provider, Reply]:
        if name == CONTROL:
            return Provider(name, self.url), Reply(body=self.control(request.body))
        return self.answer(name, request)

    def answer(self, name: str, request: SeenRequest) -> tuple[Provider, Reply]:
        return super().take(name, request)

    def control(self, order: Json) -> Json:
        """Do what another process wants, and tell it what was seen.

        Args:
            order: ``reset``, if true, forgets everything first. ``providers`` gives for each name
                ``replies`` to queue, ``always`` as its standing reply, and its ``key``.
        """
        if order.get("reset"):
            self.reset()
        for name, wanted in order.get("providers", {}).items():
            provider = self[name]
            provider.reply(*(Reply(**fields) for fields in wanted.get("replies", ())))
            if "always" in wanted:
                provider.standing = Reply(**wanted["always"])
            provider.key = wanted.get("key", provider.key)
        with self._lock:
            requests = {
                name: [asdict(request) for request in provider.requests]
                for name, provider in self._providers.items()
            }
            return {"order": [*self.order], "requests": requests}


class ProviderProcess:
    """Run a provider server in a process of its own: it takes no time from what is measured.

    Args:
        module: What is run; it makes a server and hands it to ``run``.

    Attributes:
        url: Where it listens.
    """

    def __init__(self, module: str = "benchmarks.providers") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"{module} ended before it listened: run it by hand to see why")
        self.url = f"http://127.0.0.1:{port}"
        # A proxy of the environment is not asked for loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def control(self, **order: Any) -> Any:
        """Tell the server what to do, and return what it has seen; see ``ControlledServer``."""
        data = json.dumps(order).encode()
        with self._opener.open(f"{self.url}/{CONTROL}", data, timeout=60) as answer:
            return json.load(answer)

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()


def run(server: ProviderServer) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's, which ends the input
    with server:
        sys.stdout.write(server.url.rpartition(":")[2] + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    run(ControlledServer())
