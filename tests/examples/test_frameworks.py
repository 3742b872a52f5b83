"""Frameworks without an adapter, asked as they are: ``make test-frameworks`` has them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.examples.test_examples import EXAMPLES, ONE_SWITCH, run

PACKAGES = {
    "dspy_lm": ("dspy",),
    "haystack_generator": ("haystack", "haystack_integrations"),
    "instructor_model": ("instructor",),
    "llamaindex": ("llama_index",),
}

# A process that imports a framework, on a machine that may be busy.
pytestmark = pytest.mark.timeout(180)


def test_every_framework_is_here() -> None:
    """An example without a row would run for nobody."""
    assert {path.stem for path in EXAMPLES.glob("frameworks/*.py")} == {*PACKAGES}


@pytest.mark.parametrize("name", PACKAGES)
def test_the_primary_sees_one_request_and_the_fallback_answers(name: str) -> None:
    """Neither the framework nor its SDK asks the dead provider again."""
    missing = [package for package in PACKAGES[name] if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    done = run("examples", f"frameworks/{name}")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    greeting, requests = done.stdout.splitlines()[-2:]
    assert greeting == "Good morning!"
    assert requests == f"Requests at the simulated providers: {ONE_SWITCH}"
