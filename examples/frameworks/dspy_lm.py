"""DSPy: one program, a chain of LMs; the program runs again with the next one.

Run:     python examples frameworks/dspy_lm  (OPENAI_API_KEY=... asks the real one)
Install: pip install honcho-fallback dspy
"""

from typing import Any

import dspy

from endpoints import Endpoint, endpoints
from honcho_fallback import Attempt, FallbackPolicy, Target


def lm(endpoint: Endpoint) -> Any:
    """Make a model that asks once, and is not answered from a file."""
    options = {"api_base": endpoint.base_url, "api_key": endpoint.api_key}
    return dspy.LM(f"{endpoint.name}/{endpoint.model}", num_retries=0, cache=False, **options)


with endpoints() as ends:
    policy = FallbackPolicy([Target(end.model, end.name, client=lm(end)) for end in ends])

    @policy.wrap
    def ask(attempt: Attempt, prompt: str) -> Any:
        """Ask one model once."""
        return attempt.target.client(prompt)

    print(ask("Say good morning.")[0])
