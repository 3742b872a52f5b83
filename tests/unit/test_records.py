"""Saved records come back as they were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback import AttemptRecord, CallRecord, FailureKind, Outcome
from honcho_fallback.records import RecordError, read_records
from tests.helpers.records import EVERY_OUTCOME, WAITED

if TYPE_CHECKING:
    from pathlib import Path

FIGURES = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FIGURES | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
ATTEMPTS = st.builds(
    AttemptRecord,
    started=FIGURES,
    seconds=FIGURES,
    wait=FIGURES,
    kind=st.none() | st.sampled_from(FailureKind),
    status=st.none() | st.integers(),
    retry_after=st.none() | FIGURES,
    target=st.text(),
    model=st.text(),
    provider=st.none() | st.text(),
    number=st.integers(),
    position=st.integers(),
    code=st.none() | st.text(),
    error=st.none() | st.text(),
    next_action=st.none() | st.text(),
)
RECORDS = st.builds(
    CallRecord,
    call_id=st.text(),
    agent=st.text(),
    chain=st.lists(st.text(), min_size=1, max_size=3).map(tuple),
    attempts=st.lists(ATTEMPTS, max_size=3).map(tuple),
    outcome=st.sampled_from(get_args(Outcome)),
    answered_by=st.none() | st.text(),
    is_fallback=st.booleans(),
    started_at=st.floats(0, 253_402_214_400),
    seconds=FIGURES,
    usage=st.none() | st.dictionaries(st.text(), JSON),
    time_to_first_token=st.none() | FIGURES,
    untried=st.lists(st.tuples(st.text(), st.text()), max_size=2).map(tuple),
)
LINE = json.dumps(WAITED.to_dict())


@given(record=RECORDS, ascii_only=st.booleans())
def test_what_was_saved_is_read(record: CallRecord, ascii_only: bool) -> None:
    """A record goes through JSON and back, every field of it."""
    line = json.dumps(record.to_dict(), ensure_ascii=ascii_only)
    (read,) = read_records([line])
    assert read == record
    assert read.to_dict() == record.to_dict()


def test_a_file_its_lines_and_its_path_are_the_same(tmp_path: Path) -> None:
    """A path in both forms, an open file, bytes and strings; line ends and empty lines vary."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(f"\n{LINE}\r\n\n  \n{LINE}".encode())
    with path.open() as text, path.open("rb") as raw:
        read = [list(read_records(source)) for source in (path, str(path), text, raw)]
    assert read == [[WAITED, WAITED]] * 4


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """It is an OSError with the path, not an empty list."""
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        list(read_records(tmp_path / "none.jsonl"))


BROKEN = {
    "cut": (LINE[:-9], "not JSON"),
    "two in one": (LINE + LINE, "not JSON"),
    "no object": ("[1]", "not a JSON object"),
    "foreign": ('{"message": "hello"}', "no record of a call: call_id: Field required (and 11 "),
    "outcome": (LINE.replace('"success"', '"won"'), "outcome: Input should be 'running', 'suc"),
    "kind": (LINE.replace('"overloaded"', '"tired"'), "attempts.0.kind: Input should be 'rate_"),
    "type": (LINE.replace('"number": 1', '"number": "1"'), "attempts.0.number: Input should be"),
    "NaN": (LINE.replace('"started": 0.0', '"started": NaN'), "started: Input should be a fin"),
    "no chain": (json.dumps({**WAITED.to_dict(), "chain": []}), "chain: Tuple should have at le"),
    "not UTF-8": (b'{"call_id": "\xff"}', "not JSON"),
}


@pytest.mark.parametrize(("line", "words"), BROKEN.values(), ids=BROKEN)
def test_a_line_that_is_no_record_is_named(line: str | bytes, words: str) -> None:
    """The error says which line and what is wrong; with ``broken`` the others are read."""
    records = read_records(["", LINE, line, LINE])
    assert next(records) == WAITED
    with pytest.raises(RecordError) as caught:
        next(records)
    assert str(caught.value).startswith("line 3: ")
    assert words in str(caught.value)
    refused: list[RecordError] = []
    assert list(read_records([LINE, line, LINE], broken=refused.append)) == [WAITED] * 2
    assert [error.line for error in refused] == [2]


def test_an_error_repeats_nothing_of_the_line() -> None:
    """What stands in a foreign line may be a secret; the error does not quote it."""
    foreign = json.dumps({**WAITED.to_dict(), "outcome": "sk-secret", "attempts": "sk-secret"})
    with pytest.raises(RecordError) as caught:
        list(read_records([foreign]))
    assert "sk-secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_what_a_later_version_adds_is_passed_over() -> None:
    """A field that is not known here does not make a record a foreign one."""
    told = WAITED.to_dict()
    told["attempts"] = [{**attempt, "weather": "fine"} for attempt in told["attempts"]]
    assert list(read_records([json.dumps({**told, "weather": "fine"})])) == [WAITED]


def test_what_an_attempt_may_leave_out_may_be_missing() -> None:
    """Fields with a default are read from lines that lack them."""
    told = EVERY_OUTCOME["success"].to_dict()
    optional = ("kind", "status", "code", "error", "retry_after", "next_action")
    told["attempts"] = [
        {name: value for name, value in told["attempts"][1].items() if name not in optional}
    ]
    (read,) = read_records([json.dumps(told)])
    assert read.attempts == (EVERY_OUTCOME["success"].attempts[1],)
