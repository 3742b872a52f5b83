"""A pytest plugin for recording: arms the stand-ins for each test and signs its cassette.

``recording/record.py`` loads it; a replay does not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recording.replies import HOSTS
from recording.standins import StandIns

if TYPE_CHECKING:
    from collections.abc import Generator

_STANDINS = pytest.StashKey[StandIns]()
_SIGNATURE = pytest.StashKey[str]()
_FAILED = pytest.StashKey[bool]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the servers."""
    standins = StandIns(Path(os.environ["RECORDING_ROUTES"]))
    session.config.stash[_STANDINS] = standins.__enter__()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the servers."""
    session.config.stash[_STANDINS].__exit__()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Arm the replies that the test names."""
    marker = item.get_closest_marker("upstream")
    if marker is not None:
        origins = item.config.stash[_STANDINS].arm(marker.args)
        proxy = os.environ["RECORDING_PROXY"]
        item.stash[_SIGNATURE] = f"# Recorded through {proxy}: {'; '.join(origins)}.\n"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Note whether the test failed: what it recorded is then not what it is about."""
    item.stash[_FAILED] = True
    yield
    item.stash[_FAILED] = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Sign the cassette, once vcrpy has written it; drop it if it should not be kept."""
    cassette = getattr(item, "funcargs", {}).get("vcr")
    try:
        return (yield)
    finally:
        path = Path(cassette._path) if cassette is not None else None  # noqa: SLF001 # no other way
        if path is not None and path.exists():
            text = path.read_text("utf-8")
            if item.stash.get(_FAILED, True) or _holds_a_key(text):
                path.unlink()
            else:
                path.write_text(item.stash[_SIGNATURE] + text, "utf-8")


def _holds_a_key(text: str) -> bool:
    keys = (os.environ.get(host.key) for host in HOSTS.values() if host.key)
    return any(key in text for key in keys if key)
