"""Who hears of calls: observers, and the package's log lines."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    runtime_checkable,
)

from honcho_fallback._values.errors import FallbackConfigError, nearest
from honcho_fallback.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from honcho_fallback._core.target import Target
    from honcho_fallback._values.failure import Failure
    from honcho_fallback._values.record import CallRecord

logger = logging.getLogger("honcho_fallback")


@dataclass(frozen=True, slots=True)
class CallStart:
    """Tell that a call begins.

    Args:
        call_id: Unique for the call.
        agent: The label given to the policy or the call.
        chain: The targets in order; the first is the primary.
        metadata: What the caller says of the call, such as a workspace, or None.
        turn_id: Unique for the turn that the call is a part of, or None outside of one.
    """

    call_id: str
    agent: str
    chain: tuple[Target, ...]
    metadata: Mapping[str, Any] | None = None
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class CallContent:
    """Tell what was asked or answered; kept nowhere, and only for observers with ``on_content``.

    Args:
        call_id: Unique for the call.
        input: What was asked, in the caller's form, or None.
        output: What came back, as the provider sent it (a stream's chunks as a tuple), or None.
        parameters: The model's parameters, such as temperature.
    """

    call_id: str
    input: Any = field(default=None, repr=False)
    output: Any = field(default=None, repr=False)
    parameters: Mapping[str, Any] | None = field(default=None, repr=False)


class Switch(NamedTuple):
    """Tell that a call goes from one target to another.

    A tuple, because it is made between a failure and the next request.

    Args:
        call_id: Unique for the call.
        agent: The label given to the policy or the call.
        primary: The chain's first target.
        failed: The target that failed.
        fallback: The target that is asked next.
        failure: What went wrong.
    """

    call_id: str
    agent: str
    primary: Target
    failed: Target
    fallback: Target
    failure: Failure

    @property
    def reason(self) -> str:
        """Say why in a few words: kind, class and status, never what the provider wrote."""
        parts = (self.failure.kind.value, self.failure.error, self.failure.status)
        return " ".join(str(part) for part in parts if part)


class Restore(NamedTuple):
    """Tell that the primary is back.

    Args:
        agent: The label given to the policy or the call.
        primary: The chain's first target.
        after: The ``turn`` that had left it is over, or it answered the probe of a ``cooldown``.
        call_id: Of the probe, or None.
    """

    agent: str
    primary: Target
    after: Literal["turn", "cooldown"]
    call_id: str | None = None


class TurnEnd(NamedTuple):
    """Tell that a user turn is over.

    Args:
        turn_id: Unique for the turn; the ``turn_id`` of its calls.
        agent: The label given to the policy.
        outcome: How it ended.
    """

    turn_id: str
    agent: str
    outcome: Literal["completed", "failed", "cancelled"]


@runtime_checkable
class FallbackObserver(Protocol):
    """Observe calls; what an observer raises is logged once and ignored.

    Any one of these methods suffices, and so does any one of ``ContentObserver``,
    ``RestoreObserver`` and ``TurnObserver``. A subclass inherits those that it does not write;
    they do nothing. They are called in the middle of a call, in whatever thread or task it runs:
    what takes time belongs elsewhere.
    """

    def on_start(self, _call: CallStart, /) -> None:
        """Note that a call begins."""
        return  # without a body, mypy takes the method for abstract

    def on_switch(self, _switch: Switch, /) -> None:
        """Note that a call goes to another target."""
        return  # without a body, mypy takes the method for abstract

    def on_finish(self, _record: CallRecord, /) -> None:
        """Note how a call ended; exactly once per call."""
        return  # without a body, mypy takes the method for abstract


@runtime_checkable
class ContentObserver(Protocol):
    """Observe what is asked and answered; no other observer ever sees a prompt."""

    def on_content(self, content: CallContent, /) -> None:
        """Note a part of it; between the start and the end of a call, in any number of parts."""


@runtime_checkable
class RestoreObserver(Protocol):
    """Observe the return to the primary."""

    def on_restore(self, restore: Restore, /) -> None:
        """Note that a turn which had left the primary is over, or that it answered a probe."""


@runtime_checkable
class TurnObserver(Protocol):
    """Observe user turns; that one has begun its first call tells."""

    def on_turn_end(self, turn: TurnEnd, /) -> None:
        """Note how a turn ended; once per turn, after the calls that it waited for."""


@runtime_checkable
class ListeningObserver(Protocol):
    """Decide for each call whether to observe it; for an observer that may have nothing to do."""

    @property
    def is_listening(self) -> bool:
        """Tell, at the start of a call, whether this observer wants its events."""
        ...


@runtime_checkable
class _Starts(Protocol):
    def on_start(self, call: CallStart, /) -> None: ...


@runtime_checkable
class _Switches(Protocol):
    def on_switch(self, switch: Switch, /) -> None: ...


@runtime_checkable
class _Finishes(Protocol):
    def on_finish(self, record: CallRecord, /) -> None: ...


# What may be given as an observer: whatever has one of the hooks.
Observer: TypeAlias = (
    FallbackObserver
    | ContentObserver
    | RestoreObserver
    | TurnObserver
    | _Starts
    | _Switches
    | _Finishes
)

_HOOKS = ("on_start", "on_switch", "on_finish", "on_content", "on_restore", "on_turn_end")


class Observers:
    """Emit events to several observers, none of which can break the call."""

    __slots__ = ("_always", "_by_hook", "_observers", "joined", "reported")

    def __init__(self, observers: Iterable[Observer], reported: set[int] | None = None) -> None:
        self._observers = tuple(observers)
        self._by_hook = {
            hook: tuple(one for one in self._observers if _writes(one, hook)) for hook in _HOOKS
        }
        self._always = not any(hasattr(type(one), "is_listening") for one in self._observers)
        self.reported: set[int] = set() if reported is None else reported
        self.joined: tuple[Observers, Observers] | None = None

    @classmethod
    def of(cls, observers: Iterable[Observer]) -> Self | None:
        """Return None where nobody observes, so that a call need not even look."""
        checked = check_observers(observers)
        return cls(checked) if checked else None

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers)

    @staticmethod
    def now(own: Observers | None) -> Observers | None:
        """Return a policy's own observers and those of the process, each once, or None."""
        everybodys = everywhere.observers
        if everybodys is None or own is None:
            return everybodys or own
        before = own.joined
        if before is None or before[0] is not everybodys:
            others = [one for one in everybodys if all(one is not mine for mine in own)]
            own.joined = before = everybodys, Observers([*own, *others], everybodys.reported)
        return before[1]

    def listening(self) -> Observers | None:
        """Return those that want to observe a call that begins now, or None."""
        if self._always:
            return self
        left = [one for one in self._observers if _listens(one)]
        if len(left) == len(self._observers):
            return self
        return Observers(left, self.reported) if left else None

    def wants_content(self) -> bool:
        """Tell whether one of them wants what is asked and answered, just now."""
        return any(map(_listens, self._by_hook["on_content"]))

    def emit(self, hook: str, event: object) -> None:
        """Call one hook of every observer that has it."""
        for observer in self._by_hook[hook]:
            try:
                getattr(observer, hook)(event)
            except Exception as error:  # noqa: BLE001 # an observer must not break a call
                if id(observer) not in self.reported:
                    self.reported.add(id(observer))
                    # No traceback: its frames could show what a call carries.
                    logger.error(  # noqa: TRY400 # see above
                        "observer %s raised %s in %s; it is still called, this is logged once",
                        type(observer).__name__,
                        type(error).__name__,
                        hook,
                    )


class _Everywhere:
    """Hold the observers of every policy of the process."""

    __slots__ = ("observers",)

    def __init__(self) -> None:
        self.observers: Observers | None = None


# Global as the process's runtime is: an application sets up what it observes with in one place,
# far from those that make policies, and the libraries among these know nothing of it.
everywhere = _Everywhere()


def set_observers(observers: Iterable[Observer] | None) -> None:
    """Give observers to every policy of this process, under every adapter.

    They come on top of a policy's own, and count from the next call on, also for policies that
    were made before; those with a runtime of their own, as simulated ones, are left alone. Call
    it where the application starts, as one configures logging.

    Args:
        observers: All of them, in place of those set before; None or an empty list for none.

    Raises:
        FallbackConfigError: One of them has no hook.

    Source: stamina's ``instrumentation.set_on_retry_hooks``.
    """
    everywhere.observers = Observers.of(() if observers is None else observers)


def get_observers() -> tuple[Observer, ...]:
    """Return the observers that ``set_observers`` has given to every policy."""
    return tuple(everywhere.observers or ())


def check_observers(observers: Any) -> tuple[Observer, ...]:
    """Return the observers as a policy takes them, for whoever makes its policies later.

    Args:
        observers: Each has to have a hook that can be called in the middle of a call.

    Raises:
        FallbackConfigError: One has none, is a class or has an async hook, or it is a single one.
    """
    fix = f"pass objects with {', '.join(_HOOKS[:3])} or another hook"
    if any(hasattr(observers, hook) for hook in _HOOKS):
        raise FallbackConfigError.about("observers", "got a single one", "pass it in a list")
    try:
        checked: tuple[Any, ...] = tuple(observers)
    except TypeError:
        problem = f"got a {type(observers).__name__}"
        raise FallbackConfigError.about("observers", problem, fix) from None
    for observer in checked:
        name = type(observer).__name__
        if isinstance(observer, type):
            problem = f"got the class {observer.__name__}"
            raise FallbackConfigError.about("observers", problem, "pass an object of it")
        hooks = [hook for hook in _HOOKS if callable(getattr(observer, hook, None))]
        if not any(_writes(observer, hook) for hook in hooks):
            others = [one for one in dir(observer) if one.startswith("on_") and one not in _HOOKS]
            hint = next(filter(None, (nearest(one, _HOOKS) for one in others)), None)
            # A subclass without hooks may have its reasons, but not with a misspelt one.
            if hint or not hooks:
                problem = f"got a {name}, which has no hook"
                fix = f"did you mean {hint}?" if hint else fix
                raise FallbackConfigError.about("observers", problem, fix)
        for hook in hooks:
            method = getattr(observer, hook)
            if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
                problem = f"{name}.{hook} is async, and a call does not wait for observers"
                fix = "write it without async, and hand what takes time to a task or a thread"
                raise FallbackConfigError.about("observers", problem, fix)
    return checked


def _writes(observer: object, hook: str) -> bool:
    """Tell whether an observer has a hook of its own, other than the one that does nothing."""
    inherited = getattr(FallbackObserver, hook, None)
    own = getattr(type(observer), hook, None)
    return callable(getattr(observer, hook, None)) and (own is None or own is not inherited)


def _listens(observer: object) -> bool:
    try:
        return getattr(observer, "is_listening", True) is not False
    except Exception:  # noqa: BLE001 # an observer must not break a call
        return True


def log_switch(switch: Switch) -> None:
    """Write the one WARNING of a switch."""
    _log(
        logging.WARNING,
        agent=switch.agent,
        primary=switch.primary.name,
        failed=switch.failed.name,
        fallback=switch.fallback.name,
        reason=switch.reason.replace(" ", ","),
        call_id=switch.call_id,
    )


def log_exhausted(record: CallRecord) -> None:
    """Write the one ERROR of a call that nobody answered."""
    attempts = (f"{one.target}:{one.kind}" for one in record.attempts)
    _log(
        logging.ERROR,
        agent=record.agent,
        primary=record.primary,
        outcome=record.outcome,
        attempts=",".join(attempts),
        seconds=f"{record.seconds:.3f}",
        call_id=record.call_id,
    )


def log_restore(restore: Restore) -> None:
    """Write the one INFO of a primary that answered the probe after its cooldown."""
    _log(
        logging.INFO,
        agent=restore.agent,
        primary=restore.primary.name,
        restored="after_cooldown",
        call_id=restore.call_id or "",
    )


def _log(level: int, **facts: str) -> None:
    """Write facts as ``key=value``, and once more as attributes of the log record."""
    if not logger.isEnabledFor(level):
        return
    for name, value in facts.items():
        if "://" in value:  # an address in a name may hold who logs in
            value = facts[name] = redact(value)  # noqa: PLW2901 # what is checked below
        # No spaces inside values: a log pipeline splits the line at them.
        if " " in value or not value.isprintable():
            facts[name] = "_".join(value.split())
    template = " ".join(f"{name}=%s" for name in facts)
    logger.log(level, template, *facts.values(), extra=facts)
