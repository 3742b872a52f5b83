"""A fallback model in an LCEL chain: whatever takes a chat model takes it.

Run:     python examples/langchain_chain.py  (OPENAI_API_KEY, ANTHROPIC_API_KEY ask the real ones)
Install: pip install 'honcho-fallback[langchain]' langchain-anthropic langchain-openai
"""

from __future__ import annotations

from langchain_anthropic import ChatAnthropic
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from endpoints import endpoints
from honcho_fallback_langchain import FallbackChatModel


def main() -> None:
    """Run a chain as a whole, then as a stream; the model's answer says who gave it."""
    with endpoints() as (first, second):
        primary = ChatOpenAI(
            model=first.model, base_url=first.base_url, api_key=SecretStr(first.api_key)
        )
        backup = ChatAnthropic(
            model=second.model, base_url=second.base_url, api_key=SecretStr(second.api_key)
        )
        # The two stay as they are: the fallback model asks copies whose SDK does not retry.
        model = FallbackChatModel(primary, backup, agent="greeter")

        prompt = ChatPromptTemplate.from_template("Say good morning in {language}.")
        answer = (prompt | model).invoke({"language": "English"})
        print(answer.text)
        for attempt in answer.response_metadata["fallback"]["attempts"]:
            print(attempt["target"], attempt.get("kind", "answered"))

        for piece in (prompt | model | StrOutputParser()).stream({"language": "English"}):
            print(piece, end="", flush=True)
        print()


if __name__ == "__main__":
    main()
