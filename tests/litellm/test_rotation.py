"""Who may be asked: LiteLLM's own filters stay in force."""

from __future__ import annotations

import base64
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import litellm
import pytest

from honcho_fallback import FallbackConfig
from honcho_fallback_litellm._router import Rotation
from tests.helpers.litellm_runs import ASKED, ask_in, text_of
from tests.helpers.provider import Reply

needs_a_way_past_pins = pytest.mark.skipif(
    not hasattr(litellm.Router, "select"), reason="LiteLLM 1.108 has no way past a pin"
)


@pytest.mark.parametrize(
    ("paused", "failing", "asked"),
    [
        ("first", [], ["second"]),
        ("second", ["first"], ["first", "third"]),
        ("third", ["first", "second"], ["first", "second"]),
    ],
)
def test_a_paused_deployment_is_never_asked(
    paused: str, failing: list[str], asked: list[str], bench: Any, ask: Any
) -> None:
    """(7) `blocked` takes a target out of rotation, wherever it stands; the record says so."""
    models = bench.chain("first", "second", "third")
    for one in models:
        one["model_info"]["blocked"] = one["model_info"]["id"] == paused
    for name in failing:
        bench[name].fail(500)
    router, listener = bench.managed(models=models)

    with suppress(litellm.InternalServerError):
        ask(router)

    assert bench.order == asked
    record = listener.record
    assert [attempt.target for attempt in record.attempts] == asked
    assert record.answered_by == (None if paused == "third" else asked[-1])
    assert (paused, "LiteLLM had taken it out of rotation") in record.untried


@pytest.mark.parametrize(
    ("respect", "primary", "backup", "said", "order"),
    [
        (True, [429, 429], [], "bb", "p b b"),  # LiteLLM cools a 429 down at once
        (False, [429], [], "bp", "p b p"),
        # LiteLLM would refuse without a request; a target may have recovered.
        (True, [429], [429], "-p", "p b p"),
        (True, [500, 500], [429], "-b", "p b p b"),
        (True, [429], [200, 500], "bp", "p b b p"),
        (True, [429], [200, 200, 500], "bbp", "p b b b p"),
    ],
)
def test_a_cooldown_of_litellms_orders_and_forbids_nobody(
    respect: bool, primary: Any, backup: Any, said: str, order: str, bench: Any, say: Any
) -> None:
    """(7) Who rests is asked after the others, before a call is lost."""
    for name, statuses in (("primary", primary), ("backup", backup)):
        bench.providers[name].reply(*(Reply(status=status) for status in statuses))
    config = FallbackConfig(wait=0)
    router, listener = bench.managed(config, respect_cooldown=respect, cooldown_time=60)
    for who in said:
        if who == "-":
            with pytest.raises(litellm.RateLimitError):
                say(router)
        else:
            assert say(router)[11] == who  # of "hello from primary"
    assert " ".join(name[0] for name in bench.providers.order) == order
    last = listener.records[-1]
    if said == "bb":
        assert {*last.cooling} == {"primary"}
    elif respect:
        assert last.attempts[-1].note == "in its cooldown, as nobody else was left"


def test_pre_call_checks_narrow_the_chain(bench: Any, say: Any) -> None:
    """(7) A prompt longer than a target's window goes to the one that can take it."""
    models = bench.chain("small", "large")
    for one, window in zip(models, (5, 5000), strict=True):
        one["model_info"]["max_input_tokens"] = window
    router, _ = bench.managed(models=models, enable_pre_call_checks=True)
    long = [{"role": "user", "content": "one two three four five six seven eight nine"}]
    assert say(router, messages=long) == "hello from large"
    assert bench.order == ["large"]


@needs_a_way_past_pins
def test_a_pin_does_not_change_the_order(bench: Any, ask: Any) -> None:
    """(7) Whoever is pinned is asked in its turn; a primary that cools down rests as ever."""
    router, _ = bench.managed(
        models=bench.chain("first", "second", "third"),
        optional_pre_call_checks=["session_affinity"],
        cooldown_time=60,
    )
    pinned = {"session_id": "s"}
    ask_in("async", router, model="third", metadata=pinned)
    bench["first"].fail(429)
    bench["second"].fail(500)

    for _ in range(2):
        ask(router, metadata=pinned)

    assert bench.order == ["third", "first", "second", "third", "second", "third"]


@needs_a_way_past_pins
@pytest.mark.parametrize(
    "checks",
    [["session_affinity"], ["deployment_affinity"], ["session_affinity", "deployment_affinity"]],
)
def test_whoever_stands_behind_pins_is_asked_in_its_turn(
    checks: list[str], bench: Any, say: Any
) -> None:
    """(7) LiteLLM names only whom it has pinned: the others stand behind it all the same.

    A session and a key may be pinned to different deployments: the third is there.
    """
    router, _ = bench.managed(
        models=bench.chain("first", "second", "third"),
        optional_pre_call_checks=checks,
        disable_cooldowns=True,
    )
    key, session = {"user_api_key_hash": "u"}, {"session_id": "s"}
    # The first pin of a key stays when one of its sessions is pinned elsewhere.
    pins = [("second", key), ("first", key | session)][-len(checks) :]
    for name, metadata in pins:
        ask_in("async", router, model=name, metadata={**metadata})
        bench[name].fail(500)

    order = ["first", "second", "third"][: len(pins) + 1]
    assert say(router, metadata=key | session) == f"hello from {order[-1]}"
    assert bench.order == [*(name for name, _ in pins), *order]


def test_to_look_behind_a_pin_takes_nothing_from_the_request(bench: Any, ask: Any) -> None:
    """(7) LiteLLM strips in place what others cannot read; whoever wrote it gets it whole."""
    router, _ = bench.managed(optional_pre_call_checks=["encrypted_content_affinity"])
    mark = base64.b64encode(b"model_id:primary").decode()  # as LiteLLM says who wrote it
    key = f"litellm_enc:{mark};secret"
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": key}

    ask(router, "responses", input=[reasoning, *ASKED["messages"]])

    (asked,) = bench["primary"].requests
    assert asked.body["input"][0]["encrypted_content"] == "secret"


def test_an_unmanaged_group_stays_litellms(bench: Any, ask: Any) -> None:
    """(9) Without ranks LiteLLM routes, retries and cools down as ever."""
    models = [
        *bench.chain("primary", "backup"),
        bench.deployment("other", None, group="others"),
        bench.deployment("another", None, group="others"),
    ]
    bench["other"].fail(400)
    bench["another"].fail(400)
    router, listener = bench.managed(models=models, num_retries=0)

    with pytest.raises(litellm.BadRequestError) as caught:
        ask(router, model="others")

    assert len(bench.order) == 1
    assert not hasattr(caught.value, "record")
    assert not listener.starts


def test_behind_the_chain_litellm_retries_as_ever(bench: Any, say: Any) -> None:
    """(9) The call that is over has no say in the group that LiteLLM falls back to."""
    bench["primary"].fail(500)
    bench["last"].fail(500, times=1)
    models = [*bench.chain("primary"), bench.deployment("last", None, group="plain")]
    router, _ = bench.managed(
        models=models, fallbacks=[{"deriver": ["plain"]}], num_retries=1, disable_cooldowns=True
    )
    assert say(router) == "hello from last"
    assert bench.order == ["primary", "last", "last"]


def test_a_chain_in_a_list_is_asked_in_its_order(bench: Any, ask: Any) -> None:
    """(9) LiteLLM would shuffle it; here each hop into a ranked group is a call of its own.

    So behind a chain and a plain group as behind a plain group alone. A list that leads back asks
    nobody twice.
    """
    models = [
        *bench.chain("primary", "backup"),
        bench.deployment("spare", None, group="spares"),
        *bench.chain("second", "third", group="others"),
    ]
    for name in ("primary", "backup", "spare", "second"):
        bench[name].fail(500)
    lists = [{"deriver": ["spares", "others"]}, {"spares": ["others"]}, {"others": ["deriver"]}]
    lists.append({"idle": ["spares"]})
    options = {"fallbacks": lists, "num_retries": 0, "disable_cooldowns": True}
    router, listener = bench.managed(models=models, **options)
    for _ in range(3):
        answer = ask(router)
        assert text_of(answer) == "hello from third"
        assert answer._hidden_params["additional_headers"]["x-litellm-attempted-fallbacks"] == 1
    assert bench.order == ["primary", "backup", "spare", "second", "third"] * 3
    assert [one.answered_by for one in listener.records] == [None, "third"] * 3

    bench.order.clear()
    came_back = {"model_group": "idle"}  # a caller's dict, as LiteLLM leaves it
    assert text_of(ask(router, model="spares", metadata=came_back)) == "hello from third"
    assert bench.order == ["spare", "second", "third"]
    assert len(listener.records) == 7

    bench.order.clear()
    bench["third"].fail(500)
    with pytest.raises(litellm.InternalServerError):
        ask(router)
    assert bench.order == ["primary", "backup", "spare", "second", "third"]


@pytest.mark.parametrize("check", ["fallback_access_check", "fallback_budget_check"])
def test_a_chain_in_a_list_is_asked_for_who_may_ask_it(check: str, bench: Any) -> None:
    """(9) LiteLLM's checks of access and budget decide there as before its own hops."""
    asked: list[str] = []

    async def nobody(*, model: str, **_: Any) -> bool:
        asked.append(model)
        return False

    models = [*bench.chain("primary"), *bench.chain("second", group="others")]
    bench["primary"].fail(500)
    router, _ = bench.managed(
        models=models, fallbacks=[{"deriver": ["others"]}], **{check: nobody}
    )
    with pytest.raises(litellm.InternalServerError):
        ask_in("async", router)
    assert asked == ["others"]
    assert bench.order == ["primary"]


@pytest.mark.parametrize("own", [{"litellm_session_id": "s"}, {"metadata": {"session_id": "s"}}])
def test_a_session_stays(own: Any, bench: Any, ask: Any) -> None:
    """`reset="session"`, by LiteLLM's own names for one; another begins on the primary."""
    bench["primary"].fail(503, times=1)
    router, _ = bench.managed(FallbackConfig(reset="session"))
    for request in (own, own, {"litellm_session_id": "another"}):
        ask(router, **request)
    assert bench.order == ["primary", "backup", "backup", "primary"]


def test_a_rest_without_its_times_costs_no_call() -> None:
    """Whoever rests is asked last, for as long as LiteLLM's first rest where it does not say."""
    cache = SimpleNamespace(
        get_active_cooldowns=lambda **_: [("a", {}), ("b", {"timestamp": 1.0})]
    )
    looked_at = Rotation(SimpleNamespace(cooldown_cache=cache), ("a", "b"), [])
    assert looked_at.cooling == {"a": pytest.approx(5, abs=1), "b": 0.001}
