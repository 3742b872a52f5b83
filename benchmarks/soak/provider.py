"""Two providers that do with each request what its prompt says, and note it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from soak.plan import CUT_LATE, OK, REJECTED, STALL, STALL_LATE, read_prompt
from standins import Reply, Request, serve

if TYPE_CHECKING:
    from collections.abc import Callable

PRIMARY, BACKUP = "primary", "backup"
TARGETS = (PRIMARY, BACKUP)
CONTROL = 2
# Of one attempt, in seconds; long enough that a busy machine does not make an answer late.
TIMEOUT = 5.0
_LONGEST_ANSWER = 0.02
# Who does not leave a provider that hangs is found there in the end.
_FOREVER = 3600.0
_BAD = "BAD"

_STATUSES: dict[str, tuple[int, dict[str, Any], dict[str, str]]] = {
    "500": (500, {"message": "The server failed", "type": "server_error"}, {}),
    "503": (503, {"message": "Overloaded", "type": "overloaded_error"}, {}),
    "429": (429, {"message": "Slow down", "type": "requests"}, {}),
    "429 retry-after": (429, {"message": "Slow down", "type": "requests"}, {"retry-after": "1"}),
    "401": (401, {"message": "This key is wrong", "code": "invalid_api_key"}, {}),
    REJECTED: (400, {"message": "What is this?", "type": "invalid_request_error"}, {}),
}


def text_of(number: int, target: str, request: int) -> str:
    """Write the one answer to a call's n-th request, counted from 1."""
    return f"{number} by {target} #{request}"


def _answer(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], "usage": usage}


def _event(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice]})


class Providers:
    """Hold what came."""

    def __init__(self) -> None:
        self.log: list[tuple[int, str, str]] = []
        self.asked: Counter[int] = Counter()
        self.dice = Random(1)

    def at(self, target: str) -> Callable[[Request, Reply], Any]:
        async def handle(request: Request, reply: Reply) -> None:
            body = request.json()
            number, faults = read_prompt(body["messages"][-1]["content"])
            before = self.asked[number]
            self.asked[number] += 1
            fault = faults[min(before, len(faults) - 1)]
            self.log.append((number, target, fault))
            text = text_of(number, target, before + 1)
            await asyncio.sleep(self.dice.uniform(0, _LONGEST_ANSWER))
            if fault in _STATUSES:
                status, error, headers = _STATUSES[fault]
                await reply.json(status, {"error": error}, headers)
            elif fault == "dropped":
                reply.drop()
            elif fault == STALL:
                await reply.hang(_FOREVER)
            elif body.get("stream"):
                await self._stream(reply, fault, text)
            else:
                await self._whole(reply, fault, text)

        return handle

    async def _whole(self, reply: Reply, fault: str, text: str) -> None:
        if fault == OK:
            await reply.json(200, _answer(text))
        elif fault == "cut":
            await reply.json(200, _answer(f"{text} {_BAD}"), cut=40)
        elif fault == "junk":
            await reply.json(200, {**_answer(_BAD), "choices": []})
        else:
            await reply.json(200, {"error": {"message": "Overloaded", "code": 503}})

    async def _stream(self, reply: Reply, fault: str, text: str) -> None:
        await reply.begin_events()
        if fault == "junk":
            await reply.end_events()
            return
        await reply.event(_event({"role": "assistant", "content": ""}))
        if fault == "cut early":
            reply.drop()
            return
        if fault == "error under 200":
            error = {"message": "Overloaded", "type": "overloaded_error", "code": "503"}
            await reply.event(json.dumps({"error": error}))
            await reply.end_events()
            return
        words = text.split(" ")
        for place, word in enumerate(words):
            if place == 2 and fault == CUT_LATE:
                reply.drop()
                return
            if place == 2 and fault == STALL_LATE:
                # After content a policy waits as long as its client does, and some wait for ever.
                await reply.hang(TIMEOUT)
                return
            await reply.event(_event({"content": word if place == 0 else f" {word}"}))
            await asyncio.sleep(self.dice.uniform(0, _LONGEST_ANSWER / len(words)))
        await reply.event(_event({}, "stop"))
        await reply.event("[DONE]")
        await reply.end_events()

    async def at_control(self, _: Request, reply: Reply) -> None:
        """Hand out the log since the last time."""
        told, self.log = self.log, []
        await reply.json(200, told)


if __name__ == "__main__":
    providers = Providers()
    serve(providers.at(PRIMARY), providers.at(BACKUP), providers.at_control)
