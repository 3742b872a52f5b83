"""DBOS: each call of a model is a step; a process that is killed loses none and repeats none.

Run:     python examples durable/dbos_steps  (OPENAI_API_KEY=... asks the real one)
Install: pip install honcho-fallback anthropic dbos openai
"""

import os
from dataclasses import replace
from typing import Any

from dbos import DBOS, SetWorkflowID

from endpoints import endpoints
from honcho_fallback import Attempt, FallbackExhausted, OutcomeUnknown, classify
from raw_sdk import ask as ask_sdk
from raw_sdk import build_policy, text_of

# What a workflow has done stands there; in production it is a database of Postgres.
STORE = os.environ.get("DBOS_STORE", "sqlite:////tmp/honcho-fallback-example.sqlite")


def ask(attempt: Attempt, prompt: str, step: str) -> Any:
    """Ask with a key that is the same after a crash, because the step's name is."""
    headers = {"Idempotency-Key": f"{step}-{attempt.position}"}
    client = attempt.target.client.with_options(default_headers=headers)
    return ask_sdk(attempt._replace(target=replace(attempt.target, client=client)), prompt)


def may_help(error: BaseException) -> bool:
    """Tell whether a step is run again: not for a bug, nor where it may have had an effect."""
    errors = error.exceptions if isinstance(error, FallbackExhausted) else (error,)
    return not isinstance(error, OutcomeUnknown) and any(classify(one).transient for one in errors)


with endpoints() as (primary, fallback):
    policy = build_policy(primary, fallback)

    # The policy asks the chain; DBOS begins anew only after all of it was down.
    @DBOS.step(retries_allowed=True, max_attempts=5, should_retry=may_help)  # type: ignore[untyped-decorator] # where it is not installed
    def say(prompt: str) -> str:
        """Ask the chain once; what it answers is kept."""
        step = f"{DBOS.workflow_id}-{DBOS.step_id}"
        return text_of(policy.call(lambda attempt: ask(attempt, prompt, step)))

    @DBOS.workflow()  # type: ignore[untyped-decorator] # likewise
    def greet(prompts: list[str]) -> list[str]:
        """Ask one after the other."""
        return [say(prompt) for prompt in prompts]

    DBOS(config={"name": "greeter", "system_database_url": STORE, "log_level": "ERROR"})
    DBOS.launch()  # workflows that a killed process left go on here
    name = os.environ.get("WORKFLOW", str(os.getpid()))
    with SetWorkflowID(name):  # under a name that is known, it is not begun twice
        workflow = DBOS.start_workflow(greet, ["Say good morning.", "Say it again."])
    print(*workflow.get_result(), sep="\n")
    DBOS.destroy()
