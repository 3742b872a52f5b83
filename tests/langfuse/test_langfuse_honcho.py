"""Honcho's own reports to Langfuse, and the handler in their place, as Honcho's page has it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from langfuse import observe, propagate_attributes

from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from tests.helpers.langfuse_server import Memory

KEY = "pk-memory"
METADATA = {"workspace_name": "acme"}
PAGE = (Path(__file__).resolve().parents[2] / "docs/honcho.md").read_text("utf-8")
SECTION = PAGE.partition("\n## Langfuse in Honcho\n")[2].partition("\n## ")[0]
MESSAGES = [{"role": "user", "content": "Good morning"}]
ANSWER = SimpleNamespace(content="good morning", input_tokens=9, output_tokens=4)
CONFIG = SimpleNamespace(
    model="gpt-5.4-mini",
    transport="openai",
    fallback=SimpleNamespace(model="claude-haiku-4-5", transport="anthropic"),
)
TELEMETRY = SimpleNamespace(track_name="Dialectic Agent", span_identity=lambda: "r-17")

ERROR = ("GENERATION", "ERROR", "gpt-5.4-mini", None)
PLAIN = ("GENERATION", "DEFAULT", "claude-haiku-4-5", None)
CLEAN = ("GENERATION", "WARNING", "claude-haiku-4-5", True)


class Honcho:
    """What Honcho has around a call in its inline mode.

    Args:
        memory: Where everything goes.
        own: Whether each request is a generation, and writes onto what is current.
    """

    def __init__(self, memory: Memory, *, own: bool) -> None:
        self.client, self.own = memory.client, own

    async def ask(self, attempt: Attempt, messages: list[Any]) -> Any:
        config = attempt.target.client
        if self.own:
            self.client.update_current_generation(model=config.model, input=messages)
        if config.transport == "openai":
            raise StatusError(503)
        return ANSWER

    async def execute(self, attempt: Attempt, messages: list[Any]) -> Any:
        if not self.own:
            return await self.ask(attempt, messages)
        hidden: Any = {"capture_input": False, "capture_output": False}
        asked: Any = observe(name="LLM Call", as_type="generation", **hidden)(self.ask)
        return await asked(attempt, messages, langfuse_public_key=KEY)

    async def run(self, call: Any) -> Any:
        """Make one step of an agent's run."""
        name, session = TELEMETRY.track_name, TELEMETRY.span_identity()
        begin = self.client.start_as_current_observation
        with (
            begin(as_type="span", name=name),
            propagate_attributes(user_id="honcho", session_id=session, trace_name=name),
            begin(as_type="span", name=f"{name} step"),
        ):
            return await call


def call_path(honcho: Honcho, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the page's code where Honcho has the names that it uses, and return its own."""
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", KEY)
    (code,) = re.findall(r"^```python\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {
        "execute": honcho.execute,
        "settings": SimpleNamespace(NAMESPACE="honcho"),
        "_step_metadata": lambda telemetry: METADATA,
    }
    exec(compile(code, "honcho.md", "exec"), names)  # noqa: S102 # our own page
    return names


@pytest.mark.parametrize(
    ("own", "handler", "generations"),
    [
        pytest.param(True, False, [ERROR, PLAIN], id="as it is"),
        pytest.param(True, True, [CLEAN, ERROR, PLAIN], id="nothing switched off"),
        pytest.param(False, True, [CLEAN], id="all that is switched off"),
    ],
)
async def test_one_clean_generation_where_honchos_own_are_off(
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,
    handler: bool,
    generations: list[Any],
) -> None:
    """Honcho's decorator makes a generation of each request, its annotations one of the step."""
    honcho = Honcho(memory, own=own)
    names = call_path(honcho, monkeypatch)
    if not handler:
        names["LANGFUSE"].close()
    answer = await honcho.run(names["traced"](CONFIG, MESSAGES, TELEMETRY))
    assert answer is ANSWER
    run, *others = sorted(memory.stored(), key=lambda one: one.start)
    assert (run.type, run.name, run.parent_id) == ("SPAN", "Dialectic Agent", None)
    assert [
        (one.type, one.level, one.model, one.metadata.get("is_fallback"))
        for one in others
        if one.type == "GENERATION"
    ] == generations


@pytest.mark.parametrize("in_a_run", [True, False])
async def test_the_generation_is_part_of_honchos_trace(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, in_a_run: bool
) -> None:
    """Under its step or on its own: with Honcho's user, session, name and metadata."""
    honcho = Honcho(memory, own=False)
    call = call_path(honcho, monkeypatch)["traced"](CONFIG, MESSAGES, TELEMETRY)
    await (honcho.run(call) if in_a_run else call)
    (generation,) = [one for one in memory.stored() if one.type == "GENERATION"]
    steps = {one.name: one.id for one in memory.stored()}
    assert generation.parent_id == steps.get("Dialectic Agent step")
    assert (generation.name, generation.trace_name) == ("Dialectic Agent", "Dialectic Agent")
    assert generation.input == MESSAGES
    assert generation.metadata.items() >= METADATA.items()
    assert generation.usage == {"input": 9, "output": 4, "total": 13}
    (span,) = [one for one in memory.spans() if one.span_id == generation.id]
    assert (span.attributes["user.id"], span.attributes["session.id"]) == ("honcho", "r-17")
