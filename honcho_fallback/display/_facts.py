"""What there is to say of a failure and of a policy, as pairs of a label and words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import tenacity

from honcho_fallback import FailureKind, FallbackConfig
from honcho_fallback.display._words import MISSING, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import Failure, FallbackPolicy, Target
    from honcho_fallback.display._calls import Summary

Facts = list[tuple[str, str]]

ATTEMPT_HEADS = ("", "asked", "said", "waited", "took")
FIGURES = frozenset({"call", "waited", "took"})
TARGET_HEADS = ("", "target", "model", "provider", "context window")


def failure_facts(failure: Failure) -> Facts:
    """Say what a failure means; what the provider wrote is left out."""
    wait = failure.retry_after
    return [
        ("kind", failure.kind.value),
        ("transient", _yes(failure.transient)),
        ("switchable", _yes(failure.switchable)),
        ("status", MISSING if failure.status is None else str(failure.status)),
        ("code", plain(failure.code or MISSING)),
        ("retry after", MISSING if wait is None else f"{wait:g} s"),
        ("error", plain(failure.error or MISSING)),
        ("reason", plain(failure.reason or MISSING)),
        ("cause", failure.cause),
        ("next action", failure.next_action),
    ]


def target_facts(position: int, target: Target) -> tuple[str, ...]:
    """Say what a target is, under TARGET_HEADS: no client, parameter, address or key."""
    window = target.context_window
    return (
        "primary" if position == 0 else f"fallback {position}",
        plain(target.name),
        plain(target.model),
        plain(target.provider or MISSING),
        MISSING if window is None else f"{window:,}",
    )


def option_facts(policy: FallbackPolicy) -> Facts:
    """Say which options differ from the defaults."""
    usual, config = FallbackConfig(), policy.config
    found: Facts = []
    for name, field in FallbackConfig.model_fields.items():
        default, value = getattr(usual, name), getattr(config, name)
        if value is not default and value != default:
            found.append((field.alias or name, plain(", ".join(_words(value, default)))))
    return found


def summary_facts(summary: Summary) -> Facts:
    """Say what a number of calls came to."""
    answered = sum(summary.answered_by.values())
    return [
        ("calls", f"{summary.calls:,}"),
        ("requests", f"{summary.requests:,}"),
        ("switches", f"{summary.switches:,}"),
        ("answered", _share(answered, summary.calls)),
        *(
            (f"answered by {plain(name)}", _share(number, summary.calls))
            for name, number in summary.answered_by.items()
        ),
        *(
            (f"outcome {outcome}", _share(number, summary.calls))
            for outcome, number in summary.outcomes.items()
        ),
    ]


def _share(number: int, calls: int) -> str:
    return f"{number:,} ({number / calls:.1%})" if calls else f"{number:,}"


def _words(value: Any, default: Any) -> Iterator[str]:
    if isinstance(value, frozenset):
        yield _difference(cast("frozenset[FailureKind]", value), default)
    elif isinstance(value, tuple):
        yield from map(_word, cast("tuple[object, ...]", value))
    elif isinstance(value, Mapping):
        for key, each in sorted(cast("Mapping[str, Any]", value).items()):
            yield f"{key}: {_word(each)}"
    else:
        yield _word(value)


def _difference(kinds: frozenset[FailureKind], default: frozenset[FailureKind]) -> str:
    told = "the default"
    for word, those in (("and", kinds - default), ("without", default - kinds)):
        if those:
            told += f" {word} {', '.join(sorted(those))}"
    return told


def _word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return _yes(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, tenacity.wait_fixed):  # what seconds become
        return f"{value.wait_fixed:g} s"
    # By name only: what an object says of itself may hold a key.
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)


def _yes(answer: object) -> str:
    return "yes" if answer else "no"
