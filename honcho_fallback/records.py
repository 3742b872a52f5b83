"""Saved records of calls: lines of ``json.dumps(record.to_dict())``, written and read."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from io import FileIO, TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TextIO, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from honcho_fallback import (
    AttemptRecord,
    CallRecord,
    FailureKind,
    FallbackConfigError,
    FallbackObserver,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["JsonlObserver", "RecordError", "read_records"]

logger = logging.getLogger("honcho_fallback")


class JsonlObserver(FallbackObserver):
    """Append a line for each call to a file; ``read_records`` reads it.

    A line is ``json.dumps(record.to_dict())`` with a key more before the others: ``time``, the
    call's end in UTC. Instead of a value that JSON cannot express stands the name of its class.

    A line is written when its call ends, through a handler of the standard library's ``logging``,
    which opens the file again once it was rotated. Several processes may append to one file. What
    cannot be written is lost, counted in ``lost``, and logged once.

    Args:
        file: A path, whose folder is there; or an open stream of text, which stays open.

    Raises:
        FallbackConfigError: It is neither.
    """

    def __init__(self, file: str | os.PathLike[str] | TextIO) -> None:
        self._file = file
        if isinstance(file, str | os.PathLike):
            self._handler: _LineHandler = _FileHandler(file, delay=True)
        elif hasattr(file, "write"):
            self._handler = _LineHandler(file)
        else:
            problem, fix = f"got a {type(file).__name__}", "pass a path or an open stream"
            raise FallbackConfigError.about("file", problem, fix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._file,)  # a copy writes for itself

    @property
    def lost(self) -> int:
        """Count the records of this process that could not be written."""
        return self._handler.lost

    def on_finish(self, record: CallRecord, /) -> None:
        """Write the line of a call."""
        self._handler.handle(logging.makeLogRecord({"msg": record}))

    def close(self) -> None:
        """Close the file, until another call ends."""
        self._handler.close()


class _LineHandler(logging.StreamHandler[Any]):
    """Write to a stream; log the first record that is lost, and count them."""

    lost = 0

    def format(self, record: logging.LogRecord) -> str:
        call = cast("CallRecord", record.msg)
        ended = datetime.fromtimestamp(call.started_at + call.seconds, UTC)
        line = {"time": ended.isoformat(timespec="milliseconds"), **call.to_dict()}
        text = json.dumps(
            line, ensure_ascii=False, default=lambda value: type(value).__name__, skipkeys=True
        )
        if not text.isascii():  # nobody reads half a surrogate
            text = json.dumps(json.loads(text.encode("utf-8", "replace")))
        return text

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 # the base's
        if not self.lost:
            # In the system's words or by its class: what a stream says may be a secret.
            error = sys.exception()
            number = error.errno if isinstance(error, OSError) else None
            problem = os.strerror(number) if number else type(error).__name__
            file = getattr(self, "baseFilename", type(self.stream).__name__)
            text = "%s: calls are not saved (%s), but go on; see that it is writable and has space"
            logger.warning(text, file, problem)
        self.lost += 1


class _FileHandler(_LineHandler, WatchedFileHandler):
    """Write to whatever file has the path now."""

    def _open(self) -> TextIOWrapper:
        # Without a buffer: a line is one write, whole beside those of other processes.
        return TextIOWrapper(_Lines(self.baseFilename, "a"), "utf-8", write_through=True)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # it opens its file before it begins to catch anything
            self.handleError(record)

    def close(self) -> None:
        with suppress(OSError):  # of what could not be written before
            super().close()


class _Lines(FileIO):
    """Append a whole line or nothing: half of one would spoil the next, whoever writes that."""

    def write(self, line: Any, /) -> int:
        written = 0
        try:
            while written < len(line):
                written += super().write(line[written:])
        except OSError:
            if written and self.tell() == os.fstat(self.fileno()).st_size:
                self.truncate(self.tell() - written)
            raise
        return written


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
    names = {"FailureKind": FailureKind, "Mapping": Mapping}
    types = get_type_hints(dataclass, localns=names) | replaced
    columns: dict[str, Any] = {
        one.name: (types[one.name], ... if one.default is MISSING else one.default)
        for one in fields(dataclass)
    }
    return create_model(dataclass.__name__, __config__=_CONFIG, **columns)


# What a later version may have added is passed over.
_CONFIG = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
_UNTRIED = create_model("Untried", __config__=_CONFIG, target=str, why=str)
_ATTEMPT = _model(AttemptRecord)
_LATEST = 253_402_214_400  # the last day of the last year that a datetime knows
_CALL = _model(
    CallRecord,
    chain=Annotated[tuple[str, ...], Field(min_length=1)],
    started_at=Annotated[float, Field(ge=0, le=_LATEST)],
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
            yield _record(line)
        except ValidationError as error:
            refused = RecordError(number, _explain(error))
            if broken is None:
                raise refused from None
            broken(refused)


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
