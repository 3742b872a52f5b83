"""An error of anybody's class ends a call, or sends it on; it never breaks it."""

from __future__ import annotations

from dataclasses import dataclass
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


class BoomError(Exception):
    """What a hostile attribute raises."""


def boom(*_: Any) -> NoReturn:
    raise BoomError


def hostile(name: str, value: Any) -> type[Exception]:
    """Make a class of errors with one attribute that is not what others have."""
    return type(f"With{name.strip('_').title()}", (Exception,), {"status_code": 503, name: value})


class Headers(dict[str, Any]):
    """Headers that cannot be read."""

    __getitem__ = boom
    get = boom


class Request:
    """What hangs at an SDK's error."""

    def __init__(self, headers: Any) -> None:
        self.headers = headers


class AtRequest(Exception):  # noqa: N818 # short for the table below
    """Carries a request, as the errors of SDKs do."""

    status_code = 503
    headers_of_request: Any = None

    def __init__(self) -> None:
        super().__init__("no")
        self.request = type(self).headers_of_request


@dataclass(frozen=True)
class FrozenError(Exception):
    """A value, as people write their errors: it refuses notes and tracebacks."""

    status_code: int = 503


class RefusesAttributes(Exception):  # noqa: N818 # as above
    """Refuses whatever is set."""

    status_code = 503
    __setattr__ = boom


class Unreadable(Exception):  # noqa: N818 # as above
    """Refuses whatever is read."""

    status_code = 503
    __getattribute__ = boom


class OddNotes(Exception):  # noqa: N818 # as above
    """Has notes that are no texts."""

    status_code = 503

    def __init__(self) -> None:
        super().__init__("no")
        self.__notes__: Any = [1, None]


def at_request(headers: Any) -> type[Exception]:
    request = Request(headers)
    return type("AtRequest", (AtRequest,), {"headers_of_request": request})


CLASSES: list[type[Exception]] = [
    FrozenError,
    OddNotes,
    RefusesAttributes,
    Unreadable,
    at_request(Headers()),
    at_request({"x-stainless-retry-count": [1]}),
    at_request({"x-stainless-retry-count": "many"}),
    type("Unread", (AtRequest,), {"headers_of_request": hostile("headers", property(boom))()}),
    *(hostile(name, property(boom)) for name in (
        "__dict__", "__class__", "__notes__", "__cause__", "__context__", "__suppress_context__",
        "__traceback__", "args", "status", "response", "body", "headers", "request",
    )),
    *(hostile(name, boom) for name in ("__str__", "__repr__", "__eq__", "__bool__", "add_note")),
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
@pytest.mark.parametrize("cls", [FrozenError, OddNotes, RefusesAttributes, CLASSES[4]])
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
        run.fail(at_request({"x-stainless-retry-count": "3"})())
    assert run.outcome == "cancelled"
