"""Look at what a forked child finds."""

from __future__ import annotations

import os
import signal
import warnings
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def in_child(work: Callable[[], object]) -> str:
    """Return what a forked child says, or how it died; one that hangs is ended."""
    if not hasattr(os, "fork"):
        pytest.skip("Windows forks nothing")
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that a child may hang is why
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        try:
            os.write(writer, str(work()).encode())
        except BaseException as error:  # noqa: BLE001 # nothing may leave the child
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        words = said.read()
    status = os.waitpid(child, 0)[1]
    return words if status == 0 else f"the child was ended by signal {os.WTERMSIG(status)}"
