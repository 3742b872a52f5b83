"""What observers hear of a call, whatever the framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from honcho_fallback import set_observers
from tests.contract.ways.cells import cells, in_turn
from tests.contract.ways.way import CONTENT, METADATA
from tests.helpers.observers import Noting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.ways.cells import Cell


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    """Leave the process without observers."""
    yield
    set_observers(None)


# Whether one is set for the process before, given to the chain, set for the process afterwards.
GIVEN = {
    "per policy": (False, True, False),
    "set before": (True, False, False),
    "set after": (False, False, True),
    "both": (True, True, False),
}


@in_turn(given=GIVEN)
async def test_it_sees_the_same_and_each_once(cell: Cell, given: str) -> None:
    """Given to the chain, set once before or after, or both: the events are the same."""
    cell.primary.fail(503)
    observer, (before, own, after) = Noting(), GIVEN[given]
    set_observers([observer] if before else None)
    cell.build(observers=[observer] if own else [])
    if after:
        set_observers([observer])
    assert await cell.is_answered_by(cell.backup)
    turn = {"Restore", "TurnEnd"}  # where a run is one
    events = [kind for kind in observer.kinds if kind not in turn]
    assert events == ["CallContent", "CallStart", "Switch", "CallRecord"]


@cells(CONTENT)
async def test_content_goes_to_who_asks_for_it(cell: Cell) -> None:
    """What was asked and what was answered; the record holds no word of it."""
    cell.primary.fail(503)
    cell.build()
    assert await cell.is_answered_by(cell.backup)
    (asked,) = [one.input for one in cell.listener.contents if one.input is not None]
    assert "hi" in str(asked)
    (answered,) = [one.output for one in cell.listener.contents if one.output is not None]
    assert answered is not None
    assert "hello from" not in str(cell.record.to_dict())


MINE = {"workspace": "acme", "wave": 12, "paid": True, "nothing": None}


@cells(METADATA)
@pytest.mark.parametrize("status", [200, 503])
async def test_a_record_says_what_the_call_says(cell: Cell, status: int) -> None:
    """One dict goes with three calls; frameworks write into it, and the record is the caller's."""
    cell.primary.fail(status)
    cell.build()
    metadata = {**MINE}
    for _ in range(3):
        await cell.ask(metadata=metadata)
    assert [one.metadata for one in cell.listener.records] == [MINE] * 3
    assert [one.metadata for one in cell.listener.starts] == [MINE] * 3
    await cell.ask()
    assert cell.record.metadata is None
