"""The soak's own checks: a soak that cannot fail is worth nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.providers import ProviderProcess
from benchmarks.soak.backends import CoreBackend
from benchmarks.soak.checker import Observation, Records, violations
from benchmarks.soak.plan import BACKUP, OK, PRIMARY, Call, Way, text_of
from benchmarks.soak.run import Extent, soak
from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


SWITCHED = ((PRIMARY, "500"), (BACKUP, OK))
GOOD = text_of(7, BACKUP, 2)


def checked(
    observation: Observation, requests: Sequence[tuple[str, str]] = SWITCHED, *, closed: int = 1
) -> list[str]:
    """Return what the checker says of a call whose primary failed on record."""
    policy = FallbackPolicy([Target(PRIMARY), Target(BACKUP)])
    run = policy.start()
    run.fail(StatusError(500))
    run.succeed()
    call = Call(7, Way("core", sync=False, stream=False), tuple(fault for _, fault in requests))
    return [*violations(call, observation, Records(1, [run.record] * closed), requests)]


def test_a_good_call_is_in_order() -> None:
    """The caller has the good answer of the request that the record and the provider know."""
    good = Observation("answer", GOOD)
    assert checked(good) == []
    for closed in (0, 2):  # a record is closed once
        assert "records were begun" in checked(good, closed=closed)[0]


@pytest.mark.parametrize(
    ("observation", "requests", "expected"),
    [
        (Observation("answer", text_of(8, BACKUP, 2)), SWITCHED, "good answers were"),
        (Observation("answer", GOOD, swallowed=True), SWITCHED, "swallowed"),
        (Observation("error", error="ValueError"), SWITCHED, "the record says success"),
        (Observation("answer", GOOD), (*SWITCHED, (BACKUP, OK)), "and the record has"),
        (Observation("answer", text_of(7, BACKUP, 1)), ((BACKUP, OK),), "and the record has"),
        (Observation("left", "8 by"), SWITCHED, "begins none of"),
    ],
)
def test_what_a_caller_must_not_get(
    observation: Observation, requests: Sequence[tuple[str, str]], expected: str
) -> None:
    """Another's answer, a failed attempt's, none at all, a lost one, an unrecorded request."""
    assert any(expected in violation for violation in checked(observation, requests))


@pytest.fixture(scope="module")
def providers() -> Iterator[ProviderProcess]:
    """Serve the soak's providers."""
    with ProviderProcess("benchmarks.soak.provider") as process:
        yield process


class Confusing(CoreBackend):
    """Mix up answers."""

    async def acall(self, prompt: str) -> str:
        return f"0{await super().acall(prompt)}"


# The collector tells a dropped stream's connection of its end before the stream, which closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_whole_run_finds_what_a_backend_does_wrong(
    providers: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small run catches what is wrong with the answers, and finds nothing else."""
    monkeypatch.setattr("benchmarks.soak.run._PERIOD", 0.05)  # a small run settles sooner
    report = await soak(providers, ["core"], 22, Extent(20, 5, 10), {"core": Confusing})
    assert report.endings.total() > 0
    assert report.violations
    assert all("good answers were" in one for one in report.violations), report.violations
