"""Write the pages whose facts stand in the code: options, commands, the order of decisions.

``python docs/_generate.py`` writes them, ``--check`` says which are stale and fails. It needs the
extras ``cli`` and ``honcho``, for the commands.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tenacity
import typer

from honcho_fallback import FailureKind, FallbackConfig
from honcho_fallback._core import config as config_module
from honcho_fallback._core import rules
from honcho_fallback.cli._app import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_NOTICE = "<!-- Written by docs/_generate.py from the code: edit that, and run it. -->"

# The groups in which a reader looks for an option; _option_groups sees to it that none is missing.
_GROUPS: dict[str, tuple[str, ...]] = {
    "When to switch": (
        "fallback_on", "switch_after", "max_attempts", "attempts_per_target",
        "reset", "replay",
    ),
    "Whom to ask": ("require", "refusal_require", "must_not_degrade"),
    "Waits": ("wait", "retry_after_cap"),
    "Time": (
        "timeout", "connect_timeout", "deadline", "first_token_timeout", "idle_timeout",
        "min_rate",
    ),
    "What is remembered across calls": ("cooldown", "retry_budget", "transport_recovery"),
    "What errors and answers mean": (
        "rules", "refine", "only_models", "check_responses", "validate",
    ),
    "How a call ends": ("on_exhausted",),
}  # fmt: skip
_OPTIONS_HEAD = f"""\
# Options

{_NOTICE}

`FallbackConfig(...)` takes them for a policy; a single call takes the same names as keywords. A
wrong option raises `FallbackConfigError`, which names the option and what it takes. Times are in
seconds.

For agents in production start with `FallbackConfig.resilient()`, a [preset](#presets)."""
_CLI_HEAD = f"""\
# The command line

{_NOTICE}

`honcho-fallback` comes with the extra `cli`: `pip install 'honcho-fallback[cli]'`, in a checkout
`pip install '.[cli]'`. `doctor` and `dry-run` need the extra `honcho`, too. Every command tells
its options with `--help`.

| command | what it does | more |
|---|---|---|"""
# The page that tells more of a command.
_MORE = {
    "explain": "[What an error means](classification.md)",
    "show": "[Records](operations.md#records)",
    "simulate": "[The simulator](simulator.md)",
    "doctor": "[Hosting Honcho](honcho.md#hosting-honcho)",
    "dry-run": "[Hosting Honcho](honcho.md#hosting-honcho)",
}
# A command line or two for each command; the tests parse them.
EXAMPLES = {
    "explain": (
        """honcho-fallback explain --status 429 --body '{"error": {"code": "quota_exceeded"}}'""",
    ),
    "show": (
        "honcho-fallback show calls.jsonl --agent deriver --switched",
        "honcho-fallback show calls.jsonl --call 3",
    ),
    "simulate": (
        "honcho-fallback simulate --list",
        "honcho-fallback simulate outage --policy resilient --policy honcho",
    ),
    "doctor": ("honcho-fallback doctor",),
    "dry-run": ("honcho-fallback dry-run --agent deriver --fail 429",),
}
_CLI_TAIL = """
## Commands of your own

A package adds a command by an entry point in the group `honcho_fallback.commands`: its name is the
command's, its object a function with typer's annotations. It is imported with every command.
"""
_END = "─> the call ends with an error"
_DEFAULTS_IN_WORDS = {
    "max_attempts": "3, or what reaches the chain's end",
    "classify": "the package's own",
}
_MACHINE_TAIL = """\
The call takes the first option that applies and that the deadline and the retry budget permit.

| | option | when |
|---|---|---|"""
_PRESETS = ("resilient", "honcho", "hermes")


def options_page() -> str:
    """Return docs/options.md: each option of FallbackConfig, and the presets side by side."""
    meanings = _argument_descriptions(FallbackConfig)
    defaults = _values(FallbackConfig())
    takes_by_option = config_module.takes()
    lines = [_OPTIONS_HEAD]
    for title, names in _option_groups(defaults):
        lines += [
            "",
            f"## {title}",
            "",
            "| option | meaning | takes | default |",
            "|---|---|---|---|",
        ]
        for name in names:
            takes = _as_cell(takes_by_option[name].description)
            lines.append(
                f"| `{name}` | {meanings[name]} | {takes} | {_shown(name, defaults[name])} |"
            )
    return "\n".join([*lines, "", *_presets(defaults)]) + "\n"


def _presets(defaults: dict[str, Any]) -> list[str]:
    """Return the table of what each preset sets; an empty cell is the default."""
    makers: list[Callable[[], FallbackConfig]] = [
        getattr(FallbackConfig, name) for name in _PRESETS
    ]
    lines = ["## Presets", ""]
    for name, maker in zip(_PRESETS, makers, strict=True):
        text = inspect.cleandoc(maker.__doc__ or "").partition("\n\nArgs:")[0]
        first, _, more = text.partition("\n\n")
        lines += [
            f"`FallbackConfig.{name}()`: {_as_text(_uncapitalized(first.removeprefix('Return ')))}"
        ]
        # A list of reasons stays one.
        lines += ["", more.replace("``", "`") if more.startswith("- ") else _as_text(more), ""]
    configs = [maker() for maker in makers]
    lines += [
        "All take further options: `FallbackConfig.resilient(deadline=60)`. What they set:",
        "",
        f"| what it sets | default | {' | '.join(f'`{name}`' for name in _PRESETS)} |",
        "|---|---|" + "---|" * len(_PRESETS),
    ]
    for name, default in defaults.items():
        cells = [_shown(name, _values(one)[name]) if _is_set(one, name) else "" for one in configs]
        if any(cells):
            lines.append(f"| `{name}` | {_shown(name, default)} | {' | '.join(cells)} |")
    return lines


def _option_groups(defaults: Iterable[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    grouped = sorted(name for names in _GROUPS.values() for name in names)
    if grouped != sorted(defaults):
        raise ValueError(f"_GROUPS differ from the options: {set(grouped) ^ set(defaults)}")
    return _GROUPS.items()


def _values(config: FallbackConfig) -> dict[str, Any]:
    """Return the values of a config by the options' public names."""
    fields = type(config).model_fields
    return {field.alias or name: getattr(config, name) for name, field in fields.items()}


def _is_set(config: FallbackConfig, option: str) -> bool:
    fields = type(config).model_fields
    return any((fields[name].alias or name) == option for name in config.model_fields_set)


def _shown(name: str, value: object) -> str:
    """Show an option's value as its reader would write it, a function by what it does."""
    if value is None or value in ((), {}, frozenset()):
        text = _DEFAULTS_IN_WORDS.get(name, "none")
    elif isinstance(value, frozenset):
        text = _kinds(value)
    elif isinstance(value, dict):
        text = "`{" + ", ".join(f'"{kind}": {number}' for kind, number in value.items()) + "}`"
    elif isinstance(value, tenacity.wait.wait_base):
        text = f"`{_strategy(value)}`"
    elif inspect.isfunction(value):
        text = _as_text((value.__doc__ or "").partition("\n")[0].rstrip("."))
    elif isinstance(value, str):
        text = f'`"{value}"`'
    else:
        text = f"`{value:g}`" if isinstance(value, float) else f"`{value!r}`"
    return _as_cell(text)


def _kinds(kinds: frozenset[Any]) -> str:
    """List kinds, or those that are missing where these are fewer."""
    missing = set(FailureKind) - kinds
    shown = missing if len(missing) < len(kinds) else kinds
    words = ", ".join(f"`{kind.value}`" for kind in FailureKind if kind in shown)
    return f"all but {words}" if shown is missing else words


def _strategy(strategy: tenacity.wait.wait_base) -> str:
    """Write a tenacity strategy as the call that makes it, without what is tenacity's default."""
    defaults = inspect.signature(type(strategy)).parameters
    given = {
        name: value
        for name, value in vars(strategy).items()
        if name in defaults and value != defaults[name].default and value < 1e6
    }
    arguments = ", ".join(f"{name}={value:g}" for name, value in given.items())
    return f"{type(strategy).__name__}({arguments})"


def cli_page() -> str:
    """Return docs/cli.md: each command's own help."""
    group = typer.main.get_group(app)
    parent = typer.Context(group, info_name="honcho-fallback", terminal_width=100)
    lines = [_CLI_HEAD]
    for name, command in group.commands.items():
        summary = _as_text((command.help or "").partition("\n\n")[0])
        lines.append(f"| [`{name}`](#{name}) | {_as_cell(summary)} | {_MORE[name]} |")
    for name, command in group.commands.items():
        context = typer.Context(command, info_name=name, parent=parent)
        lines += ["", f"## {name}", "", "```text", command.get_usage(context), "```", ""]
        lines += [_paragraphs(command.help or ""), "", "```sh", *EXAMPLES[name], "```", ""]
        lines += ["| option | meaning |", "|---|---|"]
        for parameter in command.get_params(context):
            usage, meaning = parameter.get_help_record(context) or ("", "")
            if usage and usage != "--help":
                lines.append(f"| `{usage}` | {_as_cell(_as_text(meaning))} |")
    return "\n".join([*lines, _CLI_TAIL])


def machine_snippet() -> str:
    """Return the order of the options after a failure, as a figure and as a table.

    The order is that of the ``yield`` expressions of ``rules.options``, the words are those of its
    module's theory of operation; where the two differ nothing is written.
    """
    steps = _theory(inspect.getdoc(rules) or "")
    yielded = _yielded(inspect.getsource(rules.options))
    if [name for name, _, _ in steps] != yielded:
        raise ValueError(f"the theory has {[name for name, *_ in steps]}, the code {yielded}")
    head = ("ask the target <", "  ├─ an answer ─> success", "  └─ a failure: the first of these")
    options = [
        f"     {number}. {title} {_END if name == 'Stop' else '─'}"
        for number, (name, title, _) in enumerate(steps, 1)
    ]
    width = max(map(len, (*head, *options))) + 1
    lines = [_NOTICE, "", "```text", f"{head[0].ljust(width, '─')}┐"]
    lines += [f"{line.ljust(width)}│" for line in head[1:]]
    names = [name for name, *_ in steps]
    last = max(place for place, name in enumerate(names) if name != "Stop")
    for place, (name, option) in enumerate(zip(names, options, strict=True)):
        if name == "Stop":
            lines.append(f"{option.ljust(width)}│" if place < last else option)
        else:
            lines.append(option.ljust(width, "─") + ("┘" if place == last else "┤"))
    lines += ["```", "", _MACHINE_TAIL]
    for number, (_, title, why) in enumerate(steps, 1):
        lines.append(f"| {number} | {_as_cell(title)} | {_as_cell(why)} |")
    return "\n".join(lines) + "\n"


def _theory(text: str) -> list[tuple[str, str, str]]:
    """Return each option of the numbered list: its class, its title, and when it is taken."""
    items = re.findall(r"^\d\. \*\*(\w+)\*\*(.*(?:\n   .*)*)", text, re.MULTILINE)
    steps: list[tuple[str, str, str]] = []
    for name, rest in items:
        title, why = re.split(r"[.:] ", _as_text(f"{name}{rest}"), maxsplit=1)
        steps.append((name, title, why[0].upper() + why[1:]))
    return steps


def _yielded(source: str) -> list[str]:
    yields = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Yield)]
    calls = [node for node in yields if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: node.lineno)
    return [node.func.id for node in calls if isinstance(node.func, ast.Name)]


def _argument_descriptions(documented: type) -> dict[str, str]:
    """Return what a docstring's Args say, by the options' public names."""
    section = inspect.getdoc(documented) or ""
    section = section.partition("\nArgs:\n")[2].partition("\nRaises:")[0]
    items = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", section, re.MULTILINE)
    described = {name: _as_cell(_as_text(text)) for name, text in items}
    return {
        ("validate" if name == "validate_answer" else name): text
        for name, text in described.items()
    }


def _as_text(text: str) -> str:
    """Put a docstring's words into one line of Markdown."""
    return re.sub(r"\s+", " ", text).replace("``", "`").strip()


def _paragraphs(text: str) -> str:
    return "\n\n".join(_as_text(paragraph) for paragraph in text.split("\n\n"))


def _as_cell(text: str) -> str:
    return text.replace("|", r"\|")


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


PAGES: dict[str, Callable[[], str]] = {
    "options.md": options_page,
    "cli.md": cli_page,
    "_generated/machine.md": machine_snippet,
}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with ``--check`` show how the committed ones differ."""
    stale = 0
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if committed == text:
            continue
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            continue
        stale = 1
        shown = difflib.unified_diff(
            committed.splitlines(),
            text.splitlines(),
            f"docs/{name}",
            "docs/_generate.py",
            lineterm="",
        )
        print("\n".join(shown))
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
