"""The commands and their options; what they do stands in modules of their own."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from honcho_fallback import FallbackConfig, FallbackConfigError
from honcho_fallback.cli import _explain
from honcho_fallback.records import read_records

if TYPE_CHECKING:
    from collections.abc import Generator

    from honcho_fallback import CallRecord
    from honcho_fallback.records import RecordError

app = typer.Typer(
    help="A fallback policy for LLM calls: what errors, saved calls and incidents come to.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


# A user typed an option; the settings' reader names its own argument.
_OPTION_OF = {"env_file": "--env-file", "toml": "--toml"}


@contextmanager
def _plain_errors() -> Generator[None]:
    """End with one line and status 2 for a mistake of the user, or a missing extra."""
    try:
        yield
    except (FallbackConfigError, ImportError) as error:
        name, colon, rest = str(error).partition(":")
        typer.echo(f"honcho-fallback: {_OPTION_OF.get(name, name)}{colon}{rest}", err=True)
        raise typer.Exit(2) from None


def _show_version(requested: bool) -> None:  # noqa: FBT001 # how typer calls it
    if requested:
        typer.echo(f"honcho-fallback {installed_version('honcho-fallback')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
@_plain_errors()
def explain(  # one per option
    status: Annotated[int | None, typer.Option(min=100, max=599, help="HTTP status.")] = None,
    body: Annotated[
        str | None,
        typer.Option(help="Body of the response, as JSON, HTML or text; - reads stdin."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="'name: value'; may be repeated.")
    ] = None,
    *,
    rules: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Rules of your own, as TOML; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Say what a provider's error means and what the default policy would do about it."""
    config = FallbackConfig(rules=rules)
    response = _explain.read_response(status, body, header or [])
    explanation = _explain.explain(response, config)
    if as_json:
        typer.echo(_explain.to_json(explanation))
    else:
        _explain.show(explanation, Console())


def _read(source: str) -> tuple[list[CallRecord], bool]:
    """Read saved records, and tell whether all lines were; the others are named."""
    name = "standard input" if source == "-" else source
    broken: list[RecordError] = []
    try:
        lines = sys.stdin.buffer if source == "-" else source
        records = list(read_records(lines, broken=broken.append))
    except OSError as error:
        raise FallbackConfigError.about(name, str(error.strerror), "check the path") from None
    for line in broken:
        typer.echo(f"honcho-fallback: {name}: {line}", err=True)
    return records, not broken


@app.command()
@_plain_errors()
def show(  # noqa: PLR0913 # one per option
    source: Annotated[
        str,
        typer.Argument(
            metavar="RECORDS.jsonl",
            help="A file with one record.to_dict() in JSON per line; - reads stdin.",
        ),
    ],
    *,
    agent: Annotated[
        list[str] | None, typer.Option(help="Only calls of this agent; may be repeated.")
    ] = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(help="Only calls that ended so, such as exhausted; may be repeated."),
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, help="Only the last so many calls.")] = None,
    call: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="One call in detail, by its id or its number in the list."
        ),
    ] = None,
    switched: Annotated[
        bool, typer.Option("--switched", help="Only calls that switched to another target.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Say what saved calls came to: figures, and a line for each call in local time.

    Lines that are no record are named on standard error; the others are shown all the same. Exit
    status 1 if there was one.
    """
    from honcho_fallback.cli import _show  # noqa: PLC0415 # only this command needs it

    records, is_whole = _read(source)
    filters = _show.Filters(agent or (), outcome or (), switched, last, call)
    chosen = filters.choose(records)
    if as_json:
        typer.echo(_show.to_json(chosen))
    elif not chosen:
        typer.echo(f"No call is shown, of {len(records):,}.")
    elif call is not None:
        _show.show_in_detail(chosen, Console())
    else:
        _show.show(chosen, Console())
    raise typer.Exit(0 if is_whole else 1)


@app.command()
@_plain_errors()
def simulate(  # noqa: PLR0913 # one per option
    scenario: Annotated[
        str | None,
        typer.Argument(help="A shipped scenario, a TOML file, or saved records."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A TOML file or a name, such as resilient; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed, the same figures.")] = 0,
    calls: Annotated[int | None, typer.Option(help="About how many calls to make.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List shipped scenarios.")] = False,
) -> None:
    """Compare policies on one incident, in virtual time: no key, no network."""
    from honcho_fallback.cli import _simulate  # noqa: PLC0415 # the other commands start sooner
    from honcho_fallback.simulate import load_scenario, shipped  # noqa: PLC0415 # likewise

    if show_list:
        for name in shipped():
            typer.echo(f"{name:<18}{load_scenario(name).summary}")
        return
    if scenario is None:
        raise FallbackConfigError("name a scenario, such as outage; --list shows those shipped")
    comparison = _simulate.play(scenario, policy or (), seed, calls)
    if as_json:
        typer.echo(json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False))
    else:
        typer.echo(comparison)


for _command in entry_points(group="honcho_fallback.commands"):
    app.command(_command.name)(_plain_errors()(_command.load()))
