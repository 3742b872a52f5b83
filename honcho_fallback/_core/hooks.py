"""Hooks of the user's, sync or async: what is done with their results stands once."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from honcho_fallback._core.observers import logger
from honcho_fallback._values.errors import FallbackConfigError
from honcho_fallback._values.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


class HookStep(NamedTuple):
    """What a hook of the user's returned: its result, or something to await for it."""

    hook: str
    result: Any


# Yields each hook's step and is sent the result; so that hooks may be sync or async and what is
# done with their results stands once.
HookSteps: TypeAlias = "Generator[HookStep, Any, T]"


def run_hooks(steps: HookSteps[T]) -> T:
    """Go through the steps in a thread."""
    try:
        step = next(steps)
        while True:
            if inspect.isawaitable(step.result):
                getattr(step.result, "close", bool)()  # a coroutine that nobody will await
                raise FallbackConfigError.about(step.hook, "it is async", "use acall or astream")
            step = steps.send(step.result)
    except StopIteration as end:
        result: T = end.value
        return result


async def arun_hooks(steps: HookSteps[T]) -> T:
    """Go through the steps in a task, and await what a hook returned for that."""
    try:
        step = next(steps)
        while True:
            if not inspect.isawaitable(step.result):
                step = steps.send(step.result)
                continue
            try:
                result = await step.result
            except Exception as error:  # noqa: BLE001 # for the step, as where a sync hook raises
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        final: T = end.value
        return final


def failure_from(hook: str, call: Callable[[], Any], before: Failure) -> HookSteps[Failure]:
    """Ask a hook for a failure; where it breaks, an outage is no time to lose the error."""
    try:
        result = yield HookStep(hook, call())
    except Exception as broken:  # noqa: BLE001 # see above
        logger.error(
            "%s raised %s; it is passed over", hook, type(broken).__name__
        )  # its frames could show what a call carries
        return before
    if isinstance(result, Failure):
        return result
    logger.error("%s returned no Failure; it is passed over", hook)
    return before


def is_async(hook: object) -> bool:
    """Tell whether a hook has to be awaited."""
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(
        getattr(hook, "__call__", None)  # noqa: B004 # its kind matters, not whether it is there
    )
