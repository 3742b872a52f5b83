"""The pytest plugin: three fixtures over ``honcho_fallback.testing``.

pytest imports this module at every start, in every project that has the package installed. Hence
it stands beside the package and not in it, and imports the package when a fixture is used. Switch
it off with ``-p no:honcho_fallback``.

PYTEST_DONT_REWRITE: pytest would rewrite and watch a whole distribution that brings a plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback.testing import Clock, Records, Scripted


@pytest.fixture
def fallback_clock() -> Iterator[Clock]:
    """Time that stands still: policies wait on it, ``fallback_clock.advance(60)`` moves it."""
    from honcho_fallback.testing import Clock  # noqa: PLC0415 # see the module's docstring

    with Clock().installed() as clock:
        yield clock


@pytest.fixture
def scripted(fallback_clock: Clock) -> Scripted:
    """Targets with a script: ``scripted(primary=[scripted.status(429)], backup=["hello"])``."""
    from honcho_fallback.testing import Scripted  # noqa: PLC0415 # see the module's docstring

    return Scripted(fallback_clock)


@pytest.fixture
def fallback_records() -> Iterator[Records]:
    """The record of every call that ends during the test, whoever made its policy, and when."""
    from honcho_fallback.testing import recorded  # noqa: PLC0415 # see the module's docstring

    with recorded() as records:
        yield records
