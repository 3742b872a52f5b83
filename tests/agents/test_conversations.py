"""`reset="session"`: a conversation stays with whom its prompt cache is warm, over many runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import agents
from agents.tracing import set_trace_processors
from pydantic_ai import Agent

from tests.agents.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from tests.agents.frameworks import Framework
    from tests.helpers.provider import ProviderServer


def chain_of(framework: Framework, providers: ProviderServer) -> Any:
    """Make a chain whose primary fails once."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(503, times=1)
    return framework.chain(framework.model(primary), framework.model(fallback), reset="session")


def asked(providers: ProviderServer) -> list[str]:
    """Name who was asked, without the numbers of this process."""
    return [name.partition("-")[0] for name in providers.order]


async def test_runs_within_a_session_stay(framework: Framework, providers: ProviderServer) -> None:
    """Around a run it takes one line, in either framework; another session begins anew."""
    chain = chain_of(framework, providers)
    for session_id in ("s", "s", "another"):
        with chain.policy.session(session_id):
            await framework.run(chain)
    assert asked(providers) == ["primary", "fallback", "fallback", "primary"]


async def test_pydantic_ai_names_its_conversations(providers: ProviderServer) -> None:
    """A history brings its conversation's id with it; one that is given another is another."""
    agent = Agent(chain_of(FRAMEWORKS["pydantic-ai"], providers))
    history = (await agent.run("hi")).all_messages()
    await agent.run("and?", message_history=history)
    await agent.run("and?", message_history=history, conversation_id="another")
    await agent.run("hi")
    assert asked(providers) == ["primary", "fallback", "fallback", "primary", "primary"]


async def test_the_agents_sdk_names_a_group_of_runs(providers: ProviderServer) -> None:
    """Its runs of one conversation have one `group_id`, where it traces."""
    agents.set_tracing_disabled(False)
    set_trace_processors([])
    chain = chain_of(FRAMEWORKS["openai-agents"], providers)
    agent = agents.Agent("a", model=chain)
    for group in ("chat-1", "chat-1", "chat-2"):
        run_config = agents.RunConfig(group_id=group)
        await agents.Runner.run(agent, "hi", run_config=run_config)
    assert asked(providers) == ["primary", "fallback", "fallback", "primary"]
