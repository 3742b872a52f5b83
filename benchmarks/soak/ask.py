"""One call by one way, to its planned end, in a task or in a thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from soak.ledger import SLOT, Slot
from soak.plan import CANCEL, CLOSE, DROP
from soak.verdict import Ending, Told

if TYPE_CHECKING:
    from soak.lanes import Lane
    from soak.plan import Call


async def asked(lane: Lane, call: Call) -> tuple[Told, Slot]:
    """Ask in a task of its own, and cancel it where the plan says so."""
    slot = Slot()
    SLOT.set(slot)  # the task below copies the context
    read: list[str] = []
    task = asyncio.ensure_future(_aread(lane, call, read))
    accepted = False
    if call.leave == CANCEL:
        await asyncio.wait({task}, timeout=call.patience)
        accepted = task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait({task})
    if task.cancelled():
        return Told("cancelled", "".join(read)), slot
    return _told(task.exception(), read, swallowed=accepted), slot


async def _aread(lane: Lane, call: Call, read: list[str]) -> None:
    if not call.way.stream:
        read.append(await lane.acall(call.prompt))
        return
    chunks = lane.astream(call.prompt)
    async for chunk in chunks:
        read.append(chunk)
        if len(read) == call.chunks and call.leave in {CLOSE, DROP}:
            if call.leave == CLOSE:
                await chunks.aclose()
            raise _LeftError


def asked_in_thread(lane: Lane, call: Call) -> tuple[Told, Slot]:
    """Ask in this thread."""
    slot = Slot()
    SLOT.set(slot)
    read: list[str] = []
    try:
        _read(lane, call, read)
    except Exception as error:  # noqa: BLE001 # what a call raises is what is judged
        return _told(error, read), slot
    return _told(None, read), slot


def _read(lane: Lane, call: Call, read: list[str]) -> None:
    if not call.way.stream:
        read.append(lane.call(call.prompt))
        return
    chunks = lane.stream(call.prompt)
    for chunk in chunks:
        read.append(chunk)
        if len(read) == call.chunks and call.leave in {CLOSE, DROP}:
            if call.leave == CLOSE:
                chunks.close()
            raise _LeftError


class _LeftError(Exception):
    """Stop reading; what is left of the stream is nobody's."""


def _told(error: BaseException | None, read: list[str], *, swallowed: bool = False) -> Told:
    text = "".join(read)
    if error is None:
        return Told("answer", text, swallowed=swallowed)
    # Its frames would hold the stream that nobody is to hold.
    error.__traceback__ = None
    if isinstance(error, _LeftError):
        return Told("left", text)
    ending: Ending = "interrupted" if text else "error"
    return Told(ending, text, type(error).__name__, swallowed)
