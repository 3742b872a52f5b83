from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from honcho_fallback.cli._demo import DemoError, run
from honcho_fallback.cli._play import play
from honcho_fallback.cli._stage import simulated_stage
from honcho_fallback.cli.demos import played
from honcho_fallback_langchain._demo import DEMO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback.cli.demos import Call, Stage
    from honcho_fallback.testing import FaultSimulator

# Nine seconds of a processor for a whole demo, on a machine that may be busy.
pytestmark = pytest.mark.timeout(180)

COMMAND = (sys.executable, "-W", "error", "-m", "honcho_fallback.cli", "demo")


def run_demo(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as a user does, with a terminal wide enough not to wrap."""
    given = {**os.environ, "COLUMNS": "200", **env}
    return subprocess.run(
        [*COMMAND, "--via", "langchain", *args],
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """The simulator, the local model and LangChain's models for both."""
    with simulated_stage(DEMO.connect) as built:
        yield built


def test_the_demo_ends_as_it_should_without_key_and_network() -> None:
    """Each dead primary sees one request per call, one per turn with reset=turn, and status 0."""
    done = run_demo(
        OPENAI_API_KEY="", HTTP_PROXY="http://127.0.0.1:9", HTTPS_PROXY="http://127.0.0.1:9"
    )
    assert (done.returncode, done.stderr) == (0, "")
    seen = re.findall(r"requests that the dead primary saw: (.+)", done.stdout)
    assert [line.strip() for line in seen] == [
        "1",
        "1",
        "5 (1 + 1 + 1 + 1 + 1)",
        "1 (1 + 0 + 0 + 0 + 0)",
        "3 (1 + 1 + 1)",
        "1",
    ]
    assert "I stopped: read_barometer failed 3 times in the same way." in done.stdout
    assert "The chain: openai/gpt-5.5 -> openai/tiny-local" in done.stdout
    assert done.stdout.count("tool calls until the last") == 2
    assert "the caller got: FallbackExhausted" in done.stdout
    assert "All 16 calls ended as they should." in done.stdout
    assert "FAILED" not in done.stdout


def test_real_providers_are_asked_by_langchains_integrations(faults: FaultSimulator) -> None:
    """With --primary and --fallback both integrations are asked, and every call is answered."""
    faults.fail(503, times=None, provider="openai")
    done = run_demo(
        "--primary", "openai/one", "--fallback", "anthropic/two",
        OPENAI_API_KEY="not-a-key", OPENAI_BASE_URL=faults.base_url("openai"),
        ANTHROPIC_API_KEY="not-a-key", ANTHROPIC_BASE_URL=faults.base_url("anthropic"),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "The chain: openai/one -> anthropic/two" in done.stdout
    # The tools' rounds are the model's own affair: at least one call per scenario.
    assert len(faults.requests("anthropic")) >= 5
    assert {seen.status for seen in faults.requests("openai")} == {503}


def test_a_provider_that_answers_nobody_gives_status_1(faults: FaultSimulator) -> None:
    """A call without an answer is a failed demo."""
    faults.fail(401, times=None, provider="openai")
    faults.fail(401, times=None, provider="anthropic")
    done = run_demo(
        "--primary", "openai/one", "--fallback", "anthropic/two",
        OPENAI_API_KEY="not-a-key", OPENAI_BASE_URL=faults.base_url("openai"),
        ANTHROPIC_API_KEY="not-a-key", ANTHROPIC_BASE_URL=faults.base_url("anthropic"),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAILED every call answered" in done.stdout


def test_every_check_passes_its_own_scenario_and_no_other(stage: Stage) -> None:
    """Calls that end otherwise are caught, on real sockets: each check can say no."""
    calls = {scenario: play(scenario, stage).calls for scenario in DEMO.scenarios}
    for judge in DEMO.scenarios:
        passed = [one for one in calls if all(check.ok for check in judge.check(calls[one]))]
        assert passed == [judge]


def test_trouble_before_the_first_request_is_no_end_of_a_call(stage: Stage) -> None:
    """A demo that asked nobody has not passed: what went wrong comes out."""

    def broken(stage: Stage) -> list[Call]:
        return played(stage, lambda _: [str(1 / 0)])

    with pytest.raises(ZeroDivisionError):
        play(DEMO.scenarios[0]._replace(play=broken), stage)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without langchain the command says what to install, and nothing is started."""
    monkeypatch.setitem(sys.modules, "langchain", None)
    monkeypatch.delitem(sys.modules, "honcho_fallback_langchain._demo")
    with pytest.raises(ImportError, match=r"pip install 'honcho-fallback\[agents\]'"):
        run(None, None, Console(), "langchain")


def test_an_unknown_adapter_is_refused_with_the_known_ones() -> None:
    """A wrong name costs no guess."""
    with pytest.raises(DemoError, match="--via: got 'langchian'; pass one of core, langchain"):
        run(None, None, Console(), "langchian")
