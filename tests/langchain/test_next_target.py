"""Who may be asked next, through LangChain: nobody who shares the cause or lacks a tag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import (
    FallbackConfig,
    FallbackConfigError,
    OutcomeUnknown,
    StreamInterrupted,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_langchain import FallbackChatModel
from tests.helpers.chat_models import alive, chat, dead, gpt, keys, model_at, serve, with_fallbacks
from tests.helpers.chat_runs import SILENT_VERBS, VERBS
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

EVERY_VERB = VERBS | SILENT_VERBS
every_verb = pytest.mark.parametrize("verb", EVERY_VERB)
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
TAGS = ["eu", "zdr"]


def text_of(answer: Any) -> str:
    return str(getattr(answer, "text", answer))


@every_verb
async def test_another_model_at_a_dead_host_is_passed_over(
    providers: ProviderServer, verb: str
) -> None:
    """ChatOpenAI at a port that nobody listens on: its other model is not asked at all."""
    listener = Listener()
    backup = model_at(serve(providers, "anthropic", "from backup"))
    model = FallbackChatModel(
        gpt(), gpt(model="gpt-5.5-mini"), backup, observers=[listener], connect_timeout=5.0
    )
    assert text_of(await EVERY_VERB[verb](model, "hi")) == "from backup"
    record = listener.records[-1]
    assert [one.target for one in record.attempts] == [
        "openai/gpt-5.5",
        "anthropic/claude-sonnet-5",
    ]
    assert record.attempts[0].reached == "no"
    assert record.untried == (("openai/gpt-5.5-mini", "it has the same host as openai/gpt-5.5"),)


async def test_another_model_of_a_dead_key_is_passed_over(providers: ProviderServer) -> None:
    """The provider refuses the key once; a model with another key is asked at once."""
    account = serve(providers, "openai", "from the account", key="good")
    one, two = (model_at(account, model=f"gpt-{n}", api_key="revoked") for n in range(2))
    third = model_at(account, api_key="good")
    answer = FallbackChatModel(one, two, third).invoke("hi")
    assert answer.text == "from the account"
    assert keys(account) == ["revoked", "good"]


@every_verb
async def test_a_request_that_may_have_had_an_effect_is_not_made_again(verb: str) -> None:
    """replay="safe": OutcomeUnknown comes out of every verb, also by the config of a call."""
    backup = alive()
    model = FallbackChatModel(dead(status=500), backup)
    careful: Any = {"configurable": {"fallback_config": FallbackConfig(replay="safe")}}
    with pytest.raises(OutcomeUnknown):
        await EVERY_VERB[verb](FallbackChatModel(dead(status=500), backup, replay="safe"), "hi")
    with pytest.raises(OutcomeUnknown) as caught:
        model.invoke("hi", config=careful)
    assert caught.value.record.attempts[0].billed == "unknown"
    assert not backup.asked
    assert model.invoke("hi").text == "from backup"


@every_verb
async def test_a_call_stays_within_its_tags(verb: str) -> None:
    """A candidate's tags are its labels: its own, and those bound around it."""
    abroad = alive("abroad")
    listener = Listener()
    model = FallbackChatModel(
        dead("primary", 503).model_copy(update={"tags": TAGS}),
        abroad,
        alive("near").model_copy(update={"tags": ["eu"]}).with_config(tags=["zdr"]),
        observers=[listener],
        require={*TAGS},
    )
    assert text_of(await EVERY_VERB[verb](model, "hi")) == "from near"
    assert not abroad.asked
    assert listener.records[-1].untried[0] == ("scripted/abroad", "it lacks the label 'eu'")


def test_one_call_requires_by_its_config() -> None:
    """LangChain's config of the call; where nobody is left nobody is asked."""
    primary = alive("primary")
    near = alive("near").model_copy(update={"tags": ["eu"]})
    chain = with_fallbacks(primary, [near])

    def within(label: str) -> Any:
        return {"configurable": {"fallback_config": FallbackConfig(require={label})}}

    assert text_of(chain.invoke("hi", config=within("eu"))) == "from near"
    with pytest.raises(FallbackConfigError, match="near: it lacks the label 'us'"):
        chain.invoke("hi", config=within("us"))
    assert not primary.asked
    assert text_of(chain.invoke("hi")) == "from primary"


def test_validate_sees_the_message_that_a_stream_adds_up_to() -> None:
    """The same kind of object as of ``invoke``, so that one validator serves both."""
    seen: list[str] = []

    def validate(message: Any) -> bool:
        seen.append(message.text)
        return "bad" not in message.text

    def model(partial: Any) -> FallbackChatModel:
        backup = chat("backup", ["go", "od"])
        return FallbackChatModel(
            chat("primary", ["b", "ad"]), backup, validate=validate, partial=partial
        )

    assert model("final").invoke("hi").text == "good"
    with pytest.raises(StreamInterrupted):
        list(model("final").stream("hi"))
    chunks = list(model("replace").stream("hi"))
    assert "".join(chunk.text for chunk in chunks).endswith("good")
    assert seen == ["bad", "good", "bad", "bad", "good"]


def test_a_cut_stream_counts_what_was_received() -> None:
    """Characters of the messages' text, for the ledger."""
    model = FallbackChatModel(chat("primary", ["hel", "lo", StatusError(500)]), alive())
    with pytest.raises(StreamInterrupted) as caught:
        list(model.stream("hi"))
    cut = caught.value.record.attempts[0]
    assert (cut.received, cut.billed, cut.reached) == (5, "yes", "unknown")
