"""What an adapter's demo is made of.

``honcho-fallback demo --via NAME`` finds it by the entry point NAME in the group
``honcho_fallback.demo``, so that nothing here imports an adapter.
"""

from honcho_fallback.cli._checks import check_loop, check_nobody, check_one_failover
from honcho_fallback.cli._ledger import Ledger, played
from honcho_fallback.cli._played import Call, Check, Demo, Endpoint, Scenario
from honcho_fallback.cli._stage import Stage

__all__ = [
    "Call",
    "Check",
    "Demo",
    "Endpoint",
    "Ledger",
    "Scenario",
    "Stage",
    "check_loop",
    "check_nobody",
    "check_one_failover",
    "played",
]
