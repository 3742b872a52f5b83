"""What the pages on errors say is what the package does: outputs, keys, kinds."""

from __future__ import annotations

import re
import shlex
import tomllib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from honcho_fallback import FallbackConfig, FallbackPolicy, Target
from honcho_fallback._classify._rules import Rule
from honcho_fallback._values.failure import KINDS
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
def test_a_command_prints_what_the_page_shows(command: str, output: str) -> None:
    """Each command of the page prints the block that follows it, to the letter; `show` more."""
    name, *arguments = shlex.split(command)
    assert name == "honcho-fallback"
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    printed = [line.rstrip() for line in result.output.splitlines()]
    if arguments[0] == "show":  # the page leaves out the calls, which it dates
        first = printed.index(output.splitlines()[0])
        printed = printed[first : first + len(output.splitlines())]
    assert printed == output.splitlines()


def test_the_rules_of_the_page_have_every_key() -> None:
    """The file of the page is valid, uses each key of a rule, and the table explains each."""
    (text,) = [code for language, code in blocks(CLASSIFICATION) if language == "toml"]
    document: dict[str, list[dict[str, Any]]] = tomllib.loads(text)
    keys = Rule.model_fields.keys() - {"source"}
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
        assert switchable.startswith("yes" if facts.switchable else ("no", "never"))
