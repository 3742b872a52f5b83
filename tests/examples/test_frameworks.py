"""Frameworks without an adapter and durable engines, asked as they are; runs that are killed.

``make test-frameworks`` has them.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackConfig, FallbackPolicy
from honcho_fallback.testing import StatusError
from tests.examples.test_examples import (
    DURABLE,
    EXAMPLES,
    FRAMEWORKS,
    ONE_SWITCH,
    environment,
    run,
)
from tests.helpers.provider import Reply
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.provider import ProviderServer, SeenRequest

PACKAGES = {
    "durable/dbos_steps": ("dbos",),
    "durable/temporal_activity": ("temporalio",),
    "frameworks/dspy_lm": ("dspy",),
    "frameworks/haystack_generator": ("haystack", "haystack_integrations"),
    "frameworks/instructor_model": ("instructor",),
    "frameworks/llamaindex": ("llama_index",),
}
CALLS = {"durable/dbos_steps": 2}

# A process that imports a framework, on a machine that may be busy.
pytestmark = pytest.mark.timeout(180)
with_dbos = pytest.mark.skipif(find_spec("dbos") is None, reason="dbos is not installed")
with_temporal = pytest.mark.skipif(find_spec("temporalio") is None, reason="temporalio is missing")


def keys(requests: list[SeenRequest]) -> list[str]:
    """Return the idempotency keys of requests."""
    return [one.headers["idempotency-key"] for one in requests]


@pytest.mark.parametrize("name", sorted(FRAMEWORKS | DURABLE | PACKAGES.keys()))
def test_the_primary_sees_one_request_per_call(name: str, tmp_path: Path) -> None:
    """Neither the framework nor its SDK asks the dead provider again; the fallback answers."""
    missing = [package for package in PACKAGES[name] if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    done = run("examples", name, DBOS_STORE=f"sqlite:///{tmp_path}/store")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    requests = ", ".join([ONE_SWITCH] * CALLS.get(name, 1))
    assert "Good morning!" in done.stdout
    assert f"Requests at the simulated providers: {requests}" in done.stdout


@pytest.fixture
def workflow(tmp_path: Path, providers: ProviderServer) -> Callable[[], subprocess.Popen[str]]:
    """Start a process that runs one workflow, always the same; the first has to begin it."""

    def start() -> subprocess.Popen[str]:
        given = {"DBOS_STORE": f"sqlite:///{tmp_path}/store", "WORKFLOW": "morning"}
        for name in ("openai", "anthropic"):
            given[f"{name.upper()}_API_KEY"] = "not-a-key"
            given[f"{name.upper()}_BASE_URL"] = providers[name].url.removesuffix("/v1")
        command = [sys.executable, "examples", "durable/dbos_steps"]
        return subprocess.Popen(
            command,
            cwd=EXAMPLES.parent,
            env=environment(**given, no_proxy="127.0.0.1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@with_dbos
def test_a_killed_process_loses_no_call_and_repeats_none(
    workflow: Callable[[], subprocess.Popen[str]], providers: ProviderServer
) -> None:
    """What was answered is not asked again; what was under way is, with the key that it had."""
    primary, is_asked_again = providers["openai"], threading.Event()

    def hangs_at_the_second(_: SeenRequest) -> Reply:
        if len(primary.requests) == 1:
            return Reply(text="first")
        is_asked_again.set()
        return Reply(hang=True)

    primary.standing = hangs_at_the_second
    killed = workflow()
    assert is_asked_again.wait(150)
    killed.kill()
    killed.communicate()
    primary.standing = Reply(text="second")
    output, errors = workflow().communicate()
    assert output.splitlines()[1:3] == ["first", "second"], errors
    first, second, again = keys(primary.requests)
    assert (second == again, first == second) == (True, False)


@with_dbos
def test_a_step_runs_again_only_when_all_were_down(
    workflow: Callable[[], subprocess.Popen[str]], providers: ProviderServer
) -> None:
    """The chain was asked first; each request of a target has one key."""
    primary, fallback = providers["openai"], providers["anthropic"]
    primary.fail(503, times=1)
    fallback.fail(503, times=2)
    output, errors = workflow().communicate()
    assert output.splitlines()[1] == "hello from openai", errors
    assert len({*keys(primary.requests[:2])}) == 1
    assert len({*keys(fallback.requests)}) == 1
    assert len(fallback.requests) == 2


@with_dbos
def test_a_wrong_request_is_not_made_again(
    workflow: Callable[[], subprocess.Popen[str]], providers: ProviderServer
) -> None:
    """Neither by the policy nor by DBOS."""
    providers["openai"].fail(400)
    process = workflow()
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "BadRequestError" in errors
    assert providers.order == ["openai"]


def exhausted(one: int, two: int, **options: Any) -> Exception:
    """Return what a caller gets where everybody fails; who is busy asks for 20 seconds."""
    busy = StatusError(one, retry_after=20 if one == 429 else None)
    script = repeating(one=[busy], two=[StatusError(two)])
    policy = FallbackPolicy(script.targets, FallbackConfig(wait=0, max_attempts=2, **options))
    with pytest.raises(Exception, match=r".") as caught:
        policy.call(script.ask)
    return caught.value


@with_temporal
@pytest.mark.parametrize(
    ("failures", "options", "stops", "seconds"),
    [
        ((429, 503), {}, False, 20),
        ((503, 401), {}, False, None),
        ((401, 401), {}, True, None),
        ((400, 503), {}, True, None),
        ((500, 503), {"replay": "safe"}, True, None),
    ],
)
def test_what_temporal_runs_again(
    failures: tuple[int, int],
    options: dict[str, Any],
    stops: bool,  # a case
    seconds: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What may pass, after the shortest stated wait; never what may have had an effect."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in [one for one in os.environ if one.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    example = runpy.run_path(str(EXAMPLES / "durable" / "temporal_activity.py"))
    raised = example["as_temporal_takes_it"](exhausted(*failures, **options))
    assert raised.non_retryable is stops
    assert raised.next_retry_delay == (None if seconds is None else timedelta(seconds=seconds))
