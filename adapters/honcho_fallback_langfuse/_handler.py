"""The handler that makes one Langfuse generation of each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from honcho_fallback_langfuse import _facts
from honcho_fallback_langfuse._client import ClientSource
from honcho_fallback_langfuse._content import plain
from honcho_fallback_langfuse._flush import flushed
from honcho_fallback_langfuse._generation import Shown, generation
from honcho_fallback_langfuse._nesting import (
    Parent,
    current_parent,
    nested_under,
    observation_of,
)
from honcho_fallback_langfuse._observer import SpanObserver
from honcho_fallback_langfuse._safe import attempted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from langfuse import Langfuse
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from honcho_fallback import CallRecord, CallStart
    from honcho_fallback_langfuse._in_flight import CallInFlight

# A call without a label of its own; the policy's default label says nothing.
_UNNAMED, _NAME = "unknown", "LLM Call"

_SCOPE = "langfuse-sdk"
_TRACE_NAME = "langfuse.trace.name"


class LangfuseCallbackHandler(SpanObserver):
    """Make one Langfuse generation of each call, whoever answers it.

    Pass one to every policy, in ``observers=[...]``; it may be shared by all of them, by all
    threads and all tasks. The generation starts with the call and ends with it, is named after the
    agent, carries the model that answered, and says in its metadata whether that was a fallback
    and why. Failed attempts leave no observation of their own. A call that starts inside a trace
    of the application is nested under its current observation.

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
        public_key: Whose client, where the application has several.
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
        public_key: str | None = None,
    ) -> None:
        super().__init__(keep_input=input)
        self._clients = ClientSource(client, public_key)
        self._shown = Shown(input, output, mask, plain(dict(metadata or {})))
        self._per_attempt = per_attempt
        self._closed = False

    @property
    def is_listening(self) -> bool:
        """Tell whether there is a client to report to."""
        return not (self._closed or self._fuse.blown) and self._clients.get() is not None

    @property
    def replaces_langfuse_callbacks(self) -> bool:
        """Tell adapters that Langfuse's own handlers must not report the attempts again."""
        return self.is_listening

    def nest_under(self, trace_id: str, span_id: str) -> AbstractContextManager[None]:
        """Nest the calls that start inside this ``with`` under an observation.

        For adapters, and where OpenTelemetry's context does not reach; enter and leave it in one
        function, around ``policy.start()`` alone.

        Args:
            trace_id: 32 hexadecimal digits, as an observation's ``trace_id``.
            span_id: 16 hexadecimal digits, as its ``id``.
        """
        return nested_under(Parent(trace_id, span_id))

    def in_place_of(
        self, handlers: Iterable[object], parent_run_id: object
    ) -> AbstractContextManager[None]:
        """Nest the calls that start inside this ``with`` where Langfuse's handlers would have.

        For the LangChain adapter, which keeps Langfuse's own handlers from seeing the attempts.
        Where none of them knows the run, the current span counts, as without.

        Args:
            handlers: Those of Langfuse's own.
            parent_run_id: LangChain's id of the run that the call belongs to, or None.
        """
        return nested_under(observation_of(handlers, parent_run_id))

    def flush(self, timeout: float = 5.0) -> bool:
        """Send what has been finished, and tell whether that was done in time.

        Args:
            timeout: Seconds to wait at most.
        """
        client = self._clients.get()
        return client is None or flushed(client, timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Flush, and make nothing of later calls; the client stays usable for others.

        Args:
            timeout: Seconds to wait at most.
        """
        self._closed = True
        return self.flush(timeout)

    def _open(self, call: CallStart) -> Any:
        client = None if self._closed else self._clients.get()
        if client is None:
            return None
        # Imported here, where there is a client, it is a look into sys.modules.
        from opentelemetry import context, trace  # noqa: PLC0415 # see above

        parent = current_parent()
        if parent is None:
            return _opened(client, call, trace.get_current_span())
        token = context.attach(_context_of(parent))
        try:
            return _opened(client, call, None)
        finally:
            context.detach(token)

    def _end(self, call: CallInFlight, record: CallRecord) -> None:
        observation = call.span
        try:
            observation.update(**generation(call, record, self._shown))
            if self._per_attempt:
                attempted(_tell_attempts, "the attempts' events", observation, record)
        finally:
            observation.end()


def _opened(client: Langfuse, call: CallStart, enclosing: Span | None) -> Any:
    name = _NAME if call.agent == _UNNAMED else call.agent
    if not _is_foreign(enclosing):
        # A root gives its trace its name; elsewhere in Langfuse's traces they have one.
        observation = client.start_observation(name=name, as_type="generation")
        span = getattr(observation, "_otel_span", None)
        return observation if span is None or span.is_recording() else None
    from opentelemetry import trace  # noqa: PLC0415 # comes with langfuse

    opening = client.start_as_current_observation(
        name=name, as_type="generation", end_on_exit=False
    )
    # Entered and left in this frame: a span that stays current in a generator or a task would
    # adopt whatever the consumer does meanwhile.
    with opening as observation:
        span = trace.get_current_span()
        if not span.is_recording():
            return None
        # The SDK has stamped here what the application propagated.
        attributes: Any = getattr(span, "attributes", None) or {}
        if _TRACE_NAME not in attributes:
            span.set_attribute(_TRACE_NAME, name)
    return observation


def _is_foreign(enclosing: Span | None) -> bool:
    # Langfuse never gets to see a web server's span, so it cannot name the trace.
    if enclosing is None or not enclosing.get_span_context().is_valid:
        return False
    scope: Any = getattr(enclosing, "instrumentation_scope", None)
    return getattr(scope, "name", None) != _SCOPE


def _context_of(parent: Parent) -> Context:
    from opentelemetry import trace  # noqa: PLC0415 # comes with langfuse

    span_context = trace.SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=False,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(span_context))


def _tell_attempts(observation: Any, record: CallRecord) -> None:
    for attempt in record.attempts:
        failed = attempt.kind is not None
        observation.create_event(
            name=f"attempt {attempt.target}",
            level="WARNING" if failed else "DEFAULT",
            status_message=_facts.attempt_reason(attempt) if failed else None,
            metadata={
                **_facts.attempt_facts(attempt),
                "number": attempt.number,
                "is_fallback": attempt.is_fallback,
                "started_milliseconds": round(attempt.started * 1000),
                "waited_milliseconds": round(attempt.wait * 1000),
            },
        )
