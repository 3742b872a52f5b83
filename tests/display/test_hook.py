"""How values come to draw themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from honcho_fallback import Failure, FailureKind
from honcho_fallback.display import Calls, html_of, rich_of
from tests.helpers.records import EVERY_OUTCOME, POLICY

if TYPE_CHECKING:
    from honcho_fallback.display._shown import Shown

FAILURE = Failure.of(FailureKind.QUOTA, status=429)
DRAWN = [Calls([]), Calls([]).summary]


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
    assert EVERY_OUTCOME["success"].explain() in EVERY_OUTCOME["success"]._repr_html_()


@pytest.mark.parametrize("draw", [html_of, rich_of])
def test_what_cannot_be_drawn_is_refused(draw: object) -> None:
    """Anything else is named, and so is what could be passed."""
    assert callable(draw)
    with pytest.raises(TypeError, match="cannot draw dict: pass a CallRecord, Failure"):
        draw({})
