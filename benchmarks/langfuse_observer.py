"""What a call costs more when the Langfuse handler hears of it: microseconds.

Every subject makes the same call: a policy whose primary answers at once with an answer of
OpenAI's form, the question told beforehand. "Added" is a subject's figure minus that of the same
call without an observer. The peer is the bare SDK: one generation with the same content, metadata
and usage, opened, updated and ended in the same run. Counted is the calling thread's own processor
time: the SDK's exporting threads, which the same interpreter runs, would land on any call at
random. Rounds are interleaved in random order, and the half with the lowest medians counts,
because other programs run on the machine too. Quote ratios: they come from one run.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import random
import socket
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from langfuse import Langfuse
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from honcho_fallback import FallbackObserver, FallbackPolicy, Target
from honcho_fallback_langfuse import LangfuseCallbackHandler, OpenTelemetryHandler

Call = Callable[[], object]

NOBODY, NO_KEYS, BARE = "no observer", "handler, no keys", "bare SDK, one generation"
MEMORY, HANGING = "handler, in-memory exporter", "handler, host that hangs"
ATTEMPTS, SPAN = "handler, in memory, per_attempt", "OpenTelemetryHandler, in memory"

# The figures to reach: added microseconds, and as a multiple of the bare SDK.
MOST_WITHOUT_KEYS = 10.0
MOST_ENABLED = 1.3

QUESTION = [
    {"role": "system", "content": "You are a polite assistant. " * 20},
    {"role": "user", "content": "Good morning! What is the weather like in Rome today?"},
]
SAID = {"role": "assistant", "content": "Sunny, 24 degrees, with a light breeze. " * 5}
ANSWER = {
    "choices": [{"index": 0, "finish_reason": "stop", "message": SAID}],
    "usage": {
        "prompt_tokens": 120,
        "completion_tokens": 70,
        "total_tokens": 190,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 20},
    },
}
TARGET = Target("gpt-5.5", provider="openai", params={"temperature": 0.5})


class Nowhere(SpanExporter):
    """Take spans as an exporter in memory does, and forget them."""

    def export(self, spans: Any) -> SpanExportResult:  # noqa: ARG002 # the interface
        return SpanExportResult.SUCCESS


class Last(Nowhere):
    """Keep the last span."""

    span: ReadableSpan | None = None

    def export(self, spans: Any) -> SpanExportResult:
        self.span = spans[-1]
        return SpanExportResult.SUCCESS


def client(
    name: str, exporter: SpanExporter | None = None, url: str = "http://nowhere"
) -> Langfuse:
    return Langfuse(
        public_key=f"pk-{name}",
        secret_key="sk",
        base_url=url or "http://nowhere",
        timeout=1,
        tracer_provider=TracerProvider(shutdown_on_exit=False),
        span_exporter=exporter,
    )


@contextmanager
def hanging_host() -> Generator[str, None, None]:
    """Take connections and never answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def with_policy(*observers: FallbackObserver) -> Call:
    policy = FallbackPolicy([TARGET], agent="bench", observers=observers)

    def call() -> object:
        run = policy.start()
        run.report(input=QUESTION)
        return policy.call(lambda _: ANSWER, run=run)

    return call


def bare(metadata: dict[str, Any]) -> Call:
    langfuse = client("bare", Nowhere())

    def call() -> object:
        generation = langfuse.start_observation(name="bench", as_type="generation")
        generation.update(
            model="gpt-5.5",
            model_parameters={"temperature": 0.5},
            input=QUESTION,
            output=SAID,
            usage_details={
                "input": 80,
                "output": 50,
                "input_cached_tokens": 40,
                "output_reasoning_tokens": 20,
                "total": 190,
            },
            level="DEFAULT",
            metadata=metadata,
        )
        return generation.end()

    return call


def metadata_of_a_call() -> dict[str, Any]:
    """Return what the handler itself writes, for the bare SDK to write the same."""
    exporter = Last()
    langfuse = client("first", exporter)
    with_policy(LangfuseCallbackHandler(langfuse))()
    langfuse.flush()
    prefix = "langfuse.observation.metadata."
    attributes = (exporter.span.attributes if exporter.span else None) or {}
    return {
        name.removeprefix(prefix): json.loads(str(value))
        for name, value in attributes.items()
        if name.startswith(prefix)
    }


def timed(call: Call, calls: int) -> list[int]:
    clock = time.thread_time_ns
    spent = [0] * calls
    for number in range(calls):
        start = clock()
        call()
        spent[number] = clock() - start
    return spent


def measure(jobs: dict[str, Call], calls: int, rounds: int) -> dict[str, tuple[float, float]]:
    for call in jobs.values():
        timed(call, 100)
    spent: dict[str, list[list[int]]] = {name: [] for name in jobs}
    order = random.Random(7)
    for _ in range(rounds):
        for name in order.sample(list(jobs), len(jobs)):
            spent[name].append(timed(jobs[name], -(-calls // rounds)))
    figures: dict[str, tuple[float, float]] = {}
    for name, told in spent.items():
        quiet = sorted(told, key=statistics.median)[: (len(told) + 1) // 2]
        sorted_times = sorted(one for times in quiet for one in times)
        p99 = sorted_times[int(0.99 * (len(sorted_times) - 1))]
        figures[name] = statistics.median(sorted_times) / 1e3, p99 / 1e3
    return figures


def show(figures: dict[str, tuple[float, float]]) -> None:
    floor, (peer, _) = figures[NOBODY], figures[BARE]
    print(
        f"\n{'microseconds':<36}{'median':>8}{'p99':>9}{'added':>9}{'of bare SDK':>13}  to reach"
    )
    for name, (median, p99) in figures.items():
        added = median - floor[0]
        line = f"  {name:<34}{median:8.1f}{p99:9.1f}"
        if name not in {NOBODY, BARE}:
            line += f"{added:9.1f}"
        if name in {MEMORY, HANGING, ATTEMPTS, SPAN}:
            line += f"{added / peer:13.2f}"
        if name == NO_KEYS:
            line += f"{'':13}  <= {MOST_WITHOUT_KEYS:g} us"
        if name in {MEMORY, HANGING}:
            line += f"  <= {MOST_ENABLED:g} of the bare SDK"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=3000, help="per subject (default 3000)")
    parser.add_argument("--rounds", type=int, default=20, help="interleaved (default 20)")
    options = parser.parse_args()

    # An exporter that cannot reach its host says so; a terminal is not what is measured.
    logging.disable()
    for name in [name for name in os.environ if name.startswith("LANGFUSE_")]:
        del os.environ[name]
    without_keys = LangfuseCallbackHandler()  # before there is any client to adopt
    without_keys.close(0)
    provider = TracerProvider(shutdown_on_exit=False)
    with hanging_host() as url:
        jobs: dict[str, Call] = {
            NOBODY: with_policy(),
            NO_KEYS: with_policy(without_keys),
            BARE: bare(metadata_of_a_call()),
            MEMORY: with_policy(LangfuseCallbackHandler(client("memory", Nowhere()))),
            HANGING: with_policy(LangfuseCallbackHandler(client("hanging", url=url))),
            ATTEMPTS: with_policy(
                LangfuseCallbackHandler(client("attempts", Nowhere()), per_attempt=True)
            ),
            SPAN: with_policy(OpenTelemetryHandler(provider)),
        }
        print(
            f"Python {platform.python_version()}, {os.cpu_count()} cores, "
            f"load {os.getloadavg()[0]:.1f}, langfuse {version('langfuse')}"
        )
        show(measure(jobs, options.calls, options.rounds))
        print(flush=True)
        os._exit(0)  # the SDK would wait for the host that hangs


if __name__ == "__main__":
    main()
