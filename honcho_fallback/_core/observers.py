"""Who hears of calls: observers, and the package's log lines."""

# What a runtime has written is for the log alone.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from honcho_fallback._values.errors import FallbackConfigError, nearest, require_type
from honcho_fallback.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from honcho_fallback._core.runtime import Runtime
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


class FallbackObserver:
    """Observe calls: write the hooks that you need in a subclass, the others do nothing.

    They are called in the middle of a call, in whatever thread or task it runs: what takes time
    belongs elsewhere. What a hook raises is logged once and ignored.

    Raises:
        FallbackConfigError: A subclass has an async hook, or one that is misspelt.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in vars(cls).items():
            if name in _HOOKS:
                _require_sync(f"{cls.__name__}.{name}", method)
            elif name.startswith("on_") and not any(hasattr(base, name) for base in cls.__bases__):
                # A hook of another framework's, which comes with that framework's base class.
                guess = nearest(name, _HOOKS)
                if guess is not None:
                    problem = f"{cls.__name__} has no such hook"
                    raise FallbackConfigError.about(name, problem, f"did you mean {guess}?")

    @property
    def is_listening(self) -> bool:
        """Tell, at the start of a call, whether this observer wants its events."""
        return True

    def on_start(self, call: CallStart, /) -> None:
        """Note that a call begins."""

    def on_switch(self, switch: Switch, /) -> None:
        """Note that a call goes to another target."""

    def on_finish(self, record: CallRecord, /) -> None:
        """Note how a call ended; exactly once per call."""

    def on_content(self, content: CallContent, /) -> None:
        """Note a part of what is asked and answered: in any number of parts, before the end.

        No observer without this hook ever sees a prompt.
        """

    def on_restore(self, restore: Restore, /) -> None:
        """Note that a turn which had left the primary is over, or that it answered a probe."""

    def on_turn_end(self, turn: TurnEnd, /) -> None:
        """Note how a turn ended; once per turn, after the calls that it waited for."""


_HOOKS = frozenset(name for name in vars(FallbackObserver) if name.startswith("on_"))


def _require_sync(hook: str, method: object) -> None:
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        problem = "it is async, and a call does not wait for observers"
        fix = "write it without async, and hand what takes time to a task or a thread"
        raise FallbackConfigError.about(hook, problem, fix)


class Observers:
    """Emit events to several observers, none of which can break the call."""

    __slots__ = ("_by_hook", "_observers", "joined", "reported")

    # Global as the process's runtime is: an application sets up what it observes with in one
    # place, far from those that make policies, and the libraries among these know nothing of it.
    everybodys: ClassVar[Observers | None] = None

    def __init__(
        self, observers: Iterable[FallbackObserver], reported: set[int] | None = None
    ) -> None:
        self._observers = tuple(observers)
        self._by_hook = {
            hook: tuple(one for one in self._observers if _writes(one, hook)) for hook in _HOOKS
        }
        self.reported: set[int] = set() if reported is None else reported
        self.joined: tuple[Observers, Observers] | None = None

    @classmethod
    def of(cls, observers: Iterable[FallbackObserver]) -> Self | None:
        """Return None where nobody observes, so that a call need not even look."""
        checked = check_observers(observers)
        return cls(checked) if checked else None

    def __iter__(self) -> Iterator[FallbackObserver]:
        return iter(self._observers)

    @staticmethod
    def now(own: Observers | None) -> Observers | None:
        """Return a policy's own observers and those of the process, each once, or None."""
        everybodys = Observers.everybodys
        if everybodys is None or own is None:
            return everybodys or own
        before = own.joined
        if before is None or before[0] is not everybodys:
            others = [one for one in everybodys if all(one is not mine for mine in own)]
            own.joined = before = everybodys, Observers([*own, *others], everybodys.reported)
        return before[1]

    def listening(self) -> Observers | None:
        """Return those that want to observe a call that begins now, or None."""
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
                    text = "observer %s raised %s in %s; it is still called, this is logged once"
                    names = type(observer).__name__, type(error).__name__, hook
                    # No traceback: its frames could show what a call carries.
                    logger.error(text, *names)  # noqa: TRY400 # see above


def set_observers(observers: Iterable[FallbackObserver] | None) -> None:
    """Give observers to every policy of this process, under every adapter.

    They come on top of a policy's own, and count from the next call on, also for policies that
    were made before; those with a runtime of their own, as simulated ones, are left alone. Call
    it where the application starts, as one configures logging.

    Args:
        observers: All of them, in place of those set before; None or an empty list for none.

    Raises:
        FallbackConfigError: One of them has no hook.
    """
    Observers.everybodys = Observers.of(() if observers is None else observers)


def check_observers(observers: Any) -> tuple[FallbackObserver, ...]:
    """Return the observers as a policy takes them, for whoever makes its policies later.

    Args:
        observers: Objects of subclasses of FallbackObserver, or with some of its hooks.

    Raises:
        FallbackConfigError: One has none of them, or an async one, or it is a single one.
    """
    fix = "pass a list of objects of subclasses of FallbackObserver, or with some of its hooks"
    require_type("observers", observers, Iterable, fix)
    checked: tuple[Any, ...] = tuple(observers)
    for observer in checked:
        if isinstance(observer, type):
            problem = f"got the class {observer.__name__}"
            raise FallbackConfigError.about("observers", problem, "pass an object of it")
        hooks = [hook for hook in _HOOKS if _writes(observer, hook)]
        if not hooks:  # a subclass may have none
            require_type("observers", observer, FallbackObserver, fix)
        for hook in hooks:
            _require_sync(f"{type(observer).__name__}.{hook}", getattr(observer, hook))
    return checked


def _writes(observer: FallbackObserver, hook: str) -> bool:
    """Tell whether an object has a hook, other than the one that does nothing."""
    own = getattr(type(observer), hook, None) or getattr(observer, hook, None)
    return own is not None and own is not getattr(FallbackObserver, hook)


def _listens(observer: FallbackObserver) -> bool:
    try:
        return getattr(observer, "is_listening", True)
    except Exception:  # noqa: BLE001 # an observer must not break a call
        return True


def log_switch(switch: Switch, runtime: Runtime) -> None:
    """Write the WARNING of a switch; of those for one reason the first ten of a minute."""
    failed, reason = switch.failed.name, switch.reason.replace(" ", ",")
    facts = {"agent": switch.agent, "primary": switch.primary.name, "failed": failed}
    facts |= {"fallback": switch.fallback.name, "reason": reason, "call_id": switch.call_id}
    left_out = _left_out(runtime, (failed, reason), 60.0, most=10)
    _log(logging.WARNING, runtime, facts, left_out)


def log_rest(runtime: Runtime, seconds: float, facts: dict[str, str]) -> None:
    """Write the one WARNING of a rest, by the first call that passes its target over."""
    name, seconds = facts["resting"], min(seconds, _LONGEST)
    left_out = _left_out(runtime, (name, ""), seconds, most=1)
    # Another call met the failure: here, in another process, or at a target with the same key.
    lines = [*runtime._lines.items()]
    reasons = [(ends, why) for (one, why), (ends, _) in lines if why and one == name]
    facts["until"] = _utc(runtime.time() + seconds)
    facts["reason"] = max(reasons, default=(0.0, "elsewhere"))[1]
    _log(logging.WARNING, runtime, facts, left_out)


def log_restored(runtime: Runtime, facts: dict[str, str]) -> None:
    """Write the one INFO of a target that answered after its rest."""
    _, count = runtime._lines.pop((facts["restored"], ""), (0.0, 1))
    # Where nobody chose a level, the beginning of the rest was seen, and so is its end.
    level = logging.INFO if logger.hasHandlers() else logging.WARNING
    _log(level, runtime, facts, count - 1)


def log_exhausted(record: CallRecord, runtime: Runtime) -> None:
    """Write the one ERROR of a call that nobody answered."""
    attempts = ",".join(f"{one.target}:{one.kind}" for one in record.attempts)
    facts = {"agent": record.agent, "primary": record.primary, "outcome": record.outcome}
    facts |= {"attempts": attempts, "seconds": f"{record.seconds:.3f}", "call_id": record.call_id}
    _log(logging.ERROR, runtime, facts)


_LONGEST = 1e9  # seconds that a datetime can go on from now
_MANY = 1000  # what lines are about, where targets are made for each request


def _left_out(runtime: Runtime, about: tuple[str, str], seconds: float, most: int) -> int | None:
    """Count a line; tell how many were left out before it, or None where it is one too many."""
    lines, now = runtime._lines, runtime.time()
    ends, count = lines.get(about, (now, 0))
    if now < ends:  # no lock: where threads meet here, a line more is written
        lines[about] = ends, count + 1
        return 0 if count < most else None
    if len(lines) >= _MANY:
        lines.clear()
    lines[about] = now + seconds, 1
    return max(0, count - most)


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _log(level: int, runtime: Runtime, facts: dict[str, str], left_out: int | None = 0) -> None:
    """Write facts as ``key=value`` and as attributes of the log record; one too many at DEBUG."""
    level = logging.DEBUG if left_out is None else level
    if not logger.isEnabledFor(level):
        return
    if left_out:
        facts["left_out"] = str(left_out)
    if not logger.hasHandlers():  # Python's last resort writes the bare message
        facts = {"time": _utc(runtime.time()), "level": logging.getLevelName(level), **facts}
    for name, value in facts.items():
        # An address in a name may hold who logs in. A log pipeline splits a line at its spaces.
        facts[name] = "_".join((redact(value) if "://" in value else value).split())
    template = " ".join(f"{name}=%s" for name in facts)
    logger.log(level, template, *facts.values(), extra=facts)
