"""Session-wide settings for tests: no waits, and at most so many attempts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from honcho_fallback import FallbackConfigError, Runtime

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def set_testing(*, max_attempts: int | None = None) -> Generator[None, None, None]:
    """Let no policy of this process wait, and none make more attempts, until the block ends.

    For an autouse fixture of a test session, as stamina's ``set_testing``: code under test that
    would ask a failing target again does so at once, or not at all.

    Args:
        max_attempts: The most attempts of any call, all targets together; None leaves it to the
            policies.

    Raises:
        FallbackConfigError: The number is not 1 or more.
    """
    if max_attempts is not None and (type(max_attempts) is not int or max_attempts < 1):
        fix = "pass a whole number, 1 or more, or None"
        raise FallbackConfigError.about("max_attempts", f"got {max_attempts!r}", fix)
    with replace(Runtime.current(), waits=False, max_attempts=max_attempts).installed():
        yield


def is_testing() -> bool:
    """Tell whether the process is in ``set_testing``."""
    return not Runtime.current().waits
