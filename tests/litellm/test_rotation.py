"""Who may be asked: LiteLLM's own filters stay in force."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import litellm
import pytest

from honcho_fallback import FallbackConfig

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

MESSAGES = [{"role": "user", "content": "hello"}]


def test_a_paused_deployment_is_never_asked(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(7) `blocked` takes a target out of rotation; the record says so."""
    models = bench.chain("primary", "backup")
    models[0]["model_info"]["blocked"] = True
    router, listener = bench.managed(models=models)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from backup"
    assert providers.order == ["backup"]
    record = listener.record
    assert record.is_fallback
    assert record.primary == "primary"
    assert [a.number for a in record.attempts] == [1]
    assert record.untried == (("primary", "LiteLLM had taken it out of rotation"),)
    assert not listener.switches


def test_a_target_that_is_out_is_passed_over_in_the_middle(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(7) The switch goes on to the next one that may be asked."""
    models = bench.chain("first", "second", "third")
    models[1]["model_info"]["blocked"] = True
    providers["first"].fail(500)
    router, listener = bench.managed(models=models)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from third"
    assert providers.order == ["first", "third"]
    assert listener.record.answered_by == "third"
    assert listener.record.untried == (("second", "LiteLLM had taken it out of rotation"),)


def test_a_dead_primary_is_not_asked_again_when_the_rest_is_paused(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """(7) Nobody is left: the provider's error comes out, after one request."""
    models = bench.chain("primary", "backup")
    models[1]["model_info"]["blocked"] = True
    providers["primary"].fail(500)
    router, listener = bench.managed(models=models)

    with pytest.raises(litellm.InternalServerError):
        ask(router, "completion", model="deriver", messages=MESSAGES)

    assert providers.order == ["primary"]
    assert listener.record.outcome == "exhausted"
    assert listener.record.untried == (("backup", "LiteLLM had taken it out of rotation"),)


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


def test_an_unmanaged_group_keeps_its_cooldowns(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """(9) `respect_cooldown=False` is for chains: elsewhere a deployment that cools down rests."""
    models = [
        *bench.chain("primary", "backup"),
        bench.deployment("limited", None, group="plain"),
        bench.deployment("fine", None, group="plain"),
    ]
    providers["limited"].fail(429)
    router, _ = bench.managed(models=models, respect_cooldown=False, cooldown_time=60)
    for _ in range(12):
        ask(router, "completion", model="plain", messages=MESSAGES)
    assert len(providers["limited"].requests) <= 1
    assert len(providers["fine"].requests) == 12


def test_the_users_own_fallbacks_stand_behind_the_chain(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(9) When a whole chain has failed, LiteLLM's `fallbacks` to other groups still apply."""
    models = [
        *bench.chain("primary", "backup"),
        bench.deployment("spare", None, group="spares"),
    ]
    providers["primary"].fail(500)
    providers["backup"].fail(500)
    router, listener = bench.managed(models=models, fallbacks=[{"deriver": ["spares"]}])

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from spare"
    assert providers.order == ["primary", "backup", "spare"]
    assert listener.record.outcome == "exhausted"


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


def test_the_users_own_fallbacks_decide_on_a_wrong_request(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(9) The chain ends at a 400; what the Router's own lists make of it is LiteLLM's."""
    models = [
        *bench.chain("primary", "backup"),
        bench.deployment("spare", None, group="spares"),
    ]
    providers["primary"].fail(400)
    router, listener = bench.managed(models=models, fallbacks=[{"deriver": ["spares"]}])

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from spare"
    assert providers.order == ["primary", "spare"]
    assert listener.record.outcome == "rejected"


WHERE_NO_OTHER_TARGET_HELPS = {
    # LiteLLM goes by the words.
    "context_window_fallbacks": (
        "here this model's maximum context length is five",
        "context_length_exceeded",
    ),
    # On openai 3 LiteLLM knows a refusal by its text alone.
    "content_policy_fallbacks": (
        "invalid_request_error: content_policy_violation",
        "content_policy_violation",
    ),
}


@pytest.mark.parametrize("option", WHERE_NO_OTHER_TARGET_HELPS)
def test_the_users_special_fallbacks_apply(
    option: str, bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """(9) LiteLLM's ways out of an overflow and of a refusal are for the errors they name."""
    models = [
        *bench.chain("primary", "backup", info={"max_input_tokens": 100}),
        bench.deployment("spare", None, group="spares"),
    ]
    message, code = WHERE_NO_OTHER_TARGET_HELPS[option]
    told = {"message": message, "code": code, "type": "invalid_request_error"}
    providers["primary"].fail(400, body={"error": told})
    router, listener = bench.managed(models=models, **{option: [{"deriver": ["spares"]}]})

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from spare"
    assert providers.order == ["primary", "spare"]
    assert listener.record.outcome == "rejected"

    providers["primary"].fail(400)
    with pytest.raises(litellm.BadRequestError):
        ask(router, "completion", model="deriver", messages=MESSAGES)


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


def test_an_alias_of_a_chain_is_the_chain(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """A model_group_alias reaches the same targets in the same order."""
    providers["primary"].fail(500)
    router, _ = bench.managed(model_group_alias={"nickname": "deriver"})
    answer = ask(router, "completion", model="nickname", messages=MESSAGES)
    assert text(answer) == "hello from backup"
    assert providers.order == ["primary", "backup"]


def test_a_deployment_asked_for_by_its_id_is_asked_alone(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """LiteLLM serves `model=<id>` from that deployment; there is no chain to go down."""
    providers["backup"].fail(500)
    router, _ = bench.managed(num_retries=0)
    with pytest.raises(litellm.InternalServerError):
        ask(router, "completion", model="backup", messages=MESSAGES)
    assert providers.order == ["backup"]


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


def test_options_of_the_core_apply(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """fallback_on, switch_after with its wait, max_attempts and validate are the core's."""
    providers["primary"].fail(500, times=1)
    config = FallbackConfig(switch_after=2, max_attempts=3, wait=0.3)
    router, listener = bench.managed(config)
    assert text(ask(router, "completion", model="deriver", messages=MESSAGES)) == (
        "hello from primary"
    )
    assert providers.order == ["primary", "primary"]
    assert [a.wait for a in listener.record.attempts] == [0, 0.3]


def test_a_kind_that_is_not_named_does_not_switch(
    bench: Any, providers: ProviderServer, ask: Any
) -> None:
    """`fallback_on` decides, whatever LiteLLM would have retried."""
    providers["primary"].fail(500)
    router, _ = bench.managed(FallbackConfig(fallback_on={"rate_limit"}))
    with pytest.raises(litellm.InternalServerError):
        ask(router, "completion", model="deriver", messages=MESSAGES)
    assert providers.order == ["primary"]


def test_an_answer_that_validate_refuses_is_a_failure(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """`validate` sees LiteLLM's answer; a refused one goes to the next target."""
    config = FallbackConfig(validate=lambda answer: "backup" in text(answer))
    router, listener = bench.managed(config)

    answer = ask(router, "completion", model="deriver", messages=MESSAGES)

    assert text(answer) == "hello from backup"
    assert [a.kind for a in listener.record.attempts] == ["malformed_response", None]
