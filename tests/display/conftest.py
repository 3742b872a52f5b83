"""One headless browser for all tests; it is Debian's package, and nothing is fetched for it."""

from __future__ import annotations

from shutil import which
from typing import TYPE_CHECKING

import pytest
from chromium import Chromium

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """Chromium, where it is installed."""
    program = which("chromium")
    if program is None:
        pytest.skip("needs chromium (apt-get install chromium)")
    with Chromium.started(program) as started:
        yield started
