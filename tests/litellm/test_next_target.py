"""Who may be asked next: not who shares the cause, not twice, and not beyond a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm
import pytest

from honcho_fallback import Cooldown, FallbackConfig, FallbackConfigError

if TYPE_CHECKING:
    from honcho_fallback import Failure
    from tests.helpers.provider import ProviderServer

ASKED: Any = {"model": "deriver", "messages": [{"role": "user", "content": "hello"}]}


def account(bench: Any, providers: ProviderServer) -> list[Any]:
    """Describe two models of one account: the same key at the same address."""
    address = f"{providers.url}/account"
    return bench.chain("primary", "sibling", api_key="shared", api_base=address)  # type: ignore[no-any-return] # a fixture


def as_the_keys(failure: Failure, _: BaseException) -> Failure:
    """Say that a rate limit is the account's."""
    return failure._replace(scope="credential") if failure.kind == "rate_limit" else failure


@pytest.mark.parametrize("refine", [None, as_the_keys])
def test_another_deployment_of_the_same_key_is_passed_over(
    bench: Any, providers: ProviderServer, ask: Any, text: Any, refine: Any
) -> None:
    """A refused key at the same address; a rate limit only where the options say so."""
    providers["account"].fail(429 if refine else 401)
    models = [*account(bench, providers), bench.deployment("other", 2)]
    router, listener = bench.managed(FallbackConfig(refine=refine), models=models)
    assert text(ask(router, "completion", **ASKED)) == "hello from other"
    assert providers.order == ["account", "other"]
    assert listener.record.untried == (("sibling", "it has the same key as primary"),)


def test_unless_refined_a_rate_limit_is_the_models(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """The next model of the same key is asked at once."""
    providers["account"].fail(429, times=1)
    router, _ = bench.managed(models=account(bench, providers))
    assert text(ask(router, "completion", **ASKED)) == "hello from account"
    assert providers.order == ["account", "account"]


def test_a_request_that_may_have_had_an_effect_is_not_made_again(
    bench: Any, providers: ProviderServer, ask: Any, text: Any
) -> None:
    """replay="safe": neither by the chain nor by the Router's own fallbacks; the error says so."""
    providers["primary"].fail(500)
    models = [*bench.chain("primary", "backup"), bench.deployment("spare", None, group="spares")]
    router, listener = bench.managed(
        FallbackConfig(replay="safe"), models=models, fallbacks=[{"deriver": ["spares"]}]
    )
    with pytest.raises(litellm.InternalServerError) as caught:
        ask(router, "completion", **ASKED)
    assert providers.order == ["primary"]
    record = vars(caught.value)["record"]
    assert (record.limit, record.attempts[0].reached) == ("replay", "unknown")
    assert record == listener.record
    providers["primary"].fail(429)
    assert text(ask(router, "completion", **ASKED)) == "hello from backup"


@pytest.mark.parametrize("bucket", ["metadata", "litellm_metadata"])
@pytest.mark.parametrize("cooldown", [None, Cooldown()])
def test_a_request_stays_within_its_labels(  # fixtures and two tables
    bench: Any, providers: ProviderServer, ask: Any, text: Any, bucket: str, cooldown: Any
) -> None:
    """`require` in its metadata, of deployments' tags; nothing of it reaches a provider."""
    providers["primary"].fail(500)
    models = [
        bench.deployment("primary", 0, tags=["eu", "fast"]),
        bench.deployment("abroad", 1),
        bench.deployment("near", 2, tags=["eu"]),
        bench.deployment("spare", None, group="spares"),
    ]
    config = FallbackConfig(cooldown=cooldown, wait=0)
    router, listener = bench.managed(config, models=models, fallbacks=[{"deriver": ["spares"]}])
    asked: Any = {**ASKED, bucket: {"require": ["eu"]}}
    assert text(ask(router, "completion", **asked)) == "hello from near"
    assert listener.record.untried == (("abroad", "it lacks the label 'eu'"),)
    assert set(providers["primary"].requests[0].body) == {"messages", "model"}
    providers["near"].fail(500)
    with pytest.raises(litellm.InternalServerError):
        ask(router, "completion", **asked)
    assert not {"abroad", "spare"} & {*providers.order}
    assert text(ask(router, "completion", **ASKED)) == "hello from abroad"


@pytest.mark.parametrize("required", [["us"], "eu", 3])
def test_where_no_deployment_may_be_asked_nobody_is(
    bench: Any, providers: ProviderServer, ask: Any, required: Any
) -> None:
    """The error says which label is missing, or what may be passed."""
    models = [
        bench.deployment("primary", 0, tags=["eu"]),
        bench.deployment("spare", None, group="spares"),
    ]
    router, _ = bench.managed(models=models, fallbacks=[{"deriver": ["spares"]}])
    with pytest.raises(FallbackConfigError, match=r"lacks the label 'us'|pass a set of texts"):
        ask(router, "completion", **ASKED, metadata={"require": required})
    assert not providers.order
