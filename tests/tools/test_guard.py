"""Every limit of the guard: what reaches it, what does not, and what starts the count anew."""

from __future__ import annotations

import json
import pickle
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing import StatusError
from honcho_fallback.tools import (
    ToolBlockedError,
    ToolDeniedError,
    ToolLoopGuard,
    ToolLoopLimits,
    ToolLoopState,
    ToolLoopVerdict,
    ToolOutcome,
)
from tests.helpers.errors import raised_from
from tests.helpers.scripted import exhausted

ORDINARY, PASSING = "no such row", "connection refused"
GO = "continue"


def heard(verdict: ToolLoopVerdict) -> str:
    return verdict.reason if verdict.action == "halt" else verdict.action


def told(guard: ToolLoopGuard, *calls: tuple[Any, ...]) -> list[str]:
    """Tell the guard of calls one by one; return its answers, with the reason of a halt."""
    return [heard(guard.after_tool(*call)) for call in calls]


def same(error: Any, times: int) -> list[tuple[Any, ...]]:
    return [("read", {"path": "a"}, error)] * times


def varied(error: str, times: int) -> list[tuple[Any, ...]]:
    return [("read", {"path": number}, f"{error} {number}") for number in range(times)]


BLOCKED, DENIED = f"{ToolBlockedError.marker} no", f"{ToolDeniedError.marker} no"
IDENTICAL, VARIED = "identical_failures", "varied_failures"
TURN = [*same(ORDINARY, 1), ("write", {"path": "a"}, ORDINARY)]
LIMITS = {"polls": 2, "identical_batches": 9, "varied_failures": 9}
# Calls, and what is answered to each.
COURSES: list[tuple[dict[str, int], list[tuple[Any, ...]], list[str]]] = [
    ({}, same(ORDINARY, 3), [GO, "nudge", IDENTICAL]),
    ({}, varied(ORDINARY, 6), [GO, GO, GO, "nudge", GO, VARIED]),
    ({}, same(PASSING, 8), [GO] * 7 + ["recoverable_identical"]),
    ({}, varied(PASSING, 12), [GO] * 11 + ["recoverable_varied"]),
    ({}, same(BLOCKED, 2), [GO, "policy_rejections"]),
    ({}, same(DENIED, 2), [GO, "policy_rejections"]),
    ({}, same(ToolDeniedError(expired=True), 2), [GO, "policy_rejections"]),
    ({}, same(None, 3), [GO, GO, "identical_batches"]),
    ({}, same("all providers failed: add credits", 1), ["budget_exhausted"]),
    ({}, same("all providers failed: model_not_found", 1), ["provider_config"]),
    # What may pass has the long ladder, and never feeds the short one.
    *(
        ({}, same(error, 8), [GO] * 7 + ["recoverable_identical"])
        for error in ("503", "could not reach the model", TimeoutError(), StatusError(429))
    ),
    ({}, [*same(PASSING, 7), *same(ORDINARY, 2)], [GO] * 8 + ["nudge"]),
    # A cap on polls cuts no limit of failures short.
    (
        LIMITS,
        [("checks", 1, f"no {n}") for n in range(9)],
        [*[GO] * 3, "nudge", *[GO] * 4, VARIED],
    ),
    # Keys are sorted at every depth, and what the model wrote as JSON is read.
    (
        {},
        [
            ("read", {"a": {"x": 1, "y": 2}, "b": 2}, ORDINARY),
            ("read", {"b": 2, "a": {"y": 2, "x": 1}}, f"{ORDINARY}\nline two differs"),
            ("read", '{"b":2,"a":{"y":2,"x":1}}', ORDINARY),
        ],
        [GO, "nudge", IDENTICAL],
    ),
    # Another tool, other arguments, another first line.
    ({}, TURN, [GO, GO]),
    ({}, [*same(ORDINARY, 1), ("read", {"path": "b"}, ORDINARY)], [GO, GO]),
    ({}, [*same(ORDINARY, 1), *same("no such column", 1)], [GO, GO]),
    # Another command in between starts an identical count anew; the turn is seen.
    ({"varied_failures": 99}, TURN * 3, [GO, GO, GO, "nudge", GO, "repeated_cycle"]),
    # A run that a person takes up again does not stop at once.
    ({}, same(ORDINARY, 6), [GO, "nudge", IDENTICAL] * 2),
    # No option is a dead knob.
    ({"identical_nudge": 1}, same("x", 3), ["nudge", GO, IDENTICAL]),
    ({"identical_failures": 4}, same("x", 4), [GO, "nudge", GO, IDENTICAL]),
    ({"varied_nudge": 3}, varied(ORDINARY, 3), [GO, GO, "nudge"]),
    ({"varied_failures": 3, "varied_nudge": 1}, varied(ORDINARY, 3), ["nudge", GO, VARIED]),
    ({"recoverable_identical": 2}, same(PASSING, 2), [GO, "recoverable_identical"]),
    ({"recoverable_varied": 2}, varied(PASSING, 2), [GO, "recoverable_varied"]),
    ({"policy_rejections": 1}, same(BLOCKED, 1), ["policy_rejections"]),
    ({"identical_batches": 2}, same(None, 2), [GO, "identical_batches"]),
]


@pytest.mark.parametrize(("limits", "calls", "answers"), COURSES)
def test_each_limit(limits: dict[str, int], calls: list[Any], answers: list[str]) -> None:
    """OH-016, OH-019 to OH-023, E.2: nudges and halts come at their count and not before."""
    assert told(ToolLoopGuard(ToolLoopLimits(**limits)), *calls) == answers


@pytest.mark.parametrize(
    ("before", "after", "answers"),
    [
        (same(ORDINARY, 2), same(ORDINARY, 3), [GO, "nudge", IDENTICAL]),
        (varied(ORDINARY, 5), same(ORDINARY, 3), [GO, "nudge", IDENTICAL]),
        (same(BLOCKED, 1), same(BLOCKED, 2), [GO, "policy_rejections"]),
        (varied(PASSING, 11), varied("timed out", 11), [GO] * 11),
    ],
    ids=["identical", "varied", "refused", "may pass"],
)
def test_success_and_a_halt_start_the_counts_anew(
    before: list[Any], after: list[Any], answers: list[str]
) -> None:
    """E.2, OH-021: one success, of whatever tool, and the run may fail as often as a new one."""
    guard = ToolLoopGuard()
    told(guard, *before)
    assert told(guard, ("list", {}), *after) == [GO, *answers]
    told(guard, ("list", {}), *same(PASSING, 8))
    assert guard.state == ToolLoopState()


DELEGATED: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("failures.toml").read_text(encoding="utf-8")
)["delegated"]
ENVELOPES = (
    "All providers/models failed. Attempts:\n",
    "researcher failed and did not complete: ",
)


def terminal(error: str, tool: str = "delegate") -> str | None:
    return ToolOutcome(tool, {}, error).terminal


def test_what_a_delegated_call_failed_of_is_read_by_groups_of_words() -> None:
    """OH-022, E.2: a budget, a model, a tier, a login, in any order; no outage, no bad answer."""
    config, passes = DELEGATED["provider_config"], DELEGATED["passes"]
    wrapped = {error: {terminal(one + error) for one in ENVELOPES} for error in config + passes}
    assert [error for error in config if wrapped[error] != {"provider_config"}] == []
    assert [error for error in passes if wrapped[error] != {None}] == []
    assert [error for error in config if terminal(error, "shell")] == []
    budget = DELEGATED["budget_exhausted"]
    assert [error for error in budget if terminal(error) != "budget_exhausted"] == []
    for error in (
        "m may not be available on your provider",
        "all providers/models failed: does not support tools",
    ):
        assert terminal(error) == "provider_config"


def test_an_exit_code_is_a_failure_unless_it_is_0() -> None:
    """OH-022: of a command alone; words like a delegated call's in its output are its own."""
    assert ToolOutcome("shell", exit_code=1).failed
    assert not ToolOutcome("shell", exit_code=0).failed
    guard = ToolLoopGuard()
    assert [guard.after_tool("shell", exit_code=1).action for _ in range(3)][-1] == "halt"
    error = "all models failed: unknown model"
    assert guard.after_tool("shell", "cat log", f"{error}\nExit code: 1").action == GO
    assert guard.after_tool("shell", "cat log.1", error, exit_code=1).action == GO


@pytest.mark.parametrize(
    ("statuses", "answer"),
    [
        ((402, 402), "budget_exhausted"),
        ((401, 402), "budget_exhausted"),
        ((401, 404), "provider_config"),
        ((503, 401), GO),
        ((503, 503), GO),
    ],
)
def test_a_delegated_call_of_ours_is_read_from_its_record(
    statuses: tuple[int, int], answer: str
) -> None:
    """OH-022, OH-013: FallbackExhausted says by its kinds whether the inner call could recover."""
    error = raised_from(RuntimeError("the helper failed"), exhausted(*statuses))
    assert told(ToolLoopGuard(), ("delegate", {}, error)) == [answer]


NUMBERED = [f"{n} of 200" for n in range(100)]
PASSED = ToolOutcome("checks", error=PASSING)
SLEPT = ToolOutcome("sleep", {"s": 5}, result="slept")
HALTED = [GO, GO, "identical_batches"]
STATE = {"done": 1, "of": 9}
# Limits, what one and the same call brings in turn, and what is answered to each.
POLLS: list[tuple[dict[str, int], list[Any], list[str]]] = [
    # Another result is progress, in its last sign or its type.
    ({}, [f"{'x' * 100_000}{n}" for n in range(6)], [GO] * 6),
    ({}, [1, 2.5, True, "1 ", ["1"], {"1": 1}, "[" * 100_000], [GO] * 7),
    # A cap is about results that change, and cuts no higher limit short.
    ({}, NUMBERED, [GO] * 99 + ["polls"]),
    ({"polls": 2}, [*range(9)], [GO, GO, "polls"] * 3),
    (LIMITS, ["same"] * 9, [GO] * 8 + ["identical_batches"]),
    (LIMITS, [*["queued"] * 7, "running", "done"], [GO] * 8 + ["polls"]),
    # The same result, or one that nobody knows, is no progress, changed before or not.
    *(
        ({}, [*before, *results], [GO] * len(before) + HALTED)
        for before in ([], ["first"])
        for results in (
            ["pending"] * 3,
            [STATE, {"of": 9, "done": 1}, STATE],
            [[{"state": "queued"}]] * 3,
            [None] * 3,
            [object(), object(), object()],
        )
    ),
    # In turn with a wait it goes on while its results change, up to the same cap.
    ({}, [one for n in range(20) for one in (str(n), SLEPT)], [GO] * 40),
    (
        {"polls": 3},
        [one for n in range(4) for one in (str(n), SLEPT)],
        [GO] * 5 + ["polls", GO, GO],
    ),
    ({}, ["pending", SLEPT] * 3, [GO, GO, GO, "nudge", GO, "repeated_cycle"]),
    # A failure in between neither ends it nor frees it from its cap.
    ({"polls": 5}, [one for n in range(5) for one in (n, PASSED)], [GO] * 8 + ["polls", GO]),
]


@pytest.mark.parametrize(("limits", "results", "answers"), POLLS)
def test_a_poll_goes_on_while_its_result_changes(
    limits: dict[str, int], results: list[Any], answers: list[str]
) -> None:
    """OH-016, OH-020, OH-023: the same call with another result is progress, up to a cap."""
    guard = ToolLoopGuard(ToolLoopLimits(**limits))
    rounds = [
        one if isinstance(one, ToolOutcome) else ToolOutcome("checks", result=one)
        for one in results
    ]
    assert [heard(guard.after_tools([one])) for one in rounds] == answers


CALL = ("read", {"path": "a"})
AGAIN = [GO, GO, GO, "identical_outputs", GO]


def said(guard: ToolLoopGuard, *texts: str | None) -> list[str]:
    """Have the model say something and call a tool, without news of what came of it."""
    return [heard(guard.after_model(text, [CALL])) for text in texts]


def test_identical_outputs_end_a_run() -> None:
    """OH-017: the fourth in a row; one that differs starts the count anew, and so does a halt."""
    assert said(ToolLoopGuard(), *["again"] * 8) == [*[GO] * 3, "identical_outputs"] * 2
    assert said(ToolLoopGuard(), *["a", "a", "a", "b"] * 3) == [GO] * 12
    assert said(ToolLoopGuard(), None, "", None, "") == [GO, GO, GO, "identical_outputs"]
    guard = ToolLoopGuard()
    assert {guard.after_model("x", [("read", number)]).action for number in range(9)} == {GO}


def test_an_output_is_its_text_and_its_calls() -> None:
    """OH-017: in whatever order the calls are made and written; of none, too."""
    one, two = ("read", {"a": 1, "b": 2}), ("list", None)
    guard = ToolLoopGuard()
    outputs: list[list[tuple[str, Any]]] = [
        [one, two],
        [two, one],
        [("read", '{"b": 2, "a": 1}'), two],
        [one, two],
    ]
    verdicts = [guard.after_model("so", calls) for calls in outputs]
    assert [verdict.action for verdict in verdicts] == [GO, GO, GO, "halt"]
    assert verdicts[-1].tool == "read, list"
    assert "read, list" in verdicts[-1].message
    last = [guard.after_model("Shall I go on?") for _ in range(4)][-1]
    assert (last.reason, last.tool) == ("identical_outputs", "")
    assert "called no tool 4 times" in last.message


@pytest.mark.parametrize(
    ("rounds", "answers"),
    [
        ([[ToolOutcome(*CALL)]] * 5, AGAIN),
        ([[ToolOutcome(*CALL, result="same")]] * 5, AGAIN),
        ([[ToolOutcome(*CALL), ToolOutcome("write", error=PASSING)]] * 5, [GO] * 5),
        ([[ToolOutcome("wait_subagent")]] * 5, [GO] * 5),
        ([[ToolOutcome(*CALL), ToolOutcome("wait_subagent")]] * 5, AGAIN),
        (
            [[ToolOutcome(*CALL, result=n)] for n in (0, 10, 10, 20, *[30] * 5)],
            [GO] * 8 + ["identical_outputs"],
        ),
    ],
)
def test_what_starts_identical_outputs_anew(
    rounds: list[list[ToolOutcome]], answers: list[str]
) -> None:
    """OH-017, OH-018: a round with a failure, one of exempt tools only, or with a new result."""
    limits = ToolLoopLimits(identical_batches=99, recoverable_identical=99)
    guard, found = ToolLoopGuard(limits, exempt_tools=["wait_subagent"]), list[str]()
    for outcomes in rounds:
        found += said(guard, "again")
        guard.after_tools(outcomes)
    assert found == answers


def test_batches_are_compared_as_a_whole() -> None:
    """OH-016, E.3: the same in another order is the same, one more is not; a failure ends it."""
    read, write = ToolOutcome("read", {"a": 1}), ToolOutcome("write", {"a": 1})
    bad = ToolOutcome("write", 1, ORDINARY)
    rounds = [
        ([read, write], [write, read], [read, write, write], [read, write], [read, write]),
        ([read], [read], [read, bad], [read], [read]),
    ]
    for batches in rounds:
        guard = ToolLoopGuard()
        assert [guard.after_tools(batch).action for batch in batches] == [GO] * 5
        assert guard.after_tools(batches[-1][::-1]).reason == "identical_batches"


def test_the_first_halt_of_a_batch_wins_over_its_nudges() -> None:
    """A batch is gone through in order, and its strongest answer is the answer."""
    bad, worse = (
        ToolOutcome("read", 1, ORDINARY),
        ToolOutcome("x", 1, "all models failed: unknown model"),
    )
    guard = ToolLoopGuard()
    assert guard.after_tools([bad, ToolOutcome("y", 1, "odd")]).action == GO
    assert guard.after_tools([bad, ToolOutcome("z", 1, "odd")]).reason == "identical_failures"
    assert guard.after_tools([bad, bad, worse]).reason == "provider_config"


def test_exempt_tools_may_be_called_again_and_again() -> None:
    """OH-018, E.3: a tool that polls is left alone, if nothing else is in its batch."""
    guard = ToolLoopGuard(exempt_tools=["wait_subagent"])
    wait, other = ToolOutcome("wait_subagent", {"id": 1}), ToolOutcome("read")
    for _ in range(20):
        assert guard.after_tools([wait]).action == GO
        assert guard.after_tool("wait_subagent", {"id": 1}, "timed out").action == GO
    assert [guard.after_tools([wait, other]).action for _ in range(3)] == [GO, GO, "halt"]
    failures = [guard.after_tool("wait_subagent", {}, ORDINARY).action for _ in range(3)]
    assert failures == [GO, "nudge", "halt"]


@pytest.mark.parametrize(
    ("unattended", "lifted", "rounds"),
    [(True, 5, 5), (True, 2, 3), (True, None, 3), (False, 5, 3)],
)
def test_the_iteration_cap(unattended: bool, lifted: int | None, rounds: int) -> None:
    """OH-023: it ends a run before the round that is one too many; unattended it may be higher."""
    limits = ToolLoopLimits(max_iterations=3, autonomous_max_iterations=lifted)
    guard = ToolLoopGuard(limits, unattended=unattended)
    assert {guard.before_tools([]).action for _ in range(9)} == {GO}  # no call is no round
    verdicts = [guard.before_tools(["read"]) for _ in range(rounds + 2)]
    assert [one.reason for one in verdicts] == [*[""] * rounds, "max_iterations", ""]
    assert f"after {rounds} rounds" in verdicts[-2].message


@pytest.mark.parametrize("value", [0, True, "3"])
def test_limits_are_whole_positive_numbers_in_order(value: Any) -> None:
    """OH-023: what could never be reached, heard or is reached at once is refused by name."""
    for name in ToolLoopLimits.__dataclass_fields__:
        with pytest.raises(FallbackConfigError, match=f"{name}: got"):
            ToolLoopLimits(**{name: value})
    for nudge in ("identical_nudge", "varied_nudge"):
        with pytest.raises(FallbackConfigError, match=f"{nudge}: it is not below"):
            ToolLoopLimits(**{nudge: 6})
    with pytest.raises(FallbackConfigError, match=r"autonomous_max_iterations: without max_iter"):
        ToolLoopLimits(autonomous_max_iterations=9)
    with pytest.raises(FallbackConfigError, match="exempt_tools: got a single string"):
        ToolLoopGuard(exempt_tools="wait")  # it would exempt its letters


def test_the_page_has_every_limit_with_its_default() -> None:
    """Each stands in the table of what ends a run, beside its figure."""
    page = (Path(__file__).parents[2] / "docs/tools.md").read_text("utf-8")
    rows = page.partition("| what happens | limit |")[2].partition("\n\n")[0].splitlines()
    for limit in fields(ToolLoopLimits):
        named = [row for row in rows if f"`{limit.name}`" in row]
        figure = "no cap" if limit.default is None else rf"\b{limit.default}\b"
        assert named, limit.name
        assert all(re.search(figure, row) for row in named), limit.name


SECRET = "sk-sentinel-7f3a9c2e51"


@settings(deadline=None)  # speed is not the point
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["read", "x" * 900, "tool\nwith\x00signs", ""]),
            st.sampled_from([ORDINARY, PASSING, "401", ToolBlockedError.marker, None]),
        ),
        max_size=30,
    )
)
def test_messages_are_short_and_hold_nothing_of_the_tools(calls: list[tuple[str, Any]]) -> None:
    """HON-075, E.2: at most 600 characters, no argument, no error text; the state likewise."""
    guard = ToolLoopGuard()
    for tool, error in calls:
        text = None if error is None else f"{error} {SECRET}"
        guard.after_model(SECRET, [(tool, {"key": SECRET})])
        verdict = guard.after_tool(tool, {"key": SECRET}, text, result=SECRET)
        assert len(verdict.message) <= 600
        assert (verdict.message == "") == (verdict.action == GO)
        assert verdict.message.isprintable()
        assert SECRET not in repr(verdict) + repr(guard.state)


def test_a_blocker_that_a_person_can_remove_is_asked_for() -> None:
    """#4092: a missing login ends in a request to the person, not in a report."""
    guard = ToolLoopGuard()
    verdict = [guard.after_tool("mail", {}, "error 401") for _ in range(3)][-1]
    assert verdict.action == "halt"
    assert "I need your help: Log in to the service again" in verdict.message
    assert verdict.failure is not None
    assert verdict.failure.kind == "bad_credentials"


@settings(deadline=None)  # speed is not the point
@given(st.lists(st.sampled_from([ORDINARY, PASSING, None, ToolBlockedError.marker]), max_size=12))
def test_the_state_survives_a_checkpoint(errors: list[Any]) -> None:
    """A run goes on from its state as JSON or as a pickle, wherever it was saved."""
    guard, saved = ToolLoopGuard(), ToolLoopState()
    for number, error in enumerate(errors):
        outcome = ToolOutcome("read", number % 2, error, result=number // 4)
        through = ToolLoopState.from_dict(json.loads(json.dumps(saved.to_dict())))
        assert through == saved == pickle.loads(pickle.dumps(saved))  # noqa: S301 # our own bytes
        resumed = ToolLoopGuard(state=through)
        assert resumed.after_tools([outcome]) == guard.after_tools([outcome])
        for one in (resumed, guard):
            one.before_tools(["read"])
            one.after_model("on", [("read", number // 3)])
        saved = resumed.state
        assert guard.state == saved
    assert ToolLoopGuard(state=saved).state == saved
    assert ToolLoopState.from_dict(None) == ToolLoopState()


def test_a_state_of_an_earlier_release_is_gone_on_with() -> None:
    """What it did not count begins at nought; what is of another shape is refused."""
    rounds = ["0123456789abcdef"] * 4
    kept = {"identical": {}, "rounds": rounds, "repeats": [3, 2, 1, 0], "iterations": 4}
    guard = ToolLoopGuard(ToolLoopLimits(max_iterations=5), state=ToolLoopState.from_dict(kept))
    for number in range(9):
        assert guard.after_tool("checks", result=number).action == GO
    assert [guard.before_tools(["read"]).action for _ in range(2)] == [GO, "halt"]
    for values in ({"nonsense": 1}, {"rounds": 3}):
        with pytest.raises(FallbackConfigError, match=r"state: it is not from to_dict"):
            ToolLoopState.from_dict(values)


def test_what_is_remembered_is_bounded() -> None:
    """A run of a thousand different failures that pass keeps no more than the latest rounds."""
    guard = ToolLoopGuard(ToolLoopLimits(recoverable_varied=10_000))
    told(guard, *varied(PASSING, 1000))
    assert len(repr(guard.state)) < 500


def test_threads_share_a_guard() -> None:
    """No failure is lost between threads: of 3000 each one is counted."""
    limits = dict.fromkeys(("varied_failures", "identical_failures", "identical_batches"), 10_000)
    guard = ToolLoopGuard(ToolLoopLimits(**limits))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: guard.after_tool("read", n % 7, ORDINARY), range(3000)))
    assert guard.state.varied == 3000


def test_a_hostile_text_is_read_in_part() -> None:
    """A text of 100 kB costs what its first 4 kB do: what stands in the middle is not read."""
    for filling in (" ", "status ", "invalid timeout ", "model not ", "got ", "exit "):
        text = f"odd {filling * (100_000 // len(filling))}. unknown model. timed out {'x' * 300}"
        assert ToolLoopGuard().after_tool("read", {}, "all models failed " + text).action == GO
        assert ToolOutcome("read", {}, text).failure.kind == "unknown"
