"""A test kit for your own code: scripted targets, a clock, records, faults of healthy providers.

With pytest the first three are the fixtures ``scripted``, ``fallback_clock`` and
``fallback_records``, which need no import. ``FaultTransport`` makes any SDK over httpx fail on
schedule.
"""

from honcho_fallback.testing._clock import Clock, set_testing
from honcho_fallback.testing._faults import FaultTransport
from honcho_fallback.testing._records import (
    Records,
    assert_not_switched,
    assert_switched,
    recorded,
)
from honcho_fallback.testing._scripted import Script, Scripted, StatusError

__all__ = [
    "Clock",
    "FaultTransport",
    "Records",
    "Script",
    "Scripted",
    "StatusError",
    "assert_not_switched",
    "assert_switched",
    "recorded",
    "set_testing",
]
