"""What every scenario left in its record when the goldens were written, over drivers and presets.

``GOLDEN=write pytest tests/unit/test_golden.py`` writes them anew; look at the difference before
it is committed.
"""

from __future__ import annotations

import json
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

GOLDEN = Path(__file__).with_name("golden.json")
PRESETS = ["plain", "honcho", "hermes", "resilient"]
# Different in each call, or in streams only, or what another field says already.
LEFT_OUT = {"agent", "call_id", "model", "next_action", "started_at", "time_to_first_token"}
LEFT_OUT |= {"transient", "is_forced", "is_probe"}  # no scenario has a cooldown

TIMES = {"seconds", "started", "wait"}

Entry = dict[str, Any]


def configured(preset: str, scenario: Scenario) -> FallbackConfig:
    options: Any = {"wait": 0, **scenario.config}
    if preset == "plain":
        return FallbackConfig(**options)
    config: FallbackConfig = getattr(FallbackConfig, preset)(**options)
    return config


def entry(preset: str, scenario: Scenario, driver: str) -> Entry:
    """Play a scenario; return what came out and its record, without what says nothing."""
    try:
        config = configured(preset, scenario)
    except FallbackConfigError as error:
        return {"refused": str(error), "attempts": []}
    script, raised = repeating(**scenario.replies), None
    with Clock().installed():
        policy = FallbackPolicy([Target(name) for name in scenario.replies], config)
        run = policy.start()
        try:
            DRIVERS[driver](policy, script, run)
        except Exception as error:  # noqa: BLE001 # whatever it is, its name is kept
            raised = type(error).__name__
        record = run.record.to_dict()
    attempts = [slim(attempt) for attempt in record.pop("attempts")]
    return {"raised": raised, **slim(record), "attempts": attempts}


def slim(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is unknown and what took no time; round what is left."""
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in facts.items()
        if value is not None and name not in LEFT_OUT and not (name in TIMES and not value)
    }


def played(scenario: Scenario, driver: str) -> dict[str, Entry]:
    """Return what every preset makes of a scenario; those that make the same, as ``one other``."""
    alike: dict[str, list[str]] = {}
    for preset in PRESETS:
        alike.setdefault(json.dumps(entry(preset, scenario, driver)), []).append(preset)
    return {" ".join(presets): json.loads(text) for text, presets in alike.items()}


def written(golden: dict[str, dict[str, Entry]]) -> str:
    """Return JSON with a line for each attempt and one for what else a record says."""
    scenarios: list[str] = []
    for name, entries in golden.items():
        lines: list[str] = []
        for label, one in entries.items():
            facts = {fact: value for fact, value in one.items() if fact != "attempts"}
            attempts = ",\n   ".join(map(json.dumps, one["attempts"]))
            line = f'{json.dumps(facts)[:-1]}, "attempts": [\n   {attempts}]}}'
            lines.append(f"  {json.dumps(label)}: {line}")
        scenarios.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "}")
    return "{\n" + ",\n".join(scenarios) + "}\n"


@pytest.fixture(scope="module")
def golden() -> Any:
    if os.environ.get("GOLDEN") == "write":
        golden = {scenario.name: played(scenario, "call") for scenario in SCENARIOS}
        GOLDEN.write_text(written(golden), encoding="utf-8")
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert [*golden] == [scenario.name for scenario in SCENARIOS]  # each is looked at
    return golden


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_leaves_the_record_that_it_left_before(
    scenario: Scenario, driver: str, golden: Any
) -> None:
    """Four presets, four drivers: the same attempts, notes and errors come out."""
    assert played(scenario, driver) == golden[scenario.name]
