"""Who may be asked: LiteLLM's own filters stay in force."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import litellm
import pytest

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("paused", "failing", "asked"),
    [
        ("first", [], ["second"]),
        ("second", ["first"], ["first", "third"]),
        ("third", ["first", "second"], ["first", "second"]),
    ],
)
def test_a_paused_deployment_is_never_asked(
    paused: str,
    failing: list[str],
    asked: list[str],
    bench: Any,
    providers: ProviderServer,
    ask: Any,
) -> None:
    """(7) `blocked` takes a target out of rotation, wherever it stands; the record says so."""
    models = bench.chain("first", "second", "third")
    for one in models:
        one["model_info"]["blocked"] = one["model_info"]["id"] == paused
    for name in failing:
        providers[name].fail(500)
    router, listener = bench.managed(models=models)

    with suppress(litellm.InternalServerError):
        ask(router, "completion", model="deriver", messages=MESSAGES)

    assert providers.order == asked
    record = listener.record
    assert [attempt.target for attempt in record.attempts] == asked
    assert record.answered_by == (None if paused == "third" else asked[-1])
    assert (paused, "LiteLLM had taken it out of rotation") in record.untried


def test_a_cooldown_is_respected(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """LiteLLM cools a 429 down at once: the next iteration does not ask the primary."""
    providers["primary"].fail(429)
    router, listener = bench.managed(cooldown_time=60)

    for _ in range(2):
        assert text(ask(router, "completion", model="deriver", messages=MESSAGES))

    assert providers.order == ["primary", "backup", "backup"]
    assert [record.is_fallback for record in listener.records] == [True, True]


def test_a_cooldown_can_be_left_to_others(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """`respect_cooldown=False` starts every iteration on the primary."""
    providers["primary"].fail(429, times=1)
    router, listener = bench.managed(respect_cooldown=False, cooldown_time=60)

    said = [text(ask(router, "completion", model="deriver", messages=MESSAGES)) for _ in range(2)]

    assert said == ["hello from backup", "hello from primary"]
    assert providers.order == ["primary", "backup", "primary"]
    assert [record.is_fallback for record in listener.records] == [True, False]


def test_when_all_cool_down_they_are_tried_all_the_same(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(7) LiteLLM would refuse without a request; a target may have recovered."""
    providers["primary"].fail(429, times=1)
    providers["backup"].fail(429, times=1)
    router, _ = bench.managed(cooldown_time=60)
    with pytest.raises(litellm.RateLimitError):
        ask(router, "completion", model="deriver", messages=MESSAGES)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from primary"
    assert providers.order == ["primary", "backup", "primary"]


def test_a_target_that_cools_down_is_better_than_none(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(7) When the primary fails and all that is left cools down, it is tried all the same."""
    providers["primary"].fail(500)
    providers["backup"].fail(429, times=1)
    router, _ = bench.managed(cooldown_time=60)
    with pytest.raises(litellm.RateLimitError):
        ask(router, "completion", model="deriver", messages=MESSAGES)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from backup"
    assert providers.order == ["primary", "backup"] * 2


def test_tags_narrow_the_chain(bench: Any, providers: ProviderServer, run: Any, text: Any) -> None:
    """(7) Tag routing stays LiteLLM's: the chain is what it leaves."""
    models = [
        bench.deployment(name, rank, tags=["free" if name == "backup" else "paid"])
        for rank, name in enumerate(["primary", "backup"])
    ]
    router, _ = bench.managed(models=models, enable_tag_filtering=True)

    answer = run(
        router.acompletion(model="deriver", messages=MESSAGES, metadata={"tags": ["free"]})
    )

    assert text(answer) == "hello from backup"
    assert providers.order == ["backup"]


def test_pre_call_checks_narrow_the_chain(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(7) A prompt longer than a target's window goes to the one that can take it."""
    models = bench.chain("small", "large")
    models[0]["model_info"]["max_input_tokens"] = 5
    models[1]["model_info"]["max_input_tokens"] = 5000
    router, _ = bench.managed(models=models, enable_pre_call_checks=True)
    long = [{"role": "user", "content": "one two three four five six seven eight nine"}]

    answer = ask(router, "completion", model="deriver", messages=long)

    assert text(answer) == "hello from large"
    assert providers.order == ["large"]


@pytest.mark.parametrize("check", ["session_affinity", "deployment_affinity"])
def test_a_pinned_conversation_has_its_chain(
    check: str, bench: Any, providers: ProviderServer, ask: Any, run: Any, text: Any
) -> None:
    """(7) LiteLLM names only whom it has pinned: the others stand behind it all the same."""
    router, _ = bench.managed(optional_pre_call_checks=[check], disable_cooldowns=True)
    metadata = {"session_id": "s", "user_api_key_hash": "u"}
    run(router.acompletion(model="deriver", messages=MESSAGES, metadata={**metadata}))
    providers["primary"].fail(500)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES, metadata={**metadata})

    assert text(answer) == "hello from backup"
    assert providers.order == ["primary", "primary", "backup"]


def test_a_pin_does_not_change_the_order(
    bench: Any, providers: ProviderServer, ask: Any, run: Any
) -> None:
    """(7) Whoever is pinned is asked in its turn; a primary that cools down rests as ever."""
    router, _ = bench.managed(
        models=bench.chain("first", "second", "third"),
        optional_pre_call_checks=["session_affinity"],
        cooldown_time=60,
    )
    pinned: dict[str, Any] = {"messages": MESSAGES, "metadata": {"session_id": "s"}}
    run(router.acompletion(model="third", **pinned))
    providers["first"].fail(429)
    providers["second"].fail(500)

    for _ in range(2):
        ask(router, "completion", model="deriver", **pinned)

    assert providers.order == ["third", "first", "second", "third", "second", "third"]


def test_whoever_stands_behind_two_pins_is_asked_in_its_turn(
    bench: Any, providers: ProviderServer, ask: Any, run: Any, text: Any
) -> None:
    """(7) A session and a key may be pinned to different deployments: the third is there."""
    checks = ["session_affinity", "deployment_affinity"]
    router, _ = bench.managed(
        models=bench.chain("first", "second", "third"),
        optional_pre_call_checks=checks,
        disable_cooldowns=True,
    )
    key, session = {"user_api_key_hash": "u"}, {"session_id": "s"}
    # The first pin of a key stays when one of its sessions is pinned elsewhere.
    for name, metadata in (("second", key), ("first", key | session)):
        run(router.acompletion(model=name, messages=MESSAGES, metadata={**metadata}))
        providers[name].fail(500)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES, metadata=key | session)

    assert text(answer) == "hello from third"
    assert providers.order == ["second", "first", "first", "second", "third"]


def test_to_look_behind_a_pin_takes_nothing_from_the_request(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """(7) LiteLLM strips in place what others cannot read; whoever wrote it gets it whole."""
    router, _ = bench.managed(optional_pre_call_checks=["encrypted_content_affinity"])
    mark = base64.b64encode(b"model_id:primary").decode()  # as LiteLLM says who wrote it
    key = f"litellm_enc:{mark};secret"
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": key}

    ask(router, "responses", model="deriver", input=[reasoning, *MESSAGES])

    (asked,) = providers["primary"].requests
    assert asked.body["input"][0]["encrypted_content"] == "secret"


def test_an_unmanaged_group_stays_litellms(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """(9) Without ranks LiteLLM routes, retries and cools down as ever."""
    models = [
        *bench.chain("primary", "backup"),
        bench.deployment("other", None, group="others"),
        bench.deployment("another", None, group="others"),
    ]
    providers["other"].fail(400)
    providers["another"].fail(400)
    router, listener = bench.managed(models=models, num_retries=0)

    with pytest.raises(litellm.BadRequestError) as caught:
        ask(router, "completion", model="others", messages=MESSAGES)

    assert len(providers.order) == 1
    assert not hasattr(caught.value, "record")
    assert not listener.starts


def test_behind_the_chain_litellm_retries_as_ever(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(9) The call that is over has no say in the group that LiteLLM falls back to."""
    providers["primary"].fail(500)
    providers["last"].fail(500, times=1)
    models = [*bench.chain("primary"), bench.deployment("last", None, group="plain")]
    router, _ = bench.managed(
        models=models, fallbacks=[{"deriver": ["plain"]}], num_retries=1, disable_cooldowns=True
    )
    answer = ask(router, "completion", model="deriver", messages=MESSAGES)
    assert text(answer) == "hello from last"
    assert providers.order == ["primary", "last", "last"]


def test_a_group_that_falls_back_to_a_chain_gets_a_call_of_its_own(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(9) A list's hop into a ranked group is a call like any other."""
    models = [
        *bench.chain("primary", "backup"),
        bench.deployment("spare", None, group="spares"),
    ]
    providers["spare"].fail(500)
    providers["primary"].fail(500)
    router, listener = bench.managed(
        models=models, fallbacks=[{"spares": ["deriver"]}], num_retries=0
    )

    answer = ask(router, "completion", model="spares", messages=MESSAGES)

    assert text(answer) == "hello from backup"
    assert providers.order == ["spare", "primary", "backup"]
    assert listener.record.answered_by == "backup"


def test_a_chain_in_a_list_is_asked_in_its_order(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(9) LiteLLM would shuffle it; here its primary comes first, and after a group before it."""
    models = [
        *bench.chain("primary", "backup"),
        bench.deployment("spare", None, group="spares"),
        *bench.chain("second", "third", group="others"),
    ]
    for name in ("primary", "backup", "spare", "second"):
        providers[name].fail(500)
    router, listener = bench.managed(
        models=models,
        fallbacks=[{"deriver": ["spares", "others"]}],
        num_retries=0,
        disable_cooldowns=True,
    )
    for _ in range(3):
        answer = ask(router, "completion", model="deriver", messages=MESSAGES)
        assert text(answer) == "hello from third"
        assert answer._hidden_params["additional_headers"]["x-litellm-attempted-fallbacks"] == 1
    assert providers.order == ["primary", "backup", "spare", "second", "third"] * 3
    assert [one.answered_by for one in listener.records] == [None, "third"] * 3


def test_lists_that_name_each_other_end(bench: Any, providers: ProviderServer, ask: Any) -> None:
    """(9) A chain whose list leads back to it is asked once."""
    models = [*bench.chain("primary"), *bench.chain("second", group="others")]
    for name in ("primary", "second"):
        providers[name].fail(500)
    lists = [{"deriver": ["others"]}, {"others": ["deriver"]}]
    router, _ = bench.managed(models=models, fallbacks=lists, disable_cooldowns=True)
    with pytest.raises(litellm.InternalServerError):
        ask(router, "completion", model="deriver", messages=MESSAGES)
    assert providers.order == ["primary", "second"]


@pytest.mark.parametrize("check", ["fallback_access_check", "fallback_budget_check"])
def test_a_chain_in_a_list_is_asked_for_who_may_ask_it(
    check: str, bench: Any, providers: ProviderServer, run: Any
) -> None:
    """(9) LiteLLM's checks of access and budget decide there as before its own hops."""
    asked: list[str] = []

    async def nobody(*, model: str, **_: Any) -> bool:
        asked.append(model)
        return False

    models = [*bench.chain("primary"), *bench.chain("second", group="others")]
    providers["primary"].fail(500)
    router, _ = bench.managed(
        models=models, fallbacks=[{"deriver": ["others"]}], **{check: nobody}
    )
    with pytest.raises(litellm.InternalServerError):
        run(router.acompletion(model="deriver", messages=MESSAGES))
    assert asked == ["others"]
    assert providers.order == ["primary"]


def test_a_hundred_calls_with_one_metadata_dict_do_not_bleed(
    bench: Any, providers: ProviderServer, run: Any, text: Any
) -> None:
    """(5) Each call goes primary, backup, whatever the others do meanwhile."""
    providers["primary"].fail(500)
    router, listener = bench.managed(disable_cooldowns=True)
    metadata: dict[str, Any] = {}

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(
                router.acompletion(model="deriver", messages=MESSAGES, metadata=metadata)
                for _ in range(100)
            )
        )

    answers = run(all_at_once())

    assert {text(answer) for answer in answers} == {"hello from backup"}
    assert len(providers["primary"].requests) == len(providers["backup"].requests) == 100
    assert len({record.call_id for record in listener.records}) == 100
    assert all(
        [a.target for a in record.attempts] == ["primary", "backup"] for record in listener.records
    )


def test_a_switch_keeps_to_larger_windows(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """An overflow goes only to a target with a larger window, in rank order."""
    models = bench.chain("first", "same", "large")
    for one, window in zip(models, (100, 100, 1000), strict=True):
        one["model_info"]["max_input_tokens"] = window
    body = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    providers["first"].fail(400, body=body)
    router, listener = bench.managed(models=models)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from large"
    assert providers.order == ["first", "large"]
    assert listener.record.untried == (("same", "its context window is not larger"),)
