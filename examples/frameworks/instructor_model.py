"""instructor: structured answers from a chain; each client asks once.

Run:     python examples frameworks/instructor_model  (OPENAI_API_KEY=... asks the real one)
Install: pip install honcho-fallback instructor anthropic openai
"""

from typing import Any

import anthropic
import instructor
import openai
from pydantic import BaseModel

from endpoints import endpoints
from honcho_fallback import Attempt, FallbackPolicy, Target
from honcho_fallback.providers import without_retries


class Greeting(BaseModel):
    """Greet somebody."""

    text: str


with endpoints() as (one, two):
    primary = openai.OpenAI(base_url=one.base_url, api_key=one.api_key)
    backup = anthropic.Anthropic(base_url=two.base_url, api_key=two.api_key)
    first = instructor.from_openai(without_retries(primary))
    second = instructor.from_anthropic(without_retries(backup))
    policy = FallbackPolicy([Target(one.model, client=first), Target(two.model, client=second)])

    @policy.wrap
    def ask(attempt: Attempt, messages: Any) -> Any:
        """Ask one model once."""
        options = {"model": attempt.target.model, "max_tokens": 1024, "max_retries": 0}
        create = attempt.target.client.chat.completions.create
        return create(response_model=Greeting, messages=messages, **options)

    print(ask([{"role": "user", "content": "Say good morning."}]).text)
