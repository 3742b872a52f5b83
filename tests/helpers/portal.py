"""An OAuth provider on loopback whose refresh tokens are spent by being used once."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from werkzeug import Response

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer
    from werkzeug import Request

REFRESH = "rt-secret-"


class Portal:
    """Exchange ``rt-secret-N`` for ``at-N+1`` and ``rt-secret-N+1``, and that for keys.

    Attributes:
        token_requests: The refresh tokens that were sent, in order.
        number: Of the refresh token that is good.
        minted: How many keys were given out; the last is ``key-N``.
        fields: What else a token's answer says.
        arrived: Is set when a request for a token has come.
        hold: A request for a token waits for it.
        spends_at_once: Whether a token is spent before that, or after.
        refuses_held: Whether what waited is refused in the end, and nothing spent.
    """

    def __init__(self, server: HTTPServer) -> None:
        self.server = server
        self.number = 0
        self.minted = 0
        self.fields: dict[str, Any] = {}
        self.token_requests: list[str] = []
        self.arrived, self.hold = threading.Event(), threading.Event()
        self.hold.set()
        self.spends_at_once = True
        self.refuses_held = False
        server.expect_request("/api/oauth/token").respond_with_handler(self._token)
        server.expect_request("/api/oauth/agent-key").respond_with_handler(self._mint)

    @property
    def url(self) -> str:
        """Return where it is."""
        return self.server.url_for("").rstrip("/")

    @property
    def token_url(self) -> str:
        """Return its token endpoint."""
        return self.server.url_for("/api/oauth/token")

    def _token(self, request: Request) -> Response:
        (refresh_token,) = parse_qs(request.get_data(as_text=True))["refresh_token"]
        self.token_requests.append(refresh_token)
        if refresh_token != f"{REFRESH}{self.number}":
            refusal = {"error": "invalid_grant", "error_description": f"{refresh_token} is spent"}
            return Response(json.dumps(refusal), 400)
        self.number += self.spends_at_once
        self.arrived.set()
        if not self.hold.wait(10) or self.refuses_held:
            self.refuses_held = False
            return Response(status=504)
        self.number += not self.spends_at_once
        answer = {"access_token": f"at-{self.number}", "expires_in": 3600}
        successor = {"refresh_token": f"{REFRESH}{self.number}"}
        return Response(json.dumps(answer | successor | self.fields))

    def _mint(self, request: Request) -> Response:
        if request.headers["Authorization"] != f"Bearer at-{self.number}":
            return Response(json.dumps({"error": "invalid_token"}), 401)
        if request.get_json() != {"min_ttl_seconds": 7200}:
            return Response(json.dumps({"error": "invalid_request"}), 400)
        self.minted += 1
        return Response(json.dumps({"api_key": f"key-{self.minted}", "expires_in": 7200}))
