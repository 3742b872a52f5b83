"""The doctor: each agent's chain, and what could not work.

Lines are aligned here and wrapped between words: the name of a variable that a table has folded
can be neither searched for nor copied.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING, get_args

from rich.text import Text

from honcho_fallback_honcho._honcho import differences
from honcho_fallback_honcho._loaders import read_settings
from honcho_fallback_honcho._notices import Effect
from honcho_fallback_honcho._slots import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from honcho_fallback_honcho._loaders import Reading
    from honcho_fallback_honcho._targets import PlannedTarget

_Line = tuple[str, str]  # the text, without markup, and one of rich's styles

_BLANK: _Line = ("", "")
_STYLES = {"hint": "yellow", "fails": "red", "elsewhere": "bold red"}
_OURS = "As load_policies() and load_chat_models() read them; where Honcho differs, see above:"
_IN_HONCHO = (
    "Honcho asks the fallback in the last of three attempts; with policy_from() after the first.",
    "A request may take 600 s, with policy_from() 180 s, or what PROVIDER_PARAMS__TIMEOUT says.",
)


def examine(console: Console, env_file: Path | None, toml: Path | None) -> bool:
    """Print what Honcho does, why, and the chains; tell whether everything could work."""
    reading = read_for_honcho(env_file, toml)
    read, *unread = files_read(env_file, toml)
    print_lines(console, [_answer(reading), *unread, *lines_of_notices(reading)])
    print_lines(console, [_BLANK, (_OURS, "")])
    print_lines(console, [*_chains(reading), _BLANK, *((line, "") for line in _IN_HONCHO)])
    print_lines(console, [_BLANK, read])
    return all(notice.effect == "hint" for notice in reading.notices)


def read_for_honcho(env_file: Path | None, toml: Path | None) -> Reading:
    """Read the settings as our loaders do, and add what Honcho does otherwise; the worst first."""
    reading = read_settings(None, toml, env_file)
    notices = (*reading.notices, *differences(reading))
    order = get_args(Effect).index
    return reading._replace(notices=tuple(sorted(notices, key=lambda one: order(one.effect))))


def _answer(reading: Reading) -> _Line:
    count = Counter(notice.effect for notice in reading.notices)
    settings = {effect: f"{n} setting{'s' * (n > 1)}" for effect, n in count.items()}
    covered = sum(len(chain) > 1 for chain in reading.chains.values())
    answer = f"{covered} of {len(reading.chains)} agents have a fallback"
    if "elsewhere" in settings:
        data = f"Honcho sends data elsewhere than these settings say: {settings['elsewhere']}"
        return f"{data}; {answer}.", "bold red"
    fails = f"; {settings['fails']} cannot work" if "fails" in settings else ""
    return f"{answer}{fails}.", "bold red" if fails else "bold"


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
    head, *rows = _aligned([("asked  ", "target", "key", "host"), *cells])
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
    order = "then" if position else "first"
    return order, planned.target.name, planned.key, planned.endpoint.host


def lines_of_notices(reading: Reading, agent: str | None = None) -> Iterator[_Line]:
    """Say what is wrong; for one agent only what concerns it."""
    for notice in reading.notices:
        if agent is not None and notice.agents and agent not in notice.agents:
            continue
        is_for_all, style = len(notice.agents) == len(SLOTS), _STYLES[notice.effect]
        agents = "all agents" if is_for_all else ", ".join(notice.agents)
        yield _BLANK
        yield f"{notice.name}: {notice.problem}{f' ({agents})' if agents else ''}", style
        yield f"  {notice.fix}", ""


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
