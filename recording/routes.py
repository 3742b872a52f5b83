"""A mitmproxy script: sends each host's requests where the routes file says.

It runs in mitmproxy's own environment. A host without a route gets an error answer, so a recording
without keys cannot reach a real provider.
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mitmproxy import http  # type: ignore[import-not-found] # lives in .venv-record only

ROUTES = Path(os.environ["RECORDING_ROUTES"])


def request(flow: Any) -> None:
    """Point a request at its stand-in; the client keeps the provider's real address."""
    request = flow.request
    address = request.host if request.port in {80, 443} else f"{request.host}:{request.port}"
    route = json.loads(ROUTES.read_text("utf-8")).get(address)
    if route is None:
        flow.response = http.Response.make(599, b"no route for " + address.encode())
    elif route != "live":
        to = urlsplit(route)
        request.scheme, request.host, request.port = to.scheme, to.hostname, to.port
        request.path = to.path + request.path
