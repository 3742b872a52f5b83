"""What a process holds: memory, tasks, threads, sockets, runs that nobody ended."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from honcho_fallback import FallbackRun

# Pools of a fixed size that fill as they are needed: the event loop's, AnyIO's and LiteLLM's.
_POOLS = ("AnyIO worker thread", "asyncio_", "litellm-logging_", "ThreadPoolExecutor-")
_PROC = Path("/proc/self")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> float:
    """Return the resident memory in MiB (Linux)."""
    return int((_PROC / "statm").read_text().split()[1]) * _PAGE / 2**20


def sockets() -> int:
    """Count the open sockets (Linux)."""
    return sum(_is_socket(entry) for entry in (_PROC / "fd").iterdir())


def _is_socket(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("socket:")
    except OSError:  # the folder's own descriptor is gone already
        return False


def live_runs() -> int:
    """Count the calls' machines that somebody still holds."""
    gc.collect()
    return sum(type(one) is FallbackRun for one in gc.get_objects())


def lost_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the list to which a loop from now on adds the tasks that the collector took.

    Such a task had not ended, or its error was heard by nobody; it would be counted nowhere else.

    Args:
        loop: Whose.
    """
    lost: list[str] = []

    def note(_: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        task: Any = told.get("task") or told.get("future")
        name = _name_of(task) if hasattr(task, "get_coro") else "unknown"
        lost.append(f"{name}: {told['message']}: {told.get('exception')!r:.200}")

    loop.set_exception_handler(note)
    return lost


@dataclass(frozen=True, slots=True)
class Holdings:
    """Hold what is counted before and after.

    Args:
        tasks: By what they run.
        threads: By name.
        sockets: How many.
    """

    tasks: Counter[str]
    threads: Counter[str]
    sockets: int

    @classmethod
    def now(cls) -> Holdings:
        """Count; within a running event loop."""
        own = asyncio.current_task()
        tasks = Counter(_name_of(task) for task in asyncio.all_tasks() if task is not own)
        names = (thread.name for thread in threading.enumerate())
        threads = Counter(name for name in names if not name.startswith(_POOLS))
        return cls(tasks, threads, sockets())

    def left_over(self, before: Holdings) -> list[str]:
        """Say what there is more of than before.

        Args:
            before: To compare with.
        """
        told = [f"{count} more task {name}" for name, count in (self.tasks - before.tasks).items()]
        told += [
            f"{count} more thread {name}"
            for name, count in (self.threads - before.threads).items()
        ]
        if self.sockets > before.sockets:
            told.append(f"{self.sockets - before.sockets} more sockets")
        return told


def _name_of(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", task.get_name())
