"""What the pages on errors say is what the package does: outputs, keys, kinds, messages."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from honcho_fallback._classify._rules import Rule
from honcho_fallback._core.failure import KINDS
from honcho_fallback.cli._app import app
from honcho_fallback.records import JsonlObserver
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
CLASSIFICATION = (ROOT / "docs" / "classification.md").read_text("utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """Return a page's blocks of code in order, with their language."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def rows(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table under a head."""
    table = text.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]


@pytest.fixture
def classification_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save the records that the page tells of where its command looks for them."""
    monkeypatch.chdir(tmp_path)

    class BudgetError(Exception):
        """Come from a gateway that nobody has told the classifier of."""

    quota = StatusError(429, code="insufficient_quota")
    failures = [StatusError(503), StatusError(503), quota, StatusError(400), BudgetError()]
    with JsonlObserver("calls.jsonl") as records:
        policy = FallbackPolicy([Target("p"), Target("f")], observers=[records])
        for failure in failures:
            run = policy.start()
            with suppress(StatusError, BudgetError):
                run.fail(failure)
                run.succeed()


def commands_with_output() -> Iterator[tuple[str, str]]:
    found = blocks(CLASSIFICATION)
    for (language, command), (_, output) in pairwise(found):
        if language == "sh":
            yield command.strip(), output


@pytest.mark.usefixtures("classification_files")
@pytest.mark.parametrize(("command", "output"), [*commands_with_output()])
def test_explain_prints_what_the_page_shows(command: str, output: str) -> None:
    """Each command of the page prints the block that follows it, to the letter."""
    name, *arguments = shlex.split(command)
    assert name == "honcho-fallback"
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.output.splitlines()] == output.splitlines()


def test_the_rules_of_the_page_have_every_key() -> None:
    """The file of the page is valid, uses each key of a rule, and the table explains each."""
    (text,) = [code for language, code in blocks(CLASSIFICATION) if language == "toml"]
    document: dict[str, list[dict[str, Any]]] = tomllib.loads(text)
    keys = {field.name for field in fields(Rule)} - {"source"}
    assert {key for rule in document["rule"] for key in rule} == keys
    assert {row[0].strip("`") for row in rows(CLASSIFICATION, "key | takes | meaning")} == keys
    assert len(FallbackConfig(rules=document["rule"]).rules) == len(document["rule"])


def test_the_table_of_kinds_is_the_packages() -> None:
    """Each kind stands in the table with its own answers to the two questions."""
    words = {True: "yes", False: "no"}
    table = {
        row[0].strip("`"): row[1:3]
        for row in rows(CLASSIFICATION, "kind | transient | switchable | examples")
    }
    assert table.keys() == {kind.value for kind in KINDS}
    for kind, facts in KINDS.items():
        transient, switchable = table[kind.value]
        assert transient == words[facts.transient]
        assert switchable.startswith(("yes", "if") if facts.switchable else ("no", "never"))


TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
SOURCES = sorted(
    path for folder in ("honcho_fallback", "adapters") for path in (ROOT / folder).rglob("*.py")
)
# What stands for a value in a message: of logging, and of a page.
_VALUE = re.compile(r"%\.?\d*[a-z]|\.\.\.")
_EDGES = " :;,.'\"()[]?"  # where a value may begin or end


def literal_parts(node: ast.AST) -> list[str]:
    """Return the parts of a text of the source that are the same whatever its values are."""
    if isinstance(node, ast.JoinedStr):
        constants = [part for part in node.values if isinstance(part, ast.Constant)]
        return [part for constant in constants for part in literal_parts(constant)]
    if isinstance(node, ast.keyword):
        return [f"{node.arg}="]  # of a log line, which is made of them
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [part for part in _VALUE.split(node.value) if part.strip()]
    return []


def quoted_messages() -> list[str]:
    """Return the messages of the page: what stands in code type in the first column."""
    tables = re.findall(
        r"^\| message \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TROUBLESHOOTING, re.MULTILINE
    )
    cells = [re.match(r"\| `(.*?)` \|", row) for table in tables for row in table.splitlines()]
    return [cell[1] if cell else "" for cell in cells]


def test_each_message_of_the_page_is_in_the_code() -> None:
    """A message that was reworded would be searched for in vain."""
    nodes = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [part for node in nodes if id(node) not in docstrings for part in literal_parts(node)]
    source = "\n".join(texts)
    unknown: list[str] = []
    for message in quoted_messages():
        words = [
            one.strip(_EDGES)
            for one in re.split(r"\.\.\.|fallback_rank|[:;?] (?:pass )?|\[\w*\]", message)
        ]
        unknown += [f"{message}: {word!r}" for word in words if word not in source]
        assert any(len(word) > 3 for word in words), message
    assert not unknown


# Calls by which a person is told that something is wrong, and which argument says what.
_SPEAKS = {
    "logger.warning": 0,
    "logger.error": 0,
    "warnings.warn": 0,
    "ImportError": 0,
    "RuntimeError": 0,
    "CredentialError": 0,
    "FallbackExhausted": 0,
    "FallbackConfigError.about": 1,
}


def spoken_messages() -> Iterator[tuple[str, str]]:
    """Yield where each message of the code is, and its longest part that is always the same."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            spoken: list[ast.expr] = []
            match node:
                case ast.Call(func=function) if ast.unparse(function) in _SPEAKS:
                    number = _SPEAKS[ast.unparse(function)]
                    spoken = node.args[number : number + 1]
                case ast.Assign(targets=[ast.Name(id="problem")], value=value):
                    spoken = [value]
                case _:
                    pass
            parts = [part for one in spoken for part in literal_parts(one)]
            if parts and len(text := max(parts, key=len)) > len("got the class"):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text  # type: ignore[attr-defined]


@pytest.mark.parametrize(("where", "text"), [*spoken_messages()])
def test_each_message_of_the_code_is_on_the_page(where: str, text: str) -> None:
    """Who sees a message finds it by searching the page for it."""
    assert re.split(r"[:;] ", text)[0].strip(_EDGES) in TROUBLESHOOTING, where
