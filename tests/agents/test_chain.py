"""What a chain asks and takes over real SDKs, in both frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import agents
import pytest
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent

from honcho_fallback import (
    FallbackConfigError,
    Target,
)
from honcho_fallback_langchain import FallbackChatModel
from tests.helpers import wire
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from tests.agents.frameworks import Framework, Records
    from tests.helpers.provider import ProviderServer


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_a_response_that_says_it_failed_switches(
    framework: Framework, providers: ProviderServer, *, streamed: bool
) -> None:
    """The Responses API reports an outage under HTTP 200, also in the middle of a stream."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    error = {"code": "server_error", "message": "boom"}
    body = {**wire.responses_answer(), "status": "failed", "error": error, "output": []}
    begun = {**body, "status": "in_progress", "error": None}
    events = [
        wire.named_event("response.created", response=begun, sequence_number=0),
        wire.named_event("response.failed", response=body, sequence_number=1),
    ]
    primary.standing = Reply(body=body, events=events if streamed else None)
    chain = framework.chain(framework.model(primary, api="responses"), framework.model(fallback))
    ask = framework.stream if streamed else framework.run
    assert await ask(chain) == f"hello from {fallback.name}"
    assert len(primary.requests) == 1


async def test_a_tool_loop_begins_each_step_at_the_primary(
    framework: Framework, providers: ProviderServer, records: Records
) -> None:
    """With ``reset="turn"`` a run stays where it is instead, and the next run begins anew.

    Whatever it is, a run is one turn to observers, and it ends.
    """

    def thermometer(city: str) -> str:
        """Measure."""
        return f"{city}: 21"

    for reset, expected in (("iteration", (2, 1)), ("turn", (1, 2))):
        primary, fallback = providers.new("primary"), providers.new("fallback")
        calls = wire.chat_answer("", wire.chat_call("call_1", "thermometer", {"city": "Lima"}))
        primary.fail(503, times=1)
        fallback.reply(Reply(body=calls))
        models = (framework.model(primary), framework.model(fallback))
        chain = framework.chain(*models, reset=reset, observers=[records])
        await framework.run(chain, thermometer)
        assert (len(primary.requests), len(fallback.requests)) == expected
        assert await framework.run(chain) == f"hello from {primary.name}"
    turns = [record.turn_id for record in records.calls]
    assert [turn.outcome for turn in records.turns] == ["completed"] * 4
    assert list(dict.fromkeys(turns)) == [turn.turn_id for turn in records.turns]


async def test_the_users_objects_stay_as_they_are(
    framework: Framework, providers: ProviderServer
) -> None:
    """A model that is used elsewhere, too, keeps its SDK's retries."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(500, times=1, headers={"retry-after-ms": "1"})
    model = framework.model(primary)
    framework.chain(model, framework.model(fallback))
    assert await framework.run(model) == f"hello from {primary.name}"
    assert len(primary.requests) == 2


async def test_no_setting_of_the_primary_reaches_another_place(
    framework: Framework, providers: ProviderServer
) -> None:
    """Headers may hold a key; a target's own come from its params."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(503)
    headers: dict[str, Any] = {"x-secret": "of the primary"}
    first = Target("first", client=framework.model(primary))
    other = Target("gpt-4o", client=framework.model(fallback), params={"temperature": 0.5})
    chain = framework.chain(first, other)
    if isinstance(chain, agents.Model):
        settings = agents.ModelSettings(extra_headers=headers, temperature=0.1)
        await agents.Runner.run(agents.Agent("a", model=chain, model_settings=settings), "hi")
    else:
        await Agent(chain, model_settings={"extra_headers": headers, "temperature": 0.1}).run("hi")
    assert primary.requests[0].headers["x-secret"] == "of the primary"
    assert "x-secret" not in fallback.requests[0].headers
    assert (primary.bodies[0]["temperature"], fallback.bodies[0]["temperature"]) == (0.1, 0.5)


def test_a_name_that_is_taken_gets_its_place(
    framework: Framework, providers: ProviderServer
) -> None:
    """Logs and alerts know targets by them, under every framework."""
    place = providers.new("place")
    chain = framework.chain(*(framework.model(place, name=name) for name in ("a", "b", "a")))
    assert [one.name for one in chain.policy.targets] == ["openai/a", "openai/b", "openai/a#3"]


def test_langchain_numbers_alike() -> None:
    """A target has one name, whatever the framework."""
    models = [ChatOpenAI(model=name, api_key="key") for name in ("a", "b", "a")]
    names = [one.name for one in FallbackChatModel(*models).policy.targets]
    assert names == ["openai/a", "openai/b", "openai/a#3"]


@pytest.mark.parametrize("wrong", [Target("gpt-4o"), object()], ids=["target", "object"])
def test_what_is_no_model_is_refused(framework: Framework, wrong: Any) -> None:
    """With what to pass."""
    with pytest.raises(FallbackConfigError, match="pass models"):
        framework.chain(wrong)


def test_a_wrong_option_is_refused(framework: Framework, providers: ProviderServer) -> None:
    """Where the chain is built."""
    model = framework.model(providers.new("one"))
    for wrong in ({"cooldwon": None}, {"partial": "drop"}):
        with pytest.raises(FallbackConfigError, match=r"cooldown|partial"):
            framework.chain(model, **wrong)
