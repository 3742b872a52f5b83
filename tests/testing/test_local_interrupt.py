"""Ctrl-C while the local model's server starts."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from honcho_fallback.testing import local_model_server

xllamacpp = pytest.importorskip("xllamacpp")


def test_ctrl_c_during_the_start_waits_for_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes out, and not in the middle of the server, which would hang."""
    started: list[Any] = []

    class Interrupted:
        def __init__(self, _params: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            started.append(self)

    monkeypatch.setattr(xllamacpp, "Server", Interrupted)
    with pytest.raises(KeyboardInterrupt), local_model_server():
        pytest.fail("nobody was interrupted")
    assert len(started) == 1
