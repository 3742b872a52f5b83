"""Put our classes in place of theirs, in the frameworks' own tests; for ``judges.py``.

``JUDGED=theirs`` leaves theirs in place, to see which tests fail without us.
"""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import agents
from agents.run_internal import model_retry
from pydantic_ai import ModelAPIError
from pydantic_ai._fallback import FallbackPredicates
from pydantic_ai.exceptions import FallbackExceptionGroup
from pydantic_ai.messages import ModelResponse

from honcho_fallback import AnswerRejected, Failure, FailureKind, FallbackExhausted
from honcho_fallback_openai_agents import FallbackModel as AgentsModel
from honcho_fallback_pydantic_ai import FallbackModel as PydanticModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator

OURS = os.environ.get("JUDGED") != "theirs"
# Their conftest imports it for tests of the command line.
CLAI = ModuleType("clai")
CLAI.__file__ = __file__
sys.modules.setdefault("clai", CLAI)
# They mend what this version of vcrpy has no more.
SYS_MODULES: dict[str, Any] = sys.modules
SYS_MODULES["vcr.stubs.aiohttp_stubs"] = None


def at_once(coroutine: Coroutine[Any, Any, bool]) -> bool:
    """Return what a predicate says that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return bool(end.value)
    raise AssertionError("a predicate of errors that waits")


@contextmanager
def their_group() -> Generator[None]:
    """Raise their group where ours says that nobody answered, as if ours had never been."""
    try:
        yield
    except FallbackExhausted as group:
        errors = group.exceptions
    else:
        return
    raise FallbackExceptionGroup("All models from FallbackModel failed", errors)


class Translated(PydanticModel):
    """Ours, with their argument and their error: who falls back is theirs to say, here."""

    def __init__(self, first: Any, *others: Any, fallback_on: Any = (ModelAPIError,)) -> None:
        default = "(ModelAPIError,)"
        says = FallbackPredicates.parse(fallback_on, owner="FallbackModel", default=default)

        def classify(error: BaseException) -> Failure:
            rejected = isinstance(error, AnswerRejected)
            asks_next = isinstance(error, Exception) and at_once(says.should_fallback(error))
            falls = rejected or asks_next
            kind = FailureKind.SERVER_ERROR if falls else FailureKind.LOCAL
            return Failure.of(kind, reason="their predicate")

        async def validate(response: Any) -> bool:
            return not (
                isinstance(response, ModelResponse) and await says.should_fallback(response)
            )

        options: Any = {"classify": classify, "validate": validate, "attempts_per_target": 1}
        super().__init__(first, *others, **options)

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        with their_group():
            return await super().request(*args, **kwargs)

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        with their_group():
            async with super().request_stream(*args, **kwargs) as stream:
                yield stream


class Calling(agents.Model):
    """Call the function that a test gives the Runner's retries in place of a model."""

    def __init__(self, function: Any) -> None:
        self.function = function

    async def get_response(self, *_: Any, **__: Any) -> Any:
        return await self.function()

    def stream_response(self, *_: Any, **__: Any) -> Any:
        return self.function()


def between(function: Any, verb: str) -> Any:
    """Return what asks a chain of one over a function."""
    chain = AgentsModel(Calling(function), attempts_per_target=1, check_responses=False)
    settings, tracing = agents.ModelSettings(), agents.ModelTracing.DISABLED
    return partial(getattr(chain, verb), None, "hi", settings, [], None, [], tracing)


def get_response_with_retry(*, get_response: Any, **options: Any) -> Any:
    """Let the Runner's retries ask a chain of ours that asks the test's function."""
    ask = between(get_response, "get_response")
    return model_retry.get_response_with_retry(get_response=ask, **options)


def stream_response_with_retry(*, get_stream: Any, **options: Any) -> Any:
    """Do the same for a stream."""
    ask = between(get_stream, "stream_response")
    return model_retry.stream_response_with_retry(get_stream=ask, **options)


def agent(*args: Any, **kwargs: Any) -> Any:
    """Build an agent whose model is a chain of ours over the test's."""
    if isinstance(kwargs.get("model"), agents.Model):
        kwargs["model"] = AgentsModel(kwargs["model"], attempts_per_target=1)
    return agents.Agent(*args, **kwargs)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Replace what the collected modules have imported."""
    ours = {
        "FallbackModel": Translated,
        "get_response_with_retry": get_response_with_retry,
        "stream_response_with_retry": stream_response_with_retry,
        "Agent": agent,
    }
    for module in {item.module for item in items} if OURS else ():
        for name, value in ours.items():
            theirs = getattr(module, name, None)
            is_other_agent = name == "Agent" and theirs is not agents.Agent
            if theirs is not None and not is_other_agent:
                setattr(module, name, value)
