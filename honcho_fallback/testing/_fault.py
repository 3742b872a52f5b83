"""The fault fixture: it recognises its subject, and removes every fault at the end."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing._failing import Failing
from honcho_fallback.testing._failing_client import failing_client, is_sdk_client
from honcho_fallback.testing._failing_model import failing_model, is_chat_model
from honcho_fallback.testing._failing_router import failing_deployment, is_router

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback.testing._clock import Clock

SubjectT = TypeVar("SubjectT")


class FaultInjector:
    """Make what is healthy fail on schedule; what the fixture ``fault`` is.

    Args:
        clock: What ``for_seconds`` reads.
        stack: Removes the faults at the end.
    """

    def __init__(self, clock: Clock, stack: ExitStack) -> None:
        self._clock = clock
        self._stack = stack

    def __call__(self, subject: SubjectT, deployment: str | None = None) -> Failing[SubjectT]:
        """Return a schedule; what to use in the test is its ``subject``.

        Errors are those that production would see: an SDK makes them from a response of the
        fault's status, LangChain's integrations and LiteLLM make of them what they always do.
        """
        failing: Failing[SubjectT] = Failing(self._clock, streams=is_chat_model(subject))
        if is_router(subject):
            if deployment is None:
                raise FallbackConfigError.about(
                    "deployment", "none was given", "pass a model_name or an id of the Router"
                )
            failing.subject = subject
            self._stack.enter_context(failing_deployment(subject, deployment, failing))
            return failing
        make: Any = None
        if is_chat_model(subject):
            make = failing_model
        elif is_sdk_client(subject):
            make = failing_client
        if make is None or deployment is not None:
            raise FallbackConfigError.about(
                "subject",
                f"got a {type(subject).__name__}",
                "pass a chat model, a client of openai, anthropic or groq, or a Router with the "
                "name of a deployment; of a chain or a binding, the model inside it",
            )
        failing.subject = make(subject, failing)
        return failing


@contextmanager
def fault_injector(clock: Clock) -> Generator[FaultInjector, None, None]:
    """Make what is healthy fail on schedule, until the ``with`` block ends.

    Args:
        clock: What ``for_seconds`` reads.
    """
    with ExitStack() as stack:
        yield FaultInjector(clock, stack)
