"""The user's own rules under LangChain: they come with the options, and count as anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage

from honcho_fallback import FallbackConfig
from honcho_fallback_langchain import FallbackChatModel
from tests.helpers.chat_models import alive, model_at
from tests.helpers.observers import Listener

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.provider import ProviderServer

BODY = {"error": {"message": "team budget is used up", "code": "TEAM_BUDGET"}}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\nkind='quota'\ncode='TEAM_BUDGET'\nreason='ours'", "utf-8")
    return str(path)


@pytest.mark.parametrize("way", ["option", "config", "with", "serialized"])
@pytest.mark.parametrize("verb", ["invoke", "stream"])
def test_a_rule_makes_a_bad_request_a_switch(
    way: str, verb: str, file: str, providers: ProviderServer
) -> None:
    """Given as an option, in a config, or later; the record says whose rule decided."""
    down = providers.new("openai")
    down.fail(400, body=BODY)
    chain = (model_at(down), alive())
    listener = Listener()
    options: dict[str, Any] = {"observers": [listener]}
    if way == "option":
        options["rules"] = file
    if way == "config":
        options["fallback_config"] = FallbackConfig(rules=file)
    model: Any = FallbackChatModel(*chain, **options)
    if way in {"with", "serialized"}:
        model = model.with_fallback_config(rules=file)
    if way == "serialized":
        model = model.model_copy()
        assert "rules" not in model._identifying_params
    question = [HumanMessage("hello")]
    if verb == "stream":
        assert [*model.stream(question)]
    else:
        assert model.invoke(question).text == "from backup"
    first, second = listener.record.attempts
    assert (first.kind, first.note) == ("quota", "rule 1 of rules.toml: ours")
    assert second.kind is None
