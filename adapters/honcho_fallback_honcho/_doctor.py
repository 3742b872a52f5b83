"""The doctor: each agent's chain, and what could not work.

Lines are aligned here and wrapped between words: the name of a variable that a table has folded
can be neither searched for nor copied.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING

from rich.text import Text

from honcho_fallback_honcho._policies import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from honcho_fallback_honcho._chain import PlannedTarget
    from honcho_fallback_honcho._policies import Reading

_Line = tuple[str, str]  # the text, without markup, and one of rich's styles

_BLANK: _Line = ("", "")


def examine(console: Console, env_file: Path | None, toml: Path | None) -> bool:
    """Print the chains and what is wrong with them; tell whether everything could work."""
    reading = read_settings(None, toml, env_file)
    print_lines(console, files_read(env_file, toml))
    print_lines(console, (*_chains(reading), *lines_of_notices(reading)))
    works = not reading.notices
    with_fallback = sum(len(chain) > 1 for chain in reading.chains.values())
    count = f"{with_fallback} of {len(reading.chains)} agents have a fallback."
    print_lines(console, [_BLANK, (count, "bold")])
    if not works:
        print_lines(console, [("Something could not work, see above.", "bold red")])
    return works


def print_lines(console: Console, lines: Iterable[_Line]) -> None:
    """Print lines in their styles, and wrap them between words."""
    wrapper = TextWrapper(
        console.width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    for text, style in lines:
        for piece in wrapper.wrap(text) or [""]:
            console.print(Text(piece, style), soft_wrap=True)


def files_read(env_file: Path | None, toml: Path | None) -> Iterator[_Line]:
    """Say what was read, and what lies here and was not."""
    files = [str(file) for file in (env_file, toml) if file is not None]
    yield f"Read: {', '.join(['the environment', *files])}.", ""
    for name, option, file in ((".env", "--env-file", env_file), ("config.toml", "--toml", toml)):
        if Path(name).is_file() and not (file is not None and file.samefile(name)):
            what = f"Not read: {name} in this folder, which Honcho reads when it is started here"
            yield f"{what}; {option} {name} reads it.", "yellow"


def _chains(reading: Reading) -> Iterator[_Line]:
    cells = [_cells(*place) for chain in reading.chains.values() for place in enumerate(chain)]
    head, *rows = _aligned([("asked  ", "target", "key", "timeout", "host"), *cells])
    yield _BLANK
    yield head, "dim"
    # Agents that ask the same are shown once, together.
    agents_by_rows: dict[tuple[str, ...], list[str]] = {}
    following = iter(rows)
    for agent, chain in reading.chains.items():
        own_rows = tuple(islice(following, len(chain)))
        agents_by_rows.setdefault(own_rows, []).append(agent)
    for own_rows, agents in agents_by_rows.items():
        yield ", ".join(agents), "bold"
        yield from ((row, "") for row in own_rows)


def _cells(position: int, planned: PlannedTarget) -> tuple[str, ...]:
    order, endpoint = "then" if position else "first", planned.endpoint
    return order, planned.target.name, planned.key, f"{endpoint.timeout:g} s", endpoint.host


def lines_of_notices(reading: Reading, agent: str | None = None) -> Iterator[_Line]:
    """Say what is wrong; for one agent only what concerns it."""
    for notice in reading.notices:
        if agent is not None and notice.agents and agent not in notice.agents:
            continue
        is_for_all = len(notice.agents) == len(reading.chains)
        agents = "all agents" if is_for_all else ", ".join(notice.agents)
        yield _BLANK
        yield f"{notice.name}: {notice.problem}{f' ({agents})' if agents else ''}", "red"
        yield f"  {notice.fix}", ""


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
