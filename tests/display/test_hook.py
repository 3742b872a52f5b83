"""How the core's values come to draw themselves."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from display_calls import EVERY_OUTCOME, POLICY

from honcho_fallback import Failure, FailureKind
from honcho_fallback.display import Calls, html_of, rich_of

if TYPE_CHECKING:
    from honcho_fallback._shown import Shown

FAILURE = Failure.of(FailureKind.QUOTA, status=429)
DRAWN = [EVERY_OUTCOME["success"], FAILURE, POLICY, Calls([]), Calls([]).summary]


def run(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("value", DRAWN, ids=lambda value: type(value).__name__)
def test_a_value_draws_itself_with_the_package_beside_it(value: Shown) -> None:
    """A notebook and rich get from the value what the functions return."""
    assert value._repr_html_() == html_of(value)
    assert type(value.__rich__()) is type(rich_of(value))


def test_drawing_takes_nothing_from_the_values() -> None:
    """A record has slots still, a failure is the tuple it was, a policy takes no attribute."""
    assert not hasattr(EVERY_OUTCOME["success"], "__dict__")
    assert not hasattr(POLICY, "__dict__")
    assert tuple(FAILURE)[:4] == (FailureKind.QUOTA, False, True, 429)
    assert "_repr_html_" not in Failure._fields


def test_the_core_loads_what_draws_when_it_is_asked() -> None:
    """Importing the core loads neither the display nor rich; drawing HTML needs no rich."""
    code = """
import sys
from honcho_fallback import FallbackPolicy, Target
def loaded(): return [name for name in ("honcho_fallback.display", "rich") if name in sys.modules]
policy = FallbackPolicy([Target("m")])
print(loaded())
policy._repr_html_()
print(loaded())
"""
    assert run(code).splitlines() == ["[]", "['honcho_fallback.display']"]


def test_without_rich_nothing_breaks() -> None:
    """Where rich is missing the value stands for itself, in HTML it is drawn as ever."""
    code = """
import sys
sys.modules["rich"] = None
from honcho_fallback import FallbackPolicy, Target
policy = FallbackPolicy([Target("m")], agent="a")
assert policy._repr_html_()
print(policy.__rich__())
"""
    assert run(code) == "<FallbackPolicy a: m>"


@pytest.mark.parametrize("draw", [html_of, rich_of])
def test_what_cannot_be_drawn_is_refused(draw: object) -> None:
    """Anything else is named, and so is what could be passed."""
    assert callable(draw)
    with pytest.raises(TypeError, match="cannot draw dict: pass a CallRecord, Failure"):
        draw({})
