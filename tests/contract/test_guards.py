"""The two guards on cassettes bite: each is shown a test that passes for the wrong reason."""

from __future__ import annotations

from pathlib import Path

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
REFUSED = "the cassette refused a request: *"


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


@pytest.mark.parametrize(
    ("body", "recorded", "says"),
    [
        pytest.param(SWALLOWED, ["/known"], REFUSED, id="a refusal is swallowed"),
        pytest.param(FELL_BACK, ["/known"], REFUSED, id="a refusal makes a call fall back"),
        pytest.param(
            ASKS_ONCE,
            ["/known", "/second"],
            "only 1 of 2 recorded answers were asked for*",
            id="it is not played to its end",
        ),
        pytest.param(
            ASKS_NOBODY, [], "there is no recording: *test_it.yaml", id="there is no cassette"
        ),
        pytest.param(ASKS_ONCE, ["/known"], None, id="an honest test"),
        pytest.param("def test_it(): pass", [], None, id="a test without a cassette"),
    ],
)
def test_a_test_that_passes_for_the_wrong_reason_fails(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    recorded: list[str],
    says: str | None,
) -> None:
    """What was recorded is what is asked for, under this project's conftest; else it fails."""
    # All plugins that are installed take seconds.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    tests = pytester.mkdir("tests")
    tests.joinpath("conftest.py").write_text(CONFTEST.read_text("utf-8"), "utf-8")
    tests.joinpath("test_inner.py").write_text(ASK + body, "utf-8")
    folder = pytester.path / "cassettes" / "test_inner"
    folder.mkdir(parents=True)
    if recorded:
        folder.joinpath("test_it.yaml").write_text(cassette(*recorded), "utf-8")
    plugin = ("-p", "pytest_recording.plugin")
    result = pytester.runpytest_subprocess(*plugin, "tests", "--record-mode=none")
    result.assert_outcomes(passed=1, errors=int(says is not None))
    if says is not None:
        result.stdout.fnmatch_lines([says])
