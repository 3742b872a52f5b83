"""What classify and check_response cost: microseconds of process time, median and worst.

The mix is written in our own words after what providers send: short documents, gateways' wrapped
ones, bare transport errors, long messages that only the texts decide. With ``--corpus`` the real
errors of that folder are asked, too; its own requirements have to be installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import requests
from openai.types.chat import ChatCompletion

from honcho_fallback import check_response, classify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

GOAL = 30.0
URL = "https://provider.test/v1/chat"
LONG = "The request could not be handled as it was sent to us; please look at it again. " * 8


def status(code: int, error: Any, **headers: str) -> Exception:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request: Any = httpx.Request("POST", URL)
    answer: Any = httpx.Response(code, json={"error": error}, headers=named, request=request)
    body = {"error": error}
    return openai.APIStatusError(f"Error code: {code} - {body}", response=answer, body=error)


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def mix() -> list[Exception]:
    request: Any = httpx.Request("POST", URL)
    inner = json.dumps({"error": {"code": 400, "message": "your input is too long for us"}})
    reset = ConnectionResetError(104, "reset by peer")
    return [
        status(
            429, {"message": "slow down, try again in 7s", "type": "requests"}, retry_after="7"
        ),
        status(429, {"message": "your credit is used up", "code": "insufficient_quota"}),
        status(429, {"message": "this month's usage limit has been reached", "type": "limit"}),
        status(503, {"message": "we are overloaded at the moment", "type": "overloaded_error"}),
        status(500, {"message": "something went wrong on our side", "type": "server_error"}),
        status(502, {"message": "the machine behind us did not answer", "code": 502}),
        status(
            401, {"message": "that is an incorrect api key: sk-abc", "code": "invalid_api_key"}
        ),
        status(403, {"message": "this key may not use the model", "type": "permission"}),
        status(404, {"message": "the model nimbus-9 does not exist", "code": "model_not_found"}),
        status(404, {"message": "nothing is known under this path", "type": "not_found"}),
        status(413, {"message": "the request is larger than what we take"}),
        status(400, {"message": "the context window holds less than this", "param": "messages"}),
        status(
            400, {"message": "messages[3].role: what is this?", "type": "invalid_request_error"}
        ),
        status(400, {"message": LONG, "type": "invalid_request_error"}),
        status(400, {"message": LONG + "the prompt is too long", "type": "invalid_request_error"}),
        status(400, {"message": "no", "metadata": {"raw": inner, "provider_name": "one"}}),
        status(422, {"message": "temperature: not a number", "param": "temperature"}),
        openai.APITimeoutError(request=request),
        caused(
            openai.APIConnectionError(request=request), caused(httpx.ConnectError("no"), reset)
        ),
        openai.APIError("later, we are overloaded", request, body={"code": 502}),
        httpx.ReadTimeout("too slow"),
        httpx.RemoteProtocolError("peer closed connection without sending a complete body"),
        requests.ConnectionError("connection aborted"),
        TimeoutError(),
        RuntimeError("a bug"),
        KeyError("choices"),
    ]


def answers() -> list[Any]:
    message = {"role": "assistant", "content": "well"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "choices": [choice]}
    built = ChatCompletion.model_validate({**whole, "model": "m"})
    return [built, whole]


def real(folder: Path) -> Iterable[BaseException]:
    sys.path.insert(0, str(folder))
    materialise = importlib.import_module("to_exceptions").materialise
    for line in (folder / "errors.dev.jsonl").read_text(encoding="utf-8").splitlines():
        error = materialise(json.loads(line))
        if error is not None:
            yield error


def measured(ask: Callable[[Any], object], subjects: Iterable[Any], rounds: int) -> list[float]:
    clock = time.process_time_ns
    spent: list[float] = []
    for subject in subjects:
        best = float("inf")
        for _ in range(rounds):
            start = clock()
            for _ in range(20):
                ask(subject)
            best = min(best, (clock() - start) / 20e3)
        spent.append(best)
    return spent


def show(name: str, spent: list[float], goal: str = "") -> None:
    print(f"  {name:<44}{statistics.median(spent):8.2f}{max(spent):9.2f}  {goal}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40, help="per error (default 40)")
    parser.add_argument("--corpus", type=Path, help="folder of real errors")
    options = parser.parse_args()
    print(
        f"\nPython {platform.python_version()}, microseconds{'median':>31}{'worst':>9}  to reach"
    )
    show(
        "classify, one error of the mix", measured(classify, mix(), options.rounds), f"<= {GOAL:g}"
    )
    if options.corpus:
        spent = measured(classify, real(options.corpus), options.rounds)
        show("classify, one real error", spent, f"<= {GOAL:g}")
    show("check_response, a text", measured(check_response, ["well"], options.rounds), "<= 1")
    show("check_response, an answer", measured(check_response, answers(), options.rounds))


if __name__ == "__main__":
    main()
