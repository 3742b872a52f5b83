"""Sixteen outages through every way in: what a call may end with, in one table.

The profiles are what users have who tune nothing: the defaults, ``resilient()``, and both with
``partial="replace"``. Beside them, in the same run, the frameworks' own means.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

for framework in ("agents", "langchain", "litellm", "pydantic_ai"):
    pytest.importorskip(framework)  # the lowest versions of some exclude others

# ruff: noqa: E402
from benchmarks.faults import FaultyProvider
from benchmarks.faults.scenarios import (
    CALLS,
    HEALTHY,
    INTERVAL,
    SCENARIOS,
    Answer,
    Call,
    Hang,
    Observation,
    Verdict,
    judge,
)
from benchmarks.report import table
from honcho_fallback_litellm import warm_up
from tests.contract.failover.ways import ALONE, CONTROLS, PRINTED, PROFILES, WAYS
from tests.helpers.idle_loop import IdleLoop
from tests.helpers.litellm_runs import THEIRS, litellm_left_clean
from tests.helpers.pages import DOCS, assert_shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.faults.scenarios import Scenario
    from tests.contract.failover.ways import Ask, Build, Profile

pytestmark = [
    pytest.mark.timeout(240),  # whoever asks first for all rows makes them
    # Single calls outside of turns are meant to stand alone here.
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
    *(pytest.mark.filterwarnings(warning) for warning in THEIRS),
]

PASS, PARTIAL, SAFE = Verdict.PASS, Verdict.PARTIAL, Verdict.SAFE
PACKAGES = [
    "langchain",
    "langchain-openai",
    "litellm",
    "openai",
    "openai-agents",
    "pydantic-ai-slim",
]

# The worst that is allowed, by scenario: with nothing declared, with resilient(), the same two
# where a broken answer may be taken back, and where another model goes on with it. Whoever
# switches at once has no pass in S01 and S03.
WORST = {
    "S01": (PARTIAL, PARTIAL, PARTIAL, PARTIAL, PARTIAL),
    "S02": (PASS, PASS, PASS, PASS, PASS),
    "S03": (PARTIAL, PARTIAL, PARTIAL, PARTIAL, PARTIAL),
    "S04": (PASS, PASS, PASS, PASS, PASS),
    "S05": (PASS, PASS, PASS, PASS, PASS),
    "S06": (PASS, PASS, PASS, PASS, PASS),
    "S07": (PARTIAL, PASS, PARTIAL, PASS, PASS),  # the defaults wait for a first word
    "S08": (SAFE, SAFE, PASS, PASS, PASS),
    "S09": (SAFE, SAFE, PASS, PASS, PASS),
    "S10": (SAFE, SAFE, PASS, PASS, PASS),
    "S11": (PASS, PASS, PASS, PASS, PASS),
    "S12": (PASS, PASS, PASS, PASS, PASS),
    "S13": (PASS, PASS, PASS, PASS, PASS),
    "S14": (SAFE, SAFE, PASS, PASS, SAFE),
    "S15": (PASS, PASS, PASS, PASS, PASS),
    "S16": (PASS, PASS, PASS, PASS, PASS),
}
CUT = frozenset({"S08", "S09", "S10", "S14"})
AGENTS = ("LangChain agent, `FallbackMiddleware`", "LangChain agent, `FallbackChatModel`")
# LangChain's middleware always asks on after a cut, and leaves it to the reader to see by the
# messages' ids what is void. Here that is opt-in; the defaults are for those who print tokens.
BESIDE = {(name, profile.name): PRINTED for name in AGENTS for profile in PROFILES[:2]}

COLUMNS = [(way.name, profile) for way in WAYS.values() for profile in way.profiles]
each_column = pytest.mark.parametrize(
    ("name", "profile"), COLUMNS, ids=[f"{name}, {profile.name}" for name, profile in COLUMNS]
)


@dataclass(frozen=True, slots=True)
class Row:
    """Hold what was judged of one way in with one profile, or of a framework's own means."""

    name: str
    profile: str
    cells: dict[str, tuple[Verdict, str]]

    def count(self, verdict: Verdict) -> int:
        return sum(found is verdict for found, _ in self.cells.values())


class Runs:
    """Run the scenarios in one loop, and remember the rows.

    Args:
        runner: Of an ``IdleLoop``.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._rows: dict[tuple[str, str], Row] = {}

    def way(self, name: str, profile: Profile) -> Row:
        return self._row(name, profile.name, WAYS[name].build, profile)

    def control(self, name: str) -> Row:
        """Return the row of a framework's own means, which reads no profile."""
        return self._row(name, "", CONTROLS[name], PROFILES[0])

    def all(self) -> list[Row]:
        ways = [self.way(way.name, profile) for way in WAYS.values() for profile in way.profiles]
        return [*ways, *map(self.control, CONTROLS)]

    def _row(self, name: str, shown: str, build: Build, profile: Profile) -> Row:
        if (name, shown) not in self._rows:
            cells = self._runner.run(self._cells(build, profile, has_fallback=name != ALONE))
            self._rows[name, shown] = Row(name, shown, cells)
        return self._rows[name, shown]

    @staticmethod
    async def _cells(
        build: Build, profile: Profile, *, has_fallback: bool
    ) -> dict[str, tuple[Verdict, str]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, IdleLoop)
        # LiteLLM's cooldowns go by the date.
        with (await loop.runtime()).installed(), patch.object(time, "time", loop.date):
            return {
                scenario.name: judge(
                    scenario,
                    await observe(build, scenario, profile),
                    has_fallback=has_fallback,
                )
                for scenario in SCENARIOS
            }


async def observe(build: Build, scenario: Scenario, profile: Profile) -> Observation:
    async with (
        FaultyProvider(scenario.primary) as primary,
        FaultyProvider(scenario.fallback) as fallback,
    ):
        try:
            ask = build(primary.url, fallback.url, profile)
        except Exception as error:  # noqa: BLE001 # whatever its user would see
            return Observation([Call(0.0, 0.0, error)], [], [])
        calls: list[Call] = []
        for number in range(CALLS if scenario.is_outage else 1):
            await asyncio.sleep(max(0.0, number * INTERVAL - primary.now))
            calls.append(await _call(ask, primary, scenario.most))
        seen = Observation(calls, [*primary.requests], [*fallback.requests])
        # Nobody fails from here on: does the same object still work?
        primary.fault = fallback.fault = HEALTHY
        afterwards = await _call(ask, primary, 10.0)
        works = isinstance(afterwards.result, Answer) and afterwards.result.is_whole
        return replace(seen, works_afterwards=works)


async def _call(ask: Ask, primary: FaultyProvider, most: float) -> Call:
    at, limit = primary.now, asyncio.timeout(most)
    try:
        async with limit:
            result = await ask()
    except TimeoutError as error:
        return Call(at, primary.now - at, Hang() if limit.expired() else error)
    except Exception as error:  # noqa: BLE001 # whatever a caller would see
        return Call(at, primary.now - at, error)
    return Call(at, primary.now - at, result)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """Return the runs of all scenarios; each is made when its row is first asked for."""
    warm_up()
    gc.freeze()  # as after the collection of tests
    with litellm_left_clean(), asyncio.Runner(loop_factory=IdleLoop) as runner:
        yield Runs(runner)


def test_what_the_table_promises() -> None:
    """Who tunes nothing passes nine or ten and loses cut streams alone; who takes back, none."""
    columns = [*zip(*WORST.values(), strict=True)]
    assert [column.count(PASS) for column in columns] == [9, 10, 13, 14, 13]
    assert {name for name, worst in WORST.items() if worst[3] is SAFE} == set()
    assert {name for name, worst in WORST.items() if worst[4] is SAFE} == {"S14"}
    for at in (0, 1):
        assert {name for name, worst in WORST.items() if worst[at] is SAFE} == CUT


@each_column
def test_a_call_ends_as_the_table_allows(runs: Runs, name: str, profile: Profile) -> None:
    """No scenario ends worse than the table says, in any way in with any profile."""
    at = PROFILES.index(profile)
    ranks = [*Verdict]
    worse = [
        f"{scenario}: {verdict}, {reason}"
        for scenario, (verdict, reason) in runs.way(name, profile).cells.items()
        if ranks.index(verdict) > ranks.index(WORST[scenario][at])
    ]
    assert worse == []


@each_column
def test_nobody_loses_by_leaving_the_frameworks_own(
    runs: Runs, name: str, profile: Profile
) -> None:
    """At least as many scenarios pass as with the framework's own means, in the same run."""
    own = BESIDE.get((name, profile.name), WAYS[name].own)
    theirs = runs.control(own).count(PASS) if own else 0
    assert runs.way(name, profile).count(PASS) >= theirs


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("LangChain, `with_fallbacks`", (9, 3, 4, 0)),
        ("LiteLLM Router, `fallbacks`", (9, 3, 4, 0)),
        # There it is the SDK by itself, which asks for the Agents SDK as well.
        (ALONE, (6, 0, 10, 0)),
    ],
)
def test_the_judge_agrees_with_the_published_scores(
    runs: Runs, name: str, published: tuple[int, ...]
) -> None:
    """Server and judge are our own; where the outside judge has scored, they say the same."""
    assert tuple(runs.control(name).count(verdict) for verdict in Verdict) == published


def test_the_page_shows_these_runs(runs: Runs) -> None:
    """`docs/benchmarks.md` has what came out here; `WRITE_TABLES=1` writes it anew."""
    releases = f"Run with {', '.join(f'{name} {version(name)}' for name in PACKAGES)}."
    page = DOCS / "benchmarks.md"
    if not os.environ.get("WRITE_TABLES") and releases not in page.read_text("utf-8"):
        pytest.skip("other releases are installed than those of the page")
    assert_shown(page.name, "scenarios", f"{releases}\n\n{scorecard(runs.all())}")


def scorecard(rows: Iterable[Row]) -> str:
    """Write what was judged: a line for each row, then why a cell is no pass."""
    letters = {PASS: "P", PARTIAL: "p", SAFE: "s", Verdict.FAIL: "**F**"}
    head = ["", "way in", "declared", *(one.name for one in SCENARIOS), *Verdict]
    lines: list[list[str]] = []
    reasons: dict[tuple[str, str, str], list[int]] = {}
    for number, row in enumerate(rows, 1):
        cells = [letters[verdict] for verdict, _ in row.cells.values()]
        counts = [str(row.count(verdict)) for verdict in Verdict]
        lines.append([str(number), row.name, row.profile or "its own", *cells, *counts])
        for scenario, (verdict, reason) in row.cells.items():
            if verdict is not PASS:
                reasons.setdefault((scenario, verdict, reason), []).append(number)
    why = [
        [scenario, verdict, reason, _ranges(numbers)]
        for (scenario, verdict, reason), numbers in sorted(reasons.items())
    ]
    titles = [[one.name, one.title] for one in SCENARIOS]
    return "\n\n".join(
        [
            table(["", "the primary"], titles),
            table(head, lines),
            table(["", "no pass", "why", "rows"], why),
        ]
    )


def _ranges(numbers: list[int]) -> str:
    """Write ascending numbers, neighbours as a range."""
    starts = [one for one in numbers if one - 1 not in numbers]
    ends = [one for one in numbers if one + 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return ", ".join(str(one) if one == last else f"{one}-{last}" for one, last in pairs)
