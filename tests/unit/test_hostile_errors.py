"""An error of anybody's class ends a call, or sends it on; it never breaks it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from honcho_fallback import (
    FallbackConfig,
    FallbackExhausted,
    FallbackPolicy,
    OutcomeUnknown,
    StreamInterrupted,
    Target,
)
from tests.helpers.scripted import DRIVERS, repeating


def boom(*_: Any) -> NoReturn:
    """Be a hostile attribute."""
    raise ArithmeticError


def hostile(**attributes: Any) -> type[Exception]:
    """Make a class of errors with attributes that are not what others have."""
    name = "".join(one.strip("_").title() for one in attributes)
    return type(f"With{name}", (Exception,), {"status_code": 503, **attributes})


def holding(**facts: Any) -> type[Exception]:
    """Make one whose errors hold facts themselves, as those of SDKs hold their request."""
    return hostile(__init__=lambda self: self.__dict__.update(facts))


def with_headers(headers: Any) -> type[Exception]:
    return holding(request=SimpleNamespace(headers=headers))


@dataclass(frozen=True)
class FrozenError(Exception):
    """A value, as people write their errors: it refuses notes and tracebacks."""

    status_code: int = 503


class Headers(dict[str, Any]):
    __getitem__ = get = boom


NEXT_TO_IT: list[type[Exception]] = [
    FrozenError,
    holding(__notes__=[1, None]),
    hostile(__setattr__=boom),
    with_headers(Headers()),
]
CLASSES: list[type[Exception]] = [
    *NEXT_TO_IT,
    hostile(__getattribute__=boom),
    with_headers({"x-stainless-retry-count": [1]}),
    with_headers({"x-stainless-retry-count": "many"}),
    holding(request=hostile(headers=property(boom))()),
    *(hostile(**{name: property(boom)}) for name in (
        "__dict__", "__class__", "__notes__", "__cause__", "__context__", "__suppress_context__",
        "__traceback__", "args", "status", "response", "body", "headers", "request",
    )),
    *(hostile(**{name: boom}) for name in (
        "__str__", "__repr__", "__eq__", "__bool__", "add_note",
    )),
]  # fmt: skip


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("chain", [1, 2])
@pytest.mark.parametrize("options", [{}, {"replay": "safe"}, {"on_exhausted": "last"}])
@pytest.mark.parametrize("is_cut", [False, True])
def test_fail_never_raises_what_nobody_reported(
    cls: type[Exception], chain: int, options: Any, *, is_cut: bool
) -> None:
    """It raises that error, or one of ours, and the call is over."""
    targets = [Target("a"), Target("b")][:chain]
    config = FallbackConfig(wait=0, max_attempts=2, **options)
    run = FallbackPolicy(targets, config).start()
    if is_cut:
        run.commit(partial=["once"])
    known = (FallbackExhausted, OutcomeUnknown, StreamInterrupted, cls)
    raised: BaseException | None = None
    try:
        while run.outcome == "running":
            try:
                raise cls
            except Exception as error:  # noqa: BLE001 # a traceback is a part of it
                run.fail(error)
    except Exception as error:  # noqa: BLE001 # looked at below
        raised = error
    assert issubclass(type(raised), known)
    assert run.outcome in {"exhausted", "rejected", "interrupted"}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("cls", NEXT_TO_IT)
def test_the_next_target_answers(driver: str, cls: type[Exception]) -> None:
    """Whatever the primary's error is."""
    policy = FallbackPolicy([Target("primary"), Target("fallback")])
    script = repeating(primary=[cls()], fallback=["hello"])
    assert DRIVERS[driver](policy, script, policy.start()) == "hello"


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_ends_the_call() -> None:
    """Where warnings are errors, the one about an SDK's own retries leaves no call open."""
    run = FallbackPolicy([Target("a"), Target("b")]).start()
    with pytest.raises(UserWarning, match="made 3 retries of its own"):
        run.fail(with_headers({"x-stainless-retry-count": "3"})())
    assert run.outcome == "cancelled"
