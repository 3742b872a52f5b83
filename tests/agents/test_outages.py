"""A real SDK at a server that fails: one request, then the fallback; in both frameworks."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import agents
import pytest
from pydantic_ai import Agent

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    FallbackExhausted,
    StreamInterrupted,
    Target,
    set_observers,
)
from tests.helpers import wire
from tests.helpers.provider import Reply
from tests.helpers.redis_server import free_port

if TYPE_CHECKING:
    from tests.agents.frameworks import Framework, Records
    from tests.helpers.provider import ProviderServer, SeenRequest

FAILURES: dict[str, Reply] = {
    "500": Reply(status=500),
    "429": Reply(status=429, headers={"retry-after": "30"}),
    "401": Reply(status=401),
    "drop": Reply(drop=True),
    "hang": Reply(hang=True),
    # Nothing says how large the windows are: a longer one may be next.
    "window": Reply(
        status=400,
        body=wire.openai_error(
            "maximum context length", "invalid_request_error", "context_length_exceeded"
        ),
    ),
    "size": Reply(status=413),
}


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("failure", FAILURES)
async def test_the_first_failure_switches(
    framework: Framework,
    providers: ProviderServer,
    records: Records,
    failure: str,
    api: str,
    *,
    streamed: bool,
) -> None:
    """The primary sees one request, though its SDK would send three; the fallback answers."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.standing = FAILURES[failure]
    chain = framework.chain(
        framework.model(primary, api=api),
        framework.model(fallback, host="localhost"),
        observers=[records],
        timeout=0.3 if failure == "hang" else None,
    )
    ask = framework.stream if streamed else framework.run
    assert await ask(chain) == f"hello from {fallback.name}"
    assert (len(primary.requests), len(fallback.requests)) == (1, 1)
    (record,) = records.calls
    assert record.outcome == "success"
    assert [one.kind is None for one in record.attempts] == [False, True]
    if not streamed:  # streams of the Agents SDK's chat model report none
        assert record.usage is not None
        assert record.usage["input_tokens"] > 0


async def test_a_port_that_nobody_listens_on_switches(
    framework: Framework, providers: ProviderServer
) -> None:
    """The most common outage of all, with a real client."""
    dead = providers.new("dead")
    dead.url = f"http://127.0.0.1:{free_port()}/v1"
    fallback = providers.new("fallback")
    chain = framework.chain(framework.model(dead), framework.model(fallback, host="localhost"))
    assert await framework.run(chain) == f"hello from {fallback.name}"
    assert await framework.stream(chain) == f"hello from {fallback.name}"


async def test_a_stream_that_is_cut_before_its_content_switches(
    framework: Framework, providers: ProviderServer
) -> None:
    """Nothing was shown yet."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.standing = Reply(events=[], cut=True)
    chain = framework.chain(framework.model(primary), framework.model(fallback, host="localhost"))
    assert await framework.stream(chain) == f"hello from {fallback.name}"
    assert len(primary.requests) == 1


async def test_a_stream_that_is_cut_after_its_content_is_the_readers(
    framework: Framework, providers: ProviderServer, records: Records
) -> None:
    """What was shown stays shown, so nobody else is asked, and the reader hears of it."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.standing = Reply(events=[wire.chat_word("hel")], cut=True)
    chain = framework.chain(
        framework.model(primary), framework.model(fallback), observers=[records]
    )
    with pytest.raises(StreamInterrupted):
        await framework.stream(chain)
    assert not fallback.requests
    assert records.calls[0].outcome == "interrupted"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_a_response_that_says_it_failed_switches(
    framework: Framework, providers: ProviderServer, *, streamed: bool
) -> None:
    """The Responses API reports an outage under HTTP 200, also in the middle of a stream."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    error = {"code": "server_error", "message": "boom"}
    body = {**wire.responses_answer(), "status": "failed", "error": error, "output": []}
    begun = {**body, "status": "in_progress", "error": None}
    events = [
        wire.named_event("response.created", response=begun, sequence_number=0),
        wire.named_event("response.failed", response=body, sequence_number=1),
    ]
    primary.standing = Reply(body=body, events=events if streamed else None)
    chain = framework.chain(framework.model(primary, api="responses"), framework.model(fallback))
    ask = framework.stream if streamed else framework.run
    assert await ask(chain) == f"hello from {fallback.name}"
    assert len(primary.requests) == 1


async def test_ten_calls_in_an_outage_ask_the_dead_primary_three_times(
    framework: Framework, providers: ProviderServer
) -> None:
    """``resilient()`` rests it after three failures in a row."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(503)
    chain = framework.chain(
        framework.model(primary), framework.model(fallback), config=FallbackConfig.resilient()
    )
    for _ in range(5):
        await framework.run(chain)
        await framework.stream(chain)
    assert (len(primary.requests), len(fallback.requests)) == (3, 10)


async def test_everybody_is_down(framework: Framework, providers: ProviderServer) -> None:
    """The error carries everybody's, and neither the SDK nor the framework asks again."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(500)
    fallback.fail(500)
    chain = framework.chain(
        framework.model(primary), framework.model(fallback), attempts_per_target=1
    )
    with pytest.raises(FallbackExhausted) as raised:
        await framework.run(chain)
    assert len(raised.value.exceptions) == 2
    assert (len(primary.requests), len(fallback.requests)) == (1, 1)


async def test_a_request_that_nobody_would_take_switches_nothing(
    framework: Framework, providers: ProviderServer
) -> None:
    """A bad request is the program's; the error is the framework's own."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(400, error="invalid_request_error", message="Unknown parameter: 'foo'.")
    chain = framework.chain(framework.model(primary), framework.model(fallback))
    with pytest.raises(Exception, match="Unknown parameter") as raised:
        await framework.run(chain)
    assert not isinstance(raised.value, FallbackExhausted)
    assert not fallback.requests


async def test_a_tool_loop_begins_each_step_at_the_primary(
    framework: Framework, providers: ProviderServer, records: Records
) -> None:
    """With ``reset="turn"`` a run stays where it is instead, and the next run begins anew.

    Whatever it is, a run is one turn to observers, and it ends.
    """

    def thermometer(city: str) -> str:
        """Measure."""
        return f"{city}: 21"

    for reset, expected in (("iteration", (2, 1)), ("turn", (1, 2))):
        primary, fallback = providers.new("primary"), providers.new("fallback")
        calls = wire.chat_answer("", wire.chat_call("call_1", "thermometer", {"city": "Lima"}))
        primary.fail(503, times=1)
        fallback.reply(Reply(body=calls))
        models = (framework.model(primary), framework.model(fallback))
        chain = framework.chain(*models, reset=reset, observers=[records])
        await framework.run(chain, thermometer)
        assert (len(primary.requests), len(fallback.requests)) == expected
        assert await framework.run(chain) == f"hello from {primary.name}"
    turns = [record.turn_id for record in records.calls]
    assert [turn.outcome for turn in records.turns] == ["completed"] * 4
    assert list(dict.fromkeys(turns)) == [turn.turn_id for turn in records.turns]


async def test_a_cancelled_run_stays_cancelled(
    framework: Framework, providers: ProviderServer, records: Records
) -> None:
    """Whoever gives up does not begin again at the fallback."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    asked = threading.Event()

    def hangs(_: SeenRequest) -> Reply:
        asked.set()
        return Reply(hang=True)

    primary.standing = hangs
    chain = framework.chain(
        framework.model(primary), framework.model(fallback), observers=[records]
    )
    task = asyncio.create_task(framework.run(chain))
    await asyncio.to_thread(asked.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not fallback.requests
    assert [record.outcome for record in records.calls] == ["cancelled"]


async def test_the_users_objects_stay_as_they_are(
    framework: Framework, providers: ProviderServer
) -> None:
    """A model that is used elsewhere, too, keeps its SDK's retries."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(500, times=1, headers={"retry-after-ms": "1"})
    model = framework.model(primary)
    framework.chain(model, framework.model(fallback))
    assert await framework.run(model) == f"hello from {primary.name}"
    assert len(primary.requests) == 2


async def test_observers_of_the_process_hear_of_calls(
    framework: Framework, providers: ProviderServer, records: Records
) -> None:
    """Langfuse, OpenTelemetry and Prometheus are such."""
    chain = framework.chain(framework.model(providers.new("one")))
    set_observers([records])
    try:
        await framework.run(chain)
        await framework.stream(chain)
    finally:
        set_observers([])
    assert [record.outcome for record in records.calls] == ["success", "success"]


async def test_no_setting_of_the_primary_reaches_another_place(
    framework: Framework, providers: ProviderServer
) -> None:
    """Headers may hold a key; a target's own come from its params."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(503)
    headers: dict[str, Any] = {"x-secret": "of the primary"}
    first = Target("first", client=framework.model(primary))
    other = Target("gpt-4o", client=framework.model(fallback), params={"temperature": 0.5})
    chain = framework.chain(first, other)
    if isinstance(chain, agents.Model):
        settings = agents.ModelSettings(extra_headers=headers, temperature=0.1)
        await agents.Runner.run(agents.Agent("a", model=chain, model_settings=settings), "hi")
    else:
        await Agent(chain, model_settings={"extra_headers": headers, "temperature": 0.1}).run("hi")
    assert primary.requests[0].headers["x-secret"] == "of the primary"
    assert "x-secret" not in fallback.requests[0].headers
    assert (primary.bodies[0]["temperature"], fallback.bodies[0]["temperature"]) == (0.1, 0.5)


def test_a_target_without_a_model_is_refused(framework: Framework) -> None:
    """With what to pass."""
    with pytest.raises(FallbackConfigError, match="pass models"):
        framework.chain(Target("gpt-4o"))


def test_a_target_knows_its_address_and_account(
    framework: Framework, providers: ProviderServer
) -> None:
    """So that a dead host or key is asked once, whatever the models."""
    one, other = providers.new("one"), providers.new("other")
    models = [framework.model(provider) for provider in (one, one, other)]
    targets = framework.chain(*models[:2], Target("named", client=models[2])).policy.targets
    keys = [target.keys["credential"] for target in targets]
    assert keys[0] == keys[1] != keys[2]
    assert len({target.keys["endpoint"] for target in targets}) == 1


@pytest.mark.parametrize("labels", [{"eu"}, set[str]()], ids=["labelled", "not"])
async def test_labels_say_who_may_be_asked(
    framework: Framework, providers: ProviderServer, labels: set[str]
) -> None:
    """``require`` holds here, too; a target carries the labels."""
    primary, fallback = providers.new("primary"), providers.new("fallback")
    primary.fail(503)
    chain = framework.chain(
        Target("one", client=framework.model(primary), labels={"eu"}),
        Target("two", client=framework.model(fallback), labels=labels),
        require={"eu"},
        attempts_per_target=1,
    )
    if labels:
        assert await framework.run(chain) == f"hello from {fallback.name}"
    else:
        with pytest.raises(FallbackExhausted):
            await framework.run(chain)
    assert len(fallback.requests) == len(labels)
