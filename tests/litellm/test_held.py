"""What an ended call leaves behind: nothing of ours, whoever has copied its context."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections import deque
from contextlib import aclosing, suppress
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import litellm
import openai
import pytest
from litellm.integrations.custom_logger import CustomLogger

from honcho_fallback import FallbackRun
from honcho_fallback_litellm._router_call import RouterCall
from tests.helpers.litellm_runs import ASKED, run_async
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_word as word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.provider import SeenRequest


class ContextKeeper(CustomLogger):
    """Keep the context of each request, as a connection, a timer or a worker does."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] # LiteLLM's is untyped
        self.contexts: list[contextvars.Context] = []

    def log_pre_api_call(self, *_: Any, **__: Any) -> None:
        """Copy the context in which LiteLLM asks a provider."""
        self.contexts.append(contextvars.copy_context())


@pytest.fixture
def keeper(clean_litellm: None) -> Iterator[ContextKeeper]:
    """Register a callback that keeps contexts until the test is over."""
    keeper = ContextKeeper()
    litellm.callbacks.append(keeper)
    yield keeper
    keeper.contexts.clear()


def alive() -> list[Any]:
    """List what is left of calls once LiteLLM's threads have logged how streams broke.

    Such a thread has the error, and with its traceback the stream's frames.
    """
    for thread in threading.enumerate():
        if "(failure_handler)" in thread.name:
            thread.join(30)
    gc.collect()
    return [one for one in gc.get_objects() if type(one) in {RouterCall, FallbackRun}]


async def call(router: Any, way: str, asks: str = "async") -> None:
    """Ask, and read a stream to its end or its first chunk."""
    asked = {**ASKED, "stream": way != "answered"}
    with suppress(openai.APIError):
        if asks == "sync":
            answer = router.completion(**asked)
            deque(islice(answer, 1 if way == "left" else None) if asked["stream"] else ())
            return
        answer = await router.acompletion(**asked)
        if way == "answered":
            return
        async with aclosing(answer) as chunks:
            async for _ in chunks:
                if way == "left":
                    break


WAYS = ("answered", "streamed", "left")
ENDINGS: tuple[dict[str, Reply], ...] = (
    {},
    {"primary": Reply(status=500)},
    {"primary": Reply(status=500), "backup": Reply(status=500)},
    {"primary": Reply(status=400)},
    {"primary": Reply(events=[word("")], cut=True)},
    {"primary": Reply(events=[word("one "), word("two ")], cut=True)},
)


@pytest.mark.parametrize("asks", ["sync", "async"])
def test_an_ended_call_is_not_alive(asks: str, bench: Any, keeper: ContextKeeper) -> None:
    """A context that was copied during a call does not keep it.

    Nor do LiteLLM's workers and connections, while their loop runs.
    """
    router, _ = bench.managed()

    async def inside() -> None:
        before = alive()
        for way, replies in product(WAYS, ENDINGS):
            bench.providers.reset()
            for name, reply in replies.items():
                bench[name].standing = reply
            await call(router, way, asks)
            # A stream that was left closes its connection when it is collected; inside the
            # pool's lock, while the next request takes one, it would wait for it for ever.
            gc.collect()
        await asyncio.sleep(0)  # the loop closes generators that were collected
        assert len(keeper.contexts) >= 3 * len(ENDINGS)
        assert len(alive()) == len(before)

    run_async(inside())


@pytest.mark.parametrize("way", WAYS[:2])
def test_a_cancelled_call_is_not_alive(way: str, bench: Any, keeper: ContextKeeper) -> None:
    """Cancelled while a provider is silent, a call is gone."""
    router, _ = bench.managed()
    asked = threading.Event()

    def be_silent(_: SeenRequest) -> Reply:
        asked.set()
        return Reply(hang=True)

    bench["primary"].standing = be_silent

    async def inside() -> None:
        before = alive()
        task = asyncio.create_task(call(router, way))
        await asyncio.to_thread(asked.wait, 10)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        del task
        await asyncio.sleep(0)  # until then the loop holds the error that woke this task
        assert keeper.contexts
        assert len(alive()) == len(before)

    run_async(inside())
