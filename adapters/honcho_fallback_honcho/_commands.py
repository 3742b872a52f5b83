"""The commands ``doctor`` and ``dry-run``: their options, and how they end.

``honcho-fallback`` imports this module whatever is asked of it; what a command does is imported
when it runs.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

_EnvFile = Annotated[
    Path | None, typer.Option(help="A .env file; wins over the environment, as in Honcho.")
]
_Toml = Annotated[Path | None, typer.Option(help="Honcho's config.toml.")]
# A user typed an option; the settings' reader names its own argument.
_OPTION_OF = {"env_file": "--env-file", "toml": "--toml"}


def doctor(env_file: _EnvFile = None, toml: _Toml = None) -> None:
    """Read the settings of Honcho's models; say who is asked, what Honcho ignores, what to mend.

    No key is shown. Exit status 1 where Honcho sends data elsewhere, or something could not work.
    """
    with _clear_endings():
        from honcho_fallback_honcho._doctor import examine  # noqa: PLC0415 # see above

        works = examine(Console(), env_file, toml)
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
    with _clear_endings():
        from honcho_fallback_honcho import _doctor  # noqa: PLC0415 # see above
        from honcho_fallback_honcho._dry_run import rehearse, show  # noqa: PLC0415 # see above

        reading, console = _doctor.read_for_honcho(env_file, toml), Console()
        record, end = rehearse(reading, agent, fail or [], preset)
        _doctor.print_lines(console, _doctor.files_read(env_file, toml))
        _doctor.print_lines(console, _doctor.lines_of_notices(reading, agent))
        show(record, end, console)


@contextmanager
def _clear_endings() -> Generator[None]:
    """End with one line for a mistake, and let no log line come between the lines shown."""
    logger, handler = logging.getLogger("honcho_fallback"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    except (FallbackConfigError, ImportError) as error:
        field, colon, rest = str(error).partition(":")
        typer.echo(f"honcho-fallback: {_OPTION_OF.get(field, field)}{colon}{rest}", err=True)
        raise typer.Exit(2) from None
    finally:
        logger.removeHandler(handler)
