"""The doctor: each agent's chain, where it came from, and what could not work."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

from honcho_fallback import FallbackError, classify
from honcho_fallback_honcho._slots import GLOBALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import Console

    from honcho_fallback_honcho._chain import PlannedTarget
    from honcho_fallback_honcho._policies import AgentSettings, HonchoSettings
    from honcho_fallback_honcho._model_settings import Section
    from honcho_fallback_honcho._notices import Notice
    from honcho_fallback_honcho._slots import Slot
    from honcho_fallback_honcho._sources import Sources

_HEADS = ("agent", "asked", "target", "host", "key", "timeout")
_STYLES = {"note": "dim", "ignored": "yellow"}
_PROBE_SECONDS = 20.0


class Probe(NamedTuple):
    """Hold the result of one tiny request.

    Args:
        target: The target's name.
        host: Where it went.
        problem: Kind of failure and class, or empty.
        advice: What to do, or empty.
        seconds: How long it took.
    """

    target: str
    host: str
    problem: str
    advice: str
    seconds: float


def examine(settings: HonchoSettings, console: Console, *, probe: bool) -> int:
    """Print the chains and what is wrong with them; return the exit status."""
    _show_chains(settings, console)
    _show_origins(settings, console)
    _show_notices(settings.notices, console)
    broken = any(notice.breaks_fallback or notice.kind == "key" for notice in settings.notices)
    if probe:
        probes = [_probed(planned) for planned in _distinct(settings.agents)]
        _show_probes(probes, console)
        broken = broken or any(one.problem for one in probes)
    with_fallback = sum(len(agent.chain) > 1 for agent in settings.agents)
    console.print()
    console.print(
        Text(f"{with_fallback} of {len(settings.agents)} agents have a fallback.", style="bold")
    )
    console.print(
        Text(
            "The SDKs' own retries: off in clients of build_client(); an SDK client that Honcho "
            "makes itself sends up to 3 requests per attempt unless it has max_retries=0."
        )
    )
    if broken:
        console.print(Text("Something could not work, see above.", style="bold red"))
    return int(broken)


def origin(path: tuple[str, ...], slot: Slot, sources: Sources) -> str:
    """Say where a value of an agent's model came from."""
    for depth in range(len(path), -1, -1):
        name = "__".join((slot.env, *path[:depth])).upper()
        if name in sources.environ:
            return name if depth == len(path) else f"{name} (JSON)"
    if slot.toml[:2] == ("dialectic", "levels"):
        for name in (f"DIALECTIC_LEVELS__{slot.toml[2]}".upper(), "DIALECTIC_LEVELS"):
            if name in sources.environ:
                return f"{name} (JSON)"
    table = (*slot.toml, *path[:-1])
    return (
        f"config.toml [{'.'.join(table)}]" if _in_file(sources.toml, (*slot.toml, *path)) else ""
    )


def _leaves(settings: Section, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(cast("Section", value), (*path, name))
        elif name in settings.model_fields_set and value is not None:
            yield (*path, name)


def _show_origins(settings: HonchoSettings, console: Console) -> None:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for head in ("agent", "value", "from"):
        table.add_column(head, style="dim", overflow="fold")
    sources = settings.sources
    for agent in settings.agents:
        for path in _leaves(sources.model_of(agent.slot)):
            # An alias is written otherwise than the field that it fills.
            source = origin(path, agent.slot, sources) or origin(
                (*path[:-1], "reasoning_effort"), agent.slot, sources
            )
            table.add_row(Text(agent.slot.name), Text(".".join(path)), Text(source))
    named = [name for name in GLOBALS if name in sources.environ]
    for name in named:
        table.add_row(Text("all"), Text(name.removeprefix("LLM_").lower()), Text(name))
    for key in sources.toml.get("llm", {}):
        if f"LLM_{key}".upper() not in named:
            table.add_row(Text("all"), Text(key), Text("config.toml [llm]"))
    console.print()
    if table.row_count:
        console.print(table)
    console.print(Text("Everything else is Honcho's default.", style="dim"))


def _in_file(file: Mapping[str, Any], path: Iterable[str]) -> bool:
    table: Any = file
    for part in path:
        lowered = {str(k).lower(): v for k, v in table.items()} if hasattr(table, "items") else {}
        if part.lower() not in lowered:
            return False
        table = lowered[part.lower()]
    return True


def _show_chains(settings: HonchoSettings, console: Console) -> None:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for head in _HEADS:
        table.add_column(head, style="dim", overflow="fold")
    for agent in settings.agents:
        for position, planned in enumerate(agent.chain):
            endpoint = planned.endpoint
            needs = "missing" if endpoint.needs_key else "not needed"
            table.add_row(
                Text(agent.slot.name if position == 0 else "", style="bold"),
                Text("first" if position == 0 else "then"),
                Text(planned.target.name),
                Text(endpoint.host),
                Text("set" if endpoint.api_key else needs),
                Text(f"{endpoint.timeout:g} s"),
            )
    console.print(table)


def _show_notices(notices: Iterable[Notice], console: Console) -> None:
    for notice in notices:
        agents = f" ({', '.join(notice.agents)})" if notice.agents else ""
        style = "red" if notice.breaks_fallback else _STYLES.get(notice.kind, "red")
        console.print()
        console.print(Text(f"{notice.name}: {notice.problem}{agents}", style=style))
        console.print(Text(f"  {notice.fix}"))


def _distinct(agents: Iterable[AgentSettings]) -> list[PlannedTarget]:
    planned = {(one.target.model, one.endpoint): one for agent in agents for one in agent.chain}
    return list(planned.values())


def _probed(planned: PlannedTarget) -> Probe:
    from honcho_fallback import FallbackConfig, FallbackPolicy  # noqa: PLC0415 # with the SDKs
    from honcho_fallback.settings import honcho_call  # noqa: PLC0415 # only a probe needs it

    seconds = min(_PROBE_SECONDS, planned.endpoint.timeout)
    policy = FallbackPolicy(
        [planned.target], FallbackConfig(max_attempts=1, timeout=seconds), agent="doctor"
    )
    began, problem, advice = perf_counter(), "", ""
    try:
        honcho_call(policy, [{"role": "user", "content": "Say ok."}], max_tokens=16)
    except ImportError as error:
        problem, advice = "no SDK", str(error)
    except FallbackError as error:
        problem, advice = type(error).__name__, "see above"
    except Exception as error:  # noqa: BLE001 # the report shows any error of a provider
        failure = classify(error)
        facts = (failure.kind.value, failure.status, failure.error)
        problem = " ".join(str(fact) for fact in facts if fact)
        advice = failure.next_action
    spent = perf_counter() - began
    return Probe(planned.target.name, planned.endpoint.host, problem, advice, spent)


def _show_probes(probes: Iterable[Probe], console: Console) -> None:
    console.print()
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for head in ("probed", "host", "said", "ms", "what to do"):
        table.add_column(head, style="dim", overflow="fold")
    for probe in probes:
        result = Text(probe.problem or "answered", style="red" if probe.problem else "green")
        milliseconds = Text(f"{probe.seconds * 1000:.0f}")
        table.add_row(
            Text(probe.target), Text(probe.host), result, milliseconds, Text(probe.advice)
        )
    console.print(table)
