"""The plugin in a pytest of its own: as users get it, from the entry point."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., pytest.RunResult]

pytest_plugins = ["pytester"]

SCRIPTED = """
from honcho_fallback import FallbackPolicy

def test_it(scripted, fallback_records):
    script = scripted(primary=[scripted.status(429)], backup=["hello"])
    assert FallbackPolicy(script.targets).call(script.ask) == "hello"
    assert fallback_records.one.is_fallback
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest in a process of its own, with no plugins but this one and those asked for."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run_pytest(*arguments: str) -> pytest.RunResult:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        return pytester.run(*command, "-p", "honcho_fallback", *arguments)

    return run_pytest


def test_startup_imports_nothing_heavy(pytester: pytest.Pytester, run: Run) -> None:
    """Until a fixture is used, pytest has imported the plugin's one module and no more."""
    pytester.makepyfile("""
        import sys

        CORE = {"honcho_fallback", "pydantic", "pydantic_core", "tenacity"}
        HEAVY = CORE | {"anthropic", "httpx", "langchain_core", "litellm", "openai"}

        def test_before(request):
            assert request.config.pluginmanager.hasplugin("honcho_fallback")
            assert not HEAVY & {*sys.modules}

        def test_using(fallback_clock):
            assert "honcho_fallback" in sys.modules
            assert not (HEAVY - CORE) & {*sys.modules}
    """)
    run().assert_outcomes(passed=2)


def test_fixtures_are_there_without_an_import(pytester: pytest.Pytester, run: Run) -> None:
    """A test file that names a fixture gets it; --fixtures tells what each is for."""
    pytester.makepyfile(SCRIPTED)
    run("-W", "error").assert_outcomes(passed=1)
    listed = run("--fixtures").stdout.str()
    for name in ("fallback_clock", "fallback_records", "scripted"):
        assert f"\n{name} -- " in listed


def test_the_failures_message_is_the_users(pytester: pytest.Pytester, run: Run) -> None:
    """A failed assertion shows the call and the user's line, and none of the kit's own lines."""
    pytester.makepyfile("""
        from honcho_fallback import FallbackPolicy
        from honcho_fallback.testing import assert_switched

        def test_it(scripted, fallback_records):
            script = scripted(primary=["hello"], backup=["unheard"])
            FallbackPolicy(script.targets, agent="deriver").call(script.ask)
            assert_switched(fallback_records.one, to="backup")
    """)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*assert_switched(fallback_records.one, to=*",
            "E *expected a switch from any target to backup, but there was no switch",
            "E *Call * of agent deriver: the primary primary answered *",
            "E *1. primary: answered in 0 ms",
        ]
    )
    result.stdout.no_fnmatch_line("*raise AssertionError*")


def test_no_test_sees_anothers(pytester: pytest.Pytester, run: Run) -> None:
    """Clock and records end with the test that used them."""
    pytester.makepyfile("""
        import time
        from honcho_fallback import FallbackPolicy, Target

        POLICY = FallbackPolicy([Target("only")])

        def test_first(fallback_clock, fallback_records):
            fallback_clock.advance(1e6)
            POLICY.call(lambda attempt: "hello")
            assert len(fallback_records) == 1

        def test_second(fallback_records):
            POLICY.call(lambda attempt: "hello")
            assert abs(fallback_records.one.started_at - time.time()) < 60

        def test_third(fallback_clock):
            assert fallback_clock.now == 1000
    """)
    run().assert_outcomes(passed=3)


ASYNC = """
import pytest
from honcho_fallback import FallbackPolicy

{mark}
async def test_it(scripted, fallback_records, fallback_clock):
    script = scripted(only=[scripted.status(503, retry_after=9), "hello"])
    assert await FallbackPolicy(script.targets).acall(script.aask) == "hello"
    assert fallback_records.one.seconds == 9

{mark}
async def test_again(fallback_records, scripted):
    script = scripted(only=["hello"])
    await FallbackPolicy(script.targets).acall(script.aask)
    assert fallback_records.one.outcome == "success"
"""


@pytest.mark.parametrize(
    ("mark", "arguments"),
    [
        ("@pytest.mark.asyncio", ["-p", "asyncio"]),
        ("@pytest.mark.asyncio(loop_scope='session')", ["-p", "asyncio"]),
        ("@pytest.mark.anyio", ["-p", "anyio"]),
    ],
)
def test_any_async_runner_will_do(
    pytester: pytest.Pytester, run: Run, mark: str, arguments: list[str]
) -> None:
    """Fixtures are sync, so pytest-asyncio and anyio may run the tests, in loops of any scope."""
    pytester.makeconftest("""
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"
    """)
    pytester.makepyfile(ASYNC.format(mark=mark))
    run(*arguments).assert_outcomes(passed=2)


def test_without_any_async_plugin(pytester: pytest.Pytester, run: Run) -> None:
    """A plain test that runs its own loop needs neither."""
    pytester.makepyfile("""
        import asyncio
        from honcho_fallback import FallbackPolicy

        def test_it(scripted, fallback_records):
            script = scripted(only=["hello"])
            assert asyncio.run(FallbackPolicy(script.targets).acall(script.aask)) == "hello"
            assert len(fallback_records) == 1
    """)
    run().assert_outcomes(passed=1)


def test_workers_share_nothing(pytester: pytest.Pytester, run: Run) -> None:
    """Under pytest-xdist every test sees its own calls only."""
    pytester.makepyfile("""
        import pytest
        from honcho_fallback import FallbackPolicy, Target

        POLICY = FallbackPolicy([Target("only")])

        @pytest.mark.parametrize("number", range(8))
        def test_it(number, scripted, fallback_records, fallback_clock):
            script = scripted(only=[scripted.status(500, retry_after=5), number])
            assert POLICY.call(script.ask) == number
            assert fallback_records.one.seconds == 5
            assert fallback_clock.slept == [5.0]
    """)
    run("-p", "xdist", "-n", "2").assert_outcomes(passed=8)


def test_a_users_fixture_of_the_same_name_wins(pytester: pytest.Pytester, run: Run) -> None:
    """A name as plain as ``scripted`` may be taken already; the plugin stands back."""
    pytester.makeconftest("""
        import pytest

        @pytest.fixture
        def scripted():
            return "mine"
    """)
    pytester.makepyfile("def test_it(scripted): assert scripted == 'mine'")
    run().assert_outcomes(passed=1)


def test_the_installed_distribution_names_the_plugin() -> None:
    """The entry point is what pytest finds it by."""
    (found,) = entry_points(group="pytest11", name="honcho_fallback")
    assert found.value == "honcho_fallback_pytest"
