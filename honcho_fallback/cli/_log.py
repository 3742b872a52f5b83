"""Keep the package's log lines, to show them in their place rather than on standard error."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


class _Keeper(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.levelname} {record.getMessage()}")


@contextmanager
def kept_log_lines() -> Generator[list[str], None, None]:
    """Collect what logger ``honcho_fallback`` writes."""
    lines: list[str] = []
    logger, keeper = logging.getLogger("honcho_fallback"), _Keeper(lines)
    logger.addHandler(keeper)
    try:
        yield lines
    finally:
        logger.removeHandler(keeper)
