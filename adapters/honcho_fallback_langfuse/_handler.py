"""The handler that makes one Langfuse generation of each call."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from honcho_fallback.redaction import label
from honcho_fallback.spans import SpanObserver, attempted, shown
from honcho_fallback_langfuse._client import flushed, found_client
from honcho_fallback_langfuse._generation import (
    add_attempts,
    answer_of,
    generation_fields,
    open_observation,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from langfuse import Langfuse

    from honcho_fallback import CallStart, TurnEnd
    from honcho_fallback.spans import EndedCall
    from honcho_fallback_langfuse._generation import Level

_TURN_LEVELS: dict[str, Level] = {
    "completed": "DEFAULT",
    "failed": "ERROR",
    "cancelled": "WARNING",
}

_HIDDEN = "<not shown: the mask raised, or what reads it>"

# The observation that the next call is nested under, where that is not the current span.
_parent: ContextVar[Any] = ContextVar("honcho_fallback_langfuse_parent", default=None)


class LangfuseCallbackHandler(SpanObserver):
    """Make one Langfuse generation of each call, whoever answers it.

    Pass one to every policy, in ``observers=[...]``; it may be shared by all of them, by all
    threads and all tasks. The generation starts with the call and ends with it, is named after the
    agent, carries the model that answered, and says in its metadata whether that was a fallback
    and why. Failed attempts leave no observation of their own. A call that starts inside a trace
    of the application is nested under its current observation; the calls of a turn are nested
    under one observation of the turn, and that under what is current when the first of them
    starts.

    Nothing in here can break or delay a call. Without a client and without keys it does nothing
    and imports nothing. A client of our own is built when the handler is, from the environment,
    with an OpenTelemetry provider of its own, so that the global one stays the application's.
    Langfuse keeps one client per public key: construct yours first if it needs options of its own,
    such as a mask.

    Args:
        client: The client to use; default the application's, else one from ``LANGFUSE_*``.
        input: Whether what was asked is shown.
        output: Whether what was answered is shown.
        mask: Called with what was asked, and again with what was answered, as plain dicts, lists
            and strings; returns what may be shown. Where it raises, nothing is.
        per_attempt: Whether each attempt becomes a child event, made when the call ends.
        metadata: Added to that of every generation; together at most 40 keys.
    """

    def __init__(  # noqa: PLR0913 # options by name
        self,
        client: Langfuse | None = None,
        *,
        input: bool = True,  # noqa: A002 # the word that traces use
        output: bool = True,
        mask: Callable[[Any], Any] | None = None,
        per_attempt: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(keep_input=input)
        self._client = found_client(may_build=True) if client is None else client
        self._is_closed = False
        self._output, self._mask = output, mask
        self._metadata = shown(metadata or {})
        self._per_attempt = per_attempt

    @property
    def is_listening(self) -> bool:
        """Tell whether there is a client to report to; one that was made after this counts."""
        if self._client is None and not self._is_closed:
            self._client = found_client(may_build=False)
        return self._client is not None

    @property
    def replaces_langfuse_callbacks(self) -> bool:
        """Tell adapters that Langfuse's own handlers must not report the attempts again."""
        return self.is_listening

    @contextmanager
    def in_place_of(
        self, handlers: Iterable[object], parent_run_id: object
    ) -> Generator[None, None, None]:
        """Nest the calls that start inside this ``with`` where Langfuse's handlers would have.

        For the LangChain adapter, which keeps Langfuse's own handlers from seeing the attempts.
        Where none of them knows the run, the current span counts, as without.

        Args:
            handlers: Those of Langfuse's own.
            parent_run_id: LangChain's id of the run that the call belongs to, or None.
        """
        parent = attempted(_observation_of, "looking for LangChain's run", handlers, parent_run_id)
        token = _parent.set(_parent.get() if parent is None else parent)
        try:
            yield
        finally:
            _parent.reset(token)

    def flush(self, timeout: float = 5.0) -> bool:
        """Send what has been finished, and tell whether that was done in time.

        Args:
            timeout: Seconds to wait at most.
        """
        return self._client is None or flushed(self._client, timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Flush, and make nothing of later calls; the client stays usable for others.

        Args:
            timeout: Seconds to wait at most.
        """
        client, self._client, self._is_closed = self._client, None, True
        self._end_turns()
        return client is None or flushed(client, timeout)

    def _open(self, call: CallStart, turn: Any) -> Any:
        nearest = _parent.get()
        parent = turn if nearest is None else nearest
        return open_observation(self._client, call, "generation", parent)

    def _open_turn(self, call: CallStart) -> Any:
        if _parent.get() is not None:  # LangChain's runs make a tree already
            return None
        observation = open_observation(self._client, call, "agent", None)
        if observation is not None:
            metadata = {**shown(call.metadata or {}), "turn_id": label(call.turn_id or "")}
            observation.update(metadata=metadata)
        return observation

    def _fill_turn(self, span: Any, turn: TurnEnd) -> None:
        span.update(level=_TURN_LEVELS[turn.outcome], metadata={"outcome": turn.outcome})

    def _fill(self, span: Any, ended: EndedCall) -> None:
        span.update(
            input=self._content(ended.input),
            output=self._content(answer_of(ended)) if self._output else None,
            **generation_fields(ended, self._metadata),
        )
        if self._per_attempt:
            add_attempts(span, ended.record)

    def _content(self, value: Any) -> Any:
        """Return what was asked or answered as it may be shown."""
        if value is None:
            return None
        try:
            return plain(value) if self._mask is None else plain(self._mask(plain(value)))
        except Exception:  # noqa: BLE001 # what cannot be read or masked is not shown
            return _HIDDEN


def _observation_of(handlers: Iterable[object], run_id: object) -> Any:
    for handler in handlers:
        # The handler tells nobody else which observation belongs to a run.
        observation = getattr(handler, "_runs", {}).get(run_id)
        if observation is not None:
            return observation
    return None
