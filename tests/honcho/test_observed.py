"""Observers and metadata of Honcho's agents, under each of the loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import load_chat_models, load_policies
from tests.helpers.observers import Listener
from tests.honcho.chat_models import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer

MINE = {"workspace": "acme", "namespace": "team-a", "run_id": "r-17", "purpose": "summary"}


def ask_policy(policies: Any) -> None:
    policy = policies["deriver"]

    def answer(attempt: Any) -> str:
        if attempt.position == 0:
            raise StatusError(503)
        return "hello"

    policy.call(answer, run=policy.start(metadata=MINE))


def ask_chat_model(models: Any) -> None:
    models["deriver"].invoke("hello", {"metadata": MINE})


@pytest.mark.parametrize(
    ("load", "ask"), [(load_policies, ask_policy), (load_chat_models, ask_chat_model)]
)
def test_an_observer_hears_of_the_agents_call(
    load: Callable[..., Any], ask: Callable[[Any], None], providers: ProviderServer
) -> None:
    """Given to a loader, it hears each event once, with what the call says of itself."""
    providers["openai"].fail(503)
    source = settings(providers, "openai", "anthropic")
    listener = Listener()
    ask(load(source, observers=iter([listener])))
    assert (listener.starts[0].metadata, listener.record.metadata) == (MINE, MINE)
    assert listener.record.agent == "deriver"
    assert len(listener.switches) == 1
    with pytest.raises(FallbackConfigError, match="observers: got "):
        load(source, observers=[object()])
