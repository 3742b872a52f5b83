"""Two providers that do with each request what its prompt says, and note it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.providers import ControlledServer, run
from benchmarks.soak.plan import (
    CUT_LATE,
    JUNK,
    OK,
    REJECTED,
    STALL,
    STALL_LATE,
    TIMEOUT,
    read_prompt,
    text_of,
)
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_answer, chat_chunk, event, openai_error, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.provider import Provider, SeenRequest
    from tests.helpers.wire import Json

_LONGEST_ANSWER = 0.02
_BAD = "BAD"  # must never come out of a call
_OVERLOADED = openai_error(kind="overloaded_error", code="503")

_EVERYWHERE: dict[str, Json] = {
    "500": {"status": 500},
    "503": {"status": 503, "error": "overloaded_error"},
    "429": {"status": 429},
    "429 retry-after": {"status": 429, "headers": {"retry-after": "1"}},
    "401": {"status": 401},
    REJECTED: {"status": 400},
    "dropped": {"drop": True},
    STALL: {"hang": True, "events": ()},
}


class Paced(list[str]):
    """Events that take their time, so that readers leave between them."""

    def __init__(self, events: list[str], seconds: float, at_the_end: float = 0.0) -> None:
        super().__init__(events)
        self._seconds, self._at_the_end = seconds, at_the_end

    def __iter__(self) -> Iterator[str]:
        for item in super().__iter__():
            yield item
            time.sleep(self._seconds / len(self))
        time.sleep(self._at_the_end)


class SoakServer(ControlledServer):
    """Answer by the prompt, and keep of a request only its call, its target and its fault."""

    def __init__(self) -> None:
        self._requests: list[tuple[int, str, str]] = []
        self._asked: Counter[int] = Counter()
        self._dice = Random(1)
        self._mutex = threading.Lock()
        super().__init__()

    def answer(self, name: str, request: SeenRequest) -> tuple[Provider, Reply]:
        if not request.body:
            raise ConnectionError("the client left before it had asked")
        number, faults = read_prompt(request.body["messages"][-1]["content"])
        with self._mutex:
            self._asked[number] += 1
            place = self._asked[number]
            fault = faults[min(place, len(faults)) - 1]
            self._requests.append((number, name, fault))
            delay, pace = (self._dice.uniform(0, _LONGEST_ANSWER) for _ in range(2))
        write = _stream if request.body.get("stream") else _whole
        fields = _EVERYWHERE.get(fault) or write(fault, text_of(number, name, place), pace)
        return self[name], Reply(delay=delay, **fields)

    def control(self, order: Json) -> Json:
        """Hand out the requests since the last time."""
        with self._mutex:
            requests, self._requests = self._requests, []
        return {"requests": requests, "order": order}


def _whole(fault: str, text: str, _pace: float) -> Json:
    if fault == OK:
        return {"text": text}
    if fault == "cut":
        return {"text": f"{text} {_BAD}", "cut": True}
    return {"body": {**chat_answer(_BAD), "choices": []} if fault == JUNK else _OVERLOADED}


def _stream(fault: str, text: str, pace: float) -> Json:
    first = event(chat_chunk({"role": "assistant", "content": ""}))
    words = [event(chat_chunk({"content": word})) for word in words_of(text)]
    last = [event(chat_chunk({}, "stop")), "data: [DONE]"]
    endings: dict[str, Any] = {
        OK: {"events": Paced([first, *words, *last], pace)},
        JUNK: {"events": []},
        "error under 200": {"events": [first, event(_OVERLOADED)]},
        "cut early": {"events": [first], "cut": True},
        CUT_LATE: {"events": Paced([first, *words[:2]], pace), "cut": True},
        # After content a policy waits as long as its client does, and some wait for ever.
        STALL_LATE: {"events": Paced([first, *words[:2]], pace, TIMEOUT), "cut": True},
    }
    ending: Json = endings[fault]
    return ending


if __name__ == "__main__":
    run(SoakServer())
