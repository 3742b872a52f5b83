"""Every way in, where all of their frameworks are: the lowest versions of some exclude others."""

from __future__ import annotations

import asyncio
import gc
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.helpers.idle_loop import IdleLoop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.failover.run import Runs

MISSING = [one for one in ("agents", "langchain", "litellm", "pydantic_ai") if not find_spec(one)]
collect_ignore_glob = ["test_scenarios.py"] if MISSING else []


@pytest.fixture(scope="module")
def few_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Trust one authority: a client reads the world's in 25 ms, and here nobody speaks TLS."""
    path = tmp_path_factory.mktemp("certificates") / "one.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", str(path))
        yield path


@pytest.fixture(scope="module")
def runs(few_certificates: Path) -> Iterator[Runs]:
    """Return the runs of all scenarios; each is made when its row is first asked for."""
    del few_certificates
    # Where the frameworks are.
    from honcho_fallback_litellm import warm_up  # noqa: PLC0415
    from tests.contract.failover.run import Runs  # noqa: PLC0415
    from tests.helpers.litellm_runs import litellm_left_clean  # noqa: PLC0415

    warm_up()
    gc.freeze()  # as after the collection of tests
    with litellm_left_clean(), asyncio.Runner(loop_factory=IdleLoop) as runner:
        yield Runs(runner)
