"""The Nous portal on loopback: its refresh tokens are spent by being used once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
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
        min_ttl: The seconds that a key may be asked for.
    """

    def __init__(self, server: HTTPServer) -> None:
        self.url = server.url_for("").rstrip("/")
        self.token_requests: list[str] = []
        self.number, self.minted, self.min_ttl = 0, 0, 7200
        server.expect_request("/api/oauth/token").respond_with_handler(self._token)
        server.expect_request("/api/oauth/agent-key").respond_with_handler(self._mint)

    def _token(self, request: Request) -> Response:
        (refresh_token,) = parse_qs(request.get_data(as_text=True))["refresh_token"]
        self.token_requests.append(refresh_token)
        if refresh_token != f"{REFRESH}{self.number}":
            refusal = {"error": "invalid_grant", "error_description": f"{refresh_token} is spent"}
            return Response(json.dumps(refusal), 400)
        self.number += 1
        answer = {"access_token": f"at-{self.number}", "expires_in": 3600}
        return Response(json.dumps({**answer, "refresh_token": f"{REFRESH}{self.number}"}))

    def _mint(self, request: Request) -> Response:
        if request.headers["Authorization"] != f"Bearer at-{self.number}":
            return Response(json.dumps({"error": "invalid_token"}), 401)
        if request.get_json() != {"min_ttl_seconds": self.min_ttl}:
            return Response(json.dumps({"error": "invalid_request"}), 400)
        self.minted += 1
        return Response(json.dumps({"api_key": f"key-{self.minted}", "expires_in": 7200}))
