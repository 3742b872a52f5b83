"""What bounds a call, whatever the framework: time, and who may be asked at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackConfigError, Target
from tests.contract.ways.cells import after_content, cells, one_each, rows
from tests.contract.ways.way import INTERRUPTED, LATE, UNKNOWN
from tests.helpers.later import AtOnce
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.ways.cells import Cell

HANGS = Reply(hang=True)


# Time.


# The patience of the primary's own client, the options, and whether in a stream; None for both.
# The primary, which never answers, may have little; the fallback needs a second where it is busy.
BOUNDS: dict[str, tuple[float | None, Any, bool | None]] = {
    "client": (0.3, {"timeout": 60, "deadline": 120}, None),
    "timeout": (None, {"timeout": 1}, False),
    "deadline": (None, {"deadline": 1.4}, None),
    "first_token_timeout": (None, {"first_token_timeout": 1}, True),
}


@pytest.mark.parametrize(
    ("cell", "bound"),
    [
        pytest.param((way, verb), bound, id=f"{way.name}-{verb}-{bound}")
        for bound, (_, _, streamed) in BOUNDS.items()
        for way, verb in rows(streamed=streamed)
    ],
    indirect=["cell"],
)
async def test_an_attempt_ends_at_the_least_of_its_bounds(cell: Cell, bound: str) -> None:
    """Of a deadline it gets a part, and the fallback the rest.

    Whoever set a timeout on the primary's client meant it, and an option never gives more.
    """
    cell.primary.standing = HANGS
    patience, options, _ = BOUNDS[bound]
    cell.places[0] = replace(cell.places[0], timeout=patience)
    cell.build(**options)
    assert await cell.is_answered_by(cell.backup)
    assert cell.kinds == ["timeout", None]


@cells()
async def test_a_deadline_ends_a_call(cell: Cell) -> None:
    """Nobody answered in time: the error says so and carries the record."""
    cell.primary.standing = cell.backup.standing = HANGS
    cell.build(deadline=0.4)
    error = await cell.fails(LATE)
    assert vars(error)["record"] == cell.record
    assert {*cell.kinds} == {"timeout"}  # on a busy machine nothing may be left for the fallback


@one_each(streamed=True, asynchronous=True)
async def test_a_stream_that_falls_silent_is_interrupted(cell: Cell) -> None:
    """hermes#43211: ``idle_timeout`` bounds the time between two chunks of content."""
    cell.primary.standing = after_content(hang=True)
    cell.build(idle_timeout=0.2)
    await cell.fails(INTERRUPTED)
    assert cell.asked == (1, 0)
    assert (cell.record.outcome, cell.kinds) == ("interrupted", ["timeout"])


# Who may be asked.


@cells()
async def test_what_must_not_degrade_stays_at_the_primary(cell: Cell) -> None:
    """Judges and gates fail closed, and the record says who was not asked."""
    cell.primary.fail(503)
    cell.build(must_not_degrade=True, max_attempts=1)
    with pytest.raises(Exception):  # noqa: B017 # with one target left it is the provider's
        await cell.ask()
    assert cell.asked == (1, 0)
    assert (cell.record.outcome, cell.kinds) == ("exhausted", ["overloaded"])
    ((_, why),) = cell.record.untried
    assert why == "the call must not degrade"


@cells()
async def test_a_call_stays_within_its_labels(cell: Cell) -> None:
    """``require`` passes over whom it does not fit, and the next one that it fits is asked.

    Where it fits nobody, the error says which label is missing.
    """
    with pytest.raises(FallbackConfigError, match="eu"):
        cell.build(require={"eu"})
        await cell.ask()
    assert cell.asked == (0, 0)
    cell.primary.fail(503)
    home, abroad = cell.places
    eu = frozenset({"eu"})
    near = cell.providers.new("near")
    cell.places = [
        replace(home, labels=eu),
        abroad,
        replace(abroad, provider=near, labels=eu | {"zdr"}),
    ]
    cell.build(require={"eu"})
    assert await cell.is_answered_by(near)
    assert cell.asked == (1, 0)
    ((_, why),) = cell.record.untried
    assert why == "it lacks the label 'eu'"


@cells()
async def test_a_request_that_may_have_had_an_effect_is_not_made_again(cell: Cell) -> None:
    """``replay="safe"``: a 500 says nothing of what was done; a refusal does."""
    cell.primary.fail(500, times=1)
    cell.build(replay="safe")
    error = await cell.fails(UNKNOWN)
    assert cell.asked == (1, 0)
    record = vars(error)["record"]
    first = record.attempts[0]
    assert (record.limit, first.reached, first.billed) == ("replay", "unknown", "unknown")
    cell.primary.fail(429)
    assert await cell.is_answered_by(cell.backup)


BUDGET = {"error": {"message": "team budget is used up", "code": "TEAM_BUDGET"}}


@cells()
async def test_a_rule_of_the_users_makes_a_wrong_request_a_switch(
    cell: Cell, tmp_path: Path
) -> None:
    """It may stand in a file; the record says whose rule decided."""
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\nkind='quota'\ntext='team budget'\nreason='ours'", "utf-8")
    cell.primary.fail(400, body=BUDGET)
    cell.build(rules=str(path))
    assert await cell.is_answered_by(cell.backup)
    assert cell.kinds == ["quota", None]
    assert cell.record.attempts[0].note == "rule 1 of rules.toml: ours"


@cells(streamed=False)
async def test_an_answer_that_a_validator_refuses_switches(cell: Cell) -> None:
    """It is handed each answer; what it refuses was no answer, and was paid for."""
    looked_at: list[Any] = []

    def validate(answer: Any) -> bool:
        looked_at.append(answer)
        return len(looked_at) > 1

    cell.build(validate=validate)
    assert await cell.is_answered_by(cell.backup)
    assert cell.kinds == ["malformed_response", None]
    assert cell.record.attempts[0].billed == "yes"
    assert len(looked_at) == 2


@cells()
async def test_a_lost_connection_gets_one_more_chance(cell: Cell) -> None:
    """``rebuild`` is called with the target, which is asked once more before anybody else."""
    rebuilt: list[Target] = []
    cell.primary.fail(times=1, drop=True)
    cell.build(transport_recovery=AtOnce(rebuild=rebuilt.append))
    assert await cell.is_answered_by(cell.primary)
    assert cell.kinds == ["connection", None]
    assert cell.record.attempts[1].note == "after time for its transport"
    assert len(rebuilt) == 1
    cell.primary.fail(times=2, drop=True)
    assert await cell.is_answered_by(cell.backup)
    assert cell.asked == (4, 1)
