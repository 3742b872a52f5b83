"""Every example runs as a user runs it: a process of its own, no key, no network."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from werkzeug import Response

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer

    from tests.helpers.provider import ProviderServer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODULES = sorted(EXAMPLES.rglob("*.py"))
SHARED = {"__main__", "endpoints", "simulated"}
NO_SERVER = {"chat_page", "demo", "service"}  # each has tests of its own
KEYS = {"nous_key"}  # tests/honcho/test_loaded_credentials.py
LOADED = {"litellm_proxy/production_handler"}  # by a Proxy: tests/litellm/test_proxy_load.py
# With tests of their own beside these.
FRAMEWORKS = {f"frameworks/{path.stem}" for path in EXAMPLES.glob("frameworks/*.py")}
DURABLE = {f"durable/{path.stem}" for path in EXAMPLES.glob("durable/*.py")}
ONE_SWITCH = "openai 503, anthropic 200"

# What each prints of the requests that came: one at the dead primary per call, or per turn.
REQUESTS = {
    "langchain_agent": f"{ONE_SWITCH}, anthropic 200",
    "langchain_chain": f"{ONE_SWITCH}, {ONE_SWITCH}",
    "langfuse_trace": ONE_SWITCH,
    "litellm_proxy": ONE_SWITCH,
    "litellm_router": ONE_SWITCH,
    "own_loop": ONE_SWITCH,
    "raw_sdk": ONE_SWITCH,
}
# Where their frameworks are: the lowest releases of the others stand beside neither.
AGENTS = {"agents_sdk": f"{ONE_SWITCH}, {ONE_SWITCH}", "pydantic_agent": ONE_SWITCH}
REQUESTS |= AGENTS if find_spec("agents") and find_spec("pydantic_ai") else {}
PROXY_PACKAGES = ("apscheduler", "fastapi_sso", "uvicorn", "soundfile")

# A process that imports LangChain or LiteLLM, on a machine that may be busy.
pytestmark = pytest.mark.timeout(180)


def environment(**more: str) -> dict[str, str]:
    """Return the environment without keys, and with a proxy that nobody can reach."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_API_KEY")
        and not name.startswith(("LANGFUSE_", "OPENAI_", "ANTHROPIC_"))
    }
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    return {**ours, **nowhere, **more}


def run(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the repository's root."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=EXAMPLES.parent,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )


@cache  # two tests look at what the trace's example prints
def run_example(name: str, **more: str) -> list[str]:
    """Run an example that ends well, and return the lines that it printed."""
    done = run(EXAMPLES / f"{name}.py", **more)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


def test_every_example_is_tested() -> None:
    """An example without a row here would run for nobody."""
    names = {path.relative_to(EXAMPLES).with_suffix("").as_posix() for path in MODULES}
    others = FRAMEWORKS | DURABLE | KEYS
    assert names == {*REQUESTS, *AGENTS} | NO_SERVER | LOADED | SHARED | others


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_run_it(path: Path) -> None:
    """Under 80 lines; its docstring says what it shows, how to run it and what to install."""
    source = path.read_text("utf-8")
    assert source.count("\n") < 80
    docstring = ast.get_docstring(ast.parse(source)) or ""
    if path.stem not in SHARED:
        _, _, how, install = docstring.splitlines()
        started = rf".*python examples(/{path.stem}\.py| (durable|frameworks)/{path.stem})?"
        if path.stem == "production_handler":
            started = r"litellm --config examples/litellm_proxy/production\.yaml"
        assert re.match(rf"Run: +{started}  \(.+\)$", how)
        assert re.match(r"Install: pip install ('honcho-fallback\[|honcho-fallback\b)", install)


@pytest.mark.parametrize("name", sorted({*REQUESTS} - {"litellm_proxy"}))
def test_the_fallback_answers_after_one_request_to_a_dead_primary(name: str) -> None:
    """The first line says who is asked, the last what the simulated providers saw of it."""
    printed = run_example(name)
    assert printed[0].startswith("Primary openai/gpt-5.5 (simulated), fallback anthropic/claude")
    assert "Good morning!" in printed
    assert f"Requests at the simulated providers: {REQUESTS[name]}" in printed


@pytest.mark.slow
def test_the_proxy_answers_with_the_fallback() -> None:
    """A process of `litellm --config` on the example's file says in headers who answered."""
    if not all(find_spec(package) for package in PROXY_PACKAGES):
        pytest.skip("the Proxy's own packages are not installed")
    printed = run_example("litellm_proxy")
    assert "Good morning!" in printed
    assert "x-honcho-fallback-answered-by: backup" in printed
    assert "x-honcho-fallback-attempts: 2" in printed
    assert printed[-1] == f"Requests at the simulated providers: {REQUESTS['litellm_proxy']}"


@pytest.mark.parametrize("name", ["raw_sdk", "langchain_chain", "litellm_router"])
def test_a_key_leads_to_the_real_provider(name: str, providers: ProviderServer) -> None:
    """With a key the provider's own address is asked, and the first line says so."""
    url = providers["openai"].url
    printed = run_example(
        name, OPENAI_API_KEY="not-a-key", OPENAI_BASE_URL=url, no_proxy="127.0.0.1"
    )
    assert f"Primary openai/gpt-5.5 ({url}), fallback" in printed[0]
    assert "hello from openai" in printed
    assert providers["openai"].requests
    assert printed[-1] == "Requests at the simulated providers: none"


def test_the_trace_is_one_generation(httpserver: HTTPServer) -> None:
    """Printed without Langfuse's keys: the fallback's, with the reason; with keys it is sent."""
    printed = "\n".join(run_example("langfuse_trace"))
    assert printed.count("Generation ") == 1
    assert re.search(r"model.name +claude-sonnet-5", printed)
    assert re.search(r"metadata.fallback_reason +\"?overloaded", printed)
    assert re.search(r"usage_details +\{\"input\": \d+", printed)
    httpserver.expect_request("/api/public/otel/v1/traces").respond_with_response(Response())
    sent = run_example(
        "langfuse_trace",
        LANGFUSE_PUBLIC_KEY="pk-test",
        LANGFUSE_SECRET_KEY="sk-test",
        LANGFUSE_BASE_URL=httpserver.url_for("").rstrip("/"),
        no_proxy="127.0.0.1,localhost",
    )
    assert sent[-1] == "The generation was sent."
    assert [request.path for request, _ in httpserver.log] == ["/api/public/otel/v1/traces"]


def test_the_chat_page_takes_back_what_a_failed_attempt_said() -> None:
    """The broken sentence is taken back, the fallback's stays, and each says its attempt."""
    assert run_example("chat_page") == [
        "attempt 1: The weather in Oslo",
        "   [taken back: 'The weather in Oslo']",
        "attempt 2: It rains in Oslo today.",
        "On the page: It rains in Oslo today.",
    ]


@pytest.mark.skipif(
    int(version("openai").partition(".")[0]) < 3, reason="the demo gives openai 3 a transport"
)
def test_the_demo_fits_on_a_screen_and_shows_what_a_dead_primary_costs() -> None:
    """Three requests and an error against one request and an answer, the log line, the record."""
    done = run("examples")
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout.splitlines()
    assert len(printed) < 40
    assert max(map(len, printed)) <= 80
    bare, ours = printed[4:6]
    assert re.fullmatch(r"openai.OpenAI\(\) +3 +[\d.]+   InternalServerError \(503\)", bare)
    assert re.fullmatch(r"with a FallbackPolicy +1 +[\d.]+   Good morning!", ours)
    assert done.stdout.count("WARNING agent=greeter primary=openai/gpt-5.5") == 1
    assert re.search(r"1\. openai/gpt-5\.5: overloaded \(503, .*\) in \d+ ms", done.stdout)
    assert re.search(r"2\. groq/llama-4: answered in \d+ ms", done.stdout)


@pytest.mark.parametrize(
    ("name", "missing", "install"),
    [
        ("demo", "openai", "pip install honcho-fallback 'openai>=3'"),
        ("langchain_agent", "langchain", "pip install 'honcho-fallback[agents]' langchain"),
    ],
)
def test_a_missing_package_is_named(name: str, missing: str, install: str) -> None:
    """Without a package an example says what to install, in place of a traceback."""
    code = (
        f"import runpy, sys; sys.modules[{missing!r}] = None; sys.argv = ['examples', {name!r}];"
        "runpy.run_path('examples', run_name='__main__')"
    )
    done = run("-c", code)
    assert (done.returncode, done.stdout) == (1, "")
    assert missing in done.stderr
    assert install in done.stderr
    assert "Traceback" not in done.stderr
