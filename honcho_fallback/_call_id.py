"""Names for calls: unique across threads and processes, without a system call for each."""

from __future__ import annotations

import os
from itertools import count


class CallIds:
    """Give out names: a random part of the process's own, and a number.

    It is shared by all policies: a name is all it knows. A forked child draws a new random part.
    """

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self.renew()

    def __next__(self) -> str:
        return next(self._names)

    def renew(self) -> None:
        """Draw a new random part and count from one."""
        # A map over a count is one step of the interpreter, which no thread can divide.
        self._names = map(f"{os.urandom(10).hex()}-%x".__mod__, count(1))


CALL_IDS = CallIds()

if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=CALL_IDS.renew)
