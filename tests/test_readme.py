"""The examples of README and docs run as they stand, against servers on this machine."""

from __future__ import annotations

import doctest
import json
import logging
import re
import shlex
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from honcho_fallback import (
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackPolicy,
    Target,
    set_observers,
)
from honcho_fallback._classify._rules import Rule
from honcho_fallback.cli._app import app
from honcho_fallback.records import JsonlObserver, read_records
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import load_policies
from tests.helpers.litellm_runs import THEIRS, litellm_left_clean
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_answer, chat_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import Attempt
    from tests.helpers.provider import ProviderServer, SeenRequest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.filterwarnings(one) for one in THEIRS]

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in DOCS}
PAGES["README.md"] = (ROOT / "README.md").read_text("utf-8")
HONCHO, CLASSIFICATION = PAGES["docs/honcho.md"], PAGES["docs/classification.md"]
# The examples that give a client of openai a transport import the library that openai 3 stands on.
HTTPX2 = "httpx2" if int(version("openai").partition(".")[0]) >= 3 else "httpx as httpx2"
# The lowest releases of the others stand beside neither (make test-lowest).
ADAPTERS = {
    "honcho_fallback_openai_agents": "agents",
    "honcho_fallback_pydantic_ai": "pydantic_ai",
}
MISSING = [adapter for adapter, framework in ADAPTERS.items() if find_spec(framework) is None]
# What a page says that its reader has: its examples go on from there.
MESSAGES = [{"role": "user", "content": "What time is it?"}]


def blocks(text: str, wanted: str) -> list[str]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for language, code in found if language == wanted]


def is_test_file(code: str) -> bool:
    return re.search(r"^(async )?def test_", code, re.MULTILINE) is not None


def section(page: str, title: str) -> str:
    return PAGES[page].partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """Return what stands in code type in the first column of a table."""
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return re.findall(r"`([\w-]+)`", "".join(rows))


class Example(NamedTuple):
    """A block of Python and, where a block of text comes right after it, what it prints."""

    code: str
    output: str | None


def examples(text: str) -> list[Example]:
    found = re.findall(
        r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", text, re.DOTALL | re.MULTILINE
    )
    return [
        Example(code, output or None)
        for code, output in found
        if not is_test_file(code) and not any(f"from {name}" in code for name in MISSING)
    ]


def without_figures(text: str) -> str:
    """Leave out what differs from run to run (calls' ids, milliseconds), and spaces at ends."""
    text = re.sub(r"(Call |call_id=)\S+|\d+ ms", "…", text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE).strip() + "\n"


def local_model(request: SeenRequest) -> Reply:
    """Call the tool until its result is there, then answer; never give up on the mail."""
    body = request.body
    if body.get("stream"):
        return Reply(text="good morning")
    if "response_format" in body:
        return Reply(text='{"facts": ["Alice likes tea"]}')
    name = body["tools"][0]["function"]["name"] if "tools" in body else None
    if name == "read_mail" or (name and body["messages"][-1]["role"] != "tool"):
        return Reply(body=chat_answer(None, chat_call("t1", name, {})))
    return Reply(text="noon")


@pytest.fixture
def providers(provider_server: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> ProviderServer:
    """Put a dead primary and two live fallbacks where the SDKs and Honcho look for theirs."""
    provider_server.reset()
    primary, anthropic, local = (
        provider_server[name] for name in ("primary", "anthropic", "local")
    )
    primary.fail(503)
    anthropic.standing = Reply(text="good morning")
    local.standing = local_model
    for name, value in {
        "OPENAI_BASE_URL": primary.url,
        "OPENAI_API_KEY": "not-a-key",
        "ANTHROPIC_BASE_URL": anthropic.url,
        "ANTHROPIC_API_KEY": "not-a-key",
        "LOCAL_URL": local.url,
        "LLM_OPENAI_API_KEY": "not-a-key",
        "LLM_OPENAI_BASE_URL": primary.url,
        "LLM_LMSTUDIO_BASE_URL": local.url,
        "DERIVER_MODEL_CONFIG__FALLBACK__MODEL": "lmstudio/qwen3-4b",
        "DIALECTIC_LEVELS__max__MODEL_CONFIG__FALLBACK__MODEL": "lmstudio/qwen3-4b",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    return provider_server


@pytest.fixture
def process_left_clean() -> Iterator[None]:
    """Undo what examples do to the process: observers, handlers of logs, LiteLLM's lists."""
    loggers = [logging.getLogger(name) for name in (None, "honcho_fallback")]
    before = [(logger, [*logger.handlers], logger.level) for logger in loggers]
    with litellm_left_clean():
        yield
    set_observers(None)
    for logger, handlers, level in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)


def ask(attempt: Attempt) -> Any:
    """Fail on the primary, answer elsewhere: what a page calls ``ask``."""
    if attempt.position == 0:
        raise StatusError(503)
    return chat_answer("good morning")


def given(page: str) -> dict[str, Any]:
    """Return what a page says that its reader has already."""
    names: dict[str, Any] = {"__name__": page}
    if page == "docs/honcho.md":
        names["messages"] = MESSAGES
    if page == "docs/operations.md":
        names["targets"] = [Target("gpt-5.5", "openai"), Target("claude-sonnet-5", "anthropic")]
        names["ask"] = ask
    return names


# How often a page's examples, from top to bottom, ask the dead primary over the network: once in
# each call (or turn) that it does not know to be dead.
ASKED = {
    # Each of the five, and the SDK with resilient().
    "README.md": 6 - len(MISSING),
    "docs/langchain.md": 7,  # two calls, a chain, two streams, an agent's turn, the block's
    "docs/litellm.md": 1,
    "docs/adapters.md": 1,
    "docs/honcho.md": 3,  # by a policy, in an agent, for what is structured
    "docs/raw-sdk.md": 5,  # two calls, a tool loop, a translated history, a loop of one's own
    "docs/streaming.md": 3,
}
# What the examples print that show nothing below them.
PRINTED = {
    "docs/honcho.md": "noon\nnoon\n['Alice likes tea']\n",
    "docs/operations.md": "0.00 to 0.02 dollars\n",
}


@pytest.mark.parametrize("page", sorted(page for page in PAGES if examples(PAGES[page])))
# The Agents SDK leaves the thread's event loop to Pydantic AI, which begins in it again.
@pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning")
@pytest.mark.usefixtures("process_left_clean")
def test_every_example_runs(
    page: str,
    providers: ProviderServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A page runs from top to bottom, and prints what it shows; nobody is asked in vain twice."""
    monkeypatch.chdir(tmp_path)  # for what they write
    if page == "docs/honcho.md":  # where nothing but Honcho's settings says where a model is
        monkeypatch.delenv("OPENAI_BASE_URL")
        monkeypatch.delenv("ANTHROPIC_BASE_URL")
    names, unshown, checker = given(page), "", doctest.OutputChecker()
    capsys.readouterr()
    for code, output in examples(PAGES[page]):
        source = code.replace("import httpx2\n", f"import {HTTPX2}\n")
        exec(compile(source, page, "exec"), names)  # noqa: S102 # our own pages
        printed = capsys.readouterr().out
        if output is None:
            unshown += printed
            continue
        shown, printed = without_figures(output), without_figures(printed)
        # In what a page shows ``...`` stands for anything.
        assert checker.check_output(shown, printed, doctest.ELLIPSIS) or printed == shown
    for records in (one for one in names.values() if isinstance(one, JsonlObserver)):
        records.close()  # as a page says of the end of a process
    assert unshown == PRINTED.get(page, unshown)
    if page in ASKED:
        assert providers.order.count("primary") == ASKED[page]


def test_a_history_is_one_whoever_answered(
    providers: ProviderServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page shows a dead primary; one that answers puts the same into the history."""
    names = given("docs/raw-sdk.md")
    page = [code for code, _ in examples(PAGES["docs/raw-sdk.md"])]
    (place,) = [n for n, code in enumerate(page) if "import portable" in code]
    for code in page[:place]:
        exec(code, names)  # noqa: S102 # our own pages
    providers["primary"].standing = Reply(text="good morning")
    capsys.readouterr()
    exec(page[place], names)  # noqa: S102 # as above
    assert capsys.readouterr().out == "good morning\n"
    assert providers.order[-1] == "primary"


@pytest.mark.parametrize(
    "code",
    [
        code
        for page in sorted(PAGES)
        for code in blocks(PAGES[page], "python")
        if is_test_file(code)
    ],
)
def test_the_test_files_pass(
    code: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block with tests in it is a whole test file."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(code.replace("import httpx2\n", f"import {HTTPX2}\n"))
    command = [sys.executable, "-m", "pytest", "-p", "honcho_fallback", "-p", "no:cacheprovider"]
    pytester.run(*command).assert_outcomes(
        passed=len(re.findall(r"^def test_", code, re.MULTILINE))
    )


@pytest.mark.usefixtures("process_left_clean", "providers")
def test_the_examples_of_the_operations_page_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Observers of the process see a call, and both ways to write JSON write its log line."""
    monkeypatch.chdir(tmp_path)
    page, names = PAGES["docs/operations.md"], given("docs/operations.md")
    first, bill, plain, structured, _ = blocks(page, "python")
    for code in (first, bill, plain):
        exec(compile(code, "operations.md", "exec"), names)  # noqa: S102 # our own page
    names["policy"].call(ask)
    by_standard_library = json.loads(capsys.readouterr().err)
    exec(compile(structured, "operations.md", "exec"), names)  # noqa: S102 # our own page
    by_structlog = json.loads(capsys.readouterr().err)
    assert names["bill"].tokens > 0
    names["records"].close()
    calls = [*read_records(tmp_path / "calls.jsonl")]
    assert calls[0].metadata == {"workspace": "acme", "run_id": "r-17", "purpose": "greeting"}
    (shown,) = map(json.loads, blocks(page, "json"))
    for line, call in zip((by_standard_library, by_structlog), calls[1:], strict=True):
        assert line["call_id"] == call.call_id
        assert line["fallback"] == shown["fallback"] == "anthropic/claude-sonnet-5"
        assert line["event"].startswith(shown["event"].removesuffix(" ..."))
        assert shown.keys() - {"timestamp"} <= line.keys()


def test_the_page_configures_every_agent(tmp_path: Path) -> None:
    """The page's .env gives each of the nine agents a fallback, and nothing in it is wrong."""
    (tmp_path / ".env").write_text(blocks(HONCHO, "dotenv")[0])
    policies = load_policies({}, env_file=tmp_path / ".env", strict=True)
    assert [len(policy.targets) for policy in policies.values()] == [2] * 9


def test_the_page_names_what_nothing_reads(caplog: pytest.LogCaptureFixture) -> None:
    """Each name of the table gets the warning that the table promises."""
    rows = HONCHO.partition("| nothing reads |")[2].partition("\n\n")[0]
    names = [re.findall(r"`(\S+?)`", row) for row in rows.splitlines()[2:]]
    assert len(names) == 4
    for wrong, *right in names:
        caplog.clear()
        load_policies({"LLM_OPENAI_API_KEY": "not-a-key", wrong: "gpt-5.5"})
        (warning,) = caplog.messages
        assert all(name in warning for name in [wrong, *right])


def test_the_readme_and_the_start_page_are_complete() -> None:
    """Every extra stands on both, and nothing else does; every page is listed at the start.

    The README is short: what does not fit stands on a page.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = section("README.md", "Install").partition("| extra |")[2]
    listed = section("docs/index.md", "Install").partition("The extras are ")[2].partition(";")[0]
    extras = sorted(project["optional-dependencies"])
    assert sorted(first_cells(table)) == extras
    assert sorted(re.findall(r"`([\w-]+)`", listed)) == extras
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "index.md"]
    assert [name for name in pages if f"]({name})" not in PAGES["docs/index.md"]] == []
    assert len(PAGES["README.md"].splitlines()) < 220


# What README says of switching and of asking again, by what the code says of the kind.
SWITCHES = {True: ("at once",), False: ("no, unless in", "never")}
REPEATS = {True: ("if it is the last one",), False: ("no", "never")}


def test_the_tables_of_kinds_are_what_the_code_does() -> None:
    """Every kind stands in one row of README and of its page, with the classifier's answers."""
    table = section("README.md", "What happens when")
    rows = re.findall(r"^\| [^|]* \| (`.*?`) \| (.*?) \| (.*?) \|$", table, re.MULTILINE)
    kinds = [(kind, *rest) for names, *rest in rows for kind in re.findall(r"`(\w+)`", names)]
    page = re.findall(r"^\| `(\w+)` \| (yes|no) \| (yes|no|never)\b", CLASSIFICATION, re.MULTILINE)
    assert sorted(kind for kind, *_ in kinds) == sorted(FailureKind)
    assert sorted(kind for kind, *_ in page) == sorted(FailureKind)
    for (kind, switches, repeats), (_, transient, switchable) in zip(
        sorted(kinds), sorted(page), strict=True
    ):
        failure = Failure.of(FailureKind(kind))
        assert switches.startswith(SWITCHES[failure.switchable]), kind
        assert repeats.startswith(REPEATS[failure.transient]), kind
        assert (transient == "yes") is failure.transient, kind
        assert (switchable == "yes") is failure.switchable, kind


@pytest.fixture
def saved_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save the records that the page on classification tells of where its command looks."""
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


@pytest.mark.usefixtures("saved_calls")
@pytest.mark.parametrize(
    ("command", "output"),
    re.findall(
        r"^```sh\n(.*?)\n```$.*?^```\w+\n(.*?)^```$", CLASSIFICATION, re.DOTALL | re.MULTILINE
    ),
)
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
    (text,) = blocks(CLASSIFICATION, "toml")
    document: dict[str, list[dict[str, Any]]] = tomllib.loads(text)
    keys = Rule.model_fields.keys() - {"source"}
    assert {key for rule in document["rule"] for key in rule} == keys
    table = CLASSIFICATION.partition("| key | takes | meaning |")[2].partition("\n\n")[0]
    assert {*first_cells(table)} == keys
    assert len(FallbackConfig(rules=document["rule"]).rules) == len(document["rule"])


def test_shell_lines_name_commands_and_options_that_exist() -> None:
    """What is to be typed is not refused."""
    commands = typer.main.get_group(app).commands
    for page, text in PAGES.items():
        for line in "".join(blocks(text, "sh")).splitlines():
            if not line.startswith("honcho-fallback "):  # another program's may go over many lines
                continue
            words = shlex.split(line, comments=True)
            options = {name for one in commands[words[1]].params for name in one.opts}
            unknown = {word for word in words[2:] if word.startswith("--")} - options
            assert not unknown, f"{page}: {line}"


@pytest.mark.parametrize("page", [*sorted(PAGES), "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str) -> None:
    """A heading that was renamed, or a file that was moved, would leave a dead link."""
    folder = (ROOT / page).parent
    text = re.sub(
        r"^```.*?^```$",
        "",
        (ROOT / page).read_text("utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else ROOT / page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^##+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            names = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
            assert anchor in names, link
