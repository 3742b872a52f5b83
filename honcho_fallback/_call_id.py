"""Names for calls: unique across threads and processes, without a system call for each."""

from __future__ import annotations

import os
from itertools import count


class CallIds:
    """Give out names; a random part of its own, the process and a number.

    The process is asked each time, so that forked children do not repeat each other.
    """

    __slots__ = ("_numbers", "_random")

    def __init__(self) -> None:
        self._random = os.urandom(8).hex()
        self._numbers = count(1)

    def take(self) -> str:
        """Return a name that was not given before."""
        return f"{self._random}-{os.getpid():x}-{next(self._numbers):x}"
