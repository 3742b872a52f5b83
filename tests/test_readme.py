"""The examples of README and docs run as they stand, against servers on this machine."""

from __future__ import annotations

import json
import logging
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import typer

from honcho_fallback import Target, set_observers
from honcho_fallback.records import read_records
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import load_policies
from tests.helpers.litellm_runs import litellm_left_clean
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_answer, chat_call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from honcho_fallback import Attempt
    from honcho_fallback.testing import Clock
    from tests.helpers.provider import ProviderServer, SeenRequest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
HONCHO = (ROOT / "docs" / "honcho.md").read_text(encoding="utf-8")
LANGCHAIN_PAGE = (ROOT / "docs" / "langchain.md").read_text(encoding="utf-8")
LITELLM_PAGE = (ROOT / "docs" / "litellm.md").read_text(encoding="utf-8")
OPERATIONS_PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def blocks(text: str, wanted: str) -> list[str]:
    """Return the blocks of code in one language."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for language, code in found if language == wanted]


def section(title: str) -> str:
    """Return one section of the README."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


LANGCHAIN = section("LangChain")  # starts afresh; the other sections build on each other
TESTING = section("Testing your own code")  # a test file
CORE = README.replace(LANGCHAIN, "").replace(TESTING, "")
PYTHON, TEXT = blocks(CORE, "python"), blocks(CORE, "text")
PAGE = blocks(HONCHO, "python")


def without_figures(text: str) -> str:
    """Leave out what differs from run to run: the call's id and the milliseconds."""
    return re.sub(r"Call \S+|\d+ ms", "…", text).strip()


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
    """Put a dead primary and two live fallbacks where the SDKs look for theirs."""
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
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    return provider_server


def test_first_example_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the first screen needs nothing but the package and prints what follows it."""
    exec(compile(PYTHON[0], "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 # our own README
    assert without_figures(capsys.readouterr().out) == without_figures(TEXT[0])


# Other people's warnings, which would become errors in the middle of LiteLLM's error handling.
@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_example_runs(
    providers: ProviderServer,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The examples run in the order in which they are read; the primary sees one request each."""
    monkeypatch.chdir(tmp_path)  # for what they write
    names: dict[str, Any] = {"__name__": "readme"}
    for code in PYTHON:
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102 # our own README
    assert names["text"] == "good morning"
    shown = capsys.readouterr().out
    assert "good morning" in shown
    assert "noon" in shown
    assert "good morning\nbackup\n" in shown
    assert "primary failed (overloaded ServiceUnavailableError 503), asking backup" in shown
    assert "openai/gpt-5.5 failed (overloaded Overloaded 503), asking" in shown
    assert names["slowest"].call_id in (tmp_path / "records.jsonl").read_text("utf-8")
    logged = {message.partition(" call_id=")[0] for message in caplog.messages}
    assert TEXT[1].partition(" call_id=")[0].strip() in logged
    # The SDK's call, its stream, a tool loop of two iterations, a resilient call, one that must
    # not degrade and the one after it (which leaves the primary alone), a loop of one's own;
    # LiteLLM's; then Honcho's deriver.
    assert providers.order.count("primary") == 6 + 1 + 1
    assert providers.order.count("local") == 6 + 1
    assert "bad_credentials False Log in" in shown
    assert "\nI stopped: read_mail failed 3 times" in shown


@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_example_of_the_litellm_page_runs(
    providers: ProviderServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's Router asks a dead primary once and says who answered."""
    (code,) = blocks(LITELLM_PAGE, "python")
    with litellm_left_clean():
        exec(compile(code, "litellm.md", "exec"), {"__name__": "litellm_page"})  # noqa: S102 # our own page
    assert capsys.readouterr().out == "good morning\nbackup\n"
    assert providers.order.count("primary") == 1


def test_the_langchain_examples_run(
    providers: ProviderServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """LangChain's section runs from top to bottom; a dead primary sees one request per call."""
    first, agent = blocks(LANGCHAIN, "python")
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(first, "README.md", "exec"), names)  # noqa: S102 # our own README
    assert capsys.readouterr().out == blocks(LANGCHAIN, "text")[0]
    exec(compile(agent, "README.md", "exec"), names)  # noqa: S102 # our own README
    assert capsys.readouterr().out == "good morning\n"
    assert providers.order.count("primary") == 3


def test_the_examples_of_the_langchain_page_run(
    providers: ProviderServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page runs from top to bottom; a dead primary sees one request per call or turn."""
    first, *others = blocks(LANGCHAIN_PAGE, "python")
    names: dict[str, Any] = {"__name__": "langchain"}
    exec(compile(first, "langchain.md", "exec"), names)  # noqa: S102 # our own page
    assert capsys.readouterr().out == blocks(LANGCHAIN_PAGE, "text")[0]
    for code in others:
        exec(compile(code, "langchain.md", "exec"), names)  # noqa: S102 # our own page
    *shown, stopped = capsys.readouterr().out.splitlines()
    assert shown == ["good morning", "2 good ", "2 morning", "noon", "bad_credentials"]
    assert stopped.startswith("I stopped: read_mail failed 3 times in the same way.")
    assert names["calls"].tool_calls
    assert names["thanks"].content == "noon"
    # Two calls, a whole chain, a stream, and one each for the agent's turn and the block's.
    assert providers.order.count("primary") == 6


@pytest.fixture
def logging_left_clean() -> Iterator[None]:
    """Undo what the page does to the root logger."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("logging_left_clean")
def test_the_examples_of_the_operations_page_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Observers of the process see a call, and both ways to write JSON write its log line."""
    for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def ask(attempt: Attempt) -> Any:
        if attempt.position == 0:
            raise StatusError(503)
        return chat_answer("good morning")

    targets = [Target("gpt-5.5", "openai"), Target("claude-sonnet-5", "anthropic")]
    names: dict[str, Any] = {"__name__": "operations", "targets": targets, "ask": ask}
    first, bill, plain, structured = blocks(OPERATIONS_PAGE, "python")
    try:
        for code in (first, bill, plain):
            exec(compile(code, "operations.md", "exec"), names)  # noqa: S102 # our own page
        names["policy"].call(ask)
        by_standard_library = json.loads(capsys.readouterr().err)
        exec(compile(structured, "operations.md", "exec"), names)  # noqa: S102 # our own page
        by_structlog = json.loads(capsys.readouterr().err)
    finally:
        set_observers(None)
    assert names["bill"].tokens > 0
    assert names["records"].close()
    calls = [*read_records(tmp_path / "calls.jsonl")]
    assert calls[0].metadata == {"workspace": "acme", "run_id": "r-17", "purpose": "greeting"}
    (shown,) = map(json.loads, blocks(OPERATIONS_PAGE, "json"))
    for line, call in zip((by_standard_library, by_structlog), calls[1:], strict=True):
        assert line["call_id"] == call.call_id
        assert line["fallback"] == shown["fallback"] == "anthropic/claude-sonnet-5"
        assert line["event"].startswith(shown["event"].removesuffix(" ..."))
        assert shown.keys() - {"timestamp"} <= line.keys()


def test_the_test_file_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The section on testing is a whole test file."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    code, _ = blocks(TESTING, "python")
    pytester.makepyfile(code)
    command = [sys.executable, "-m", "pytest", "-p", "honcho_fallback", "-p", "no:cacheprovider"]
    pytester.run(*command).assert_outcomes(passed=2)


def test_the_simulator_example_prints_what_the_readme_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The servers of the test kit stand in for real ones without pytest."""
    _, code = blocks(TESTING, "python")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 # our own README
    assert capsys.readouterr().out == blocks(TESTING, "text")[0]


@pytest.fixture
def deriver(providers: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> ProviderServer:
    """Configure Honcho's agents as its operator would: a dead primary and a local fallback."""
    for name in ("DERIVER_MODEL_CONFIG", "DIALECTIC_LEVELS__max__MODEL_CONFIG"):
        monkeypatch.setenv(f"{name}__FALLBACK__MODEL", "lmstudio/qwen3-4b")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("LLM_OPENAI_API_KEY", "not-a-key")
    monkeypatch.setenv("LLM_OPENAI_BASE_URL", providers["primary"].url)
    monkeypatch.setenv("LLM_LMSTUDIO_BASE_URL", providers["local"].url)
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("ANTHROPIC_BASE_URL")
    return providers


async def test_honchos_call_path_runs(clock: Clock) -> None:
    """HOM-030, HOM-051: step 1 asks as Honcho does; a stream's first chunk is in the attempt."""
    model_config = SimpleNamespace(
        model="gpt-5.4-mini",
        transport="openai",
        fallback=SimpleNamespace(model="claude-haiku-4-5", transport="anthropic"),
    )
    requests: list[str] = []

    async def backend(config: Any, messages: list[str]) -> AsyncIterator[str]:
        requests.append(config.transport)
        if config.transport == "openai":
            raise StatusError(503)
        for message in messages:
            yield message

    names: dict[str, Any] = {"backend": backend}
    exec(compile(PAGE[0], "honcho.md", "exec"), names)  # noqa: S102 # our own page

    async def ask(attempt: Attempt) -> list[str]:
        return [chunk async for chunk in backend(attempt.target.client, ["good", "morning"])]

    assert await names["policy_for"](model_config).acall(ask) == ["good", "morning"]
    assert (requests, clock.slept) == (["openai", "openai", "anthropic"], [4, 4])
    requests.clear()
    stream = names["stream"](model_config, ["good", "morning"])
    assert [chunk async for chunk in stream] == ["good", "morning"]
    assert requests == ["openai", "anthropic"]


@pytest.mark.parametrize(
    ("block", "answer"),
    [(1, "noon\n"), (2, "noon\n['Alice likes tea']\n"), (3, "noon\n")],
    ids=["policies", "chat models", "router"],
)
@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_honchos_models_answer_in_other_programs(
    deriver: ProviderServer,
    capsys: pytest.CaptureFixture[str],
    block: int,
    answer: str,
) -> None:
    """Each of the page's ways asks a dead primary once per call, then the fallback."""
    names = {"__name__": "page", "messages": [{"role": "user", "content": "What time is it?"}]}
    exec(compile(PAGE[block], "honcho.md", "exec"), names)  # noqa: S102 # our own page
    assert capsys.readouterr().out == answer
    calls = answer.count("\n")
    assert deriver.order == ["primary", "local"] * calls


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


def test_the_extras_table_is_complete() -> None:
    """Every extra stands in the table, and nothing else does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = section("Two commands").partition("| extra |")[2]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE)))
    assert {*named} == {*project["optional-dependencies"]}


def test_the_commands_table_is_complete() -> None:
    """Every command stands in the table, and nothing else does."""
    from honcho_fallback.cli._app import app  # noqa: PLC0415 # only this test needs it

    rows = re.findall(r"^\| (`.*?) \|", section("The command line"), re.MULTILINE)
    named = re.findall(r"`([\w-]+)`", "".join(rows))
    assert {*named} == {*typer.main.get_group(app).commands}


def test_links_lead_somewhere() -> None:
    """A heading that was renamed, or a file that was moved, would leave a dead link."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    for page in ("README.md", "CONTRIBUTING.md", *(str(one.relative_to(ROOT)) for one in pages)):
        text, folder = (ROOT / page).read_text(encoding="utf-8"), (ROOT / page).parent
        text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
        headings = re.findall(r"^##+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
            path = link.partition("#")[0]
            found = (folder / path).exists() if path else link[1:] in anchors
            assert found, f"{page}: {link}"


def test_the_options_table_is_complete() -> None:
    """Every option stands in the table, and nothing else does."""
    from honcho_fallback import FallbackConfig  # noqa: PLC0415 # only this test needs it

    options = {field.alias or name for name, field in FallbackConfig.model_fields.items()}
    rows = re.findall(r"^\| `(\w+)` \|", section("Options"), re.MULTILINE)
    assert {*rows} == options
