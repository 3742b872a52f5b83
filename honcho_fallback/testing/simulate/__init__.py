"""An outage simulator: what a policy does in an incident, in virtual time.

The policy is the one that runs in production, through the same machine; targets and time are
simulated. Thousands of calls take a second::

    print(simulate(load_scenario("outage"), policy).success_rate)
"""

from honcho_fallback.testing.simulate._caller import Caller, Session
from honcho_fallback.testing.simulate._exchange import Exchange, Limits
from honcho_fallback.testing.simulate._latency import Latency
from honcho_fallback.testing.simulate._ledger import Ledger
from honcho_fallback.testing.simulate._peers import LangChainLike, LiteLLMLike
from honcho_fallback.testing.simulate._phases import (
    Dropped,
    Failing,
    Quota,
    RateLimited,
    Recovering,
    Silent,
    Slow,
    Unreachable,
    Up,
)
from honcho_fallback.testing.simulate._policies import load_policy
from honcho_fallback.testing.simulate._replay import load_records, replay
from honcho_fallback.testing.simulate._report import Comparison, Report, Window
from honcho_fallback.testing.simulate._scenario import (
    Price,
    Scenario,
    SimulatedTarget,
    load_scenario,
    shipped,
)
from honcho_fallback.testing.simulate._simulate import compare, contenders, simulate
from honcho_fallback.testing.simulate._traffic import Bursts, Poisson, Steady
from honcho_fallback.testing.simulate._world import World

__all__ = [
    "Bursts",
    "Caller",
    "Comparison",
    "Dropped",
    "Exchange",
    "Failing",
    "LangChainLike",
    "Latency",
    "Ledger",
    "Limits",
    "LiteLLMLike",
    "Poisson",
    "Price",
    "Quota",
    "RateLimited",
    "Recovering",
    "Report",
    "Scenario",
    "Session",
    "Silent",
    "SimulatedTarget",
    "Slow",
    "Steady",
    "Unreachable",
    "Up",
    "Window",
    "World",
    "compare",
    "contenders",
    "load_policy",
    "load_records",
    "load_scenario",
    "replay",
    "shipped",
    "simulate",
]
