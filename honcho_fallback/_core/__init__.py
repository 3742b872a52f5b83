"""One call: values, rules, state, run, drivers, policy.

The rooms, from the ground up; none imports one that stands below it in this list, and all may
know ``_values`` and ``_classify``::

    runtime    the clock and the sleeps
    target     who can be asked, and one attempt at it
    shared     what calls share: Cooldown, RetryBudget, Sessions
    recovery   what is tried once before a target is left
    config     FallbackConfig, and its presets
    observers  who hears of calls, and the log lines
    turn       how long a switch lasts
    resolved   what all calls on a policy share
    state      what one call knows
    rules      what may be done about a failure, best first
    run        the legal steps of one call
    drivers    the loops around ``ask``
    policy     FallbackPolicy
"""
