"""The presets, each as a table: who is asked, after what wait, and what comes out."""

# ruff: noqa: E501 # one row of a table is one line

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from honcho_fallback import FallbackConfig, FallbackExhausted, FallbackPolicy, Target
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from honcho_fallback.testing import Script

# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

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
    options: dict[str, Any] = {}  # noqa: RUF012 # never written to


def machine(config: FallbackConfig, said: dict[str, list[Any]]) -> tuple[Script, list[float], Any]:
    """Drive a run by hand: nobody sleeps, and every wait is seen."""
    script = repeating(**said)
    run = FallbackPolicy([Target(name) for name in said], config).start()
    attempt, waits = run.attempt, [run.attempt.wait]
    while True:
        try:
            answer = script.ask(attempt)
        except Exception as error:  # noqa: BLE001 # the script's
            try:
                attempt = run.fail(error)
            except BaseException as raised:  # noqa: BLE001 # how it ends is what is looked at
                return script, waits, raised
            waits.append(attempt.wait)
        else:
            run.succeed()
            return script, waits, answer


HONCHO_MAIN = [
    Row("the primary answers", {P: ["hello"], F: ["no"]}, [P], [0]),
    *(
        Row(f"HOM-030 {type(error).__name__} {error}", {P: [error], F: ["hello"]}, [P, P, F], [0, 4, 4])
        for error in (*HTTP.values(), LIMITED, QUOTA, OVERFLOW, REFUSED, KeyError("bug"), OSError(28, "disk"))
    ),
    Row("HOM-034 Retry-After is not obeyed", {P: [LIMITED, "late"], F: ["no"]}, [P, P], [0, 4]),
    Row("the fallback fails too", {P: [HTTP[503]], F: [HTTP[400]]}, [P, P, F], [0, 4, 4], FallbackExhausted),
    Row("HON-005 no fallback", {P: [HTTP[400]]}, [P, P, P], [0, 4, 4], StatusError),
    Row("HON-008 no third model", {P: [HTTP[503]], F: [HTTP[503]], G: ["no"]}, [P, P, F], [0, 4, 4], FallbackExhausted),
    Row("HON-040 the schedule of more attempts", {P: [HTTP[500]], F: ["hello"]}, [P] * 6 + [F], [0, 4, 4, 4, 8, 10, 10], options={"max_attempts": 7}),
    Row("two attempts", {P: [HTTP[500]], F: ["hello"]}, [P, F], [0, 4], options={"max_attempts": 2}),
    Row("G-21 one attempt is the primary's", {P: ["hello"], F: ["no"]}, [P], [0], options={"max_attempts": 1}),
]  # fmt: skip


@pytest.mark.parametrize("row", HONCHO_MAIN, ids=lambda row: row.what)
def test_honcho_main(row: Row) -> None:
    """HOM-030 to HOM-034: P, P, F with 4 s before each, whatever the error."""
    script, waits, end = machine(FallbackConfig.honcho_main(**row.options), row.said)
    assert (script.asked, waits) == (row.asked, row.waits)
    assert isinstance(end, row.error or str)


LATER = dict.fromkeys(
    ("authentication", "context_overflow", "invalid_request", "local", "model_unavailable"), 2
)
BOTH_RUNGS = [
    Row("the first failure that may pass", {P: [HTTP[503]], F: ["hello"]}, [P, F], [0, 0]),
    Row("a rate limit", {P: [LIMITED], F: ["hello"]}, [P, F], [0, 0]),
    Row("the last attempt, whatever the error", {P: [HTTP[400]], F: ["hello"]}, [P, P, F], [0, 4, 0]),
    Row("a dead key", {P: [HTTP[401]], F: ["hello"]}, [P, P, F], [0, 4, 0]),
]  # fmt: skip


@pytest.mark.parametrize("row", BOTH_RUNGS, ids=lambda row: row.what)
def test_honcho_with_both_rungs(row: Row) -> None:
    """HON-006: its pull request kept the last attempt for the fallback beside the new switch."""
    config = FallbackConfig.honcho_main(switch_after=LATER, switch_wait=None)
    script, waits, end = machine(config, row.said)
    assert (script.asked, waits, end) == (row.asked, row.waits, "hello")


NOW, FIRST, SECOND = [0], pytest.approx(2.5, abs=0.5), pytest.approx(5, abs=1)
PATIENT = [
    HTTP[503],
    HTTP[500],
    HTTP[408],
    TimeoutError(),
    ConnectionResetError(),
    KeyError("bug"),
]
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
    Row("G-13 an overflow needs a larger window", {P: [OVERFLOW], F: ["no"]}, [P], [0], StatusError),
    Row("#23548 the chain goes on after a dead fallback", {P: [LIMITED], F: [HTTP[401]], G: ["hello"]}, [P, F, G], [0, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize("row", HERMES, ids=lambda row: row.what)
def test_hermes(row: Row) -> None:
    """HRC-006 to HRC-011, HRC-045: at once, or after three tries, each target with its own."""
    script, waits, end = machine(FallbackConfig.hermes(**row.options), row.said)
    assert (script.asked, waits) == (row.asked, row.waits)
    assert isinstance(end, row.error or str)


def test_hermes_stays_where_it_works_for_the_turn() -> None:
    """HRS-010, G-01: the next iteration starts on the fallback, the next turn on the primary."""
    policy = FallbackPolicy([Target(P), Target(F)], FallbackConfig.hermes())
    script = repeating(primary=[LIMITED], fallback=["hello"])
    for _ in range(2):
        with policy.turn():
            policy.call(script.ask)
            policy.call(script.ask)
    assert script.asked == [P, F, F, P, F, F]


def test_hermes_waits_with_a_jitter_of_up_to_a_half() -> None:
    """HRC-046: 2 s doubling to 60 s, and up to half as much again."""
    config = FallbackConfig.hermes(attempts_per_target=9)
    run = FallbackPolicy([Target(P)], config).start()
    for delay in (2, 4, 8, 16, 32, 60, 60, 60):
        assert delay <= run.fail(HTTP[503]).wait <= delay * 1.5


@pytest.mark.parametrize("preset", [FallbackConfig.honcho_main, FallbackConfig.hermes])
def test_presets_are_plain_options(preset: Any) -> None:
    """Other options can be given, and a preset can be copied to another process."""
    config = pickle.loads(pickle.dumps(preset(timeout=3)))  # noqa: S301 # our own bytes
    assert config.timeout == 3
    assert config.replace(reset="iteration").classify is config.classify
    run = FallbackPolicy([Target(P), Target(F)], config).start()
    with pytest.raises(KeyboardInterrupt):  # a cancelled call stays cancelled
        run.fail(KeyboardInterrupt())


def test_a_wait_before_the_switch_is_an_option() -> None:
    """G-07: seconds or a strategy; none by default."""
    said: dict[str, list[Any]] = {P: [HTTP[503]], F: ["hello"]}
    assert machine(FallbackConfig(switch_wait=1.5), said)[1] == [0, 1.5]
    assert machine(FallbackConfig(), said)[1] == [0, 0]


def test_attempts_per_target_end_a_target() -> None:
    """G-20: a target that used up its attempts is left, or is the end."""
    said: dict[str, list[Any]] = {P: [HTTP[503]], F: [HTTP[503]]}
    config = FallbackConfig(attempts_per_target=2, switch_after=9, wait=0)
    assert machine(config, said)[0].asked == [P, P, F, F]
    assert machine(config.replace(max_attempts=3), said)[0].asked == [P, P, F]
