"""Boundaries: which targets may see a call's data, by labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    FallbackPolicy,
    Target,
)
from honcho_fallback.testing import StatusError
from tests.helpers.scripted import DRIVERS, repeating

if TYPE_CHECKING:
    from collections.abc import Callable

DOWN = StatusError(503)
CHAIN = [
    Target("primary", labels={"eu", "zdr"}),
    Target("abroad"),
    Target("careless", labels={"eu"}),
    Target("last", labels=frozenset(["zdr", "eu", "new"])),
]


def policy(**options: Any) -> FallbackPolicy:
    return FallbackPolicy(CHAIN, FallbackConfig(wait=0, **options))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("cooldown", [lambda: None, Cooldown])
def test_data_stays_within_the_labels(driver: str, cooldown: Callable[[], Any]) -> None:
    """Whoever lacks one is passed over, with the reason, also when all others are down."""
    script = repeating(primary=[DOWN], abroad=["leak"], careless=["leak"], last=["hello"])
    boundary = policy(require={"eu", "zdr"}, cooldown=cooldown())
    run = boundary.start()
    assert DRIVERS[driver](boundary, script, run) == "hello"
    assert script.asked == ["primary", "last"]
    assert run.record.untried == (
        ("abroad", "it lacks the label 'eu'"),
        ("careless", "it lacks the label 'zdr'"),
    )
    script = repeating(primary=[DOWN], abroad=["leak"], careless=["leak"], last=[DOWN])
    with pytest.raises(FallbackExhausted):
        DRIVERS[driver](boundary, script, boundary.start())
    assert not {"abroad", "careless"} & {*script.asked}


def test_one_call_may_require_more() -> None:
    """An option of a call, beside what its caller says of targets that do not fit."""
    asks_all = policy()
    script = repeating(primary=[DOWN], abroad=["hello"], last=["hello"])
    asks_all.call(script.ask)
    asks_all.call(script.ask, require={"new"})
    asks_all.call(script.ask, require={"eu"}, unfit={0: "blind", 2: "deaf"})
    assert script.asked == ["primary", "abroad", "last", "last"]


def test_a_turn_that_is_elsewhere_comes_back_within_the_labels() -> None:
    """A turn that went on to a target that this call may not ask begins on one that it may."""
    both = policy(reset="turn")
    script = repeating(primary=[DOWN, "hello"], abroad=["hello"], careless=["hello"])
    with both.turn():
        both.call(script.ask)
        both.call(script.ask, require={"eu"})
    assert script.asked == ["primary", "abroad", "careless"]


def test_where_nobody_may_be_asked_nobody_is() -> None:
    """The error says which label is missing where, before any request."""
    script = repeating(primary=["leak"])
    with pytest.raises(FallbackConfigError, match="primary: it lacks the label 'us'"):
        policy(require={"us"})
    refused: list[Any] = [{"require": {"us"}}, {"require": {"new"}, "must_not_degrade": True}]
    for options in refused:
        with pytest.raises(FallbackConfigError, match="nobody may be asked: primary: it lacks"):
            policy().call(script.ask, **options)
    with pytest.raises(FallbackConfigError, match="lacks the label 'new'; last: blind"):
        policy().call(script.ask, require={"new"}, unfit={3: "blind"})
    assert script.asked == []


@pytest.mark.parametrize("labels", ["eu", 3, [""], [3]])
def test_wrong_labels_are_refused(labels: Any) -> None:
    """A single text would be taken for its letters."""
    with pytest.raises(FallbackConfigError, match=r"pass a set of texts, such as \{'eu'\}"):
        Target("m", labels=labels)
    with pytest.raises(FallbackConfigError, match=r"pass a set of texts, such as \{'eu'\}"):
        FallbackConfig(require=labels)
