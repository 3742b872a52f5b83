"""What the strategy costs under LiteLLM's Router: a call, and the way from a failure to the next.

First with mock responses, no sockets: microseconds of one call. Then over loopback: milliseconds
from the primary's failing answer to the fallback's request, as the servers see them, and how many
requests reached the dead primary. Modes take turns in one process. Quote ratios of one run.
"""

# LiteLLM's objects and dicts have whatever shape they have; this is no part of the package.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportPrivateImportUsage=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import random
import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # after the variable that it reads
from litellm import Router  # as above

from honcho_fallback_litellm import FallbackRoutingStrategy  # as above

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MESSAGES = [{"role": "user", "content": "hello"}]
BROKEN = "litellm.InternalServerError"
GOOD = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Server:
    """Fail at /primary, answer elsewhere, and note when."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.failed: list[float] = []
        self.answered: list[float] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                arrived = time.perf_counter()
                self.rfile.read(int(self.headers["content-length"]))
                dead = self.path.startswith("/primary")
                body = json.dumps({"error": {"message": "no"}} if dead else GOOD).encode()
                self.send_response(status if dead else 200)
                for name, value in (headers if dead else {}).items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                if dead:
                    outer.failed.append(time.perf_counter())
                else:
                    outer.answered.append(arrived)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its own name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def models(first: dict[str, Any], second: dict[str, Any], mode: str) -> list[dict[str, Any]]:
    places = []
    for rank, params in enumerate((first, second)):
        name = "group" if rank == 0 or mode == "ours" else "backup"
        info = {"fallback_rank": rank} if mode == "ours" else {}
        places.append({"model_name": name, "litellm_params": params, "model_info": info})
    return places


def router(mode: str, first: dict[str, Any], second: dict[str, Any]) -> Router:
    options: dict[str, Any] = {"disable_cooldowns": True}
    if mode == "ours":
        made = Router(model_list=models(first, second, mode), **options)
        FallbackRoutingStrategy().register(made)
        return made
    if mode == "one deployment":
        return Router(model_list=models(first, second, mode)[:1], **options)
    if mode.endswith("num_retries=0"):
        options["num_retries"] = 0
    fallbacks = [{"group": ["backup"]}]
    return Router(model_list=models(first, second, mode), fallbacks=fallbacks, **options)


async def timed(call: Callable[[], Awaitable[object]], count: int) -> list[float]:
    spent: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        await call()
        spent.append((time.perf_counter() - start) * 1e6)
    return spent


def line(name: str, spent: list[float], floor: float | None) -> str:
    median = statistics.median(spent)
    p99 = sorted(spent)[int(0.99 * (len(spent) - 1))]
    share = f"{median / floor:8.2f} x" if floor else ""
    return f"  {name:<34}{median:10.0f}{p99:10.0f}{share}"


async def show_calls(calls: int, rounds: int) -> None:
    good = {"model": "openai/a", "api_key": "k", "mock_response": "hi"}
    bad = {**good, "mock_response": BROKEN}
    happy = {
        "one deployment": router("one deployment", good, good),
        "fallbacks": router("fallbacks", good, good),
        "ours": router("ours", good, good),
    }
    failing = {
        "fallbacks, num_retries=0": router("fallbacks, num_retries=0", bad, good),
        "ours": router("ours", bad, good),
    }
    print(f"\n{'microseconds of one acompletion':<36}{'median':>10}{'p99':>10}")
    order = random.Random(7)
    for title, made in (("mock, happy", happy), ("mock, failing once", failing)):
        spent: dict[str, list[float]] = {name: [] for name in made}
        asks = {
            name: (lambda one=one: one.acompletion(model="group", messages=MESSAGES))
            for name, one in made.items()
        }
        for ask in asks.values():
            await timed(ask, 30)
        for _ in range(rounds):
            for name in order.sample(list(asks), len(asks)):
                spent[name] += await timed(asks[name], calls // rounds)
        print(title)
        floor = statistics.median(next(iter(spent.values())))
        for name, figures in spent.items():
            print(line(name, figures, floor))


def show_selection(count: int) -> None:
    good = {"model": "openai/a", "api_key": "k", "mock_response": "hi"}
    plain = Router(
        model_list=[
            {"model_name": "group", "litellm_params": dict(good), "model_info": {"id": str(n)}}
            for n in range(2)
        ]
    )
    ours = router("ours", dict(good), dict(good))

    async def select(made: Router) -> list[float]:
        return await timed(
            lambda: made.async_get_available_deployment(
                model="group", request_kwargs={"metadata": {}}, messages=MESSAGES
            ),
            count,
        )

    print("selection alone")
    spent: dict[str, list[float]] = {}
    for _ in range(2):  # the first round warms up
        spent = {
            name: asyncio.run(select(one)) for name, one in (("LiteLLM's", plain), ("ours", ours))
        }
    floor = statistics.median(spent["LiteLLM's"])
    for name, figures in spent.items():
        print(line(name, figures, floor))


def show_gaps(count: int) -> None:
    print("\nfrom the failing answer to the fallback's request; requests at the dead one")
    modes = {"fallbacks": 2, "fallbacks, num_retries=0": count, "ours": count}
    for title, status, headers in (
        ("500", 500, {}),
        ("429, Retry-After 1", 429, {"retry-after": "1"}),
    ):
        print(title)
        for mode, times in modes.items():
            server = Server(status, headers)
            params = {"api_key": "k", "model": "openai/a"}
            made = router(
                mode,
                {**params, "api_base": f"{server.url}/primary"},
                {**params, "api_base": f"{server.url}/backup"},
            )
            made.completion(model="group", messages=MESSAGES)  # connections, caches
            dead = len(server.failed)
            gaps = []
            for _ in range(times):
                made.completion(model="group", messages=MESSAGES)
                gaps.append((server.answered[-1] - server.failed[-1]) * 1e3)
            first = (len(server.failed) - dead) / times
            print(f"  {mode:<34}{statistics.median(gaps):10.1f} ms{first:8.0f}")
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=600, help="per mode (default 600)")
    parser.add_argument("--rounds", type=int, default=6, help="interleaved (default 6)")
    parser.add_argument("--gaps", type=int, default=30, help="failures per mode (default 30)")
    options = parser.parse_args()

    logging.disable(logging.CRITICAL)
    litellm.suppress_debug_info = True
    print(
        f"Python {platform.python_version()}, litellm {version('litellm')}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    asyncio.run(show_calls(options.calls, options.rounds))
    show_selection(options.calls)
    show_gaps(options.gaps)


if __name__ == "__main__":
    main()
