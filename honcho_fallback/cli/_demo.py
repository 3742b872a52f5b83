"""The demo: set the stage, play every scenario, show what became of it."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from rich.text import Text

from honcho_fallback.cli import _timeline
from honcho_fallback.cli._need import DemoError, need_sdk
from honcho_fallback.cli._play import play
from honcho_fallback.cli._played import Demo, exit_status

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from honcho_fallback.cli._played import Played
    from honcho_fallback.cli._stage import Stage

__all__ = ["CORE", "DemoError", "run"]

CORE = "core"
_GROUP = "honcho_fallback.demo"
_ROUTED = ("litellm", "proxy")  # they own their loop, and have a stage of their own


def run(primary: str | None, fallback: str | None, console: Console, via: str = CORE) -> int:
    """Play everything and return the exit status."""
    need_sdk("openai")
    if via in _ROUTED:
        from honcho_fallback.cli import _via  # noqa: PLC0415 # needs the extra

        if primary is not None or fallback is not None:
            raise DemoError("--via: plays simulated providers; leave --primary and --fallback out")
        return _via.run(via, console)
    demo = _find(via)
    with _set(demo, primary, fallback) as stage:
        names = " -> ".join(target.name for target in stage.chain)
        console.print(Text(f"The chain: {names}", style="bold"))
        played: list[Played] = []
        for scenario in demo.scenarios:
            played.append(play(scenario, stage))
            _timeline.show(console, played[-1])
        if via == CORE:
            from honcho_fallback.cli._traced import show_generation  # noqa: PLC0415 # needs the extra

            show_generation(console, stage)
    _timeline.show_end(console, played)
    return exit_status(played)


def _find(via: str) -> Demo:
    if via == CORE:
        from honcho_fallback.cli._scenarios import DEMO  # noqa: PLC0415 # needs the extra

        return DEMO
    offered = {found.name: found for found in entry_points(group=_GROUP)}
    if via not in offered:
        known = ", ".join([CORE, *sorted([*offered, *_ROUTED])])
        raise DemoError(f"--via: got {via!r}; pass one of {known}")
    demo: Demo = offered[via].load()
    return demo


def _set(demo: Demo, primary: str | None, fallback: str | None) -> AbstractContextManager[Stage]:
    from honcho_fallback.cli._stage import (  # noqa: PLC0415 # needs the extra
        real_stage,
        simulated_stage,
    )

    if primary is None and fallback is None:
        return simulated_stage(demo.connect)
    if primary is None or fallback is None:
        missing = "--primary" if primary is None else "--fallback"
        raise DemoError(f"{missing}: missing; real providers need both --primary and --fallback")
    return real_stage(demo.connect, primary, fallback)
