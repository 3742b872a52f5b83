"""The servers that stand in for providers while cassettes are recorded."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Self

from llmock.testing import LLMockServer
from pytest_httpserver import HTTPServer
from werkzeug import Response

from recording.local_model import local_model_server
from recording.replies import HOSTS, REPLIES, Canned, LocalModel, Simulated, host_of

if TYPE_CHECKING:
    from pathlib import Path

_ANYTHING = re.compile(r"/.*")


class StandIns:
    """Run one server of each sort, and route hosts to them, test by test.

    Args:
        routes: The file that the proxy's script reads.
    """

    def __init__(self, routes: Path) -> None:
        self._routes = routes
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._llmock = self._stack.enter_context(LLMockServer())
        self._canned = HTTPServer(host="127.0.0.1", port=0)
        self._canned.start()
        self._stack.callback(self._canned.stop)
        self._local = self._stack.enter_context(local_model_server())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def arm(self, replies: tuple[str, ...]) -> list[str]:
        """Make each host give its reply to the next request, and say who will be speaking."""
        self._llmock.state.reset()
        self._canned.clear()
        routes: dict[str, str] = {}
        origins: list[str] = []
        for name in replies:
            address = HOSTS[host_of(name)].address
            routes[address], origin = self._arm(name)
            origins.append(f"{address} is {origin}")
        self._routes.write_text(json.dumps(routes), "utf-8")
        return origins

    def _arm(self, name: str) -> tuple[str, str]:
        host, reply = HOSTS[host_of(name)], REPLIES[name]
        if reply.live and host.key and os.environ.get(host.key):
            today = dt.datetime.now(dt.UTC).date()
            return "live", f"the real provider, on {today.isoformat()}"
        match reply:
            case Simulated(behavior):
                self._llmock.state.scenarios.add(behavior)
                route = self._llmock.url + host.llmock_path
                return route, f"llmock {version('llmock')} (an imitation)"
            case Canned():
                answer = Response(
                    reply.text, reply.status, reply.headers, content_type=reply.content_type
                )
                self._canned.expect_oneshot_request(_ANYTHING).respond_with_response(answer)
                server = f"pytest-httpserver {version('pytest-httpserver')}"
                route = self._canned.url_for("").rstrip("/")
                return route, f"{server} (an imitation, written by hand)"
            case LocalModel():
                server = f"xllamacpp {version('xllamacpp')}"
                return (
                    self._local.url,
                    f"{server} (llama.cpp's server on tiny random weights, in LM Studio's place)",
                )
