"""The state machine of one call, driven by a loop of your own.

Run:     python examples/own_loop.py  (set OPENAI_API_KEY, ANTHROPIC_API_KEY to ask the real ones)
Install: pip install honcho-fallback anthropic openai
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from endpoints import endpoints
from raw_sdk import ask, build_policy, text_of

if TYPE_CHECKING:
    from honcho_fallback import FallbackRun


def main() -> None:
    """Ask until somebody has answered; the loop sleeps and asks, the run decides whom."""
    with endpoints() as (primary, fallback):
        policy = build_policy(primary, fallback)
        run = policy.start()
        answer = None
        while run.outcome == "running":
            print(what_is_next(run))
            time.sleep(run.attempt.wait)
            try:
                # perform does what has to come before the request, such as a credential's refresh.
                answer = ask(policy.perform(run), "Say good morning.")
            except Exception as error:  # noqa: BLE001 # the run decides what it means
                run.fail(error)  # the next attempt; raises when nobody is left
            else:
                run.accept(answer)  # ends the run, unless the answer is a failure under HTTP 200
        if answer is not None:
            print(text_of(answer))
        print(run.record.explain())


def what_is_next(run: FallbackRun) -> str:
    """Say what the run wants to be done now."""
    attempt = run.attempt
    return f"Request {attempt.number}: {attempt.target.name}, after {attempt.wait:g} s"


if __name__ == "__main__":
    main()
