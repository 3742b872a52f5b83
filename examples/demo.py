"""What a dead primary costs: the bare SDK with its defaults, then the policy of raw_sdk.py.

Run:     make demo, or python examples  (no key and no network are needed)
Install: pip install 'honcho-fallback[providers,testing]'
"""

from __future__ import annotations

import logging
import textwrap
import time
from functools import partial
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING

import openai

from endpoints import Endpoint, simulated_endpoints
from raw_sdk import ask, build_policy, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback.testing import FaultSimulator
    from raw_sdk import SDKAnswer

PROMPT = "Say good morning."


def main() -> None:
    """Measure both, and print what the policy logged and recorded."""
    log = BufferingHandler(capacity=1000)
    logging.getLogger("honcho_fallback").addHandler(log)
    with simulated_endpoints() as simulator:
        primary = Endpoint("openai", "gpt-5.5", simulator.base_url("openai"))
        fallback = Endpoint("anthropic", "claude-sonnet-5", simulator.base_url("anthropic"))
        policy = build_policy(primary, fallback)
        bare = openai.OpenAI(base_url=primary.base_url, api_key=primary.api_key)
        greet = partial(ask, prompt=PROMPT)
        policy.call(greet)  # not measured: the SDKs load much of themselves at a first request
        log.buffer.clear()

        print("A primary that answers 503, a fallback that answers; both are simulated on this")
        print("machine. What one call costs, measured now, with the requests at the primary:\n")
        print(f"{'':24}requests   seconds   the caller gets", flush=True)
        create = bare.chat.completions.create
        measure(
            "openai.OpenAI()",
            simulator,
            lambda: create(model="gpt-5.5", messages=[{"role": "user", "content": PROMPT}]),
        )
        run = policy.start()
        measure("with a FallbackPolicy", simulator, lambda: policy.call(greet, run=run))
    print("\nWhat was logged, on the logger honcho_fallback:\n")
    for record in log.buffer:
        print(folded(f"{record.levelname} {record.getMessage()}"))
    print("\nWhat was recorded, as record.explain() tells it:\n")
    print("\n".join(folded(line) for line in run.record.explain().splitlines()))


def measure(title: str, simulator: FaultSimulator, call: Callable[[], SDKAnswer]) -> None:
    """Make a call, and print a row with its cost and its result."""
    before, began = len(simulator.requests("openai")), time.perf_counter()
    try:
        result = text_of(call())
    except openai.APIStatusError as error:
        result = f"{type(error).__name__} ({error.status_code})"
    seconds = time.perf_counter() - began
    requests = len(simulator.requests("openai")) - before
    print(f"{title:24}{requests:8}{seconds:10.2f}   {result}")


def folded(line: str) -> str:
    """Break a line at 80 columns."""
    return textwrap.fill(line, 80, subsequent_indent="    ", break_on_hyphens=False)


if __name__ == "__main__":
    main()
