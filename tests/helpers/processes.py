"""Another Python, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def python(*args: object, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run this Python with arguments; return what it printed, and how it ended."""
    command = [sys.executable, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)
