"""Commands found by entry points: imported when they are called, but for our own adapters'."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

GROUP = "honcho_fallback.commands"
_OWN = "honcho-fallback"

# The plug-in parses its own arguments; even -h is for it.
_PASS_ON: dict[str, Any] = {
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
    "ignore_unknown_options": True,
}


def add_commands(app: typer.Typer) -> None:
    """Add a command for each entry point whose name is free.

    Those of our own distribution are light: they are imported, so that help, options and errors
    are those of any built-in command. Nobody else's are before they are called.

    Args:
        app: Gets the commands.
    """
    taken = {
        command.name or getattr(command.callback, "__name__", "")
        for command in app.registered_commands
    }
    # Our own come first, wherever they are installed: nobody takes their names.
    for entry_point in sorted(entry_points(group=GROUP), key=_is_foreign):
        if entry_point.name in taken:
            continue
        taken.add(entry_point.name)
        if _is_foreign(entry_point):
            _add_lazily(app, entry_point)
        else:
            app.command(entry_point.name)(entry_point.load())


def _is_foreign(entry_point: EntryPoint) -> bool:
    return entry_point.dist is None or entry_point.dist.name != _OWN


def _add_lazily(app: typer.Typer, entry_point: EntryPoint) -> None:
    distribution = entry_point.dist.name if entry_point.dist else "another distribution"

    @app.command(entry_point.name, help=f"Of {distribution}.", context_settings=_PASS_ON)
    def run(context: typer.Context) -> None:
        try:
            plugin = _load(entry_point)
        except Exception as error:  # noqa: BLE001 # importing a plug-in may raise anything
            problem = f"{distribution} cannot load it: {type(error).__name__}: {error}"
            typer.echo(f"honcho-fallback: {entry_point.name}: {problem}", err=True)
            raise typer.Exit(2) from None
        typer.main.get_command(plugin)(args=context.args, prog_name=context.command_path)


def _load(entry_point: EntryPoint) -> typer.Typer:
    plugin = entry_point.load()
    if isinstance(plugin, typer.Typer):
        return plugin
    if not callable(plugin):
        raise TypeError(f"{entry_point.value} is no typer app and no function")
    app = typer.Typer(add_completion=False)
    app.command()(plugin)
    return app
