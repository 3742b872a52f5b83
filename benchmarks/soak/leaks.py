"""What a process holds: memory, tasks, threads, sockets, runs that nobody ended (Linux)."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from honcho_fallback import FallbackRun

# Pools of a fixed size that fill as they are needed: the event loop's, AnyIO's and LiteLLM's.
_POOLS = ("AnyIO worker thread", "asyncio_", "litellm-logging_", "ThreadPoolExecutor-")
_PROC = Path("/proc/self")
SOCKET = "sockets"


def resident() -> float:
    """Return the resident memory in MiB."""
    return int((_PROC / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def live_runs() -> int:
    """Count the calls' machines that somebody still holds."""
    gc.collect()
    return sum(type(one) is FallbackRun for one in gc.get_objects())


def lost_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the list to which a loop from now on adds the tasks that the collector took.

    Such a task had not ended, or nobody read its error; it would be counted nowhere else.
    """
    lost: list[str] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        task: Any = context.get("task", context.get("future"))
        if task is None and context.get("exception") is None:
            return  # aiohttp's word of a connection or a session that the collector came to
        name = "unknown" if task is None else _name_of(task)
        lost.append(f"{name}: {context['message']}: {context.get('exception')!r:.200}")

    loop.set_exception_handler(note)
    return lost


def holdings() -> Counter[str]:
    """Count tasks by what they run, threads by name, and sockets; within a running event loop."""
    own = asyncio.current_task()
    tasks = [f"task {_name_of(task)}" for task in asyncio.all_tasks() if task is not own]
    names = [thread.name for thread in threading.enumerate()]
    threads = [f"thread {name}" for name in names if not name.startswith(_POOLS)]
    sockets = [SOCKET] * sum(map(_is_socket, (_PROC / "fd").iterdir()))
    return Counter([*tasks, *threads, *sockets])


def left_over(before: Counter[str]) -> list[str]:
    """Say what there is more of than before."""
    return [f"{count} more {what}" for what, count in (holdings() - before).items()]


def _is_socket(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("socket:")
    except OSError:  # the folder's own descriptor is gone already
        return False


def _name_of(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", task.get_name())
