"""Commands that another distribution brings: what pip would install is laid out in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ENTRY_POINTS = """
[honcho_fallback.commands]
greet = plugin_function:greet
many = plugin_app:app
broken = plugin_broken:command
missing = plugin_function:nothing
number = plugin_function:NUMBER
explain = plugin_broken:command
"""

MODULES = {
    "plugin_function": """
        import typer
        NUMBER = 3
        def greet(names: list[str], loud: bool = False) -> None:
            "Greet everybody."
            print("hello", *names, "!" if loud else ".")
            raise typer.Exit(4)
        """,
    "plugin_app": """
        import typer
        app = typer.Typer()
        @app.command()
        def one() -> None:
            print("first of many")
        @app.command()
        def two() -> None:
            print("second of many")
        """,
    "plugin_broken": "raise RuntimeError('out of order')",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Install a distribution called greeter."""
    for name, source in MODULES.items():
        code = "\n".join(line.removeprefix(" " * 8) for line in source.splitlines())
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    info = tmp_path / "greeter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, "utf-8")
    return tmp_path


def run(site: Path, *args: str, first: str = "pass") -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, after a line of code."""
    code = f"import sys; {first}; import honcho_fallback.cli as cli; cli.main()"
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_function_is_a_command_with_its_own_arguments(site: Path) -> None:
    """Its arguments, options, help and exit status are its own."""
    done = run(site, "greet", "Ann", "--loud", "Bob")
    assert (done.returncode, done.stdout, done.stderr) == (4, "hello Ann Bob !\n", "")
    helped = run(site, "greet", "-h")
    assert "Usage: honcho-fallback greet" in run(site, "greet", "--help").stdout
    assert helped.returncode != 0  # typer knows no -h unless the plug-in says so
    assert "No such option" in helped.stderr


def test_an_app_is_a_group_of_commands(site: Path) -> None:
    """A typer app keeps its own commands."""
    assert run(site, "many", "two").stdout == "second of many\n"
    assert run(site, "many", "three").returncode == 2


def test_help_names_every_command_and_whose_it_is(site: Path) -> None:
    """What is installed is listed beside what is built in, broken or not, and imports nothing."""
    listed = run(site, "--help", first="sys.modules['plugin_function'] = None").stdout
    for name in ("explain", "greet", "many", "broken"):
        assert f"│ {name} " in listed
    assert listed.count("Of greeter.") == 5


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("broken", "greeter cannot load it: RuntimeError: out of order"),
        ("missing", "greeter cannot load it: AttributeError:"),
        ("number", "greeter cannot load it: TypeError: plugin_function:NUMBER is no typer app"),
    ],
)
def test_a_broken_command_names_itself(site: Path, name: str, problem: str) -> None:
    """One line with the command, its distribution and what is wrong; exit status 2."""
    done = run(site, name, "--any", "thing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"honcho-fallback: {name}: {problem}")
    assert len(done.stderr.splitlines()) == 1


def test_a_built_in_command_imports_no_plugin_and_keeps_its_name(site: Path) -> None:
    """A plug-in cannot take the name of a built-in command, slow it down or break it."""
    report = "import atexit; atexit.register(lambda: print({'plugin_app'} & {*sys.modules}))"
    done = run(site, "explain", "--status", "503", first=report)
    assert done.returncode == 0, done.stderr
    assert "overloaded" in done.stdout
    assert done.stdout.endswith("set()\n")
