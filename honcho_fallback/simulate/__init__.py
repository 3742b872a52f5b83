"""An outage simulator: what a policy does in an incident, in virtual time.

The policy is the one that runs in production, through its own async driver; targets and time are
simulated. Thousands of calls take a second::

    print(compare(load_scenario("outage"), {"mine": policy}))
"""

from honcho_fallback.simulate._policies import load_policy, retry_then_next
from honcho_fallback.simulate._run import Comparison, Report, compare, simulate
from honcho_fallback.simulate._scenario import Scenario, load_scenario, replay, shipped

__all__ = [
    "Comparison",
    "Report",
    "Scenario",
    "compare",
    "load_policy",
    "load_scenario",
    "replay",
    "retry_then_next",
    "shipped",
    "simulate",
]
