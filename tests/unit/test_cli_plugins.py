"""Commands by entry points: what pip would install is laid out in a folder."""

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
doctor = plugin_broken:command
"""

OWN_ENTRY_POINTS = """
[honcho_fallback.commands]
hail = own_commands:hail
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
    "own_commands": """
        from typing import Annotated
        import typer
        def hail(times: Annotated[int, typer.Option(help="How often to shout.")] = 1) -> None:
            \"\"\"Hail a ship.

            It need not answer.
            \"\"\"
            print("ahoy " * times)
        """,
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Install a distribution called greeter."""
    for name, source in MODULES.items():
        code = "\n".join(line.removeprefix(" " * 8) for line in source.splitlines())
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    install(tmp_path, "greeter", ENTRY_POINTS)
    return tmp_path


@pytest.fixture
def site_with_own(site: Path) -> Path:
    """Install another version of this distribution beside it, with commands of its own."""
    install(site, "honcho-fallback", OWN_ENTRY_POINTS)
    return site


def install(site: Path, name: str, entry_points: str) -> None:
    """Lay out what pip would."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(entry_points, "utf-8")


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


def test_our_own_command_has_help_options_and_errors_like_any_other(site_with_own: Path) -> None:
    """Its first sentence is listed, -h works, and a wrong option is refused as everywhere."""
    assert "│ hail " in (listed := run(site_with_own, "--help").stdout)
    assert "Hail a ship." in listed
    assert "Of honcho-fallback." not in listed
    helped = run(site_with_own, "hail", "-h")
    assert helped.returncode == 0, helped.stderr
    assert "Usage: honcho-fallback hail [OPTIONS]" in helped.stdout
    assert "It need not answer." in helped.stdout
    assert "How often to shout." in helped.stdout
    assert run(site_with_own, "hail", "--times", "2").stdout == "ahoy ahoy \n"
    refused = run(site_with_own, "hail", "--times", "often")
    assert refused.returncode == 2
    assert "Try 'honcho-fallback hail -h' for help." in refused.stderr


def test_nobody_takes_the_name_of_our_own_command(site: Path) -> None:
    """A distribution that is found first, and has a command of the same name, changes nothing."""
    assert "Usage: honcho-fallback doctor [OPTIONS]" in run(site, "doctor", "--help").stdout


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "doctor",
            "Read Honcho's settings and say what each agent asks, and what could not work.",
        ),
        ("dry-run", "Say who would be asked, in which order and after which waits; nobody is."),
    ],
)
def test_the_commands_on_honchos_settings_are_there(
    tmp_path: Path, name: str, sentence: str
) -> None:
    """They are listed with a sentence of their own and have help, whatever is installed."""
    missing = "sys.modules['pydantic_settings'] = sys.modules['langchain_core'] = None"
    listed = run(tmp_path, "--help", first=missing).stdout
    assert f"│ {name} " in listed
    assert sentence in listed
    helped = run(tmp_path, name, "-h", first=missing)
    assert helped.returncode == 0, helped.stderr
    assert "--env-file" in helped.stdout


@pytest.mark.parametrize("args", [("doctor",), ("dry-run", "--agent", "deriver")])
def test_the_commands_on_honchos_settings_name_their_extra(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    """Without the extra ``honcho`` one line says what to install; exit status 2."""
    done = run(tmp_path, *args, first="sys.modules['pydantic_settings'] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'honcho-fallback[honcho]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
