"""The commands ``doctor`` and ``dry-run``: their options.

``honcho-fallback`` imports this module whatever is asked of it; what a command does is imported
when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_EnvFile = Annotated[
    Path | None,
    typer.Option(help="Wins over the environment, as in Honcho; default: .env, if it is here."),
]
_Toml = Annotated[
    Path | None,
    typer.Option(help="Honcho's config.toml; default: the one here, if there is one."),
]


def doctor(env_file: _EnvFile = None, toml: _Toml = None) -> None:
    """Read the settings of Honcho's models; say who is asked, what Honcho ignores, what to mend.

    No key is shown. Exit status 1 where Honcho sends data elsewhere, or something could not work.
    """
    from honcho_fallback_honcho._doctor import examine  # noqa: PLC0415 # see above

    lines, works = examine(env_file, toml)
    typer.echo("\n".join(lines))
    raise typer.Exit(0 if works else 1)


def dry_run(
    agent: Annotated[str, typer.Option(help="Such as deriver or dialectic.max.")],
    fail: Annotated[
        list[str] | None,
        typer.Option(
            help="What a target says: 400 to 599, timeout, connection or ok. Repeat it for the "
            "targets down the chain; those not named answer."
        ),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="As simulate takes it: a name, or a TOML file.")
    ] = "honcho",
    env_file: _EnvFile = None,
    toml: _Toml = None,
) -> None:
    """Say who would be asked, in which order and after which waits; nobody is."""
    from honcho_fallback_honcho._doctor import rehearse  # noqa: PLC0415 # see above

    typer.echo("\n".join(rehearse(agent, fail or [], preset, env_file, toml)))
