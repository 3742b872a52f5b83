"""The guard of one run: the transitions behind a lock."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfigError
from honcho_fallback.tools._outcome import ToolOutcome, ToolUse
from honcho_fallback.tools._state import ToolLoopLimits, ToolLoopState, Verdict
from honcho_fallback.tools._transitions import after_model, after_tools

if TYPE_CHECKING:
    from collections.abc import Iterable


class ToolLoopGuard:
    """Stop an agent that makes no progress; one object per run, safe to share between threads.

    Args:
        limits: When to nudge and when to halt.
        exempt_tools: Tools that may be called again and again, such as one that polls.
        autonomous: Whether nobody watches the run.
        state: Where to go on from, or None for a new run.

    Raises:
        FallbackConfigError: An argument has the wrong type.
    """

    __slots__ = ("_autonomous", "_exempt", "_limits", "_lock", "_state")

    def __init__(
        self,
        limits: ToolLoopLimits | None = None,
        *,
        exempt_tools: Iterable[str] = (),
        autonomous: bool = False,
        state: ToolLoopState | None = None,
    ) -> None:
        if isinstance(exempt_tools, str):
            raise FallbackConfigError.about(
                "exempt_tools", "got a single string", "pass a list of names"
            )
        self._limits = ToolLoopLimits() if limits is None else limits
        self._exempt = frozenset(exempt_tools)
        self._autonomous = autonomous
        self._state = ToolLoopState() if state is None else state
        self._lock = Lock()

    @property
    def state(self) -> ToolLoopState:
        """Return what has been counted so far."""
        return self._state

    def after_tool(
        self,
        tool: str,
        arguments: Any = None,
        error: BaseException | str | None = None,
        *,
        timed_out: bool = False,
    ) -> Verdict:
        """Take in what came of one call of a tool.

        Args:
            tool: Its name.
            arguments: As a mapping, or as the JSON that the model wrote.
            error: What it raised, or the text that it returned instead of a result; None is
                success.
            timed_out: Whether it was stopped for taking too long.
        """
        return self.after_tools([ToolOutcome(tool, arguments, error, timed_out)])

    def after_tools(self, outcomes: Iterable[ToolOutcome]) -> Verdict:
        """Take in what came of all the calls that the model made at once.

        Args:
            outcomes: In order.
        """
        batch = list(outcomes)
        with self._lock:
            self._state, verdict = after_tools(self._state, batch, self._limits, self._exempt)
        return verdict

    def after_model(self, text: str, uses: Iterable[ToolUse] = ()) -> Verdict:
        """Count one output of the model, before its calls are made.

        Args:
            text: The output's text.
            uses: The calls in it.
        """
        calls = list(uses)
        with self._lock:
            self._state, verdict = after_model(
                self._state, text, calls, self._limits, autonomous=self._autonomous
            )
        return verdict
