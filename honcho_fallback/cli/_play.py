"""Play one scenario: make its calls, judge them, keep what was logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback.cli._checks import check_answered
from honcho_fallback.cli._log import kept_log_lines
from honcho_fallback.cli._played import Played

if TYPE_CHECKING:
    from honcho_fallback.cli._played import Scenario
    from honcho_fallback.cli._stage import Stage


def play(scenario: Scenario, stage: Stage) -> Played:
    """Make a scenario's calls and judge them."""
    with kept_log_lines() as log:
        calls = scenario.play(stage)
    # What a real provider does is not ours to say: there, every call is to be answered.
    judge = scenario.check if stage.simulator is not None else check_answered
    return Played(scenario, calls, judge(calls), log)
