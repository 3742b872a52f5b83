"""What the targets of a chain are called where two would have one name."""

from __future__ import annotations

import pytest

from honcho_fallback.providers import distinct_name


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ([], "gpt"),
        (["claude"], "gpt"),
        (["gpt"], "gpt#2"),
        (["gpt", "claude"], "gpt#3"),
        (["gpt", "gpt#2"], "gpt#3"),
        (["gpt", "gpt#3"], "gpt#4"),
    ],
)
def test_a_taken_name_gets_the_number_of_its_place(taken: list[str], name: str) -> None:
    """Counted from 1, as people count; where even that is taken, the next free number."""
    assert distinct_name("gpt", taken) == name
