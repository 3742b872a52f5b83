"""The doctor: each agent's chain, where it came from, and what could not work.

Lines are aligned here and wrapped between words: the name of a variable that a table has folded
can be neither searched for nor copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING, cast

from pydantic import BaseModel
from rich.text import Text

from honcho_fallback_honcho._policies import read_settings
from honcho_fallback_honcho._slots import GLOBALS, NOUS_PORTAL, NOUS_STATE, NOUS_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from honcho_fallback_honcho._chain import AgentSettings, PlannedTarget
    from honcho_fallback_honcho._model_settings import Section
    from honcho_fallback_honcho._policies import HonchoSettings
    from honcho_fallback_honcho._slots import Slot
    from honcho_fallback_honcho._sources import Sources

_Line = tuple[str, str]  # the text, without markup, and one of rich's styles

_BLANK: _Line = ("", "")
_STYLES = {"note": "dim", "ignored": "yellow"}
_DOTENV_IS_OFF = {"1", "true", "t", "yes", "y"}  # python-dotenv's own words
_RETRIES = (
    "Chat models of load_chat_models() retry nothing by themselves; a client that Honcho makes "
    "itself sends up to 3 requests per attempt, unless it has max_retries=0."
)


def examine(console: Console, env_file: Path | None, toml: Path | None) -> bool:
    """Print the chains and what is wrong with them; tell whether everything could work."""
    settings = read_settings(None, toml, env_file)
    sources = settings.sources
    print_lines(console, files_read(sources.environ, env_file, toml))
    print_lines(
        console, (*_chains(settings), *_values_for_all(sources), *lines_of_notices(settings))
    )
    works = not any(one.breaks_fallback or one.kind == "key" for one in settings.notices)
    with_fallback = sum(len(agent.chain) > 1 for agent in settings.agents)
    count = f"{with_fallback} of {len(settings.agents)} agents have a fallback."
    print_lines(console, [_BLANK, (count, "bold"), (_RETRIES, "")])
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


def files_read(
    environ: Mapping[str, str], env_file: Path | None, toml: Path | None
) -> Iterator[_Line]:
    """Say what was read, and what lies here and was not."""
    files = [str(file) for file in (env_file, toml) if file is not None]
    yield f"Read: {', '.join(['the environment', *files])}.", ""
    unread: dict[str, tuple[str, Path | None]] = {}
    if environ.get("PYTHON_DOTENV_DISABLED", "").casefold() not in _DOTENV_IS_OFF:
        unread[".env"] = "--env-file", env_file
    if "HONCHO_CONFIG_TOML_DISABLED" not in environ:
        unread["config.toml"] = "--toml", toml
    for name, (option, file) in unread.items():
        if Path(name).is_file() and not (file is not None and file.samefile(name)):
            what = f"Not read: {name} in this folder, which Honcho reads when it is started here"
            yield f"{what}; {option} {name} reads it.", "yellow"


def _chains(settings: HonchoSettings) -> Iterator[_Line]:
    planned = [one for agent in settings.agents for one in agent.chain]
    head, *rows = _aligned(
        [("asked  ", "target", "key", "timeout", "host"), *map(_cells, planned)]
    )
    yield _BLANK
    yield head, "dim"
    # Agents that ask the same are shown once, together.
    blocks: dict[tuple[_Line, ...], list[str]] = {}
    following = iter(rows)
    for agent in settings.agents:
        steps = _steps(agent, islice(following, len(agent.chain)))
        lines = (*steps, *_origins(agent.slot, settings.sources))
        blocks.setdefault(lines, []).append(agent.slot.name)
    for lines, agents in blocks.items():
        yield ", ".join(agents), "bold"
        yield from lines


def _cells(planned: PlannedTarget) -> tuple[str, ...]:
    order, endpoint = "then" if planned.path else "first", planned.endpoint
    return order, planned.target.name, planned.key, f"{endpoint.timeout:g} s", endpoint.host


def _steps(agent: AgentSettings, rows: Iterable[str]) -> list[_Line]:
    """Return the agent's targets and what was ignored among them, in the order of the chain."""
    steps = [(len(one.path), row, "") for one, row in zip(agent.chain, rows, strict=True)]
    for notice in agent.ignored:
        depth = notice.name.count("__FALLBACK")
        steps.append((depth, f"  ignored  {notice.name}: {notice.problem}", "yellow"))
    return [(text, style) for _, text, style in sorted(steps)]


def _origins(slot: Slot, sources: Sources) -> Iterator[_Line]:
    for path in _leaves(sources.model_of(slot)):
        # An alias is written otherwise than the field that it fills.
        alias = (*path[:-1], "reasoning_effort")
        source = _origin(path, slot, sources) or _origin(alias, slot, sources)
        yield f"  {'.'.join(path)} from {source}", "dim"


def _leaves(settings: Section, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(cast("Section", value), (*path, name))
        elif name in settings.model_fields_set and value is not None:
            yield (*path, name)


def _origin(path: tuple[str, ...], slot: Slot, sources: Sources) -> str:
    """Name the variable or the table that a value of an agent's model came from, or nothing."""
    names = (*slot.env.split("__"), *path)
    for depth in range(len(names), 0, -1):
        name, below = "__".join(names[:depth]).upper(), names[depth:]
        value = sources.environ.get(name)
        if value is not None and (not below or _holds(json.loads(value), below)):
            return f"{name} (JSON)" if below else name
    table = ".".join((*slot.toml, *path[:-1]))
    return f"config.toml [{table}]" if _holds(sources.toml, (*slot.toml, *path)) else ""


def _holds(tree: object, path: Sequence[str]) -> bool:
    for part in path:
        if not isinstance(tree, Mapping):
            return False
        table = {key.lower(): value for key, value in cast("Mapping[str, object]", tree).items()}
        tree = table.get(part.lower(), "")
    return tree != ""


def _values_for_all(sources: Sources) -> Iterator[_Line]:
    environ, fields = sources.environ, sources.tree.model_fields_set
    yield _BLANK
    for name in (*GLOBALS, NOUS_TOKEN, NOUS_STATE, NOUS_PORTAL):
        if name in environ or name.lower() in fields:
            source = name if name in environ else "config.toml [llm]"
            yield f"all agents: {name.removeprefix('LLM_').lower()} from {source}", "dim"
    yield "Everything else is Honcho's default.", "dim"


def lines_of_notices(settings: HonchoSettings, agent: str | None = None) -> Iterator[_Line]:
    """Say what is wrong; for one agent only what concerns it, and no mere notes."""
    for notice in settings.notices:
        concerns_agent = notice.kind != "note" and (not notice.agents or agent in notice.agents)
        if agent is not None and not concerns_agent:
            continue
        is_for_all = len(notice.agents) == len(settings.agents)
        agents = "all agents" if is_for_all else ", ".join(notice.agents)
        style = "red" if notice.breaks_fallback else _STYLES.get(notice.kind, "red")
        yield _BLANK
        yield f"{notice.name}: {notice.problem}{f' ({agents})' if agents else ''}", style
        yield f"  {notice.fix}", ""


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
