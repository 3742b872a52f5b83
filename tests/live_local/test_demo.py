from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import openai
import pytest

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.cli._connect import connect
from honcho_fallback.cli._play import play
from honcho_fallback.cli._played import Call, Played, exit_status
from honcho_fallback.cli._scenarios import SCENARIOS
from honcho_fallback.cli._stage import simulated_stage
from honcho_fallback.testing import write_tiny_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from openai.types.chat import ChatCompletionFunctionToolParam

    from honcho_fallback.cli._played import Scenario
    from honcho_fallback.testing import FaultSimulator, LocalModel

DEMO = (sys.executable, "-W", "error", "-m", "honcho_fallback.cli", "demo")


def run_demo(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as a user does, with a terminal wide enough not to wrap."""
    given = {**os.environ, "COLUMNS": "200", "LANGFUSE_PUBLIC_KEY": "", **env}
    return subprocess.run([*DEMO, *args], env=given, capture_output=True, text=True, check=False)


def test_the_demo_ends_as_it_should_without_key_and_network() -> None:
    """Each dead primary sees one request per call, one per loop with reset=turn, and status 0."""
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
        "3 (1 + 0 + 1 + 1)",
        "1",
    ]
    assert "429 rate_limit, wait 30 s" in done.stdout
    assert done.stdout.count("local/tiny-local") >= 12
    assert "answered, a probe after its cooldown" in done.stdout
    assert "the caller got: FallbackExhausted" in done.stdout
    assert "Nobody answered" in done.stdout
    assert "All 17 calls ended as they should." in done.stdout
    traced = done.stdout.partition("What Langfuse gets of a call that fails over")[2]
    assert re.search(r"metadata\.is_fallback +true", traced)
    assert re.search(r"model\.name +tiny-local", traced)
    assert re.search(r'usage_details +{"input": \d+, "output": \d+, .*"total": \d+}', traced)
    assert "FAILED" not in done.stdout


def test_real_providers_are_asked_over_their_own_sdks(faults: FaultSimulator) -> None:
    """With --primary and --fallback both SDKs are spoken, and every call is to be answered."""
    faults.fail(503, times=None, provider="openai")
    done = run_demo(
        "--primary", "openai/one", "--fallback", "anthropic/two",
        OPENAI_API_KEY="not-a-key", OPENAI_BASE_URL=faults.base_url("openai"),
        ANTHROPIC_API_KEY="not-a-key", ANTHROPIC_BASE_URL=faults.base_url("anthropic"),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "anthropic/two answered" in done.stdout
    assert len(faults.requests("openai")) == 11
    assert len(faults.requests("anthropic")) == 17


def test_real_providers_that_do_not_answer_give_status_1(faults: FaultSimulator) -> None:
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


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_an_interrupt_ends_quietly() -> None:
    """Ctrl-C exits with 130, without a traceback and with every server stopped."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        DEMO, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith("The chain:")
        demo.send_signal(signal.SIGINT)
        told, complained = demo.communicate()
    assert (demo.returncode, complained) == (130, "")
    assert "ended as they should" not in told


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_broken_expectation_gives_status_1(scenario: Scenario) -> None:
    """Had the primary answered, every scenario's check would say so."""
    policy = FallbackPolicy([Target("up"), Target("idle")])
    run = policy.start()
    said = policy.call(lambda at: at.target.name, run=run)
    calls = [Call(run.record, 1, said)]
    played = Played(scenario, calls, scenario.check(calls), [])
    assert not played.ok
    assert exit_status([played]) == 1


def test_a_demo_that_played_nothing_gives_status_1() -> None:
    """No call is not a success."""
    assert exit_status([]) == 1


def test_calls_that_end_otherwise_are_caught_on_real_sockets() -> None:
    """A scenario judged by another one's expectations fails; by its own it passes."""
    nobody, limited = SCENARIOS[-1], SCENARIOS[0]
    with simulated_stage(connect) as stage:
        fine = play(limited, stage)
        wrong = play(limited._replace(play=nobody.play), stage)
    assert (fine.ok, wrong.ok) == (True, False)
    assert (exit_status([fine]), exit_status([fine, wrong])) == (0, 1)


def test_the_model_is_the_same_every_time(tmp_path: Path) -> None:
    """The weights are code: the same bytes on every run."""
    first, second = (write_tiny_gguf(tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second


def test_the_local_model_speaks_words_and_calls_tools(local_model: LocalModel) -> None:
    """The fallback is a real server: text, usage, and a tool call that its grammar allows."""
    look: ChatCompletionFunctionToolParam = {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {
                "type": "object",
                "properties": {"where": {"type": "string", "enum": ["up", "down"]}},
                "required": ["where"],
            },
        },
    }
    with openai.DefaultHttpxClient(trust_env=False) as transport:
        client = openai.OpenAI(
            base_url=local_model.base_url, api_key="-", max_retries=0, http_client=transport
        )
        text = client.chat.completions.create(
            model=local_model.model, messages=[{"role": "user", "content": "Hello"}], max_tokens=8
        )
        tool = client.chat.completions.create(
            model=local_model.model,
            messages=[{"role": "user", "content": "Hello"}],
            tools=[look],
            tool_choice="required",
        )
    assert re.fullmatch(r"( ?[a-z]+)+", text.choices[0].message.content or "")
    assert text.usage is not None
    assert text.usage.completion_tokens == 8
    calls = tool.choices[0].message.tool_calls
    assert calls is not None
    assert [call.type for call in calls] == ["function"]
