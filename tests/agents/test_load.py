"""A thousand runs at once while the primary dies and comes back: none lost, none doubled."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from honcho_fallback import FallbackConfig
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from tests.agents.frameworks import Framework
    from tests.helpers.observers import Listener
    from tests.helpers.provider import Provider, SeenRequest

RUNS = 1000


@pytest.mark.timeout(120)
async def test_a_thousand_runs_while_the_primary_dies_and_comes_back(
    framework: Framework, primary: Provider, fallback: Provider, listener: Listener
) -> None:
    """Each run gets its own answer; whom the fallback served, the primary had refused."""
    lock = threading.Lock()
    refused: Counter[str] = Counter()
    served: Counter[str] = Counter()

    def question(request: SeenRequest) -> str:
        content = request.body["messages"][-1]["content"]
        return str(content)

    def dies_and_comes_back(request: SeenRequest) -> Reply:
        with lock:
            if RUNS // 4 < len(primary.requests) <= RUNS // 2:
                refused[question(request)] += 1
                return Reply(status=503)
            served[question(request)] += 1
        return Reply(text=question(request))

    def answers(request: SeenRequest) -> Reply:
        with lock:
            served[question(request)] += 1
        return Reply(text=question(request))

    primary.standing, fallback.standing = dies_and_comes_back, answers
    config = FallbackConfig(timeout=60)
    chain = framework.chain(
        framework.model(primary), framework.model(fallback), config=config, observers=[listener]
    )
    questions = [f"question {number}" for number in range(RUNS)]
    # So many connections at once as this server's backlog takes; all runs are under way.
    gate = asyncio.Semaphore(100)

    async def ask(text: str) -> str:
        async with gate:
            return await framework.run(chain, question=text)

    assert await asyncio.gather(*map(ask, questions)) == questions
    assert served == Counter(questions)
    assert sum(refused.values()) == RUNS // 4
    assert len(fallback.requests) == RUNS // 4
    assert Counter(record.outcome for record in listener.records) == {"success": RUNS}
