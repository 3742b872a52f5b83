"""The commands of docs/operations.md answer its questions, on the records of an incident."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import Cooldown, FallbackConfig, FallbackExhausted, FallbackPolicy, Target
from honcho_fallback.records import JsonlObserver, read_records
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from honcho_fallback import Attempt
    from honcho_fallback.testing import Clock

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PRIMARY, FALLBACK = "openai/gpt-5.5", "anthropic/claude-sonnet-5"

pytestmark = [
    pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="the commands are a shell's"),
]


def commands(question: str) -> list[str]:
    """Return the commands under a question of the page."""
    section = PAGE.partition("\n## The questions of an incident\n")[2].partition("\n## ")[0]
    (block,) = re.findall(
        rf"^\*\*{re.escape(question)}\*\*.*?^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE
    )
    return re.split(r"\n(?=\S)", block.strip())


def run(command: str, folder: Path) -> str:
    """Run a command as a person would, and return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TZ": "UTC", "COLUMNS": "120"}
    line = ["bash", "-euo", "pipefail", "-c", command]
    result = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture
def incident(clock: Clock, tmp_path: Path) -> Path:
    """A call each second of a minute and a half, by three users in turn.

    From second 10 on the primary is overloaded, from 30 on its key is refused, and from 40 to 45
    the fallback hangs, too; from 50 on all is well. A failure takes half a second, a hang two.
    """
    second = 0

    def ask(attempt: Attempt) -> dict[str, Any]:
        if attempt.position == 0 and 10 <= second < 50:
            clock.advance(0.5)
            raise StatusError(503 if second < 30 else 401)
        if attempt.position == 1 and 40 <= second < 45:
            clock.advance(2)
            raise TimeoutError
        return {"text": "hello", "usage": {"input_tokens": 1000, "output_tokens": 100}}

    chain = [Target("gpt-5.5", "openai"), Target("claude-sonnet-5", "anthropic")]
    config = FallbackConfig(wait=0, max_attempts=2, cooldown=Cooldown(base=4))
    with JsonlObserver(tmp_path / "incident.jsonl") as records:
        policy = FallbackPolicy(chain, config, agent="chat", observers=[records])
        begun = clock.now
        for second in range(90):
            clock.now = max(clock.now, begun + second)
            try:
                policy.call(ask, metadata={"user": f"user-{second % 3}"})
            except (FallbackExhausted, TimeoutError, StatusError):
                continue
    return tmp_path


def answers(question: str, incident: Path) -> list[str]:
    """Return the lines of what the commands of a question print."""
    return [line for each in commands(question) for line in run(each, incident).splitlines()]


DAY = "2026-01-01T00:00"
# By the page's questions, what their commands print.
ANSWERS = {
    # By target and failure: how often, first and last.
    "Who is down, and since when?": [
        f"{FALLBACK} timeout: 5x from {DAY}:42.500+00:00 to {DAY}:52.500+00:00",
        f"{PRIMARY} authentication: 5x from {DAY}:42.500+00:00 to {DAY}:52.500+00:00",
        f"{PRIMARY} overloaded: 5x from {DAY}:10.500+00:00 to {DAY}:26.500+00:00",
    ],
    # Five switches of half a second, and five calls that nobody answered, of two and a half.
    "How many calls and users waited, and how long?": [
        "10 calls of 3 users: 15 s in all, at most 2.5 s"
    ],
    # 54 answers at 0.0045 dollars, 31 at 0.00225, and what was perhaps billed besides.
    "What did it cost?": [
        f"{FALLBACK}: 0.243 dollars for 54 answers, 5 requests perhaps billed",
        f"{PRIMARY}: 0.06975 dollars for 31 answers, 5 requests perhaps billed",
    ],
    # By target: what came of its latest request.
    "Is it over?": [
        f"{FALLBACK}: answered at 2026-01-01T00:01:08.000+00:00",
        f"{PRIMARY}: answered at 2026-01-01T00:01:29.000+00:00",
    ],
    # Who answered the latest calls, counted.
    "Is the primary used again?": [f"54 {FALLBACK}", "5 nobody", f"31 {PRIMARY}"],
}


def test_the_questions_are_answered(incident: Path) -> None:
    """Each to the letter; in the middle, where what was asked last had failed, it is not over.

    Where nobody waited the questions are answered, too.
    """
    for question, wanted in ANSWERS.items():
        assert [line.strip() for line in answers(question, incident)] == wanted
    path = incident / "incident.jsonl"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:45]), "utf-8")
    assert answers("Is it over?", incident) == [
        f"{FALLBACK}: timeout at {DAY}:52.500+00:00",
        f"{PRIMARY}: authentication at {DAY}:52.500+00:00",
    ]
    path.write_text("")
    how_many = answers("How many calls and users waited, and how long?", incident)
    assert how_many == ["0 calls of 0 users: 0 s in all, at most 0 s"]


def test_which_calls_nobody_answered_and_why(incident: Path) -> None:
    """A line for each, and one of them in words."""
    listing, detail = commands("Which calls did nobody answer, and why?")
    printed = run(listing, incident)
    assert printed.startswith("5 calls, 10 requests, 5 switches\n")
    rows = [line for line in printed.splitlines() if " exhausted   chat " in line]
    assert [row.partition(" ")[0] for row in rows] == ["41", "42", "43", "44", "45"]
    assert rows[0].endswith(f"chat {FALLBACK} timeout -> {PRIMARY} authentication")
    story = run(detail.replace("--call 17", "--call 41"), incident)
    assert "Nobody answered: every target that could be asked failed." in story
    assert "What to do: " in story


def test_the_incident_is_cut_out_of_the_records(incident: Path) -> None:
    """From a time on, in UTC, and to the file that the questions read."""
    (command,) = re.findall(r"`(jq -c 'select\(\.time > .*?)`", PAGE)
    records = (incident / "incident.jsonl").rename(incident / "calls.jsonl")
    run(command.replace("2026-11-22T14:05", "2026-01-01T00:01"), incident)
    times = [json.loads(line)["time"] for line in records.read_text("utf-8").splitlines()]
    kept = [*read_records(incident / "incident.jsonl")]
    assert len(kept) == sum(time > "2026-01-01T00:01" for time in times) == 30
