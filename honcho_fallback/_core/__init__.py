"""One call: values, rules, state, run, drivers, policy.

The rooms, from the ground up; none imports one that stands below it in this list::

    failure    what went wrong, in the policy's words
    runtime    the clock and the sleeps
    record     what a call leaves behind for people
    errors     what callers catch, and checks of what they pass in
    target     who can be asked, and one attempt at it
    shared     what calls share: Cooldown, RetryBudget
    recovery   what is tried once before a target is left
    presets    named sets of options
    config     FallbackConfig
    observers  who hears of calls, and the log lines
    turn       how long a switch lasts
    state      what one call knows
    rules      what may be done about a failure, best first
    run        the legal steps of one call
    drivers    the loops around ``ask``
    policy     FallbackPolicy
"""
