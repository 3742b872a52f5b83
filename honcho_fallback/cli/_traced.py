"""One more call of the demo, with the Langfuse handler: what it exported, as a table.

Everything of Langfuse's is looked up by name: the demo works without it, and says so.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from honcho_fallback import FallbackPolicy
from honcho_fallback.cli._log import kept_log_lines
from honcho_fallback.testing import otlp_receiver

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.console import Console

    from honcho_fallback.cli._stage import Stage
    from honcho_fallback.testing import ReceivedSpan

_KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
_PROMPT = "Say hello in five words."
_PREFIX = "langfuse.observation."
_LONGEST = 160
_SECONDS = 10.0


def show_generation(console: Console, stage: Stage) -> None:
    """Make a call that fails over, and show the generation that Langfuse got of it.

    With ``LANGFUSE_PUBLIC_KEY`` and ``LANGFUSE_SECRET_KEY`` it goes to the real server.
    """
    has_keys = all(os.environ.get(name) for name in _KEYS)
    if stage.simulator is None and not has_keys:
        return  # a request to real providers more, for nobody to see
    console.print()
    console.print(Text("What Langfuse gets of a call that fails over", style="bold"))
    if find_spec("langfuse") is None:
        console.print("  Langfuse is not installed: pip install 'honcho-fallback\\[langfuse]'")
        return
    if has_keys:
        sent = _call(stage, None)
        where = os.environ.get("LANGFUSE_BASE_URL", "Langfuse's cloud")
        console.print(f"  {'sent to' if sent else 'could not be sent in time to'} {where}")
        return
    for span in _exported(stage):
        console.print(_table(span))


def _exported(stage: Stage) -> list[ReceivedSpan]:
    langfuse, sdk = import_module("langfuse"), import_module("opentelemetry.sdk.trace")
    with otlp_receiver() as receiver, _no_proxy():
        client = langfuse.Langfuse(
            public_key="pk-demo",
            secret_key="sk-demo",  # noqa: S106 # for a receiver that takes any
            base_url=receiver.base_url,
            tracer_provider=sdk.TracerProvider(shutdown_on_exit=False),
        )
        _call(stage, client)
        client.shutdown()
        return receiver.spans


def _call(stage: Stage, client: Any) -> bool:
    handler = import_module("honcho_fallback_langfuse").LangfuseCallbackHandler(client)
    stage.break_primary(lambda primary: primary.fail(503, times=None))
    policy = FallbackPolicy(stage.chain, agent="demo", observers=[handler])
    run = policy.start()
    run.report(input=[{"role": "user", "content": _PROMPT}])
    # How the call ends is what the generation shows.
    with kept_log_lines(), suppress(Exception):
        # The SDK's own answer, not its text alone: it tells the usage.
        policy.call(lambda attempt: attempt.target.client.answer(attempt, _PROMPT), run=run)
    return bool(handler.close(_SECONDS))


@contextmanager
def _no_proxy() -> Generator[None, None, None]:
    # A proxy from the environment has no business between us and our own receiver.
    before = os.environ.get("NO_PROXY")
    os.environ["NO_PROXY"] = "127.0.0.1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["NO_PROXY"]
        else:
            os.environ["NO_PROXY"] = before


def _table(span: ReceivedSpan) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=True, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("name", span.name)
    for name, value in span.attributes.items():
        if name.startswith(_PREFIX):
            table.add_row(name.removeprefix(_PREFIX), Text(_short(value)))
    return table


def _short(value: Any) -> str:
    told = value if isinstance(value, str) else json.dumps(value)
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]}..."
