"""Saved records of calls: lines of ``json.dumps(record.to_dict())``, written and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from honcho_fallback import AttemptRecord, CallRecord, FailureKind
from honcho_fallback._jsonl import JsonlObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["JsonlObserver", "RecordError", "read_records"]


class RecordError(ValueError):
    """Refuse a line that is no record.

    Args:
        line: Which line, 1-based.
        what: What is wrong with it.
    """

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


def _model(dataclass: type, **replaced: Any) -> type[BaseModel]:
    # Built from the dataclass itself: a field that is added to it is read without further ado.
    hints = get_type_hints(dataclass, localns={"FailureKind": FailureKind, "Mapping": Mapping})
    columns: dict[str, Any] = {
        field.name: (
            replaced.get(field.name, hints[field.name]),
            ... if field.default is MISSING else field.default,
        )
        for field in fields(dataclass)
    }
    return create_model(dataclass.__name__, __config__=_CONFIG, **columns)


# What a later version may have added is passed over.
_CONFIG = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
_UNTRIED = create_model("Untried", __config__=_CONFIG, target=str, why=str)
_ATTEMPT = _model(AttemptRecord)
_CALL = _model(
    CallRecord,
    chain=Annotated[tuple[str, ...], Field(min_length=1)],
    attempts=tuple[_ATTEMPT, ...],  # type: ignore[valid-type] # pydantic reads it at runtime
    untried=tuple[_UNTRIED, ...],
)


def read_records(
    source: str | Path | Iterable[str | bytes],
    *,
    broken: Callable[[RecordError], object] | None = None,
) -> Iterator[CallRecord]:
    """Read records one by one from lines of ``json.dumps(record.to_dict())``.

    What is read is equal to what was saved, as far as JSON tells. Empty lines are passed over, and
    so are fields that no record has.

    Args:
        source: A file's path, or its lines: an open file will do.
        broken: Told of each line that is no record; the lines after it are read all the same.

    Raises:
        RecordError: A line is no record, and there is no ``broken``.
        OSError: The file cannot be read.
    """
    if isinstance(source, str | Path):
        with Path(source).open("rb") as lines:  # bytes: a line that is not UTF-8 is just broken
            yield from read_records(lines, broken=broken)
        return
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            record = _record(line)
        except ValidationError as error:
            refused = RecordError(number, _explain(error))
            if broken is None:
                raise refused from None
            broken(refused)
        else:
            yield record


def _record(line: str | bytes) -> CallRecord:
    values = dict(_CALL.model_validate_json(line))
    values["attempts"] = tuple(AttemptRecord(**dict(each)) for each in values["attempts"])
    values["untried"] = tuple((each.target, each.why) for each in values["untried"])
    return CallRecord(**values)


def _explain(error: ValidationError) -> str:
    first, *others = error.errors(include_url=False, include_input=False, include_context=False)
    if first["type"] == "json_invalid":
        return "not JSON"
    if not first["loc"]:
        return "not a JSON object"
    where = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(others)} more)" if others else ""
    return f"no record of a call: {where}: {first['msg']}{more}"
