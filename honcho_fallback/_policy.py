"""The policy: a chain, its options, and the four ways to ask it."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from honcho_fallback import _drive, _drive_stream
from honcho_fallback._call_id import CALL_IDS
from honcho_fallback._checks import require_type
from honcho_fallback._config import ConfigOptions, FallbackConfig
from honcho_fallback._errors import FallbackConfigError
from honcho_fallback._machine import FallbackRun
from honcho_fallback._observer import Observers, Restore
from honcho_fallback._plan import Plan, check_chain
from honcho_fallback._shown import Shown
from honcho_fallback._turn import Turn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Generator, Iterable

    from honcho_fallback._drive import Ask, Start, Test
    from honcho_fallback._observer import FallbackObserver
    from honcho_fallback._target import Target

T = TypeVar("T")


class CallOptions(ConfigOptions, total=False):
    """Name what a single call may be given, apart from the options of FallbackConfig.

    Args:
        run: From ``start()``, for whoever wants its record afterwards; comes alone.
        turn: Passed on from another thread or task.
        agent: A label for this call.
    """

    run: FallbackRun | None
    turn: Turn | None
    agent: str | None


class FallbackPolicy(Shown):
    """Ask the next model on the first failure of the one before.

    Immutable and shared freely: what a call learns lives in its run, what a turn learns in the
    turn.

    Args:
        targets: The chain: the primary first, then the fallbacks in order.
        config: The options; default ``FallbackConfig()``.
        agent: A label for logs and records.
        observers: Whom to tell.

    Raises:
        FallbackConfigError: The chain is empty, names repeat, or an argument has the wrong type.
    """

    __slots__ = ("_owner", "_plan")

    def __init__(
        self,
        targets: Iterable[Target],
        config: FallbackConfig | None = None,
        *,
        agent: str = "unknown",
        observers: Iterable[FallbackObserver] = (),
    ) -> None:
        config = FallbackConfig() if config is None else config
        require_type("config", config, FallbackConfig, "pass a FallbackConfig")
        self._plan = Plan(check_chain(targets), config, agent, Observers.of(observers))
        self._owner: object = self

    def __repr__(self) -> str:
        chain = " -> ".join(target.name for target in self._plan.chain)
        return f"<FallbackPolicy {self._plan.agent}: {chain}>"

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return the chain, the primary first."""
        return self._plan.chain

    @property
    def config(self) -> FallbackConfig:
        """Return the options."""
        return self._plan.config

    @property
    def agent(self) -> str:
        """Return the label for logs and records."""
        return self._plan.agent

    def call(self, ask: Ask[T], **options: Unpack[CallOptions]) -> T:
        """Ask in this thread and return the answer.

        Args:
            ask: Asks one target, given an Attempt; what it raises is a failure. Its client takes
                ``attempt.timeout``; an answer that comes late still counts.
            **options: For this call: see CallOptions.

        Raises:
            FallbackExhausted: Nobody answered.
            DeadlineExceeded: Time ran out.
            FallbackConfigError: An option is unknown or out of range.
            Exception: The provider's own where no other target could help, or with one target.
        """
        return _drive.call(self._given(options), ask, sleep)

    async def acall(self, ask: Ask[Awaitable[T]], **options: Unpack[CallOptions]) -> T:
        """Ask in this task and return the answer; each attempt ends at its timeout.

        Args:
            ask: Asks one target, given an Attempt; what it raises is a failure.
            **options: For this call: see CallOptions.

        Raises:
            FallbackExhausted: Nobody answered.
            DeadlineExceeded: Time ran out.
            FallbackConfigError: An option is unknown or out of range.
            Exception: The provider's own where no other target could help, or with one target.
        """
        return await _drive.acall(self._given(options), ask, asyncio.sleep)

    def stream(
        self, ask: Ask[Iterable[T]], *, has_content: Test[T] = bool, **options: Unpack[CallOptions]
    ) -> Generator[T, None, None]:
        """Ask for a stream and hand out its chunks; close the generator to stop early.

        Args:
            ask: Asks one target for an iterable of chunks.
            has_content: Tells whether a chunk is worth handing out. Chunks without are held back;
                with the first that has, the target is settled.
            **options: For this call: see CallOptions.

        Raises:
            StreamInterrupted: The stream broke after its first content.
            FallbackExhausted: Nobody answered.
            DeadlineExceeded: Time ran out.
            FallbackConfigError: An option is unknown or out of range.
            Exception: The provider's own where no other target could help, or with one target.
        """
        return _drive_stream.stream(self._starter(options), ask, has_content, sleep)

    def astream(
        self,
        ask: Ask[AsyncIterable[T] | Awaitable[AsyncIterable[T]]],
        *,
        has_content: Test[T] = bool,
        **options: Unpack[CallOptions],
    ) -> AsyncGenerator[T, None]:
        """Ask for a stream in this task and hand out its chunks; ``aclose`` to stop early.

        Args:
            ask: Asks one target for an async iterable of chunks, or an awaitable of one.
            has_content: Tells whether a chunk is worth handing out. Chunks without are held back;
                with the first that has, the target is settled.
            **options: For this call: see CallOptions.

        Raises:
            StreamInterrupted: The stream broke after its first content.
            FallbackExhausted: Nobody answered.
            DeadlineExceeded: Time ran out.
            FallbackConfigError: An option is unknown or out of range.
            Exception: The provider's own where no other target could help, or with one target.
        """
        return _drive_stream.astream(self._starter(options), ask, has_content, asyncio.sleep)

    def turn(self) -> Turn:
        """Open a user turn, for ``with`` or ``async with``: what a switch lasts for.

        Only ``reset="turn"`` makes use of it.
        """
        plan = self._plan
        if plan.observers is None:
            return Turn(self._owner)
        restore = Restore(plan.agent, plan.chain[0], "turn")
        return Turn(self._owner, partial(plan.observers.tell, "on_restore", restore))

    def sharing_turns_with(self, other: FallbackPolicy) -> Self:
        """Take part in the turns of another policy over the same chain, and return this one.

        For adapters that make a policy anew when tools are bound to a model: a turn that was
        opened on the model holds for what was derived from it.

        Args:
            other: The policy that the turns were opened on.

        Raises:
            FallbackConfigError: Its chain is of another length.
        """
        if len(other.targets) != len(self.targets):
            fix = "pass a policy over the same targets"
            raise FallbackConfigError.about("other", "its chain is of another length", fix)
        self._owner = other._owner
        return self

    def start(
        self, *, turn: Turn | None = None, agent: str | None = None, **other: Unpack[ConfigOptions]
    ) -> FallbackRun:
        """Return the machine of one call, for whoever owns the loop or wants the record.

        Where ``run.errand`` is not None, call ``settle`` or ``asettle`` before asking.

        Args:
            turn: Passed on from another thread or task.
            agent: A label for this call.
            **other: Options of FallbackConfig for this call.

        Raises:
            FallbackConfigError: An override is unknown or out of range, or the turn is not ours.
        """
        given: CallOptions = {"turn": turn, "agent": agent}
        return self._starter({**given, **other})()

    settle = staticmethod(_drive.settle)
    asettle = staticmethod(_drive.asettle)

    def _given(self, options: CallOptions) -> FallbackRun:
        if not options:
            turn = Turn.current(self._owner) if self._plan.turn_scoped else None
            return self._begin(self._plan, turn)
        return self._starter(options)()

    def _starter(self, options: CallOptions) -> Start:
        # A generator's body runs when it is first read, perhaps in another context: which turn it
        # belongs to is settled here and now, and bad input is refused here and now.
        plan, overrides = self._plan, cast("dict[str, Any]", {**options})
        run, turn, agent = (overrides.pop(name, None) for name in ("run", "turn", "agent"))
        if run is not None:
            if turn is not None or agent is not None or overrides:
                found = "it came with options for the call"
                raise FallbackConfigError.about("run", found, "pass those to start()")
            return lambda: run
        if agent is not None or overrides:
            agent = plan.agent if agent is None else agent
            plan = Plan(plan.chain, plan.config.replace(**overrides), agent, plan.observers)
        if turn is not None and turn.owner is not self._owner:
            fix = "pass one from this policy's turn()"
            raise FallbackConfigError.about("turn", "it belongs to another policy", fix)
        if turn is None and plan.turn_scoped:
            turn = Turn.current(self._owner)
        ended = turn is None or turn.outcome != "open"
        return partial(self._begin, plan, turn if plan.turn_scoped and not ended else None)

    @staticmethod
    def _begin(plan: Plan, turn: Turn | None) -> FallbackRun:
        return FallbackRun(plan, turn, next(CALL_IDS), monotonic, monotonic(), time())
