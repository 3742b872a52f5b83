"""A test kit for your own code: scripted targets, a clock, records, faults of healthy providers.

With pytest the first three are the fixtures ``scripted``, ``fallback_clock`` and
``fallback_records``, which need no import. ``FaultTransport`` makes any SDK over httpx fail on
schedule.
"""

from honcho_fallback.testing._clock import Clock
from honcho_fallback.testing._faults import (
    AsyncFaultTransport,
    Fault,
    FaultSchedule,
    FaultTransport,
)
from honcho_fallback.testing._mode import is_testing, set_testing
from honcho_fallback.testing._records import (
    Records,
    assert_answered,
    assert_not_switched,
    assert_outcome,
    assert_switched,
    recorded,
)
from honcho_fallback.testing._scripted import Script, Scripted, StatusError

__all__ = [
    "AsyncFaultTransport",
    "Clock",
    "Fault",
    "FaultSchedule",
    "FaultTransport",
    "Records",
    "Script",
    "Scripted",
    "StatusError",
    "assert_answered",
    "assert_not_switched",
    "assert_outcome",
    "assert_switched",
    "is_testing",
    "recorded",
    "set_testing",
]
