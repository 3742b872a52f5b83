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
# Whose order and waits a dry run shows, by whether Honcho starts.
_MEANS = {
    True: "In Honcho with policy_from(); without it the fallback is asked in the last of three "
    "attempts.",
    False: "With load_policies(); Honcho does not start.",
}


def doctor(env_file: _EnvFile = None, toml: _Toml = None) -> None:
    """Read the settings of Honcho's models; say what Honcho does with them, and what to mend.

    No key is shown. Exit status 1 where Honcho does not start, sends data elsewhere, or something
    could not work.
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
    preset: Annotated[str, typer.Option(help="honcho, default, resilient or hermes.")] = "honcho",
    env_file: _EnvFile = None,
    toml: _Toml = None,
) -> None:
    """Say who would be asked, in which order and after which waits; nobody is."""
    with _clear_endings():
        from honcho_fallback_honcho import _doctor  # noqa: PLC0415 # see above
        from honcho_fallback_honcho._dry_run import rehearse, show  # noqa: PLC0415 # see above
        from honcho_fallback_honcho._honcho import read_as_honcho  # noqa: PLC0415 # see above
        from honcho_fallback_honcho._policies import read_settings  # noqa: PLC0415 # see above

        reading = read_settings(None, toml, env_file)
        honcho = read_as_honcho(reading)
        record, end = rehearse(honcho if honcho.chains else reading, agent, fail or [], preset)
        console = Console()
        _doctor.print_lines(console, _doctor.files_read(env_file, toml))
        _doctor.print_lines(console, _doctor.lines_of_notices(honcho, agent))
        _doctor.print_lines(console, (("", ""), (_MEANS[bool(honcho.chains)], "")))
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
