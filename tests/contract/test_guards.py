"""The two guards on cassettes bite: each is shown a test that passes for the wrong reason."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

ASK = """
import urllib.error, urllib.request
import pytest
from vcr.errors import CannotOverwriteExistingCassetteException

def ask(path):
    with urllib.request.urlopen("http://provider.invalid" + path) as answer:
        return answer.read()
"""


@pytest.fixture(autouse=True)
def no_plugin_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the plugin that plays cassettes alone: all that are installed take seconds."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def _cassette(paths: Iterable[str]) -> str:
    return "version: 1\ninteractions:" + "".join(
        f"""
- request: {{body: null, headers: {{}}, method: GET, uri: 'http://provider.invalid{path}'}}
  response:
    body: {{string: 'the answer'}}
    headers: {{content-type: [text/plain]}}
    status: {{code: 200, message: OK}}"""
        for path in paths
    )


def _outcome(
    pytester: pytest.Pytester, body: str, cassette: str | None, *options: str
) -> pytest.RunResult:
    """Run one test under the conftest of this project, with a cassette of its own."""
    tests = pytester.mkdir("tests")
    tests.joinpath("conftest.py").write_text(CONFTEST.read_text("utf-8"), "utf-8")
    tests.joinpath("test_inner.py").write_text(dedent(body), "utf-8")
    folder = pytester.path / "cassettes" / "test_inner"
    folder.mkdir(parents=True)
    if cassette is not None:
        folder.joinpath("test_it.yaml").write_text(cassette, "utf-8")
    plugin = ("-p", "pytest_recording.plugin")
    return pytester.runpytest_subprocess(*plugin, "tests", "--record-mode=none", *options)


def test_a_refused_request_fails_a_test_that_swallowed_the_refusal(
    pytester: pytest.Pytester,
) -> None:
    """A request that no cassette knows cannot be taken for a provider's failure."""
    result = _outcome(
        pytester,
        ASK
        + """
@pytest.mark.vcr
def test_it():
    assert ask("/known")
    with pytest.raises(CannotOverwriteExistingCassetteException):
        ask("/unknown")
""",
        _cassette(["/known"]),
    )

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["the cassette refused a request: *"])


def test_a_refused_request_fails_a_call_that_fell_back_because_of_it(
    pytester: pytest.Pytester,
) -> None:
    """The trap itself: the SDK takes the refusal for a lost connection; another answers."""
    result = _outcome(
        pytester,
        ASK
        + """
from anthropic import Anthropic
from honcho_fallback import FailureKind, FallbackPolicy, Target

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
""",
        _cassette(["/known"]),
    )

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["the cassette refused a request: *"])


def test_a_cassette_that_was_not_played_to_its_end_fails_the_test(
    pytester: pytest.Pytester,
) -> None:
    """A request that was recorded and is no longer made does not go unnoticed."""
    result = _outcome(
        pytester,
        ASK
        + """
@pytest.mark.vcr
def test_it():
    assert ask("/first")
""",
        _cassette(["/first", "/second"]),
    )

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["only 1 of 2 recorded answers were asked for*"])


def test_a_missing_cassette_fails_the_test_that_needs_none(pytester: pytest.Pytester) -> None:
    """A test that claims a cassette and asks nothing proves nothing."""
    result = _outcome(
        pytester,
        ASK
        + """
@pytest.mark.vcr
def test_it():
    pass
""",
        None,
    )

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["there is no recording: *test_it.yaml"])


@pytest.mark.parametrize("marker", ["@pytest.mark.vcr", ""], ids=["cassette", "none"])
def test_the_guards_let_an_honest_test_pass(pytester: pytest.Pytester, marker: str) -> None:
    """Everything asked for was recorded and the other way round, or no cassette is in use."""
    asked = 'assert ask("/known")' if marker else "pass"
    result = _outcome(
        pytester,
        f"{ASK}\n{marker}\ndef test_it():\n    {asked}\n",
        _cassette(["/known"]),
    )

    result.assert_outcomes(passed=1)
