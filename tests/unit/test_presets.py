"""The presets, each as a table: who is asked, after what wait, and what comes out."""

# ruff: noqa: E501 # one row of a table is one line

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from honcho_fallback.testing import Clock

pytestmark = [
    pytest.mark.usefixtures("clock"),
    # Single calls outside of turns are meant to stand alone here.
    pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning"),
]

HTTP = {status: StatusError(status) for status in (400, 401, 402, 403, 404, 408, 413, 500, 503)}
LIMITED = StatusError(429, retry_after=30)
QUOTA = StatusError(429, code="insufficient_quota")
OVERFLOW = StatusError(400, code="context_length_exceeded")
REFUSED = StatusError(400, code="content_policy_violation")
P, F, G = "primary", "fallback", "third"


class Row(NamedTuple):
    what: str
    said: dict[str, list[Any]]
    asked: list[str]
    waits: list[Any]
    error: type[BaseException] | None = None


def played(
    config: FallbackConfig, said: dict[str, list[Any]]
) -> tuple[list[str], list[float], Any]:
    """Return who was asked after what wait, and how the call ended."""
    script, end = repeating(**said), None
    try:
        end = FallbackPolicy([Target(name) for name in said], config).call(script.ask)
    except Exception as raised:  # noqa: BLE001 # how it ends is what is looked at
        end = raised
    return script.asked, [request.attempt.wait for request in script.requests], end


FIRST, SECOND = pytest.approx(2.5, abs=0.5), pytest.approx(5, abs=1)
PATIENT = [HTTP[503], HTTP[500], HTTP[408], TimeoutError(), ConnectionResetError(), KeyError()]
HERMES = [
    Row("the primary answers", {P: ["hello"], F: ["no"]}, [P], [0]),
    *(
        Row(f"HRC-006, HRC-009, HRC-010 {error} is left at once", {P: [error], F: ["hello"]}, [P, F], [0, 0])
        for error in (LIMITED, QUOTA, REFUSED, HTTP[400], HTTP[401], HTTP[402], HTTP[403], HTTP[404])
    ),
    *(
        Row(f"HRC-007, HRC-008 {error!r} has three tries", {P: [error], F: ["hello"]}, [P, P, P, F], [0, FIRST, SECOND, 0])
        for error in PATIENT
    ),
    Row("one of three tries is enough", {P: [HTTP[503], HTTP[500], "hello"], F: ["no"]}, [P, P, P], [0, FIRST, SECOND]),
    Row("HRC-011 each target has its own three", {P: [HTTP[503]], F: [HTTP[503]], G: ["hello"]}, [P] * 3 + [F] * 3 + [G], [0, FIRST, SECOND, 0, FIRST, SECOND, 0]),
    Row("and the last has no more", {P: [LIMITED], F: [HTTP[503]]}, [P, F, F, F], [0, 0, FIRST, SECOND], StatusError),
    Row("HRC-045 Retry-After where nobody else is free", {P: [LIMITED, "hello"]}, [P, P], [0, 30]),
    Row("HRC-045 up to 600 s", {P: [StatusError(503, retry_after=999), "hello"]}, [P, P], [0, 600]),
    Row("G-10 the machine's own troubles", {P: [OSError(28, "disk")], F: ["no"]}, [P], [0], OSError),
    Row("G-13 an overflow goes where a window may be larger", {P: [OVERFLOW], F: ["hello"]}, [P, F], [0, 0]),
    Row("#23548 the chain goes on after a dead fallback", {P: [LIMITED], F: [HTTP[401]], G: ["hello"]}, [P, F, G], [0, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize("row", HERMES, ids=lambda row: row.what)
def test_hermes(row: Row) -> None:
    """HRC-006 to HRC-011, HRC-045: at once, or after three tries, each target with its own."""
    asked, waits, end = played(FallbackConfig.hermes(), row.said)
    assert (asked, waits) == (row.asked, row.waits)
    assert isinstance(end, row.error or str)


@pytest.mark.parametrize(
    ("options", "first_of_next_turn"), [({"cooldown": None}, [P, F]), ({}, [F])]
)
def test_hermes_stays_where_it_works_for_the_turn_and_lets_a_limited_primary_rest(
    clock: Clock, options: Any, first_of_next_turn: list[str]
) -> None:
    """HRS-010, G-01: the next iteration starts on the fallback, the next turn on the primary.

    HRC-040, HRC-041: unless it rests, as long as the provider said; then one call looks again.
    """
    policy = FallbackPolicy([Target(P), Target(F)], FallbackConfig.hermes(**options))
    script = repeating(primary=[LIMITED] * len(first_of_next_turn) + ["back"], fallback=["hello"])
    for _ in range(2):
        with policy.turn():
            policy.call(script.ask)
            policy.call(script.ask)
    assert script.asked == [P, F, F, *first_of_next_turn, F]
    clock.advance(60.0)
    with policy.turn():
        assert policy.call(script.ask) == "back"


def test_hermes_waits_with_a_jitter_of_up_to_a_half() -> None:
    """HRC-046: 2 s doubling to 60 s, and up to half as much again."""
    config = FallbackConfig.hermes(attempts_per_target=9)
    run = FallbackPolicy([Target(P)], config).start()
    for delay in (2, 4, 8, 16, 32, 60, 60, 60):
        assert delay <= run.fail(HTTP[503]).wait <= delay * 1.5


@pytest.mark.parametrize("preset", [FallbackConfig.honcho, FallbackConfig.hermes])
def test_presets_are_plain_options(preset: Any) -> None:
    """Other options can be given, and a preset can be copied to another process."""
    config = pickle.loads(pickle.dumps(preset(timeout=3)))  # noqa: S301 # our own bytes
    assert config.timeout == 3
    assert config.replace(reset="iteration").refine is config.refine
    run = FallbackPolicy([Target(P), Target(F)], config).start()
    with pytest.raises(KeyboardInterrupt):  # a cancelled call stays cancelled
        run.fail(KeyboardInterrupt())


def test_attempts_end_a_target_and_a_call() -> None:
    """G-20: a target that used up its attempts is left, or is the end; HON-003: three in all."""
    said: dict[str, list[Any]] = {P: [HTTP[503]], F: [HTTP[503]]}
    config = FallbackConfig(attempts_per_target=2, switch_after=9, wait=0)
    assert played(config, said)[0] == [P, P, F, F]
    assert played(config.replace(max_attempts=3), said)[0] == [P, P, F]
    longer = said | {G: [HTTP[503]], "fourth": [HTTP[503]]}
    assert played(FallbackConfig.honcho(wait=0), longer)[0] == [P, F, G]
