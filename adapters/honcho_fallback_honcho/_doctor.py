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

from honcho_fallback_honcho._loaders import read_settings
from honcho_fallback_honcho._notices import Effect, Notice, merged
from honcho_fallback_honcho._slots import DEFAULT_TRANSPORT, SLOTS, TRANSPORTS, host_of, key_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from honcho_fallback_honcho._loaders import Reading
    from honcho_fallback_honcho._model_settings import ModelSettings
    from honcho_fallback_honcho._settings import Settings

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
    notices = (*reading.notices, *_differences(reading))
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
    cells = [
        ("then" if position else "first", one.target.name, one.key, one.endpoint.host)
        for chain in reading.chains.values()
        for position, one in enumerate(chain)
    ]
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


# Where Honcho itself reads the settings otherwise: what it ignores, and sends elsewhere. As its
# settings module and its registry of clients were seen to do (main, 2026-08-20).

# Honcho's transports, and where their SDKs look for an address that Honcho does not give them.
_SDKS = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
_OUR_NAMES = ("LLM_DEFAULT_TIMEOUT", "LLM_LMSTUDIO_", "LLM_NOUS_", "LLM_OPENAI_COMPATIBLE_")
_WE_READ_IT = "load_policies() and load_chat_models() read it"


def _differences(reading: Reading) -> tuple[Notice, ...]:
    """Say what Honcho ignores of what our loaders read, and where it sends data instead."""
    settings, notices = reading.settings, []
    for name in reading.names:
        is_ours = name.startswith(_OUR_NAMES) and name.lower() in type(settings).model_fields
        if is_ours and settings.variable(name) != "":
            notices.append(Notice(name, "Honcho has no such setting", _WE_READ_IT, effect="hint"))
    for agent, env in SLOTS.items():
        for node, model, transport in _nodes(env, settings.model_of(agent)):
            ignored = _ignored(node, model, transport, settings)
            notices += [notice._replace(agents=(agent,)) for notice in ignored]
    return merged(notices)


def _nodes(env: str, primary: ModelSettings) -> Iterator[tuple[str, ModelSettings, str | None]]:
    """Yield the two models that Honcho asks for an agent, and over which transport."""
    yield env, primary, primary.transport or DEFAULT_TRANSPORT
    fallback = primary.fallback
    if fallback is not None and not fallback.is_empty:
        prefix = (fallback.model or "").partition("/")[0]
        named = prefix if prefix in TRANSPORTS else None
        yield f"{env}__FALLBACK", fallback, fallback.transport or named


def _ignored(
    env: str, model: ModelSettings, transport: str | None, settings: Settings
) -> Iterator[Notice]:
    if transport not in _SDKS:
        return
    own, shared, sdk = model.overrides, settings.url(transport), _SDKS[transport]
    if own.api_key or (own.api_key_env and settings.variable(own.api_key_env)):
        shared = None  # it is the address of the client with the shared key
    configured, from_sdk = own.base_url or shared, settings.variable(sdk)
    host = host_of(configured or from_sdk or TRANSPORTS[transport].base_url or "")
    to: Effect = "elsewhere"
    if model.base_url:
        problem = f"Honcho ignores it and sends the data to {host}"
        fix = f"the name is {env}__OVERRIDES__BASE_URL"
        yield Notice(f"{env}__BASE_URL", problem, fix, effect=to)
    if model.api_key:
        problem = f"Honcho ignores it and sends {key_name(transport)} to {host}"
        fix = f"the name is {env}__OVERRIDES__API_KEY"
        yield Notice(f"{env}__API_KEY", problem, fix, effect=to)
    if model.fallback is not None and env.endswith("__FALLBACK"):
        yield Notice(f"{env}__FALLBACK", "one too many for Honcho", _WE_READ_IT, effect="hint")
    if from_sdk and not configured:
        problem = f"none of Honcho's settings, yet it sends the data to {host}"
        fix = f"unset it, or set LLM_{transport.upper()}_BASE_URL"
        yield Notice(sdk, problem, fix, effect=to)
