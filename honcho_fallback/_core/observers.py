"""Who hears of calls: observers, and the package's log lines."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

from honcho_fallback._core.errors import require_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from honcho_fallback._core.failure import Failure
    from honcho_fallback._core.record import CallRecord
    from honcho_fallback._core.target import Target

logger = logging.getLogger("honcho_fallback")


@dataclass(frozen=True, slots=True)
class CallStart:
    """Tell that a call begins.

    Args:
        call_id: Unique for the call.
        agent: The label given to the policy or the call.
        chain: The targets in order; the first is the primary.
        metadata: What the caller says of the call, such as a workspace, or None.
    """

    call_id: str
    agent: str
    chain: tuple[Target, ...]
    metadata: Mapping[str, Any] | None = None


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


@runtime_checkable
class FallbackObserver(Protocol):
    """Hear of calls; what an observer raises is logged once and ignored.

    One that also has ``on_content(content: CallContent)`` hears what was asked and answered,
    between the start and the end of a call, in any number of parts. The others never see a prompt.
    One with ``is_listening`` is asked at the start of each call, and hears nothing of those at
    whose start it is False.
    One that has ``on_restore(restore: Restore)`` hears when the primary is back.
    """

    def on_start(self, call: CallStart, /) -> None:
        """Hear that a call begins."""

    def on_switch(self, switch: Switch, /) -> None:
        """Hear that a call goes to another target."""

    def on_finish(self, record: CallRecord, /) -> None:
        """Hear how a call ended; exactly once per call."""


class Observers:
    """Emit events to several observers, none of which can break the call."""

    __slots__ = ("_always", "_observers", "_optional", "_reported", "_wants_content")

    def __init__(
        self, observers: Iterable[FallbackObserver], reported: set[int] | None = None
    ) -> None:
        self._observers = tuple(observers)
        self._optional = {
            name: tuple(observer for observer in self._observers if hasattr(observer, name))
            for name in ("on_content", "on_restore")
        }
        self._wants_content = bool(self._optional["on_content"])
        self._always = not any(hasattr(type(one), "is_listening") for one in self._observers)
        self._reported: set[int] = set() if reported is None else reported
        fix = "pass objects with on_start, on_switch and on_finish"
        for observer in self._observers:
            require_type("observers", observer, FallbackObserver, fix)

    @classmethod
    def of(cls, observers: Iterable[FallbackObserver]) -> Self | None:
        """Return None where nobody observes, so that a call need not even look."""
        made = cls(observers)
        return made if made._observers else None

    def listening(self) -> Self | None:
        """Return those that want to hear of a call that begins now, or None."""
        if self._always:
            return self
        left = [one for one in self._observers if _listens(one)]
        if len(left) == len(self._observers):
            return self
        return type(self)(left, self._reported) if left else None

    def wants_content(self) -> bool:
        """Tell whether one of them wants to hear what is asked and answered, just now."""
        return self._wants_content and any(map(_listens, self._optional["on_content"]))

    def emit(self, method: str, event: object) -> None:
        """Call one method of every observer that has it."""
        for observer in self._optional.get(method, self._observers):
            try:
                getattr(observer, method)(event)
            except Exception as error:  # noqa: BLE001 # an observer must not break a call
                if id(observer) not in self._reported:
                    self._reported.add(id(observer))
                    # No traceback: its frames could show what a call carries.
                    logger.error(  # noqa: TRY400 # see above
                        "observer %s raised %s in %s; it is still called, this is logged once",
                        type(observer).__name__,
                        type(error).__name__,
                        method,
                    )


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
        # No spaces inside values: a log pipeline splits the line at them.
        if " " in value or not value.isprintable():
            facts[name] = "_".join(value.split())
    template = " ".join(f"{name}=%s" for name in facts)
    logger.log(level, template, *facts.values(), extra=facts)
