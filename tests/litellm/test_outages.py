"""What looks beyond one call: who cools down, how much time is left, what may be repeated."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import litellm
import openai
import pytest
from litellm.exceptions import GuardrailRaisedException
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    RetryBudget,
    Target,
    TransportRecovery,
)
from honcho_fallback_litellm import FallbackProxyHandler
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_word as word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from honcho_fallback import Failure, PendingAction
    from tests.helpers.provider import ProviderServer

MESSAGES = [{"role": "user", "content": "hello"}]
ASKED: Any = {"model": "deriver", "messages": MESSAGES}
COOLING = "it was cooling down for another "  # and some seconds, by a real clock


class AheadLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test may put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Later(Cooldown):
    """Remember as ever, on a clock that a test may put forward."""

    ahead = 0.0

    def update_and_select(
        self,
        reports: Sequence[Any],
        offered: Sequence[Any],
        now: float,
        lease: float | None = None,
        /,
    ) -> Any:
        return super().update_and_select(reports, offered, now + self.ahead, lease)


@pytest.fixture
def cooldown() -> Later:
    """Return a cooldown that begins at once, whose clock a test may put forward."""
    return Later(after=1, base=60.0)


@pytest.fixture
def config(cooldown: Later) -> FallbackConfig:
    """Return the options of one that cools down."""
    return FallbackConfig(cooldown=cooldown)


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """Return what a silent provider waits for; the test's end ends it."""
    event = threading.Event()
    yield event
    event.set()


def test_a_dead_primary_is_left_alone(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """One request reaches it, then every call starts on the backup and says why."""
    providers["primary"].fail(500)
    router, listener = bench.managed(config)
    said = [text(ask(router, "completion", **ASKED)) for _ in range(3)]
    assert said == ["hello from backup"] * 3
    assert providers.order == ["primary", "backup", "backup", "backup"]
    for record in listener.records[1:]:
        ((name, why),) = record.untried
        assert (name, why.startswith(COOLING)) == ("primary", True)
    assert len(listener.switches) == 1


def test_a_probe_that_is_answered_brings_the_primary_back(
    config: FallbackConfig,
    cooldown: Later,
    bench: Any,
    providers: ProviderServer,
    ask: Any,
    text: Any,
) -> None:
    """Retry-After is obeyed, LiteLLM's own cooldown is not, and observers hear of the return."""
    providers["primary"].fail(429, times=1, headers={"retry-after": "7"})
    router, listener = bench.managed(config, cooldown_time=60)
    said = [text(ask(router, "completion", **ASKED)) for _ in range(2)]
    cooldown.ahead = 8.0
    said += [text(ask(router, "completion", **ASKED)) for _ in range(2)]
    assert said == ["hello from backup"] * 2 + ["hello from primary"] * 2
    assert providers.order == ["primary", "backup", "backup", "primary", "primary"]
    (restore,) = listener.restores
    assert (restore.primary.name, restore.after) == ("primary", "cooldown")
    assert listener.records[2].attempts[0].note == "a probe after its cooldown"


def test_litellms_cooldown_stays_where_it_is_asked_for(
    config: FallbackConfig, cooldown: Later, bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """With both, a target that LiteLLM cools down is not probed, and its permit is free again."""
    providers["primary"].fail(429, times=1)
    router, listener = bench.managed(config, respect_cooldown=True, cooldown_time=60)
    ask(router, "completion", **ASKED)
    cooldown.ahead = 61.0
    for _ in range(2):
        ask(router, "completion", **ASKED)
    assert providers.order == ["primary", "backup", "backup", "backup"]
    assert listener.records[2].untried == (("primary", "LiteLLM had taken it out of rotation"),)


@pytest.mark.parametrize("again", [False, True])
def test_who_litellm_rests_is_asked_before_a_call_is_lost(
    bench: Any, providers: ProviderServer, ask: Any, text: Any, *, again: bool
) -> None:
    """A primary that rests in LiteLLM's memory answers the call in which the backup is down."""
    providers["primary"].fail(429, times=1)
    router, listener = bench.managed(FallbackConfig(wait=0), cooldown_time=60)
    assert text(ask(router, "completion", **ASKED)) == "hello from backup"
    if again:
        assert text(ask(router, "completion", **ASKED)) == "hello from backup"
        assert set(listener.records[-1].cooling or ()) == {"primary"}
    providers["backup"].fail(500)
    assert text(ask(router, "completion", **ASKED)) == "hello from primary"
    assert listener.records[-1].attempts[-1].note == "in its cooldown, as nobody else was left"


def test_one_of_a_hundred_calls_probes(
    config: FallbackConfig,
    cooldown: Later,
    bench: Any,
    providers: ProviderServer,
    run: Any,
    text: Any,
    silence: threading.Event,
) -> None:
    """While the probe is under way the others stay where they are."""
    providers["primary"].fail(500, times=1)
    router, listener = bench.managed(config)
    run(router.acompletion(**ASKED))
    cooldown.ahead = 61.0
    providers["primary"].reply(Reply(hold=silence))

    async def all_at_once() -> list[Any]:
        calls = [asyncio.create_task(router.acompletion(**ASKED)) for _ in range(100)]
        others = asyncio.as_completed(calls)
        answers = [await next(others) for _ in range(99)]
        silence.set()
        return [*answers, await next(others)]

    answers = run(all_at_once())

    assert [text(answer) for answer in answers] == ["hello from backup"] * 99 + [
        "hello from primary"
    ]
    assert len(providers["primary"].requests) == 2
    assert len(listener.restores) == 1


def test_a_hundred_calls_that_meet_an_outage_together(
    config: FallbackConfig, bench: Any, providers: ProviderServer, run: Any, text: Any
) -> None:
    """Each asks each target at most once and gets the backup's answer."""
    providers["primary"].fail(500)
    router, listener = bench.managed(config)

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*(router.acompletion(**ASKED) for _ in range(100)))

    assert {text(answer) for answer in run(all_at_once())} == {"hello from backup"}
    assert len(providers["primary"].requests) <= 100
    assert len(providers["backup"].requests) == 100
    assert all(record.outcome == "success" for record in listener.records)


def cancelled(router: Any, providers: ProviderServer, run: Any) -> None:
    """Cancel a call while the primary is being asked."""

    async def cancel() -> None:
        asked = len(providers["primary"].requests)
        task = asyncio.create_task(router.acompletion(**ASKED))
        while len(providers["primary"].requests) == asked:  # noqa: ASYNC110 # set by a server's thread
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())


def read_partly(router: Any, _: Any, __: Any) -> None:
    """Close a stream after a chunk."""
    stream = router.completion(**ASKED, stream=True)
    next(stream)
    stream.close()


def dropped(router: Any, _: Any, __: Any) -> None:
    """Forget a stream unread."""
    del _, __
    stream = router.completion(**ASKED, stream=True)
    del stream


@pytest.mark.parametrize("how", [cancelled, read_partly, dropped])
def test_a_probe_that_learns_nothing_gives_its_permit_back(
    how: Callable[..., None],
    config: FallbackConfig,
    cooldown: Later,
    bench: Any,
    providers: ProviderServer,
    run: Any,
    text: Any,
) -> None:
    """The very next call probes, and the record of the one before is closed."""
    providers["primary"].fail(500, times=1)
    router, listener = bench.managed(config)
    router.completion(**ASKED)
    cooldown.ahead = 61.0
    if how is cancelled:
        providers["primary"].reply(Reply(hang=True))

    how(router, providers, run)

    assert listener.records[-1].outcome in {"cancelled", "abandoned"}
    assert text(router.completion(**ASKED)) == "hello from primary"
    assert listener.records[-1].attempts[0].note == "a probe after its cooldown"


def test_a_probe_that_is_out_of_rotation_gives_its_permit_back(
    config: FallbackConfig,
    cooldown: Later,
    bench: Any,
    providers: ProviderServer,
    ask: Any,
    text: Any,
) -> None:
    """A primary that is paused when it is due is probed as soon as it is back."""
    providers["primary"].fail(500, times=1)
    router, _ = bench.managed(config)
    ask(router, "completion", **ASKED)
    cooldown.ahead = 61.0
    info = router.model_list[0]["model_info"]
    info["blocked"] = True
    assert text(ask(router, "completion", **ASKED)) == "hello from backup"
    info["blocked"] = False
    assert text(ask(router, "completion", **ASKED)) == "hello from primary"
    assert providers.order == ["primary", "backup", "backup", "primary"]


def test_when_all_others_are_paused_one_that_cools_down_is_asked(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """Never nobody: LiteLLM's pause is obeyed, the memory of a failure is not."""
    providers["primary"].fail(500, times=1)
    router, listener = bench.managed(config)
    ask(router, "completion", **ASKED)
    router.model_list[1]["model_info"]["blocked"] = True
    assert text(ask(router, "completion", **ASKED)) == "hello from primary"
    assert listener.records[-1].attempts[0].note == "in its cooldown, as nobody else was left"


def test_of_those_in_rotation_the_first_that_is_up_is_asked(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """A pause of the first and a rest of the second leave the third."""
    providers["first"].fail(500)
    providers["second"].fail(500)
    router, listener = bench.managed(config, models=bench.chain("first", "second", "third"))
    router.model_list[0]["model_info"]["blocked"] = True
    said = [text(ask(router, "completion", **ASKED)) for _ in range(2)]
    assert said == ["hello from third"] * 2
    assert providers.order == ["second", "third", "third"]
    (_, paused), (_, resting) = listener.records[-1].untried
    assert paused == "LiteLLM had taken it out of rotation"
    assert resting.startswith(COOLING)


def test_a_stream_closes_a_probe(
    config: FallbackConfig, cooldown: Later, bench: Any, providers: ProviderServer, run: Any
) -> None:
    """A stream that was read to its end is an answer; one that broke doubles the rest."""
    providers["primary"].reply(Reply(events=[], cut=True))
    router, listener = bench.managed(config)

    async def read() -> None:
        async for _ in await router.acompletion(**ASKED, stream=True):
            pass

    run(read())
    cooldown.ahead = 61.0
    providers["primary"].reply(Reply(events=[], cut=True))
    run(read())
    cooldown.ahead = 130.0
    run(read())
    assert providers.order == ["primary", "backup", "primary", "backup", "backup"]
    cooldown.ahead = 190.0
    run(read())
    assert providers.order[-1] == "primary"
    assert len(listener.restores) == 1


def test_a_router_that_is_made_anew_remembers(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """One config for two Routers, and for one whose list is set again: the same targets."""
    providers["primary"].fail(500)
    models = bench.chain("primary", "backup")
    for one in models:
        del one["model_info"]["id"]
    first, _ = bench.managed(config, models=models)
    ask(first, "completion", **ASKED)
    first.set_model_list(bench.chain("primary", "backup"))
    second, _ = bench.managed(config)
    for router in (first, second):
        assert text(ask(router, "completion", **ASKED)) == "hello from backup"
    assert len(providers["primary"].requests) == 1


def test_one_model_with_other_parameters_is_a_fallback(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """With less effort it may answer where it did not; what LiteLLM itself takes tells nothing."""
    providers["primary"].fail(503, times=1)
    models = [
        bench.deployment(
            "primary", rank, reasoning_effort=effort, rpm=rank, info={"id": str(rank)}
        )
        for rank, effort in enumerate(("high", "high", "low"))
    ]
    router, _ = bench.managed(models=models)
    assert text(ask(router, "completion", **ASKED)) == "hello from primary"
    efforts = [request.body["reasoning_effort"] for request in providers["primary"].requests]
    assert efforts == ["high", "low"]


def test_a_new_key_is_a_new_target(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """`upsert_deployment` with another key makes another target of it, under the same id."""
    providers["primary"].fail(401, times=1)
    router, _ = bench.managed(config)
    ask(router, "completion", **ASKED)
    router.upsert_deployment(litellm.Deployment(**bench.deployment("primary", 0)))
    assert text(ask(router, "completion", **ASKED)) == "hello from backup"
    fresh = bench.deployment("primary", 0, api_key="another")
    router.upsert_deployment(litellm.Deployment(**fresh))
    assert text(ask(router, "completion", **ASKED)) == "hello from primary"
    assert providers["primary"].requests[-1].headers["authorization"] == "Bearer another"


def test_who_a_deployment_is(bench: Any) -> None:
    """The provider, the model, the address and the key tell; the unknown is this process's own."""

    def identities(**params: Any) -> list[str]:
        models = bench.chain("primary", "backup", **params)
        listener = bench.managed(models=models)
        router, heard = listener
        router.completion(**ASKED)
        return [target.identity for target in heard.starts[0].chain]

    mine = identities()
    assert mine == identities()
    assert len({*mine, *identities(api_key="another")}) == 4
    assert len({*mine, *identities(organization="another")}) == 4
    assert (
        identities(api_key="k", api_base=bench.providers.url + "/primary")[0]
        == (identities(api_key="k", api_base=bench.providers.url + "/primary/")[0])
    )
    assert not [one for one in mine if one.startswith("here:") or "key-of" in one]


def test_who_a_deployment_without_a_key_is(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment's key is LiteLLM's to read: the same in this process, and nowhere else."""
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
    told: list[str] = []
    for _ in range(2):
        router, heard = bench.managed(models=bench.chain("primary", "backup", api_key=None))
        router.completion(**ASKED)
        told += [target.identity for target in heard.starts[0].chain]
    assert told[:2] == told[2:]
    assert len({*told}) == 2
    assert all(one.startswith("here:") for one in told)


def test_a_callers_own_key_says_nothing_of_the_deployment(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """A request that brought a dead key along does not send everybody to the fallback."""
    providers["primary"].fail(401, times=1)
    router, _ = bench.managed(config)
    ask(router, "completion", **ASKED, api_key="mine, and dead")
    assert text(ask(router, "completion", **ASKED)) == "hello from primary"


def test_nothing_that_is_told_is_secret(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """Neither a key nor an address is in a record, a target or what observers hear."""
    providers["primary"].fail(401)
    router, listener = bench.managed(config)
    answers = [ask(router, "completion", **ASKED) for _ in range(2)]
    told = str([record.to_dict() for record in listener.records]) + repr(listener.starts)
    told += repr(listener.switches) + repr([answer._hidden_params for answer in answers])
    assert "key-of" not in told
    assert providers.url not in repr(listener.starts) + repr(listener.switches)


@pytest.mark.parametrize("theirs", [{}, {"timeout": 60.0}, {"request_timeout": 60.0}])
def test_a_deadline_reaches_litellms_request(
    theirs: Any, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """The primary gets what is not kept for the backup, whatever longer timeout LiteLLM has."""
    providers["primary"].reply(Reply(hang=True))
    router, listener = bench.managed(
        FallbackConfig(deadline=2.4), models=bench.chain("primary", "backup")
    )
    answer = ask(router, "completion", **ASKED, **theirs)
    assert text(answer) == "hello from backup"
    assert [one.kind for one in listener.record.attempts] == ["timeout", None]


def test_a_shorter_timeout_of_litellms_is_kept(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """A deadline shortens; it never gives more time than somebody wanted."""
    providers["primary"].reply(Reply(hang=True))
    router, listener = bench.managed(FallbackConfig(deadline=60.0))
    said = text(ask(router, "completion", **ASKED, timeout=0.3))
    assert said == "hello from backup"
    assert listener.record.attempts[0].kind == "timeout"


def test_a_deadline_that_ran_out_ends_the_call(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """The last error comes out in LiteLLM's class, and its record says that time ran out."""
    for name in ("primary", "backup"):
        providers[name].standing = Reply(hang=True)
    config = FallbackConfig(deadline=0.8, max_attempts=5)
    router, listener = bench.managed(config)
    with pytest.raises(litellm.Timeout) as caught:
        ask(router, "completion", **ASKED)
    assert listener.record.why == "the deadline of 0.8 s left no time for more"
    assert vars(caught.value)["record"] == listener.record
    assert [one.kind for one in listener.record.attempts] == ["timeout", "timeout"]


def test_a_provider_that_drips_does_not_outlast_a_deadline(
    bench: Any, providers: ProviderServer, run: Any
) -> None:
    """In a task time is time: bytes that keep a connection alive do not count."""
    providers["primary"].reply(Reply(events=[word("")], hang=True))
    config = FallbackConfig(deadline=2.4)
    router, listener = bench.managed(config)

    async def read() -> str:
        stream = await router.acompletion(**ASKED, stream=True)
        return "".join([one.choices[0].delta.content or "" async for one in stream])

    assert run(read()) == "hello from backup"
    assert [one.kind for one in listener.record.attempts] == ["timeout", None]


@pytest.mark.parametrize("drip", [": ping", word("")])
def test_a_stream_without_a_first_token_is_the_backups(
    drip: str, bench: Any, providers: ProviderServer, run: Any
) -> None:
    """In a task to the point, also where the provider keeps the connection alive, by whatever."""
    providers["primary"].reply(Reply(events=[word("")], hang=True, drip=drip))
    router, listener = bench.managed(FallbackConfig(first_token_timeout=0.4))

    async def read() -> str:
        stream = await router.acompletion(**ASKED, stream=True)
        return "".join([one.choices[0].delta.content or "" async for one in stream])

    assert run(read()) == "hello from backup"
    assert [one.kind for one in listener.record.attempts] == ["timeout", None]


@pytest.mark.parametrize("theirs", [{}, {"stream_timeout": 60.0}, {"timeout": 60.0}])
def test_a_silent_stream_in_a_thread_is_the_backups(
    theirs: Any, bench: Any, providers: ProviderServer
) -> None:
    """There LiteLLM's own timeout ends a silence: it is handed the first token's."""
    providers["primary"].reply(Reply(hang=True))
    router, listener = bench.managed(FallbackConfig(first_token_timeout=0.4))
    chunks = [*router.completion(**ASKED, stream=True, **theirs)]
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == "hello from backup"
    assert listener.record.attempts[0].kind == "timeout"


def test_a_reader_may_take_its_time(bench: Any) -> None:
    """The time between two chunks that the caller spends is not the provider's."""
    router, listener = bench.managed(FallbackConfig(first_token_timeout=5.0, idle_timeout=5.0))
    loop = AheadLoop()

    async def read() -> str:
        stream = await router.acompletion(**ASKED, stream=True)
        loop.ahead += 6.0
        said = (await anext(stream)).choices[0].delta.content or ""
        loop.ahead += 6.0
        said += "".join([one.choices[0].delta.content or "" async for one in stream])
        await close_litellm_async_clients()
        return said

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(read()) == "hello from primary"
    assert listener.record.outcome == "success"


def test_a_stream_that_falls_silent_after_content_goes_out(
    bench: Any, providers: ProviderServer, run: Any
) -> None:
    """`idle_timeout` in a task: LiteLLM's Timeout, the record says interrupted."""
    providers["primary"].reply(Reply(events=[word("hello")], hang=True))
    router, listener = bench.managed(FallbackConfig(first_token_timeout=9.0, idle_timeout=0.4))
    said: list[str] = []

    async def read() -> None:
        async for one in await router.acompletion(**ASKED, stream=True):
            said.append(one.choices[0].delta.content)  # noqa: PERF401 # what came before counts

    with pytest.raises(litellm.Timeout, match=r"within 0\.4 s"):
        run(read())
    assert said == ["hello"]
    assert listener.record.outcome == "interrupted"
    assert providers.order == ["primary"]


def test_judges_and_gates_are_never_the_fallbacks(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """`must_not_degrade` for all calls: not the chain's fallback, not LiteLLM's own."""
    providers["primary"].fail(500)
    models = [*bench.chain("primary", "backup"), bench.deployment("spare", None, group="spares")]
    router, listener = bench.managed(
        FallbackConfig(must_not_degrade=True), models=models, fallbacks=[{"deriver": ["spares"]}]
    )
    with pytest.raises(litellm.InternalServerError) as caught:
        ask(router, "completion", **ASKED)
    assert {*providers.order} == {"primary"}
    assert listener.record.untried == (("backup", "the call must not degrade"),)
    assert vars(caught.value)["record"] == listener.record


@pytest.mark.parametrize("said", [True, "true"])
def test_one_request_must_not_degrade(
    said: object, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """A request says so in its metadata; nothing of it reaches a provider or the next request."""
    providers["primary"].fail(500)
    router, listener = bench.managed(FallbackConfig(wait=0))
    with pytest.raises(litellm.InternalServerError):
        ask(router, "completion", **ASKED, metadata={"must_not_degrade": said})
    assert providers.order == ["primary", "primary"]
    assert listener.record.untried == (("backup", "the call must not degrade"),)
    assert set(providers["primary"].requests[0].body) == {"messages", "model"}
    assert text(ask(router, "completion", **ASKED)) == "hello from backup"


def test_an_endpoint_with_a_bucket_of_its_own_must_not_degrade_either(
    bench: Any, providers: ProviderServer, run: Any
) -> None:
    """The Responses API has metadata of its own beside LiteLLM's; either may say so."""
    providers["primary"].fail(500)
    for bucket in ("metadata", "litellm_metadata"):
        router, listener = bench.managed(FallbackConfig(wait=0))
        asked: Any = {"litellm_metadata": {}, bucket: {"must_not_degrade": "true"}}
        with pytest.raises(openai.APIError):
            run(router.aresponses(model="deriver", input="hello", **asked))
        assert listener.record.untried == (("backup", "the call must not degrade"),)
    assert {*providers.order} == {"primary"}


def test_a_paused_primary_is_not_replaced_where_that_must_not_be(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """Nobody is asked, LiteLLM's own error comes out, and nobody takes it for an outage."""
    router, listener = bench.managed(FallbackConfig(must_not_degrade=True, cooldown=Cooldown()))
    info = router.model_list[0]["model_info"]
    info["blocked"] = True
    with pytest.raises(Exception, match=r"[Nn]o .*deployment"):
        ask(router, "completion", **ASKED)
    assert not providers.order
    assert not listener.records
    info["blocked"] = False
    ask(router, "completion", **ASKED)
    assert listener.records[-1].attempts[0].note is None


def test_a_chain_that_is_paused_is_not_down(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """LiteLLM's own "nobody is there" is no news of a provider; afterwards all is as before."""
    router, listener = bench.managed(config)
    for one in router.model_list:
        one["model_info"]["blocked"] = True
    with pytest.raises((LookupError, ValueError)):
        ask(router, "completion", **ASKED)
    for one in router.model_list:
        one["model_info"]["blocked"] = False
    assert text(ask(router, "completion", **ASKED)) == "hello from primary"
    assert listener.records[-1].attempts[0].note is None
    assert not listener.switches


def test_what_a_guardrail_blocks_is_blocked(
    bench: Any, providers: ProviderServer, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guardrail's no is for the request: neither the next target nor another group is asked."""
    router, listener = bench.managed(
        models=[
            *bench.chain("primary", "backup"),
            bench.deployment("spare", None, group="spares"),
        ],
        fallbacks=[{"deriver": ["spares"]}],
    )

    def blocked(**_: Any) -> Any:
        raise GuardrailRaisedException(guardrail_name="ours", message="not that")

    for name in ("completion", "acompletion"):
        monkeypatch.setattr(litellm, name, blocked)
    with pytest.raises(GuardrailRaisedException):
        ask(router, "completion", **ASKED)
    assert not providers.order
    assert listener.record.outcome == "rejected"


def test_a_primary_that_cools_down_is_asked_where_there_is_no_other(
    config: FallbackConfig, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """A judge rather asks one that was down than nobody."""
    providers["primary"].fail(500, times=1)
    router, _ = bench.managed(config)
    ask(router, "completion", **ASKED)
    said = ask(router, "completion", **ASKED, metadata={"must_not_degrade": True})
    assert text(said) == "hello from primary"


def test_a_retry_budget_bounds_repeats(bench: Any, providers: ProviderServer, ask: Any) -> None:
    """Without one the last target is asked three times; with it the record says why not."""
    for name in ("primary", "backup"):
        providers[name].fail(500)
    options: Any = {"max_attempts": 4, "wait": 0}
    budget = RetryBudget(ratio=0.0, min_per_second=0.1, window=10.0)
    for given, asked in ((None, 4), (budget, 3), (budget, 2)):
        router, listener = bench.managed(FallbackConfig(retry_budget=given, **options))
        providers.order.clear()
        with pytest.raises(litellm.InternalServerError):
            ask(router, "completion", **ASKED)
        assert len(providers.order) == asked
        assert ("retry budget for backup" in (listener.record.why or "")) == bool(given)


class AtOnce(TransportRecovery):
    """Recover without the wait."""

    def action(self, target: Target, failure: Failure, failures: int) -> PendingAction | None:
        action = super().action(target, failure, failures)
        return action and action._replace(wait=0.0)


def test_a_transport_is_given_another_chance(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """The user's rebuild is called, and the primary asked once more, within the chain's limit."""
    providers["primary"].fail(times=1, drop=True)
    rebuilt: list[str] = []
    recovery = AtOnce(rebuild=lambda target: rebuilt.append(target.name))
    router, listener = bench.managed(FallbackConfig(transport_recovery=recovery))
    assert text(ask(router, "completion", **ASKED)) == "hello from primary"
    assert rebuilt == ["primary"]
    assert providers.order == ["primary", "primary"]
    assert listener.record.attempts[1].note == "after time for its transport"

    providers.order.clear()
    providers["primary"].fail(times=2, drop=True)
    assert text(ask(router, "completion", **ASKED)) == "hello from backup"
    assert providers.order == ["primary", "primary", "backup"]

    providers.order.clear()
    providers["primary"].fail(times=1, drop=True)
    with pytest.raises(openai.APIError):
        ask(router, "completion", **ASKED, num_retries=0)
    assert providers.order == ["primary"]
    assert listener.records[-1].outcome == "exhausted"


@pytest.mark.parametrize("members", [("primary",), ("primary", "backup")])
def test_a_rebuild_that_fails_is_no_recovery(
    members: tuple[str, ...], bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """The call goes on as without it, or ends with the provider's error, not with this one."""
    providers["primary"].fail(drop=True)

    def rebuild(_: Any) -> None:
        raise OSError("no, not today")

    recovery = AtOnce(rebuild=rebuild)
    router, listener = bench.managed(
        FallbackConfig(transport_recovery=recovery), models=bench.chain(*members)
    )
    with suppress(openai.APIError):
        ask(router, "completion", **ASKED)
    assert providers.order == [*members]
    assert listener.record.attempts[0].note == "its rebuild failed: OSError"
    assert listener.record.outcome == ("success" if members[1:] else "exhausted")


def test_the_resilient_preset(
    bench: Any,
    providers: ProviderServer,
    ask: Any,
    text: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has turns, which LiteLLM has not: an INFO says what holds instead."""
    with caplog.at_level(logging.INFO, "honcho_fallback"):
        router, listener = bench.managed(FallbackConfig.resilient())
    assert "reset=\"iteration\" in place of 'turn'" in caplog.text
    assert FallbackProxyHandler(FallbackConfig.resilient())

    providers["primary"].fail(503)
    said = [text(ask(router, "completion", **ASKED)) for _ in range(4)]
    assert said == ["hello from backup"] * 4
    assert providers.order == [*["primary", "backup"] * 3, "backup"]
    assert listener.records[-1].turn_id is None


def test_attempts_per_target_count(bench: Any, providers: ProviderServer, ask: Any) -> None:
    """Each target has as many as it is given, the chain that many for each."""
    for name in ("primary", "backup"):
        providers[name].fail(500)
    config = FallbackConfig(attempts_per_target=2, switch_after=2, wait=0)
    router, _ = bench.managed(config)
    with pytest.raises(openai.APIError):
        ask(router, "completion", **ASKED)
    assert providers.order == ["primary"] * 2 + ["backup"] * 2
