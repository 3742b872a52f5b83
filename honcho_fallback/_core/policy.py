"""The policy: a chain, its options, and the four ways to ask it."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, get_args

from honcho_fallback._classify._answers import has_content as content_of_chunk
from honcho_fallback._core import drivers
from honcho_fallback._core.config import ConfigOptions, FallbackConfig
from honcho_fallback._core.observers import Observers, Restore, TurnEnd
from honcho_fallback._core.resolved import ResolvedPolicy, check_chain
from honcho_fallback._core.run import FallbackRun
from honcho_fallback._core.runtime import Runtime
from honcho_fallback._core.shared import Sessions
from honcho_fallback._core.target import Partial
from honcho_fallback._core.turn import Place, Turn, current_turn
from honcho_fallback._values.errors import FallbackConfigError, require_text, require_type
from honcho_fallback.redaction import label

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Generator, Iterable

    from honcho_fallback._core.drivers import Ask, HasContent, Start
    from honcho_fallback._core.observers import FallbackObserver
    from honcho_fallback._core.target import Attempt, Target
    from honcho_fallback._values.failure import Failure

T = TypeVar("T")
P = ParamSpec("P")


class StartOptions(ConfigOptions, total=False):
    """Name what a call begins with, apart from the options of FallbackConfig.

    Args:
        turn: Passed on from another thread or task.
        agent: A label for this call.
        metadata: What the record and the traces of this call say of it, such as
            ``{"workspace": "acme", "run_id": "r-17"}``: names with texts, numbers or booleans.
        unfit: Which targets cannot take this call, 0-based in the chain, each with the reason for
            the record, such as ``{1: "it cannot read images"}``. They are never asked and count
            neither as failures nor as attempts; the last that is left is the chain's last.
        session: Names the conversation that the call, or the turn it is in, is a part of, as in
            ``policy.session``: for whoever cannot write a ``with`` around the turn.
    """

    turn: Turn | None
    session: str | None
    agent: str | None
    metadata: Mapping[str, Any] | None
    unfit: Mapping[int, str] | None


class CallOptions(StartOptions, total=False):
    """Name what a single call may be given: what ``start`` takes, or its run.

    Args:
        run: From ``start()``, for whoever wants its record afterwards; comes alone.
    """

    run: FallbackRun | None


class FallbackPolicy:
    """Ask the next model on the first failure of the one before.

    Immutable and shared freely: what a call learns lives in its run, what a turn learns in the
    turn.

    Args:
        targets: The chain: the primary first, then the fallbacks in order.
        config: The options; default ``FallbackConfig()``.
        agent: A label for logs and records.
        observers: Objects with the methods of ``FallbackObserver``, or some of them; on top of
            those that ``set_observers`` gives to every policy.
        turns_of: Another policy over a chain of the same length, whose turns this one takes part
            in: for adapters that make a policy anew when tools are bound to a model.
        runtime: Where time comes from; default: that of the process.
        classifier: In place of ``classify``, for adapters of a framework that wraps what providers
            raise; the config's rules are its own to ask, and ``refine`` comes after it.
        **options: Options of FallbackConfig, on top of ``config``.

    Raises:
        FallbackConfigError: The chain is empty, names repeat, or an argument has the wrong type.
    """

    __slots__ = ("_owner", "_policy", "_runtime", "_unwarned")

    def __init__(  # noqa: PLR0913 # each is a part of what a policy is
        self,
        targets: Iterable[Target],
        config: FallbackConfig | None = None,
        *,
        agent: str = "unknown",
        observers: Iterable[FallbackObserver] = (),
        turns_of: FallbackPolicy | None = None,
        runtime: Runtime | None = None,
        classifier: Callable[[BaseException], Failure] | None = None,
        **options: Unpack[ConfigOptions],
    ) -> None:
        config = FallbackConfig() if config is None else config
        require_type("config", config, FallbackConfig, "pass a FallbackConfig")
        if options:
            names = [*inspect.signature(FallbackPolicy).parameters][:-1]  # all but **options
            _require_known(options, (*names, *_OPTIONS))
            config = config.replace(**options)
        require_type("runtime", runtime, Runtime | None, "pass a Runtime or leave it out")
        chain = check_chain(targets)
        self._policy = ResolvedPolicy(chain, config, agent, Observers.of(observers), classifier)
        self._runtime = runtime
        self._owner: object = self
        self._unwarned = iter((True,))
        if turns_of is not None:
            require_type("turns_of", turns_of, FallbackPolicy, "pass another policy")
            if len(turns_of.targets) != len(chain):
                fix = "pass a policy over the same targets"
                raise FallbackConfigError.about("turns_of", "its chain is of another length", fix)
            self._owner = turns_of._owner  # noqa: SLF001 # its own class
        for target in chain:
            _warn_of_own_retries(target)

    def __repr__(self) -> str:
        chain = " -> ".join(target.name for target in self._policy.chain)
        return label(f"<FallbackPolicy {self._policy.agent}: {chain}>")

    def __reduce__(self) -> tuple[Any, ...]:
        own = tuple(self._policy.observers or ())
        rest: dict[str, Any] = {"agent": self.agent, "observers": own, "runtime": self._runtime}
        rest["classifier"] = self._policy.classifier
        return partial(FallbackPolicy, self.targets, self.config, **rest), ()

    def __deepcopy__(self, memo: object = None) -> FallbackPolicy:
        return self  # immutable, and its clients and its cooldown are there to be shared

    __copy__ = __deepcopy__

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return the chain, the primary first."""
        return self._policy.chain

    @property
    def config(self) -> FallbackConfig:
        """Return the options."""
        return self._policy.config

    @property
    def agent(self) -> str:
        """Return the label for logs and records."""
        return self._policy.agent

    @property
    def observers(self) -> tuple[FallbackObserver, ...]:
        """Return who observes a call that begins now: this policy's own and the process's."""
        return tuple(self._observers() or ())

    @property
    def wants_content(self) -> bool:
        """Tell whether an observer wants what is asked and answered (``run.report``)."""
        observers = self._observers()
        return observers is not None and observers.wants_content()

    def call(self, ask: Ask[T], **options: Unpack[CallOptions]) -> T:
        """Ask in this thread and return the answer.

        Args:
            ask: Asks one target, given an Attempt; what it raises is a failure. Its client takes
                ``attempt.timeout``; an answer that comes late still counts.
            **options: For this call: see CallOptions.

        Raises:
            FallbackExhausted: Nobody answered.
            DeadlineExceeded: Time ran out.
            FallbackConfigError: An option is unknown or out of range, or ``ask`` or a hook is
                async.
            Exception: The provider's own where no other target could help, or with one target.
        """
        return drivers.call(self._start(options), ask)

    async def acall(self, ask: Ask[Awaitable[T]], **options: Unpack[CallOptions]) -> T:
        """Ask in this task and return the answer; each attempt ends at its timeout.

        Args:
            ask: Asks one target, given an Attempt; what it raises is a failure.
            **options: For this call: see CallOptions.

        Raises:
            FallbackConfigError: ``ask`` is not async, or as for ``call``.
            Exception: As for ``call``.
        """
        return await drivers.acall(self._start(options), ask)

    def stream(
        self,
        ask: Ask[Iterable[T]],
        *,
        has_content: HasContent[T] = content_of_chunk,
        partial: Partial = "final",
        **options: Unpack[CallOptions],
    ) -> Generator[T, None, None]:
        """Ask for a stream and hand out its chunks; close the generator to stop early.

        Args:
            ask: Asks one target for an iterable of chunks.
            has_content: Tells whether a chunk is worth handing out. Chunks without are held back;
                with the first that has, the target is settled. By default it reads the chunks of
                the SDKs that ``check_response`` knows, and takes any other by its truth.
            partial: What the content of a stream is that breaks after it: ``"final"`` ends the
                call there; with ``"replace"`` the next attempt's chunks take the place of those
                that were handed out, and the time to first token is that of the attempt that
                answers. The reader has to see which attempt a chunk is of: let ``ask`` mark the
                chunks with ``attempt.number``, in a form that ``has_content`` still reads. With
                ``"continue"`` a target that has ``prefill`` goes on with it, where it is plain
                text: ``ask`` sends ``attempt.partial`` as the assistant's last message, and what
                it repeats of that is dropped; else it is final.
            **options: For this call: see CallOptions.

        Raises:
            StreamInterrupted: The stream broke after its first content, which was final.
            Exception: As for ``call``.
        """
        return drivers.stream(self._starter(options), ask, *_checked(has_content, partial))

    def astream(
        self,
        ask: Ask[AsyncIterable[T] | Awaitable[AsyncIterable[T]]],
        *,
        has_content: HasContent[T] = content_of_chunk,
        partial: Partial = "final",
        **options: Unpack[CallOptions],
    ) -> AsyncGenerator[T, None]:
        """Ask for a stream in this task and hand out its chunks; ``aclose`` to stop early.

        Args:
            ask: Asks one target for an async iterable of chunks, or an awaitable of one.
            has_content: As for ``stream``.
            partial: As for ``stream``.
            **options: For this call: see CallOptions.

        Raises:
            FallbackConfigError: ``ask`` is not async, or as for ``stream``.
            Exception: As for ``stream``.
        """
        return drivers.astream(self._starter(options), ask, *_checked(has_content, partial))

    def wrap(self, function: Callable[Concatenate[Attempt, P], T], /) -> Callable[P, T]:
        """Make a function that asks one target one that asks the chain: ``@policy.wrap``.

        A coroutine function asks as ``acall`` does, a generator function as ``stream``, an async
        one as ``astream``, any other as ``call``; each raises what that raises. Name, signature
        and documentation stay, without the first parameter.

        Args:
            function: Its first parameter is the attempt; the others are its callers'. What it
                raises is a failure.

        Raises:
            FallbackConfigError: It has no parameter for the attempt.
        """
        signature = _signature_for_callers(function)
        ask: Callable[..., Any] = function
        verb: Callable[[Ask[Any]], Any] = self.call
        if inspect.isasyncgenfunction(function):
            verb = self.astream
        elif inspect.isgeneratorfunction(function):
            verb = self.stream

        def asks(*args: Any, **kwargs: Any) -> Any:
            return verb(lambda attempt: ask(attempt, *args, **kwargs))

        async def asks_in_task(*args: Any, **kwargs: Any) -> Any:
            return await self.acall(lambda attempt: ask(attempt, *args, **kwargs))

        is_async = inspect.iscoroutinefunction(function)
        wrapped: Any = wraps(function)(asks_in_task if is_async else asks)
        wrapped.__signature__ = signature
        known = {*signature.parameters, "return"}
        hints = wrapped.__annotations__.items()
        wrapped.__annotations__ = {name: hint for name, hint in hints if name in known}
        return cast("Callable[P, T]", wrapped)

    def turn(self, turn_id: str | None = None) -> Turn:
        """Open a user turn, for ``with`` or ``async with``: what a switch lasts for.

        Only with ``reset="turn"`` a switch lasts so long; whatever ``reset`` is, observers and
        records name the turn that a call is a part of. Within a session it is a turn of that.

        Args:
            turn_id: Its name, where a turn goes on that began elsewhere; default: a new one.
        """
        around = Turn.current(self._owner)
        if around is not None and around.place is not None:
            return self.session(around.place.session_id, turn_id)
        return Turn(self._owner, turn_id or _new_id(), self._tell_turn_end)

    def session(self, session_id: str, turn_id: str | None = None) -> Turn:
        """Open a user turn of a conversation, for ``with`` or ``async with``.

        With ``reset="session"`` it begins where the turn before was answered, while that
        provider's prompt cache is warm (see ``Sessions``); else it is a turn like any other.

        Args:
            session_id: Names the conversation.
            turn_id: As for ``turn``.

        Raises:
            FallbackConfigError: The name is empty or no text.
        """
        turn = Turn(self._owner, turn_id or _new_id(), self._tell_turn_end)
        turn.join(self._place(self._policy, session_id))
        return turn

    def _place(self, policy: ResolvedPolicy, session_id: str) -> Place | None:
        require_text("session_id", session_id, "pass the name of the conversation")
        if not isinstance(sessions := policy.config.reset, Sessions):
            return None
        key = session_id, policy.agent, *(target.name for target in policy.chain)
        now = (self._runtime or Runtime.current()).monotonic()
        return Place(session_id, sessions.position(key, now), partial(sessions.answered, key))

    def start(self, **options: Unpack[StartOptions]) -> FallbackRun:
        """Return the machine of one call, for whoever owns the loop or wants the record.

        Nothing is claimed by it: a cooldown's probe is taken with the first look at
        ``run.attempt``. Where ``run.pending`` is not None, call ``perform`` or ``aperform`` before
        asking.

        Args:
            **options: For this call: those of CallOptions but ``run``.

        Raises:
            FallbackConfigError: An override is unknown or out of range, the turn is not ours, or
                nobody is fit.
        """
        return self._starter(cast("CallOptions", options))()

    def labelled(self, agent: str) -> FallbackPolicy:
        """Return this policy under another label; it shares everything else, turns included.

        Args:
            agent: A label for logs and records.

        Raises:
            FallbackConfigError: The label is empty.
        """
        policy = object.__new__(type(self))
        policy._policy = self._policy.labelled(agent)
        policy._runtime, policy._owner = self._runtime, self._owner
        policy._unwarned = self._unwarned
        return policy

    perform = staticmethod(drivers.perform)
    aperform = staticmethod(drivers.aperform)

    def _observers(self) -> Observers | None:
        """Return who observes: in a time of its own, as a simulated one, not the process's."""
        own = self._policy.observers
        if self._runtime is not None or Observers.everybodys is None:
            return own
        return Observers.now(own)

    def _tell_turn_end(self, turn: Turn) -> None:
        observers, agent = self._observers(), self._policy.agent
        if observers is None or turn.outcome == "open":
            return
        if turn.position and turn.place is None:  # else the next turn may stay there
            observers.emit("on_restore", Restore(agent, self._policy.chain[0], "turn"))
        observers.emit("on_turn_end", TurnEnd(turn.turn_id, agent, turn.outcome))

    def _start(self, options: CallOptions) -> FallbackRun:
        if options:
            return self._starter(options)()
        turn = self._current_turn(self._policy)
        return FallbackRun(self._policy, turn, _new_id(), self._runtime)

    def _starter(self, options: CallOptions) -> Start:
        # A generator's body runs when it is first read, perhaps in another context: which turn it
        # belongs to is settled here and now, and bad input is refused here and now.
        policy, overrides = self._policy, cast("dict[str, Any]", {**options})
        names = ("run", "turn", "agent", "metadata", "unfit", "session")
        run, *beginning = (overrides.pop(name, None) for name in names)
        if run is not None:
            is_run = isinstance(run, FallbackRun)
            if not is_run or overrides or any(one is not None for one in beginning):
                require_type("run", run, FallbackRun, "pass one from start()")
                problem = "it came with options for the call"
                raise FallbackConfigError.about("run", problem, "pass those to start()")
            return lambda: run
        turn, agent, metadata, unfit, session = beginning
        metadata = _plain_metadata(metadata)
        if agent is not None or overrides:
            _require_known(overrides, CallOptions.__annotations__)
            agent = policy.agent if agent is None else agent
            config = policy.config.replace(**overrides)
            if "require" in overrides:  # a promise of the policy's is no call's to take back
                config = config.replace(require=config.require | policy.config.require)
            rest = policy.observers, policy.classifier
            policy = ResolvedPolicy(policy.chain, config, agent, *rest)
        if turn is None:
            turn = Turn.current(self._owner) if session else self._current_turn(policy)
        elif getattr(turn, "owner", None) is not self._owner:
            require_type("turn", turn, Turn, fix := "pass one from this policy's turn()")
            raise FallbackConfigError.about("turn", "it belongs to another policy", fix)
        elif turn.outcome != "open":
            turn = None
        if session is not None and (place := self._place(policy, session)) is not None:
            turn = turn or Turn(self._owner, _new_id(), self._tell_turn_end)
            turn.join(place)
        unfit, runtime = _checked_unfit(unfit, policy), self._runtime
        return lambda: FallbackRun(
            policy, turn, _new_id(), runtime, metadata=metadata, unfit=unfit
        )

    def _current_turn(self, policy: ResolvedPolicy) -> Turn | None:
        if current_turn.get() is None and not policy.turn_scoped:
            return None
        turn = Turn.current(self._owner)
        # One iterator step: of all threads one warns, once for each policy.
        if turn is None and policy.turn_scoped and next(self._unwarned, None):
            warnings.warn(
                f'{self!r}: reset="turn" or "session" has no effect outside of a turn, so this '
                "call is one of its own; open one with policy.turn() or policy.session(id) around "
                'the calls that belong together, or pass reset="iteration"',
                stacklevel=4,
            )
        return turn


_OPTIONS = ConfigOptions.__annotations__


def _require_known(options: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse an option that does not exist; those that a signature names are known to Python."""
    unknown = min(options.keys() - _OPTIONS.keys(), default=None)
    if unknown is not None:
        raise FallbackConfigError.unknown(unknown, names)


def _checked(has_content: HasContent[T], partial: Any) -> tuple[HasContent[T], Partial]:
    require_type("has_content", has_content, Callable, "pass a function of a chunk")
    if partial not in (modes := get_args(Partial)):
        shown = repr(partial) if isinstance(partial, str) else f"a {type(partial).__name__}"
        fix = f"pass one of {', '.join(map(repr, modes))}"
        raise FallbackConfigError.about("partial", f"got {shown}", fix)
    return has_content, cast("Partial", partial)


def _plain_metadata(metadata: Any) -> dict[str, Any] | None:
    """Copy a call's metadata; what a record could not be saved with is refused."""
    if metadata is None:
        return None
    fix = "pass names with texts, numbers or booleans"
    require_type("metadata", metadata, Mapping, fix)
    for name, value in metadata.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float | None):
            field = f"metadata[{name!r}]" if isinstance(name, str) else "metadata"
            raise FallbackConfigError.about(field, f"got a {type(value).__name__}", fix)
    return dict(metadata)


def _checked_unfit(unfit: Any, policy: ResolvedPolicy) -> dict[int, str] | None:
    """Copy the positions that cannot take a call; somebody has to be left who can."""
    if unfit is None:
        return None
    fix = "pass positions in the chain with reasons, such as {1: 'it cannot read images'}"
    require_type("unfit", unfit, Mapping, fix)
    for position, reason in unfit.items():
        if type(position) is not int or not 0 <= position < len(policy.chain):
            problem = f"{position!r} is no position of this chain"
            fix = f"pass numbers from 0 to {len(policy.chain) - 1}"
            raise FallbackConfigError.about("unfit", problem, fix)
        require_text(f"unfit[{position}]", reason, "say why this target cannot take the call")
    reasons = policy.nobody_fits({**policy.unfit, **unfit})
    if reasons is not None:
        problem = f"it leaves no target to ask ({reasons})"
        raise FallbackConfigError.about("unfit", problem, "leave out one that can take the call")
    return dict(unfit)


def _signature_for_callers(function: Any) -> inspect.Signature:
    """Return a function's signature without its first parameter, which is for the attempt."""
    problem = f"got a {type(function).__name__}"
    if callable(function):
        try:
            return inspect.signature(partial(function, None))
        except ValueError:
            name = getattr(function, "__qualname__", function)
            problem = f"{name} has no parameter for the attempt"
    raise FallbackConfigError.about("function", problem, "write it as def ask(attempt, ...)")


def _warn_of_own_retries(target: Target) -> None:
    """Say once that an SDK's client would ask a dead provider again before anybody else is."""
    # The clients generated by Stainless (openai, anthropic, groq, ...) all have these two.
    count = getattr(target.client, "max_retries", None)
    if type(count) is int and count > 0 and hasattr(target.client, "with_options"):
        warnings.warn(
            f"{label(target.name)}: its client makes up to {count} retries of its own before the "
            "policy hears of a failure; pass honcho_fallback.providers.without_retries(client)",
            stacklevel=3,
        )


def _new_id() -> str:
    """Name a call or a turn; drawn anew each time, so that forked workers share none."""
    # The letter in front: what reads a trace or a log takes an id of digits alone for a number.
    return f"c{os.urandom(10).hex()}"
