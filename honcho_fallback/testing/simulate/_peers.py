"""How others behave by default, as small models of their own loops.

Every figure stands with the version that it was read from, in the package's own source. They are
models of what is asked and when, not the packages themselves: no figure here says how much time
they need, and a service that configures them otherwise fares otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback import FailureKind
from honcho_fallback.testing.simulate._exchange import Limits
from honcho_fallback.testing.simulate._ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import Failure
    from honcho_fallback.testing.simulate._caller import Call
    from honcho_fallback.testing.simulate._world import World

_RETRIES = 2  # openai 2.54.0, _constants.DEFAULT_MAX_RETRIES; litellm 1.106.2 takes it over
_INITIAL, _LONGEST = 0.5, 8.0  # both: INITIAL_RETRY_DELAY and MAX_RETRY_DELAY, seconds
# openai 2.54.0, DEFAULT_TIMEOUT; litellm 1.106.2, COMPLETION_HTTP_FALLBACK_SECONDS.
_PATIENCE = Limits(timeout=600.0, connect_timeout=5.0, idle_timeout=600.0)
# langchain-openai 1.7.3, stream_chunk_timeout, for what comes after a stream's first chunk.
_LANGCHAIN_PATIENCE = _PATIENCE._replace(idle_timeout=120.0)

_OPENAI_HEEDS = 120.0  # openai 2.54.0, MAX_RETRY_AFTER_DELAY
_OPENAI_JITTER = 0.25  # openai 2.54.0, _calculate_retry_timeout: up to so much less

_LITELLM_HEEDS = 60.0  # litellm 1.106.2, calculate_retry_after
_LITELLM_JITTER = 0.75  # litellm 1.106.2, JITTER: up to so many seconds more
_LITELLM_REST = 5.0  # litellm 1.106.2, DEFAULT_COOLDOWN_TIME_SECONDS
_LITELLM_TRAFFIC = 1000  # litellm 1.106.2, SINGLE_DEPLOYMENT_TRAFFIC_FAILURE_THRESHOLD
_LITELLM_RESTS_AT = frozenset({401, 404})  # what a deployment that is alone in its group rests at


class LangChainLike:
    """Ask as LangChain's ``model.with_fallbacks([...])`` does over OpenAI's SDK.

    The SDK of each model tries three times before ``with_fallbacks`` hears of the failure: on 408,
    409, 429, 5xx, timeouts and lost connections, after 0.5 s and 1 s less a quarter at most, or
    after the Retry-After if that is 120 s at most (with more, it gives up at once). Then the next
    model is asked, whatever the error (``exceptions_to_handle=(Exception,)``). Nothing is kept
    from call to call. After the first chunk of a stream nobody else is asked, and one that stays
    silent for 120 s is broken off.

    Sources: langchain-core 1.7.2 (``runnables/fallbacks.py``), langchain-openai 1.7.3
    (``max_retries=None``, the SDK's own), openai 2.54.0 (``_base_client.py``, ``_constants.py``).
    """

    def open(self, world: World, /) -> LangChainSession:
        """Start afresh.

        Args:
            world: Where.
        """
        return LangChainSession(world)


class LangChainSession:
    """Make the calls of one simulation.

    Args:
        world: Where.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.luck("langchain-like")

    def turn(self) -> None:
        """Open a turn: it makes no difference."""

    def call(self, call_id: str, turn: None, /) -> Call:  # noqa: ARG002 # the protocol's
        """Make one call."""
        chain = self._world.scenario.names
        ledger = Ledger(self._world, "langchain-like", call_id, chain)
        for position in range(len(chain)):
            failure = yield from self._model(ledger, position)
            if failure is None or ledger.interrupted:
                break
        return ledger.close()

    def _model(self, ledger: Ledger, position: int) -> Generator[float, None, Failure | None]:
        failure = yield from ledger.ask(position, _LANGCHAIN_PATIENCE)
        for retry in range(_RETRIES):
            if failure is None or ledger.interrupted or not self._retries(failure):
                break
            wait = self._wait(failure, retry)
            failure = yield from ledger.ask(position, _LANGCHAIN_PATIENCE, wait)
        return failure

    @staticmethod
    def _retries(failure: Failure) -> bool:
        return _worth_a_retry(failure) and (failure.retry_after or 0.0) <= _OPENAI_HEEDS

    def _wait(self, failure: Failure, retry: int) -> float:
        asked = failure.retry_after or 0.0
        if asked > 0:
            return asked
        return _backoff(retry) * (1 - _OPENAI_JITTER * self._random.random())


class _Minute(NamedTuple):
    """Count what a deployment did in one minute."""

    number: int = -1
    successes: int = 0
    failures: int = 0


class LiteLLMLike:
    """Ask as ``litellm.Router(fallbacks=[...])`` does, with one deployment for each model.

    A deployment is asked three times (``num_retries``) before the fallback is: on 408, 409, 429,
    5xx, timeouts and lost connections. It sleeps after each failure, the last one included: 0.5 s,
    1 s and 2 s, or a Retry-After of 60 s at most, and up to 0.75 s more. Any other error goes to
    the fallback at once. A deployment that is alone in its group rests (5 s, or its Retry-After)
    only after 401 and 404, or where a thousand requests within a minute all failed; while it
    rests, the fallback is asked at once.

    Sources: litellm 1.106.2 (``router.py``: ``async_function_with_retries``,
    ``_time_to_sleep_before_retry``, ``should_retry_this_error``; ``utils.py``:
    ``calculate_retry_after``; ``router_utils/cooldown_handlers.py``; ``constants.py``).
    """

    def open(self, world: World, /) -> LiteLLMSession:
        """Start afresh.

        Args:
            world: Where.
        """
        return LiteLLMSession(world)


class LiteLLMSession:
    """Make the calls of one simulation.

    Args:
        world: Where.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.luck("litellm-like")
        self._rests_until: dict[str, float] = {}
        self._minutes: defaultdict[str, _Minute] = defaultdict(_Minute)

    def turn(self) -> None:
        """Open a turn: it makes no difference."""

    def call(self, call_id: str, turn: None, /) -> Call:  # noqa: ARG002 # the protocol's
        """Make one call."""
        chain = self._world.scenario.names
        ledger = Ledger(self._world, "litellm-like", call_id, chain)
        for position in range(len(chain)):
            answered = yield from self._group(ledger, position)
            if answered or ledger.interrupted:
                break
        return ledger.close()

    def _group(self, ledger: Ledger, position: int) -> Generator[float, None, bool]:
        name = ledger.chain[position]
        for retry in range(_RETRIES + 1):
            if self._rests(name):
                return False
            failure = yield from ledger.ask(position, _PATIENCE)
            self._learn(name, failure)
            if failure is None:
                return True
            if ledger.interrupted or not _worth_a_retry(failure) or self._rests(name):
                return False
            # Also after the last one, when nothing is left to wait for.
            yield self._sleep(failure, retry)
        return False

    def _sleep(self, failure: Failure, retry: int) -> float:
        asked = failure.retry_after or 0.0
        told = asked if 0 < asked <= _LITELLM_HEEDS else _backoff(retry)
        return told + _LITELLM_JITTER * self._random.random()

    def _rests(self, name: str) -> bool:
        return self._world.clock.now < self._rests_until.get(name, 0.0)

    def _learn(self, name: str, failure: Failure | None) -> None:
        now = self._world.clock.now
        number, successes, failures = self._minutes[name]
        if number != int(now // 60):
            number, successes, failures = int(now // 60), 0, 0
        minute = _Minute(number, successes + (failure is None), failures + (failure is not None))
        self._minutes[name] = minute
        if failure is None or failure.kind is FailureKind.CONNECTION:
            return
        alone_down = not minute.successes and minute.failures >= _LITELLM_TRAFFIC
        heard = failure.status is None or failure.status >= 500 or failure.status in {408, 429}
        if failure.status in _LITELLM_RESTS_AT or (heard and alone_down):
            asked = failure.retry_after
            self._rests_until[name] = now + (_LITELLM_REST if asked is None else asked)


def _worth_a_retry(failure: Failure) -> bool:
    """Tell by the status alone, as openai's and litellm's ``should_retry`` do."""
    status = failure.status
    return status is None or status >= 500 or status in {408, 409, 429}


def _backoff(retry: int) -> float:
    return min(_INITIAL * 2.0**retry, _LONGEST)
