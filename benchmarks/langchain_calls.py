"""What a fallback costs in LangChain: microseconds over a bare chat model, beside LangChain's own.

Fake chat models that take no time; on the happy path the primary answers, on failover it raises an
error with status 503 once and the fallback answers, nobody waits. Method as in ``overhead.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType] # its own generics
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from overhead import ASYNC, FAILOVER, HAPPY, SYNC, Figures, Job, OverloadedError, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES = [HumanMessage("hello")]
MODEL, CHAIN, AGENT = "chat model", "function", "agent"
PEERS = {MODEL: "with_fallbacks", CHAIN: "with_fallbacks", AGENT: "ModelFallbackMiddleware"}
# Of the peer's own overhead.
SHARES = {HAPPY: 1.0, FAILOVER: 0.8}


class FakeChat(BaseChatModel):
    """Answer, or fail, at once."""

    model: str = "fake"
    fails: bool = False

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(self, *_args: Any, **_kwargs: Any) -> ChatResult:
        if self.fails:
            raise OverloadedError
        return ChatResult(generations=[ChatGeneration(message=AIMessage("answer"))])

    async def _agenerate(self, *_args: Any, **_kwargs: Any) -> ChatResult:
        return self._generate()

    def bind_tools(self, *_args: Any, **_kwargs: Any) -> Runnable[Any, AIMessage]:
        return self


def both(subject: str, family: str, path: str, asked: Any, given: Any) -> Iterator[Job]:
    yield Job(f"{family}: {subject}", SYNC, path, lambda: asked.invoke(given), None)
    yield Job(f"{family}: {subject}", ASYNC, path, None, lambda: asked.ainvoke(given))


def models() -> Iterator[Job]:
    good, backup, bad = FakeChat(), FakeChat(model="backup"), FakeChat(model="bad", fails=True)
    yield from both("bare", MODEL, HAPPY, good, MESSAGES)
    for path, first in ((HAPPY, good), (FAILOVER, bad)):
        yield from both("with_fallbacks", MODEL, path, first.with_fallbacks([backup]), MESSAGES)
        ours = FallbackChatModel(first, backup)
        yield from both("FallbackChatModel", MODEL, path, ours, MESSAGES)
    yield from both("with_retry", MODEL, HAPPY, good.with_retry(), MESSAGES)


def functions() -> Iterator[Job]:
    def answer(_: str) -> str:
        return "answer"

    def fail(_: str) -> str:
        raise OverloadedError

    good, bad = RunnableLambda(answer), RunnableLambda(fail)
    yield from both("bare", CHAIN, HAPPY, good, "hello")
    for path, first in ((HAPPY, good), (FAILOVER, bad)):
        yield from both("with_fallbacks", CHAIN, path, first.with_fallbacks([good]), "hello")
        yield from both("FallbackRunnable", CHAIN, path, FallbackRunnable(first, good), "hello")


def agents() -> Iterator[Job]:
    good, backup, bad = FakeChat(), FakeChat(model="backup"), FakeChat(model="bad", fails=True)
    given = {"messages": MESSAGES}
    yield from both("bare", AGENT, HAPPY, create_agent(good), given)
    for path, first in ((HAPPY, good), (FAILOVER, bad)):
        for middleware in (
            ModelFallbackMiddleware(backup),
            FallbackMiddleware(backup),
            FallbackMiddleware(backup, reset="turn"),
        ):
            name = type(middleware).__name__.removeprefix("_")
            agent = create_agent(first, middleware=[middleware])
            yield from both(name, AGENT, path, agent, given)


def show(table: dict[tuple[str, str, str], Figures]) -> None:
    print(f"\n{'added microseconds':<44}{'median':>8}{'p99':>9}{'share':>8}  to reach")
    for path in (HAPPY, FAILOVER):
        print(path)
        for (subject, kind, where), got in table.items():
            family, _, name = subject.partition(": ")
            floor = table[f"{family}: bare", kind, HAPPY]
            if where != path:
                continue
            label = f"  {f'{subject} ({kind})':<42}"
            if name == "bare":
                print(f"{label}{got.median:8.1f}{got.p99:9.1f}  (the floor)")
                continue
            peer = table.get((f"{family}: {PEERS[family]}", kind, path))
            share = goal = ""
            if peer is not None and name.startswith("Fallback"):
                ratio = (got.median - floor.median) / (peer.median - floor.median)
                share, goal = f"{ratio:.2f}", f"<= {SHARES[path]:.2f} of {PEERS[family]}"
            added, tail = got.median - floor.median, got.p99 - floor.p99
            print(f"{label}{added:8.1f}{tail:9.1f}{share:>8}  {goal}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=2000, help="per cell (default 2000)")
    parser.add_argument("--rounds", type=int, default=20, help="interleaved (default 20)")
    options = parser.parse_args()
    os.environ["LANGSMITH_TRACING"] = "false"
    logger = logging.getLogger("honcho_fallback")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    packages = ", ".join(f"{name} {version(name)}" for name in ("langchain-core", "langchain"))
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; {packages}; {options.calls} calls per cell"
    )
    jobs = [*models(), *functions(), *agents()]
    show(asyncio.run(measure(jobs, options.calls, options.rounds)))


if __name__ == "__main__":
    main()
