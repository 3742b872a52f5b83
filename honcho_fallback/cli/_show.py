"""``honcho-fallback show``: what saved calls came to, and a line for each."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from honcho_fallback.redaction import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from honcho_fallback import AttemptRecord, CallRecord

_FAILED = frozenset({"exhausted", "rejected", "interrupted"})  # the others the caller ended


class Call(NamedTuple):
    """Hold a record and its 1-based number in the file."""

    number: int
    record: CallRecord

    @property
    def switches(self) -> int:
        """Count how often the next target was asked."""
        pairs = pairwise(self.record.attempts)
        return sum(one.position != other.position for one, other in pairs)

    @property
    def began(self) -> str:
        """Say when the call began, in local time."""
        moment = datetime.fromtimestamp(self.record.started_at, UTC).astimezone()
        return f"{moment:%Y-%m-%d %H:%M:%S}"


class Filters(NamedTuple):
    """Choose calls; the fields are the options of the command."""

    agents: Sequence[str] = ()
    outcomes: Sequence[str] = ()
    switched: bool = False
    last: int | None = None
    call: str | None = None

    def choose(self, records: Sequence[CallRecord]) -> list[Call]:
        """Return the calls that pass, in the order in which they began."""
        calls = [Call(number, record) for number, record in enumerate(records, start=1)]
        chosen = [call for call in calls if self._passes(call)]
        chosen.sort(key=lambda call: call.record.started_at)
        return chosen if self.last is None else chosen[-self.last :]

    def _passes(self, call: Call) -> bool:
        return (
            (not self.agents or call.record.agent in self.agents)
            and (not self.outcomes or call.record.outcome in self.outcomes)
            and (not self.switched or call.switches > 0)
            and self.call in {None, call.record.call_id, str(call.number)}
        )


def to_json(calls: Sequence[Call]) -> str:
    """Return the figures and the calls as a JSON object."""
    records = [call.record.to_dict() for call in calls]
    return json.dumps({"figures": _figures(calls), "calls": records}, indent=2)


def show_in_detail(calls: Iterable[Call], console: Console) -> None:
    """Print each call in words."""
    for call in calls:
        console.print(f"{call.number}. {call.began}", highlight=False)
        console.print(Text(call.record.explain()))


def show(calls: Sequence[Call], console: Console) -> None:
    """Print figures and a line for each call, none longer than the terminal is wide."""
    figures = _figures(calls)
    counts = (f"{figures[name]:,} {name}" for name in ("calls", "requests", "switches"))
    console.print(", ".join(counts), style="bold", highlight=False)
    for title in ("outcomes", "answered_by", "failures", "failures_by_target"):
        if figures[title]:
            console.print(f"\n{title.replace('_', ' ')}", style="bold")
        for name, count in figures[title].items():
            _print(console, f"{count:>8,}  {name}")
    console.print()
    for line, style in _lines(calls):
        _print(console, line, style)


def _print(console: Console, line: str, style: str = "") -> None:
    # A name may hold what looks like markup, or would act on a terminal.
    console.print(Text(plain(line), style), no_wrap=True, overflow="ellipsis")


def _lines(calls: Sequence[Call]) -> Iterator[tuple[str, str]]:
    """Yield a line for each call, with its style."""
    last = max(len(str(call.number)) for call in calls)
    for call in calls:
        record = call.record
        line = f"{call.number:>{last}} {call.began} {record.seconds:>7.2f} s {record.outcome:<11}"
        style = "red" if record.outcome in _FAILED else "yellow" if call.switches else ""
        yield f"{line} {record.agent} {_path(record)}", style


def _figures(calls: Sequence[Call]) -> dict[str, Any]:
    records = [call.record for call in calls]
    attempts = [attempt for record in records for attempt in record.attempts]
    failed = [each for each in attempts if each.kind and each.kind != "cancelled"]
    return {
        "calls": len(calls),
        "requests": len(attempts),
        "switches": sum(call.switches for call in calls),
        "outcomes": _counts(record.outcome for record in records),
        "answered_by": _counts(record.answered_by for record in records),
        "failures": _counts(map(_failure, failed)),
        "failures_by_target": _counts(each.target for each in failed),
    }


def _failure(attempt: AttemptRecord) -> str:
    """Say what an attempt failed with, and what to do about it."""
    facts = filter(None, (attempt.kind, attempt.error, attempt.status, attempt.code))
    return f"{' '.join(map(str, facts))}: {attempt.next_action}"


def _counts(names: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(str(name) for name in names if name is not None).most_common())


def _path(record: CallRecord) -> str:
    """Say who was asked in turn, and what each failed with."""
    steps: list[str] = []
    for target, attempts in groupby(record.attempts, key=lambda attempt: attempt.target):
        kinds = Counter(attempt.kind for attempt in attempts if attempt.kind).items()
        words = [f"{count}x {kind}" if count > 1 else kind for kind, count in kinds]
        steps.append(" ".join([target, ", ".join(words)]).strip())
    return " -> ".join(steps)
