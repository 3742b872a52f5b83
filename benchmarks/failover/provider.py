"""A primary that fails as it is told, a fallback that answers, and what both saw."""

from __future__ import annotations

from typing import Any

from standins import Reply, Request, serve

OK = "ok"
DROP, HANG = "dropped", "hang"
LONGEST_HANG = 120.0

_SERVER = {"message": "The server failed", "type": "server_error", "param": None, "code": None}
_RATE = {"message": "Slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}
_KEY = {
    "message": "This key is wrong",
    "type": "invalid_request_error",
    "param": None,
    "code": "invalid_api_key",
}
_ERRORS: dict[str, tuple[int, dict[str, Any], dict[str, str]]] = {
    "500": (500, _SERVER, {}),
    "429": (429, _RATE, {}),
    "429, Retry-After 5": (429, _RATE, {"retry-after": "5"}),
    "401": (401, _KEY, {}),
}
MODES = (*_ERRORS, DROP, HANG)

_GOOD = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Provider:
    """Hold how the primary behaves and what came."""

    def __init__(self) -> None:
        self.mode = OK
        self.primary: list[list[int]] = []
        self.backup: list[int] = []

    async def at_primary(self, request: Request, reply: Reply) -> None:
        seen = [request.arrived, 0]
        self.primary.append(seen)
        await self._primary(reply)
        seen[1] = reply.sent

    async def _primary(self, reply: Reply) -> None:
        if self.mode == OK:
            await reply.json(200, _GOOD)
        elif self.mode == DROP:
            reply.drop()
        elif self.mode == HANG:
            await reply.hang(LONGEST_HANG)
        else:
            status, error, headers = _ERRORS[self.mode]
            await reply.json(status, {"error": error}, headers)

    async def at_backup(self, request: Request, reply: Reply) -> None:
        self.backup.append(request.arrived)
        await reply.json(200, _GOOD)

    async def at_control(self, request: Request, reply: Reply) -> None:
        """Take the mode's number (-1: well), or tell what came since."""
        _, _, number = request.path.partition("?mode=")
        if number:
            self.mode = OK if number == "-1" else MODES[int(number)]
            self.primary, self.backup = [], []
        await reply.json(200, {"primary": self.primary, "backup": self.backup})


if __name__ == "__main__":
    provider = Provider()
    serve(provider.at_primary, provider.at_backup, provider.at_control)
