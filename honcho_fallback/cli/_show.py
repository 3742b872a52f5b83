"""What saved calls came to: the figures, when it happened, and a line for each call."""

from __future__ import annotations

import io
import json
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from honcho_fallback import Outcome
from honcho_fallback.records import read_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from honcho_fallback import CallRecord
    from honcho_fallback.records import RecordError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d+)?)([smhd])")
_PERIODS = {
    "minute": timedelta(minutes=1),
    "5 minutes": timedelta(minutes=5),
    "15 minutes": timedelta(minutes=15),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
_LONGEST = max(_PERIODS.values())
_MOST_PERIODS = 24
_FAILED = frozenset({"exhausted", "rejected", "interrupted"})  # the others the caller ended
_PAGE_WIDTH = 120


class ShowError(ValueError):
    """Refuse an option that the records cannot have."""


class Call(NamedTuple):
    """Hold a record, its 1-based number in the file, and its start where that is a date."""

    number: int
    record: CallRecord
    moment: datetime | None

    @property
    def switches(self) -> int:
        """Count how often the next target was asked."""
        pairs = pairwise(self.record.attempts)
        return sum(one.position != other.position for one, other in pairs)


@dataclass(frozen=True, slots=True)
class Filters:
    """Choose calls; the fields are the options of the command."""

    since: str | None = None
    agent: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    switched: bool = False
    last: int | None = None
    call: str | None = None

    def __str__(self) -> str:
        words: list[str] = []
        for name, value in asdict(self).items():
            text = value if value is None or isinstance(value, str | int) else ", ".join(value)
            words += [f"--{name}" if text is True else f"--{name} {text}"] if text else []
        return " ".join(words)

    def choose(self, calls: Sequence[Call], zone: timezone | None) -> list[Call]:
        """Return the calls that pass, in the order in which they began."""
        known: tuple[str, ...] = get_args(Outcome)
        for outcome in self.outcome:
            if outcome not in known:
                raise ShowError(f"--outcome: got {outcome!r}; pass one of {', '.join(known)}")
        moments = (call.moment for call in calls if call.moment)
        end = max(moments, default=datetime.now(UTC).astimezone(zone))
        start = self.since and _since(self.since, end, zone)
        is_id = any(call.record.call_id == self.call for call in calls)
        chosen = [
            call
            for call in sorted(calls, key=lambda call: call.record.started_at)
            if (not start or (call.moment and call.moment >= start))
            and (not self.agent or call.record.agent in self.agent)
            and (not self.outcome or call.record.outcome in self.outcome)
            and (not self.switched or call.switches)
            and self.call in {None, call.record.call_id if is_id else str(call.number)}
        ]
        return chosen if self.last is None else chosen[-self.last :]


def show(  # noqa: PLR0913 # one per way to show them
    source: str,
    console: Console,
    filters: Filters,
    *,
    html: Path | None,
    as_json: bool,
    utc: bool,
) -> int:
    """Read the calls, print them, and return the exit status."""
    if as_json and html is not None:
        raise ShowError("--json and --html: pass one of them")
    zone = UTC if utc else None
    name = "standard input" if source == "-" else source
    broken: list[RecordError] = []

    def complain(error: RecordError) -> None:
        broken.append(error)
        typer.echo(f"honcho-fallback: {name}: {error}", err=True)

    records = read_records(sys.stdin.buffer if source == "-" else source, broken=complain)
    calls = [
        Call(number, record, _moment(record.started_at, zone))
        for number, record in enumerate(records, start=1)
    ]
    chosen = filters.choose(calls, zone)
    out: Any = sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="backslashreplace")  # a name may be in any script
    page = console if html is None else Console(record=True, file=io.StringIO(), width=_PAGE_WIDTH)
    if as_json:
        dicts = [call.record.to_dict() for call in chosen]
        typer.echo(json.dumps({"figures": _figures(chosen), "calls": dicts}, indent=2))
    elif not chosen:
        which = f" Of its {len(calls):,} calls none has {filters}." if calls else ""
        page.print(Text(_plain(f"No calls in {name}.{which}")))
    elif filters.call is not None:
        for call in chosen:
            page.print(f"{call.number}. {call.moment or 'at no known time'}", highlight=False)
            page.print(call.record)
    else:
        for line, style in _report(chosen, page.width):
            page.print(Text(set_cell_size(line, page.width).rstrip(), style), no_wrap=True)
    if html is not None:
        page.save_html(str(html))
        console.print(Text(f"{html}: {len(chosen):,} calls from {name}"), soft_wrap=True)
    return 1 if broken else 0


def _report(calls: Sequence[Call], width: int) -> Iterator[tuple[str, str]]:
    """Yield each line with its style: figures, periods, calls."""
    figures = _figures(calls)
    counts = (f"{figures[name]:,} {name}" for name in ("calls", "requests", "switches"))
    yield ", ".join(counts), "bold"
    dated = sorted(call.moment for call in calls if call.moment)
    if dated:
        yield f"{dated[0]:%Y-%m-%d %H:%M:%S} to {dated[-1]:%Y-%m-%d %H:%M:%S %Z}", ""
    for title in ("outcomes", "answered_by", "failures_by_kind", "failures_by_target"):
        names = figures[title]
        whole = sum(names.values()) if "failures" in title else len(calls)
        yield from [("", ""), (title.replace("_", " "), "bold")] if names else []
        for name, count in names.items():
            yield f"  {_fit(name, min(40, width - 20))} {count:>8,} {count / whole:>7.1%}", ""
    if dated:
        yield "", ""
        yield from _periods(calls)
    yield "", ""
    yield from _lines(calls, width)


def _periods(calls: Sequence[Call]) -> Iterator[tuple[str, str]]:
    """Yield a line for each period with calls: how many, how many switched, how many failed."""
    for name, length in _PERIODS.items():
        rows: dict[datetime, list[Call]] = {}
        for call in calls:
            if call.moment:
                # On the clock's own scale: a day begins at midnight here.
                midnight = call.moment.replace(hour=0, minute=0, second=0, microsecond=0)
                start = midnight + (call.moment - midnight) // length * length
                rows.setdefault(start, []).append(call)
        if len(rows) <= _MOST_PERIODS or length == _LONGEST:
            yield f"{f'by {name}':<18} {'calls':>8} {'switched':>8} {'failed':>8}", "bold"
            for start, row in rows.items():
                switched = sum(call.switches > 0 for call in row)
                failed = sum(call.record.outcome in _FAILED for call in row)
                yield f"  {start:%Y-%m-%d %H:%M} {len(row):>8,} {switched:>8,} {failed:>8,}", ""
            return


def _lines(calls: Sequence[Call], width: int) -> Iterator[tuple[str, str]]:
    """Yield a line for each call, and one for each day."""
    names = _short_names(calls)
    rows = [
        (
            str(call.number),
            f"{call.moment:%H:%M:%S}" if call.moment else "-",
            f"{call.record.seconds:.2f}",
            call.record.outcome,
            _plain(call.record.agent),
            _path(call.record, names),
        )
        for call in calls
    ]
    heads = ("#", "time", "s", "outcome", "agent", "path")
    widths = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    widths[4] = min(widths[4], width * 3 // 20)
    widths[5] = max(0, width - sum(widths[:5]) - 5)
    day = None
    for call, row in zip((None, *calls), (heads, *rows), strict=True):
        style = "bold"
        if call:
            failed = call.record.outcome in _FAILED
            style = "red" if failed else "yellow" if call.switches else ""
        if call and call.moment and call.moment.date() != day:
            day = call.moment.date()
            yield f"{day}", "bold"
        figures = (f"{cell:>{size}}" for cell, size in zip(row[:3], widths, strict=False))
        words = (_fit(cell, size) for cell, size in zip(row[3:], widths[3:], strict=True))
        yield " ".join([*figures, *words]), style


def _fit(text: str, width: int) -> str:
    text = _plain(text)
    whole = cell_len(text) <= width
    return set_cell_size(text, width) if whole else set_cell_size(text, max(0, width - 3)) + "..."


def _plain(text: str) -> str:
    """Return a text without what could act on a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _moment(seconds: float, zone: timezone | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone(zone)
    except (OSError, OverflowError, ValueError):  # a year that no calendar has
        return None


def _since(text: str, end: datetime, zone: timezone | None) -> datetime:
    """Return the moment that ``--since`` means where the last call began at ``end``."""

    def aware(moment: datetime) -> datetime:
        return moment.replace(tzinfo=moment.tzinfo or zone).astimezone(zone)

    try:
        if duration := _DURATION.fullmatch(text):
            return end - timedelta(seconds=float(duration[1]) * _UNITS[duration[2]])
        if re.fullmatch(r"[\d:]+", text):
            today = datetime.combine(end, time.fromisoformat(text.zfill(5)))
            return aware(today if aware(today) <= end else today - timedelta(days=1))
        return aware(datetime.fromisoformat(text))
    except (OSError, OverflowError, ValueError):
        examples = "14:05, 2026-11-22, 2026-11-22T14:05, or 30m, 2h, 1d before the last call"
        raise ShowError(f"--since: got {text!r}; pass a time such as {examples}") from None


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
        "failures_by_kind": _counts(each.kind for each in failed),
        "failures_by_target": _counts(each.target for each in failed),
    }


def _counts(names: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(str(name) for name in names if name is not None).most_common())


def _short_names(calls: Sequence[Call]) -> Mapping[str, str]:
    """Leave out the provider where the rest of a target's name is clear without it."""
    names = {attempt.target for call in calls for attempt in call.record.attempts}
    shorts = Counter(name.rpartition("/")[2] for name in names)
    return {name: s if shorts[s := name.rpartition("/")[2]] == 1 else name for name in names}


def _path(record: CallRecord, names: Mapping[str, str]) -> str:
    """Say who was asked in turn, and what each failed with."""
    steps: list[str] = []
    for target, attempts in groupby(record.attempts, key=lambda attempt: attempt.target):
        kinds = Counter(attempt.kind for attempt in attempts if attempt.kind).items()
        words = [f"{count}x {kind}" if count > 1 else kind for kind, count in kinds]
        steps.append(" ".join([names[target], ", ".join(words)]).strip())
    return " -> ".join(steps)
