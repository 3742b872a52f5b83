"""What the classifier's tables promise, and what it survives."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback._classify import classify
from honcho_fallback._classify._facts import ATTRIBUTES
from honcho_fallback._classify._tables import (
    CODES,
    ENDINGS,
    NAMES,
    STATUSES,
    read,
)
from honcho_fallback._classify._texts import GROUPS, TEXTS
from honcho_fallback._values.failure import KINDS, Failure, FailureKind

# --- the tables


def twice(entries: list[Any]) -> list[Any]:
    return [entry for entry, count in Counter(entries).items() if count > 1]


def test_no_structured_fact_stands_twice() -> None:
    """A status, code or class name of two rows would be decided by its place alone."""
    codes, names = read("codes"), read("names")
    for table in (codes["status"], codes["code"], codes["errno"], names["origin"]):
        assert not twice([key for row in table for key in row["keys"]])
    assert not twice([code for group in codes["generic"].values() for code in group])
    assert not twice([name.partition(":")[0] for row in names["name"] for name in row["names"]])
    assert not twice([name for row in names["ending"] for name in row["names"]])
    assert all(code == code.lower() for code in CODES)


def test_each_word_stands_once_in_its_group_and_each_group_is_used() -> None:
    """A word is lower case, one or two to an entry; a group that no rule names would be dead."""
    for entries in GROUPS.values():
        assert not twice(entries)
        assert all(entry == entry.lower() and len(entry.split()) <= 2 for entry in entries)
    named = {name.lstrip("-~") for row in TEXTS for words in row.any for name in words.split()}
    assert named == set(GROUPS)
    assert not twice([row.reason for row in TEXTS])


def test_every_row_says_why() -> None:
    """Each row has one line that appears in ``Failure.reason``."""
    rows: tuple[Any, ...] = (
        *TEXTS,
        *CODES.values(),
        *STATUSES.values(),
        *NAMES.values(),
        *ENDINGS,
    )
    assert all(row.reason and "\n" not in row.reason for row in rows)


def test_every_ending_decides() -> None:
    """A class that no row names is known by the end of its name, if its module is a model's."""
    for row in ENDINGS:
        for name, module in ((f"Nimbus{row.name}", "nimbus.llm"), (f"LLM{row.name}", "nimbus")):
            failure = classify(type(name, (Exception,), {"__module__": module})())
            assert (failure.kind, failure.reason) == (row.kind, row.reason), row.name
        of_a_tool = type(f"Nimbus{row.name}", (Exception,), {"__module__": "nimbus.weather"})
        assert classify(of_a_tool()).kind is FailureKind.LOCAL


def test_a_longer_ending_goes_first() -> None:
    """An ending that ends like a shorter one is asked before it."""
    for place, row in enumerate(ENDINGS):
        assert not any(row.name.endswith(before.name) for before in ENDINGS[:place])


@pytest.mark.parametrize("code", ["insufficient_quota", "context_length_exceeded"])
def test_a_row_is_the_reason(code: str) -> None:
    """The row that decided is named in the failure."""
    error = type("AnyError", (Exception,), {})()
    error.body = {"error": {"code": code, "message": "no"}}
    assert classify(error).reason == CODES[code].reason


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_tells_a_person_what_to_do(kind: FailureKind) -> None:
    """Cause and next action are one sentence each, and no two kinds share a cause."""
    failure = Failure.of(kind)
    for sentence in (failure.cause, failure.next_action):
        assert sentence.endswith(".")
        assert "\n" not in sentence
    assert sum(facts.cause == failure.cause for facts in KINDS.values()) == 1


# --- hostile exceptions

_anything = st.none() | st.booleans() | st.integers(0, 700) | st.text(max_size=12) | st.binary()


def trapped(traps: dict[str, tuple[str, Any]]) -> Any:
    """Build an exception whose properties raise, warn or return something odd."""

    def trap(how: str, value: Any) -> property:
        def read_it(_: object) -> Any:
            if how == "raise":
                raise RuntimeError("never ask")
            if how == "warn":
                warnings.warn("old", DeprecationWarning, stacklevel=2)
            return value

        return property(read_it)

    def mute(_: object) -> str:
        raise ValueError("no words")

    namespace: dict[str, Any] = {name: trap(*how) for name, how in traps.items()}
    cls: Any = type("TrappedError", (Exception,), {**namespace, "__str__": mute})
    return cls()


_traps = st.dictionaries(
    st.sampled_from(sorted(ATTRIBUTES)),
    st.tuples(st.sampled_from(["raise", "warn", "return"]), _anything),
    max_size=6,
)


@given(traps=_traps)
def test_properties_that_raise_or_warn_never_come_out(traps: dict[str, tuple[str, Any]]) -> None:
    """Whatever properties do, a Failure comes out and no warning does."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        failure = classify(trapped(traps))
    assert failure.kind in FailureKind
    assert failure.reason


_edges = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))


@given(edges=st.lists(_edges, max_size=18))
def test_any_net_of_causes_ends(edges: list[tuple[int, int, int]]) -> None:
    """Causes, contexts, wrapped exceptions and arguments may point anywhere, and back."""
    errors: list[Any] = [RuntimeError(str(number)) for number in range(6)]
    for start, end, how in edges:
        one, other = errors[start], errors[end]
        if how == 0:
            one.__cause__ = other
        elif how == 1:
            one.__context__ = other
        elif how == 2:
            one.reason = other
        else:
            one.args = (other, one)
    for error in errors:
        assert classify(error).kind is FailureKind.LOCAL
    for error in errors:  # or the collector has to find them
        error.__cause__ = error.__context__ = None
        error.args = ()
        error.__dict__.clear()


def test_no_reference_to_the_traceback_is_kept() -> None:
    """What the failing frames held is free as soon as the caller lets go of the exception."""

    class Prompt:
        pass

    def ask(prompt: Prompt) -> None:
        raise TimeoutError(prompt)

    prompt = Prompt()
    alive = weakref.ref(prompt)
    failures: list[Failure] = []
    try:
        ask(prompt)
    except TimeoutError as error:
        failures.append(classify(error))
    del prompt
    gc.collect()
    assert failures[0].kind is FailureKind.TIMEOUT
    assert alive() is None
