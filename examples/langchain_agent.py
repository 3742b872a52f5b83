"""An agent of create_agent with a fallback: a dead primary is asked once per turn, not per step.

Run:     python examples/langchain_agent.py  (OPENAI_API_KEY, ANTHROPIC_API_KEY ask the real ones)
Install: pip install 'honcho-fallback[agents]' langchain-anthropic langchain-openai
"""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from endpoints import endpoints
from honcho_fallback_langchain import FallbackMiddleware


def clock() -> str:
    """Tell the time."""
    return "12:00"


def main() -> None:
    """Have the agent call a tool and answer; the second step leaves the primary alone."""
    with endpoints() as (first, second):
        primary = ChatOpenAI(
            model=first.model, base_url=first.base_url, api_key=SecretStr(first.api_key)
        )
        backup = ChatAnthropic(
            model=second.model, base_url=second.base_url, api_key=SecretStr(second.api_key)
        )
        # First in the list, it stands outermost: what comes after it sees the model that is asked.
        fallback = FallbackMiddleware(backup, reset="turn", agent="greeter")
        agent = create_agent(primary, [clock], middleware=[fallback])

        question = "Greet me as the time of day demands; the tool tells you the time."
        state = agent.invoke({"messages": [{"role": "user", "content": question}]})
        for message in state["messages"]:
            if isinstance(message, AIMessage):
                attempts = message.response_metadata["fallback"]["attempts"]
                print([(one["target"], one.get("kind", "answered")) for one in attempts])
        print(state["messages"][-1].text)


if __name__ == "__main__":
    main()
