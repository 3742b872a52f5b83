"""What a dead primary costs: the bare SDK with its defaults, then the same call with a policy.

Run:     make demo, or python examples  (no key and no network are needed)
Install: pip install honcho-fallback 'openai>=3'
"""

from __future__ import annotations

import logging.handlers
import textwrap
import time
from typing import TYPE_CHECKING, Any

import httpx2
import openai

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.testing import FaultTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt

MESSAGES: Any = [{"role": "user", "content": "Say good morning."}]
ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Good morning!"}}]}


def main() -> None:
    """Measure both, and print what the policy logged and recorded."""
    log = logging.handlers.BufferingHandler(capacity=1000)
    logging.getLogger("honcho_fallback").addHandler(log)
    outage = FaultTransport().on(status=503)
    bare = openai.OpenAI(api_key="none", http_client=httpx2.Client(transport=outage))
    answering = httpx2.MockTransport(lambda _: httpx2.Response(200, json=ANSWER))
    second = bare.with_options(max_retries=0, http_client=httpx2.Client(transport=answering))
    primary = Target("gpt-5.5", provider="openai", client=bare.with_options(max_retries=0))
    fallback = Target("llama-4", provider="groq", client=second)
    policy = FallbackPolicy([primary, fallback], agent="greeter")
    policy.call(ask)  # not measured: the SDK loads much of itself at its first request
    log.buffer.clear()
    print("A primary that answers 503, a fallback that answers; both are simulated. What")
    print("one call costs, measured now, with the requests at the primary:\n")
    print(f"{'':24}requests   seconds   the caller gets", flush=True)
    create = bare.chat.completions.create
    measure("openai.OpenAI()", outage, lambda: create(model="gpt-5.5", messages=MESSAGES))
    run = policy.start()
    measure("with a FallbackPolicy", outage, lambda: policy.call(ask, run=run))
    lines = [f"{record.levelname} {record.getMessage()}" for record in log.buffer]
    show("What was logged, on the logger honcho_fallback", lines)
    show("What was recorded, in the words of record.explain()", run.record.explain().splitlines())


def ask(attempt: Attempt) -> Any:
    """Ask the attempt's target."""
    create = attempt.target.client.chat.completions.create
    return create(model=attempt.target.model, messages=MESSAGES)


def measure(title: str, outage: FaultTransport, call: Callable[[], Any]) -> None:
    """Make a call, and print a row with its cost and its result."""
    before, began = outage.requests, time.perf_counter()
    try:
        result = call().choices[0].message.content
    except openai.APIStatusError as error:
        result = f"{type(error).__name__} ({error.status_code})"
    seconds = time.perf_counter() - began
    print(f"{title:24}{outage.requests - before:8}{seconds:10.2f}   {result}")


def show(title: str, lines: list[str]) -> None:
    """Print lines under a title, none over 80 columns."""
    print(f"\n{title}:\n")
    for line in lines:
        print(textwrap.fill(line, 80, subsequent_indent="    ", break_on_hyphens=False))


if __name__ == "__main__":
    main()
