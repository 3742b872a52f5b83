"""Whose an exception in a chain of causes is, what is worth printing of it, and our note on it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from honcho_fallback._values.record import CallRecord

_NOTE = "honcho_fallback: "
_PACKAGE = str(Path(__file__).parents[1])


def is_of_the_same_call(cause: BaseException, error: BaseException) -> bool:
    """Tell whether what an exception was raised for was handled below the exception's catcher.

    Python notes every exception that is being handled. A call that is made in somebody's except
    block has that block's exception for a context, which is the caller's and none of the call's.
    """
    frames = [one.tb_frame for one in _entries(error.__traceback__)]
    if cause.__traceback__ is None or not frames:
        return True
    return cause.__traceback__.tb_frame in (frames[1:] or frames)


def shorten(errors: Iterable[BaseException]) -> None:
    """Leave in a group's members the frame that raised each, and none in what it was raised for.

    A group prints every member with all its causes: under LangChain 170 lines for two requests.
    The chain of causes stays as it is; only frames go, and with them the locals they keep alive.
    What the caller was handling when it made the call is in that chain, too, and keeps its frames.
    """
    for error in errors:
        with suppress(Exception):  # a stranger's class may refuse whatever it likes
            foreign = [one for one in _entries(error.__traceback__) if not _is_ours(one)]
            # Not by assignment, which a frozen dataclass refuses.
            for cause in (error, *_causes(error)):
                cause.with_traceback(None)
            for last in foreign[-1:]:
                only = TracebackType(None, last.tb_frame, last.tb_lasti, last.tb_lineno)
                error.with_traceback(only)


def _causes(error: BaseException) -> list[BaseException]:
    causes, seen = [error], {id(error)}
    for link in causes:
        context = None if link.__suppress_context__ else link.__context__
        for cause in (link.__cause__, context):
            if cause is None or id(cause) in seen or not is_of_the_same_call(cause, link):
                continue
            seen.add(id(cause))
            causes.append(cause)
    return causes[1:]


def _is_ours(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def annotate(error: BaseException, record: CallRecord) -> None:
    """Note the attempts on an exception that comes out untouched, and a call that went wrong."""
    attempts = "; ".join(
        f"{one.target} {one.result()} in {one.seconds * 1000:.0f} ms"
        + (f" ({one.note})" if one.note else "")
        for one in record.attempts
    )
    if type(error) is TypeError and all(map(_is_ours, _entries(error.__traceback__))):
        attempts += "; ask is called with one argument: def ask(attempt)"
    with suppress(Exception):  # a frozen dataclass takes no note
        # An exception that is raised again and again carries the latest note only.
        notes = getattr(error, "__notes__", ())
        error.__notes__ = [note for note in notes if not str(note).startswith(_NOTE)]
        error.add_note(f"{_NOTE}{attempts or 'nobody was asked'}")
