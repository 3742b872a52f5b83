"""What every scenario left in its record when the goldens were written, over drivers and presets.

``GOLDEN=write pytest tests/unit/test_golden.py`` writes them anew; look at the difference before
it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from honcho_fallback import FallbackConfig, FallbackConfigError, FallbackPolicy, Target
from honcho_fallback.testing import Clock
from tests.helpers.scenarios import SCENARIOS, Scenario
from tests.helpers.scripted import DRIVERS, repeating

# A single call of a preset that is turn-scoped stands alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

GOLDEN = Path(__file__).with_name("golden.txt")
PRESETS = {
    "plain": FallbackConfig,
    "honcho": FallbackConfig.honcho,
    "hermes": FallbackConfig.hermes,
    "resilient": FallbackConfig.resilient,
}
# Different in each call, or in streams only, or what another field says already.
LEFT_OUT = {"agent", "call_id", "model", "next_action", "started_at", "time_to_first_token"}
LEFT_OUT |= {"transient", "is_forced", "is_probe"}  # no scenario has a cooldown

TIMES = {"seconds", "started", "wait"}


def lines(preset: str, scenario: Scenario, driver: str) -> list[str]:
    """Play a scenario; return a line of what came out and one for each of its attempts."""
    try:
        config = PRESETS[preset](**{"wait": 0, **scenario.config})
    except FallbackConfigError as error:
        return [f"refused: {error}"]
    script, raised = repeating(**scenario.replies), None
    with Clock().installed():
        policy = FallbackPolicy([Target(name) for name in scenario.replies], config)
        run = policy.start()
        try:
            DRIVERS[driver](policy, script, run)
        except Exception as error:  # noqa: BLE001 # whatever it is, its name is kept
            raised = type(error).__name__
        record = run.record.to_dict()
    attempts = record.pop("attempts")
    return [*map(line, ({"raised": raised, **record}, *attempts))]


def line(facts: dict[str, Any]) -> str:
    """Write facts without what is unknown and what took no time, rounded."""
    return ", ".join(
        f"{name}: {round(value, 3) if isinstance(value, float) else value!r}"
        for name, value in facts.items()
        if value is not None and name not in LEFT_OUT and not (name in TIMES and not value)
    )


def played(scenario: Scenario, driver: str) -> str:
    """Return what every preset makes of a scenario; those that make the same, as ``one other``."""
    alike: dict[str, list[str]] = {}
    for preset in PRESETS:
        alike.setdefault("\n  ".join(lines(preset, scenario, driver)), []).append(preset)
    return "\n".join(f" {' '.join(presets)} -> {some}" for some, presets in alike.items())


@pytest.fixture(scope="module")
def golden() -> Any:
    if os.environ.get("GOLDEN") == "write":
        written = (f"{scenario.name}\n{played(scenario, 'call')}" for scenario in SCENARIOS)
        GOLDEN.write_text("\n\n".join(written) + "\n", encoding="utf-8")
    text = GOLDEN.read_text(encoding="utf-8").removesuffix("\n")
    golden = dict(part.split("\n", 1) for part in text.split("\n\n"))
    assert [*golden] == [scenario.name for scenario in SCENARIOS]  # each is looked at
    return golden


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_leaves_the_record_that_it_left_before(
    scenario: Scenario, driver: str, golden: Any
) -> None:
    """Four presets, four drivers: the same attempts, notes and errors come out."""
    assert played(scenario, driver) == golden[scenario.name]
