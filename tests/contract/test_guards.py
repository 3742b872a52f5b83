"""The two guards on cassettes bite: each is shown a test that passes for the wrong reason."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

ASK = """
import urllib.error, urllib.request
import pytest
from anthropic import Anthropic
from honcho_fallback import FailureKind, FallbackPolicy, Target
from vcr.errors import CannotOverwriteExistingCassetteException

def ask(path):
    with urllib.request.urlopen("http://provider.invalid" + path) as answer:
        return answer.read()

"""
SWALLOWED = """
@pytest.mark.vcr
def test_it():
    assert ask("/known")
    with pytest.raises(CannotOverwriteExistingCassetteException):
        ask("/unknown")
"""
# The trap itself: the SDK takes the refusal for a lost connection; another answers.
FELL_BACK = """
def answer(attempt):
    if attempt.is_fallback:
        return ask("/known")
    with Anthropic(api_key="none", base_url="https://api.anthropic.com", max_retries=0) as client:
        return client.models.list()

@pytest.mark.vcr
def test_it():
    policy = FallbackPolicy([Target("primary"), Target("fallback")])
    run = policy.start()
    assert policy.call(answer, run=run)
    assert run.record.attempts[0].kind is FailureKind.CONNECTION
"""
ASKS_ONCE = """
@pytest.mark.vcr
def test_it():
    assert ask("/known")
"""
ASKS_NOBODY = """
@pytest.mark.vcr
def test_it():
    pass
"""
REFUSED = "the cassette refused a request: "


def cassette(*paths: str) -> str:
    return "version: 1\ninteractions:" + "".join(
        f"""
- request: {{body: null, headers: {{}}, method: GET, uri: 'http://provider.invalid{path}'}}
  response:
    body: {{string: 'the answer'}}
    headers: {{content-type: [text/plain]}}
    status: {{code: 200, message: OK}}"""
        for path in paths
    )


# Of each inner test: its body, what was recorded, and what is said where it does not pass.
CASES: dict[str, tuple[str, list[str], str | None]] = {
    "a_refusal_is_swallowed": (SWALLOWED, ["/known"], REFUSED),
    "a_refusal_makes_a_call_fall_back": (FELL_BACK, ["/known"], REFUSED),
    "it_is_not_played_to_its_end": (
        ASKS_ONCE,
        ["/known", "/second"],
        "only 1 of 2 recorded answers were asked for",
    ),
    "there_is_no_cassette": (ASKS_NOBODY, [], "there is no recording: "),
    "an_honest_test": (ASKS_ONCE, ["/known"], None),
    "a_test_without_a_cassette": ("def test_it(): pass", [], None),
}


def test_a_test_that_passes_for_the_wrong_reason_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was recorded is what is asked for, under this project's conftest; else it fails."""
    # All plugins that are installed take seconds.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "1000")
    tests = pytester.mkdir("tests")
    tests.joinpath("conftest.py").write_text(CONFTEST.read_text("utf-8"), "utf-8")
    for name, (body, recorded, _) in CASES.items():
        tests.joinpath(f"test_{name}.py").write_text(ASK + body, "utf-8")
        folder = pytester.path / "cassettes" / f"test_{name}"
        folder.mkdir(parents=True)
        if recorded:
            folder.joinpath("test_it.yaml").write_text(cassette(*recorded), "utf-8")
    plugin = ("-p", "pytest_recording.plugin")
    result = pytester.runpytest_subprocess(*plugin, "tests", "--record-mode=none", "-rE")
    reported = [line for line in result.outlines if line.startswith("ERROR tests/")]
    refused = {name: says for name, (_, _, says) in CASES.items() if says is not None}
    result.assert_outcomes(passed=len(CASES), errors=len(refused))
    for name, says in refused.items():
        assert any(f"test_{name}.py::test_it" in line and says in line for line in reported), name
