"""A thousand runs at once while the primary dies and comes back: none lost, none doubled."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.agents.frameworks import chain_of
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
    """Each run gets its own answer, once; the fallback serves those that the primary refused."""
    served: Counter[str] = Counter()  # counted under the server's lock

    def answers(request: SeenRequest) -> Reply:
        question = str(request.body["messages"][-1]["content"])
        served[question] += 1
        return Reply(text=question)

    def dies_and_comes_back(request: SeenRequest) -> Reply:
        is_down = RUNS // 4 < len(primary.requests) <= RUNS // 2
        return Reply(status=503) if is_down else answers(request)

    primary.standing, fallback.standing = dies_and_comes_back, answers
    chain = chain_of(framework, primary, fallback, timeout=60, observers=[listener])
    questions = [f"question {number}" for number in range(RUNS)]
    # So many connections at once as this server's backlog takes; all runs are under way.
    gate = asyncio.Semaphore(100)

    async def ask(text: str) -> str:
        async with gate:
            return await framework.run(chain, question=text)

    assert await asyncio.gather(*map(ask, questions)) == questions
    assert served == Counter(questions)
    assert len(primary.requests) == RUNS
    assert len(fallback.requests) == RUNS // 4
    assert Counter(record.outcome for record in listener.records) == {"success": RUNS}
