"""The demo: set the stage, play every scenario, show what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from honcho_fallback.cli import _timeline
from honcho_fallback.cli._need import DemoError, need_sdk
from honcho_fallback.cli._played import exit_status

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from honcho_fallback.cli._played import Played
    from honcho_fallback.cli._stage import Stage

__all__ = ["DemoError", "run"]


def run(
    primary: str | None, fallback: str | None, console: Console, *, via: str | None = None
) -> int:
    """Play everything and return the exit status.

    Args:
        primary: ``provider/model`` of a real primary, or None for the simulated one.
        fallback: ``provider/model`` of a real fallback, or None for the local model.
        console: Where to.
        via: ``litellm`` or ``proxy`` to go through LiteLLM, or None.

    Raises:
        DemoError: The targets cannot be used.
        ImportError: The extra ``demo`` is not installed.
    """
    need_sdk("openai")
    if via is not None:
        from honcho_fallback.cli import _via  # noqa: PLC0415 # needs the extra

        if primary is not None or fallback is not None:
            raise DemoError("--via: plays simulated providers; leave --primary and --fallback out")
        return _via.run(via, console)
    from honcho_fallback.cli._scenarios import SCENARIOS, play  # noqa: PLC0415 # needs the extra

    with _set(primary, fallback) as stage:
        names = " -> ".join(target.name for target in stage.chain)
        console.print(Text(f"The chain: {names}", style="bold"))
        played: list[Played] = []
        for scenario in SCENARIOS:
            played.append(play(scenario, stage))
            _timeline.show(console, played[-1])
    _timeline.show_end(console, played)
    return exit_status(played)


def _set(primary: str | None, fallback: str | None) -> AbstractContextManager[Stage]:
    from honcho_fallback.cli._stage import (  # noqa: PLC0415 # needs the extra
        real_stage,
        simulated_stage,
    )

    if primary is None and fallback is None:
        return simulated_stage()
    if primary is None or fallback is None:
        missing = "--primary" if primary is None else "--fallback"
        raise DemoError(f"{missing}: missing; real providers need both --primary and --fallback")
    return real_stage(primary, fallback)
