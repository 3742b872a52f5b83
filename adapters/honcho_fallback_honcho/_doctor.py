"""What the commands say: the chains and what could not work, or a call that is not made."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from honcho_fallback import CredentialError, FallbackConfigError, FallbackError, FallbackPolicy
from honcho_fallback.simulate import load_policy
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho._keys import state_of
from honcho_fallback_honcho._loaders import read_settings
from honcho_fallback_honcho._notices import Effect, Notice, merged
from honcho_fallback_honcho._slots import SLOTS, TRANSPORTS, host_of, is_address, key_name
from honcho_fallback_honcho._targets import named_by, nodes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from honcho_fallback_honcho._loaders import Reading
    from honcho_fallback_honcho._settings import Settings
    from honcho_fallback_honcho._targets import Node

_WHEN = (
    "Honcho asks the fallback in the last of three attempts; with policy_from() after the first."
)
_TIME = (
    "A request may take 600 s, with policy_from() 180 s, or what PROVIDER_PARAMS__TIMEOUT says."
)
_WORDS: dict[str, Callable[[], Exception]] = {
    "timeout": TimeoutError,
    "connection": ConnectionResetError,
}


def examine(env_file: Path | None, toml: Path | None) -> tuple[list[str], bool]:
    """Return what is wrong and the chains as lines, and whether everything could work."""
    reading, files = _read(env_file, toml)
    ours = ["", "As load_policies() and load_chat_models() read them:", "", *_chains(reading)]
    lines = [_answer(reading), *_lines_of(reading.notices), *ours, "", _WHEN, _TIME, "", files]
    return lines, all(notice.effect == "hint" for notice in reading.notices)


def rehearse(
    agent: str, outcomes: Sequence[str], preset: str, env_file: Path | None, toml: Path | None
) -> list[str]:
    """Ask a real run of the agent's policy what it would do, and return that as lines."""
    reading, files = _read(env_file, toml)
    if agent not in reading.chains:
        raise FallbackConfigError.unknown(agent, reading.chains, "agent")
    chain = reading.chains[agent]
    if len(outcomes) > len(chain):
        raise FallbackConfigError.about(
            "--fail", f"given {len(outcomes)} times", f"{agent} has {len(chain)} targets"
        )
    # A target without its key cannot answer.
    keys = [state_of(target.credential) for target in chain]
    rest = [CredentialError("no key") if key == "missing" else None for key in keys]
    errors = [*map(_error, outcomes), *rest[len(outcomes) :]]
    # The run logs its switches, and nobody has set up where to.
    logging.getLogger("honcho_fallback").addHandler(logging.NullHandler())
    policy = FallbackPolicy(chain, load_policy(preset)[1], agent=agent)
    run = policy.start(turn=policy.turn())
    attempt = run.attempt
    try:
        while (error := errors[attempt.position]) is not None:
            attempt = run.fail(error)
    except Exception as raised:  # noqa: BLE001 # the dry run shows any end
        is_ours = isinstance(raised, FallbackError)
        what = type(raised).__name__ if is_ours else "the provider's own error"
        end = f"Nobody answers: {run.outcome}, the caller gets {what}."
    else:
        run.succeed()
        end = f"{attempt.target.name} answers."
    rows = [("", "asked", "after", "says")]
    for number, one in enumerate(run.record.attempts, start=1):
        says = " ".join(str(fact) for fact in (one.status, one.kind) if fact) or "answers"
        rows.append((str(number), one.target, f"{round(one.wait or 0, 2):g} s", says))
    rows += [("-", name, "", f"never asked: {why}") for name, why in run.record.untried]
    notices = (one for one in reading.notices if not one.agents or agent in one.agents)
    return [files, *_lines_of(notices), "", _WHEN, "", *_aligned(rows), end]


def _read(env_file: Path | None, toml: Path | None) -> tuple[Reading, str]:
    """Read what Honcho would read here, the worst notices first; and name the files."""
    here = {name: Path(name) for name in (".env", "config.toml") if Path(name).is_file()}
    env_file, toml = env_file or here.get(".env"), toml or here.get("config.toml")
    reading = read_settings(None, toml, env_file)
    notices, order = [*reading.notices, *_differences(reading)], get_args(Effect).index
    notices.sort(key=lambda one: order(one.effect))
    files = [str(file) for file in (env_file, toml) if file is not None]
    sources = f"Read: {', '.join(['the environment', *files])}."
    return reading._replace(notices=tuple(notices)), sources


def _answer(reading: Reading) -> str:
    covered = sum(len(chain) > 1 for chain in reading.chains.values())
    answer = f"{covered} of {len(reading.chains)} agents have a fallback"
    counts = Counter(notice.effect for notice in reading.notices)
    if elsewhere := counts["elsewhere"]:
        data = "Honcho sends data elsewhere than these settings say"
        return f"{data}: {_counted(elsewhere)}; {answer}."
    fails = counts["fails"]
    return f"{answer}; {_counted(fails)} cannot work." if fails else f"{answer}."


def _counted(count: int) -> str:
    return f"{count} setting{'s' * (count > 1)}"


def _chains(reading: Reading) -> Iterator[str]:
    # Agents that ask the same are shown once, together.
    agents_by_cells: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for agent, chain in reading.chains.items():
        cells = tuple(
            ("then" if position else "first", one.name, state_of(one.credential), one.client.host)
            for position, one in enumerate(chain)
        )
        agents_by_cells.setdefault(cells, []).append(agent)
    shown = [row for same in agents_by_cells for row in same]
    head, *rows = _aligned([("asked", "target", "key", "host"), *shown])
    yield head
    following = iter(rows)
    for same, agents in agents_by_cells.items():
        yield ", ".join(agents)
        yield from islice(following, len(same))


def _lines_of(notices: Iterable[Notice]) -> Iterator[str]:
    for notice in notices:
        is_for_all = len(notice.agents) == len(SLOTS)
        agents = "all agents" if is_for_all else ", ".join(notice.agents)
        yield ""
        yield f"{notice.name}: {notice.problem}{f' ({agents})' if agents else ''}"
        yield f"  {notice.fix}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _error(outcome: str) -> Exception | None:
    if outcome == "ok":
        return None
    if outcome in _WORDS:
        return _WORDS[outcome]()
    if outcome.isascii() and outcome.isdigit() and 400 <= int(outcome) <= 599:
        return StatusError(int(outcome))
    raise FallbackConfigError.about(
        "--fail", f"got {outcome!r}", f"pass 400 to 599, {', '.join(_WORDS)} or ok"
    )


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
    settings = reading.settings
    notices = [
        Notice(name, "Honcho has no such setting", _WE_READ_IT, effect="hint")
        for name in map(str.upper, sorted(settings.model_fields_set))
        if name.startswith(_OUR_NAMES)
    ]
    for agent in SLOTS:
        for node in islice(nodes_of(agent, settings), 2):  # it asks no more
            ignored = _ignored(node, settings)
            notices += [notice._replace(agents=(agent,)) for notice in ignored]
    return merged(notices)


def _ignored(node: Node, settings: Settings) -> Iterator[Notice]:
    model, env = node.settings, node.env
    transport, _ = named_by(node, []) or ("", "")
    if transport not in _SDKS:
        return
    own, shared, sdk = model.overrides, settings.url(transport), _SDKS[transport]
    if own.api_key or (own.api_key_env and settings.variable(own.api_key_env)):
        shared = None  # it is the address of the client with the shared key
    configured, from_sdk = own.base_url or shared, settings.variable(sdk)
    address = configured or from_sdk or TRANSPORTS[transport].base_url or ""
    host = host_of(address) if is_address(address) else f"the address in {sdk}"  # read unchecked
    for name, what in (("BASE_URL", "the data"), ("API_KEY", key_name(transport))):
        if getattr(model, name.lower()):
            problem = f"Honcho ignores it and sends {what} to {host}"
            fix = f"the name is {env}__OVERRIDES__{name}"
            yield Notice(f"{env}__{name}", problem, fix, effect="elsewhere")
    if model.fallback is not None and node.is_fallback:
        yield Notice(f"{env}__FALLBACK", "one too many for Honcho", _WE_READ_IT, effect="hint")
    if from_sdk and not configured:
        problem = f"none of Honcho's settings, yet it sends the data to {host}"
        fix = f"unset it, or set LLM_{transport.upper()}_BASE_URL"
        yield Notice(sdk, problem, fix, effect="elsewhere")
