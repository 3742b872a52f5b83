"""One Langfuse generation per call, whoever answers; failed attempts stand in its metadata.

Run:     python examples/langfuse_trace.py  (LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY send it)
Install: pip install 'honcho-fallback[langfuse]' anthropic openai
"""

from __future__ import annotations

import os
from typing import Any

from langfuse import Langfuse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endpoints import endpoints
from honcho_fallback_langfuse import LangfuseCallbackHandler
from raw_sdk import ask, build_policy, text_of


def main() -> None:
    """Make one call with the handler among its observers, then send or print the generation."""
    exporter = None if os.environ.get("LANGFUSE_PUBLIC_KEY") else InMemorySpanExporter()
    # A service needs LangfuseCallbackHandler() only: it reads LANGFUSE_* from the environment.
    langfuse = LangfuseCallbackHandler(None if exporter is None else offline_client(exporter))
    with endpoints() as (primary, fallback):
        policy = build_policy(primary, fallback, observers=[langfuse])
        prompt = "Say good morning."
        run = policy.start()
        run.report(input=prompt)  # for Langfuse; the policy itself keeps no prompt
        print(text_of(policy.call(lambda attempt: ask(attempt, prompt), run=run)))
    was_sent = langfuse.close(timeout=10)  # a service that runs on need not wait
    if exporter is None:
        print("The generation was sent." if was_sent else "Langfuse could not be reached in time.")
    else:
        show(exporter)


def offline_client(exporter: InMemorySpanExporter) -> Langfuse:
    """Make a client that exports to memory instead of to a server."""
    return Langfuse(
        public_key="pk-example",
        secret_key="sk-example",
        base_url="http://127.0.0.1:9",
        tracer_provider=TracerProvider(),
        span_exporter=exporter,
    )


def show(exporter: InMemorySpanExporter) -> None:
    """Print what Langfuse would have stored."""
    for span in exporter.get_finished_spans():
        print(f"Generation {span.name}:")
        attributes: dict[str, Any] = dict(span.attributes or {})
        for name in sorted(attributes):
            field = name.removeprefix("langfuse.observation.")
            if field != name:
                print(f"  {field:30} {attributes[name]}")


if __name__ == "__main__":
    main()
