"""What a chain asks and takes over real SDKs, in both frameworks."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import agents
import pytest
from langchain_openai import ChatOpenAI

from honcho_fallback import CallRecord, FallbackConfigError, FallbackExhausted, Target, TurnEnd
from honcho_fallback_langchain import FallbackChatModel
from tests.agents.frameworks import FRAMEWORKS, LIMA, chain_of, thermometer, thinking
from tests.examples.test_examples import EXAMPLES, run
from tests.helpers import wire
from tests.helpers.observers import Noting
from tests.helpers.provider import Reply
from tests.helpers.strict import ChatRules, ResponsesRules

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agents.frameworks import Framework
    from tests.helpers.observers import Listener
    from tests.helpers.provider import Provider, ProviderServer, SeenRequest


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_a_response_that_says_it_failed_switches(
    framework: Framework, primary: Provider, fallback: Provider, *, streamed: bool
) -> None:
    """The Responses API reports an outage under HTTP 200, also in the middle of a stream."""
    error = {"code": "server_error", "message": "boom"}
    body = {**wire.responses_answer(), "status": "failed", "error": error, "output": []}
    begun = {**body, "status": "in_progress", "error": None}
    events = [
        wire.named_event("response.created", response=begun, sequence_number=0),
        wire.named_event("response.failed", response=body, sequence_number=1),
    ]
    primary.standing = Reply(body=body, events=events if streamed else None)
    ask = framework.stream if streamed else framework.run
    chain = chain_of(framework, primary, fallback, api="responses")
    assert await ask(chain) == f"hello from {fallback.name}"
    assert len(primary.requests) == 1


@pytest.mark.parametrize(("reset", "expected"), [("iteration", (2, 1)), ("turn", (1, 2))])
async def test_a_tool_loop_begins_each_step_at_the_primary(
    framework: Framework, primary: Provider, fallback: Provider, reset: str, expected: Any
) -> None:
    """With ``reset="turn"`` a run stays where it is instead, and the next run begins anew.

    Whatever it is, a run is one turn to observers, and it ends.
    """
    observer = Noting()
    calls = wire.chat_answer("", wire.chat_call("call_1", "thermometer", LIMA))
    primary.fail(503, times=1)
    fallback.reply(Reply(body=calls))
    chain = chain_of(framework, primary, fallback, reset=reset, observers=[observer])
    await framework.run(chain, thermometer)
    assert (len(primary.requests), len(fallback.requests)) == expected
    assert await framework.run(chain) == f"hello from {primary.name}"
    turns = [one for one in observer.events if isinstance(one, TurnEnd)]
    assert [turn.outcome for turn in turns] == ["completed"] * 2
    of_calls = [one.turn_id for one in observer.events if isinstance(one, CallRecord)]
    assert list(dict.fromkeys(of_calls)) == [turn.turn_id for turn in turns]


def two_steps(request: SeenRequest) -> Reply:
    """Answer with a call of a tool until two results are there, in the form of the question."""
    results = json.dumps(request.body).count("Lima: 21")
    if results > 1:
        return Reply(text="Warm.")
    if "chat" in request.path:
        return Reply(body=wire.chat_answer("", wire.chat_call(f"c{results}", "thermometer", LIMA)))
    return thinking(f"{results}")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_a_tool_loop_moves_to_another_account_and_back(
    framework: Framework, primary: Provider, fallback: Provider, api: str, *, streamed: bool
) -> None:
    """Strict providers: each refuses what it did not write, and nothing is refused.

    While nobody else has answered, the history is sent as it is.
    """
    primary.rules = ResponsesRules()
    fallback.rules = ResponsesRules() if api == "responses" else ChatRules()
    fallback.standing = two_steps

    def fails_second(request: SeenRequest) -> Reply:
        is_second = len(primary.requests) == 2
        return Reply(status=503) if is_second else two_steps(request)

    primary.standing = fails_second
    places = ((primary, "responses"), (fallback, api))
    models = (framework.model(one, api=spoken, name="gpt-5.5") for one, spoken in places)
    ask = framework.stream if streamed else framework.run
    assert await ask(framework.chain(*models), thermometer) == "Warm."
    assert [len(one.requests) for one in (primary, fallback)] == [3, 1]
    assert primary.refused + fallback.refused == []
    assert "secret" in json.dumps(primary.bodies[1])
    assert "secret" not in json.dumps(fallback.bodies)


@pytest.mark.parametrize("is_own", [False, True], ids=["policy", "framework"])
async def test_runs_within_a_session_stay(
    framework: Framework,
    primary: Provider,
    fallback: Provider,
    providers: ProviderServer,
    *,
    is_own: bool,
) -> None:
    """`reset="session"` takes one line around a run, or the framework's name of a conversation.

    Another session begins anew.
    """
    primary.fail(503, times=1)
    chain = chain_of(framework, primary, fallback, reset="session")
    for name in ("s", "s", "another"):
        options = framework.in_session(name) if is_own else {}
        with nullcontext() if is_own else chain.policy.session(name):
            await framework.run(chain, **options)
    first, second = primary.name, fallback.name
    assert providers.order == [first, second, second, first]


async def test_the_users_objects_stay_as_they_are(
    framework: Framework, primary: Provider, fallback: Provider
) -> None:
    """A model that is used elsewhere, too, keeps its SDK's retries."""
    primary.fail(500, times=1, headers={"retry-after-ms": "1"})
    model = framework.model(primary)
    framework.chain(model, framework.model(fallback))
    assert await framework.run(model) == f"hello from {primary.name}"
    assert len(primary.requests) == 2


async def test_no_setting_of_the_primary_reaches_another_place(
    framework: Framework, primary: Provider, fallback: Provider
) -> None:
    """Headers may hold a key; a target's own come from its params."""
    primary.fail(503)
    headers: dict[str, Any] = {"x-secret": "of the primary"}
    first = Target("first", client=framework.model(primary))
    other = Target("gpt-4o", client=framework.model(fallback), params={"temperature": 0.5})
    chain = framework.chain(first, other)
    await framework.run(chain, settings={"extra_headers": headers, "temperature": 0.1})
    assert primary.requests[0].headers["x-secret"] == "of the primary"
    assert "x-secret" not in fallback.requests[0].headers
    assert (primary.bodies[0]["temperature"], fallback.bodies[0]["temperature"]) == (0.1, 0.5)


# Whose request it is, its tools and its options, and what the record says of the fallback.
BOUND: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str]] = {
    "response": ("openai-agents", (), {"previous_response_id": "r"}, "previous_response_id names"),
    "conversation": ("openai-agents", (), {"conversation_id": "c"}, "conversation names"),
    "hosted tool": ("openai-agents", (agents.WebSearchTool(),), {}, "runs the tool web_search"),
    "prompt": ("openai-agents", (), {"prompt": {"id": "p"}}, "prompt names"),
    **{
        name: ("pydantic-ai", (), {"settings": {name: "r"}}, f"{name} is kept by")
        for name in ("openai_previous_response_id", "openai_conversation_id")
    },
}


@pytest.mark.parametrize("case", BOUND)
async def test_what_is_bound_to_the_primary_goes_to_nobody_else(
    primary: Provider, fallback: Provider, listener: Listener, case: str
) -> None:
    """Others would answer without it: the record says why, and that nobody answered."""
    name, tools, options, reason = BOUND[case]
    primary.fail(503)
    more: dict[str, Any] = {"observers": [listener], "attempts_per_target": 1}
    chain = chain_of(FRAMEWORKS[name], primary, fallback, api="responses", **more)
    with pytest.raises(FallbackExhausted):
        await FRAMEWORKS[name].run(chain, *tools, **options)
    assert not fallback.requests
    assert reason in listener.records[0].untried[0][1]


def test_a_name_that_is_taken_gets_its_place(framework: Framework, primary: Provider) -> None:
    """Logs and alerts know targets by them, under every framework, LangChain included."""
    names = ("a", "b", "a")
    langchains = FallbackChatModel(*(ChatOpenAI(model=name, api_key="key") for name in names))
    ours = framework.chain(*(framework.model(primary, name=name) for name in names))
    for chain in (ours, langchains):
        assert [one.name for one in chain.policy.targets] == ["openai/a", "openai/b", "openai/a#3"]


@pytest.mark.parametrize(
    ("candidate", "options", "message"),
    [
        (Target("gpt-4o"), {}, "pass models"),
        (object(), {}, "pass models"),
        (None, {"cooldwon": None}, "cooldown"),
        (None, {"partial": "drop"}, "^partial: got 'drop'; pass final or replace$"),
        (None, {"partial": ["final"]}, "^partial: got "),
    ],
)
def test_what_is_no_model_or_no_option_is_refused(
    framework: Framework, primary: Provider, candidate: Any, options: Any, message: str
) -> None:
    """Where the chain is built, with what to pass."""
    with pytest.raises(FallbackConfigError, match=message):
        framework.chain(candidate or framework.model(primary), **options)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", ["openai-agents", "pydantic-ai"])
def test_a_page_runs_from_top_to_bottom(
    page: str, providers: ProviderServer, tmp_path: Path
) -> None:
    """Its blocks are one program; the primary is down, and sees one request for each agent."""
    primary, local = providers.new("primary"), providers.new("local")
    primary.standing = lambda request: Reply(
        status=200 if request.body["model"] == "gpt-5-mini" else 503
    )
    text = (EXAMPLES.parent / f"docs/{page}.md").read_text("utf-8")
    code = "\n".join(re.findall(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    program = tmp_path / "program.py"
    program.write_text(code, "utf-8")
    done = run(
        program,
        OPENAI_API_KEY="none",
        OPENAI_BASE_URL=primary.url,
        LOCAL_URL=local.url.replace("127.0.0.1", "localhost"),
        OPENAI_AGENTS_DISABLE_TRACING="1",
        NO_PROXY="127.0.0.1,localhost",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"hello from {local.name}\n"
    models = [body["model"] for body in primary.bodies]
    assert models == sorted({*models}, key=models.index)  # none twice
