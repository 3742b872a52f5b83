"""What a dead primary costs: the bare SDK with its defaults, then the same call with a policy.

Run:     make demo, or python examples  (no key and no network are needed)
Install: pip install 'honcho-fallback[testing]' openai
"""

from __future__ import annotations

import logging.handlers
import textwrap
import time
from typing import TYPE_CHECKING, Any

import openai

from endpoints import simulated_endpoints
from honcho_fallback import FallbackPolicy, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt
    from honcho_fallback.testing import FaultSimulator

MESSAGES: Any = [{"role": "user", "content": "Say good morning."}]


def main() -> None:
    """Measure both, and print what the policy logged and recorded."""
    log = logging.handlers.BufferingHandler(capacity=1000)
    logging.getLogger("honcho_fallback").addHandler(log)
    with simulated_endpoints() as simulator:
        bare = openai.OpenAI(base_url=simulator.base_url("openai"), api_key="none")
        first = bare.with_options(max_retries=0)
        second = first.with_options(base_url=simulator.base_url("groq"))
        primary = Target("gpt-5.5", provider="openai", client=first)
        fallback = Target("llama-4", provider="groq", client=second)
        policy = FallbackPolicy([primary, fallback], agent="greeter")
        policy.call(ask)  # not measured: the SDK loads much of itself at its first request
        log.buffer.clear()
        print("A primary that answers 503, a fallback that answers; both are simulated on this")
        print("machine. What one call costs, measured now, with the requests at the primary:\n")
        print(f"{'':24}requests   seconds   the caller gets", flush=True)
        create = bare.chat.completions.create
        measure("openai.OpenAI()", simulator, lambda: create(model="gpt-5.5", messages=MESSAGES))
        run = policy.start()
        measure("with a FallbackPolicy", simulator, lambda: policy.call(ask, run=run))
    lines = [f"{record.levelname} {record.getMessage()}" for record in log.buffer]
    show("What was logged, on the logger honcho_fallback", lines)
    show("What was recorded, in the words of record.explain()", run.record.explain().splitlines())


def ask(attempt: Attempt) -> Any:
    """Ask the attempt's target."""
    create = attempt.target.client.chat.completions.create
    return create(model=attempt.target.model, messages=MESSAGES)


def measure(title: str, simulator: FaultSimulator, call: Callable[[], Any]) -> None:
    """Make a call, and print a row with its cost and its result."""
    before, began = len(simulator.requests("openai")), time.perf_counter()
    try:
        result = call().choices[0].message.content
    except openai.APIStatusError as error:
        result = f"{type(error).__name__} ({error.status_code})"
    seconds = time.perf_counter() - began
    requests = len(simulator.requests("openai")) - before
    print(f"{title:24}{requests:8}{seconds:10.2f}   {result}")


def show(title: str, lines: list[str]) -> None:
    """Print lines under a title, none over 80 columns."""
    print(f"\n{title}:\n")
    for line in lines:
        print(textwrap.fill(line, 80, subsequent_indent="    ", break_on_hyphens=False))


if __name__ == "__main__":
    main()
