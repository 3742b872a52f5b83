"""A history over two of Honcho's transports: what each of its backends and its truncation read."""

from __future__ import annotations

from typing import Any

import pytest

from honcho_fallback import FallbackConfigError
from honcho_fallback_honcho import portable_history

SYSTEM = {"role": "system", "content": "Be kind."}
QUESTION = {"role": "user", "content": "What tea?"}


def called(transport: str, number: str = "call_1") -> list[dict[str, Any]]:
    """Return a call and its result, as Honcho writes them."""
    call: dict[str, Any]
    if transport == "gemini":
        call = {"function_call": {"name": "search", "args": {"leaf": "green"}}}
        result = {"function_response": {"name": "search", "response": {"result": "much"}}}
        return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
    if transport == "openai":
        function = {"name": "search", "arguments": '{"leaf": "green"}'}
        call = {"id": number, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": number, "content": "much"},
        ]
    use = {"type": "tool_use", "id": number, "name": "search", "input": {"leaf": "green"}}
    block = {"type": "tool_result", "tool_use_id": number, "content": "much"}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [block]}]


TRANSPORTS = ["openai", "anthropic", "gemini"]


@pytest.mark.parametrize("made_by", TRANSPORTS)
@pytest.mark.parametrize("for_", TRANSPORTS)
def test_a_history_moves_with_its_system_message(made_by: str, for_: str) -> None:
    """Honcho's plain texts are read, whatever the transport; of the same one nothing changes."""
    history = [SYSTEM, QUESTION, *called(made_by)]
    moved = portable_history(history, made_by=made_by, for_=for_)
    if made_by == for_:
        assert moved == history
        return
    assert moved[0] == SYSTEM
    text = {"gemini": {"role": "user", "parts": [{"text": "What tea?"}]}}.get(for_, QUESTION)
    assert moved[1] in (text, {**QUESTION, "content": [{"type": "text", "text": "What tea?"}]})
    call, result = moved[2:]
    if for_ == "gemini":  # as Honcho names them, which looks for these
        assert call["parts"][0]["function_call"]["args"] == {"leaf": "green"}
        assert call["parts"][0]["thought_signature"] == b"skip_thought_signature_validator"
        assert result["parts"][0]["function_response"]["response"] == {"result": "much"}
    elif for_ == "openai":
        assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    else:
        assert call["content"][0]["id"] == result["content"][0]["tool_use_id"]


def test_calls_of_gemini_have_ids_of_their_own_in_each_turn() -> None:
    """Its format has none; Anthropic refuses a history in which one comes twice."""
    turns = [
        portable_history(called("gemini"), made_by="gemini", for_="anthropic") for _ in range(2)
    ]
    ids = {call["content"][0]["id"] for call, _ in turns}
    assert len(ids) == 2
    assert ids == {result["content"][0]["tool_use_id"] for _, result in turns}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"made_by": "google", "for_": "openai"}, "google: no such made_by"),
        ({"made_by": "openai", "for_": "claude"}, "claude: no such for_"),
    ],
)
def test_an_unknown_transport_is_named(given: dict[str, str], message: str) -> None:
    """The kit's formats have other names than Honcho's transports."""
    with pytest.raises(FallbackConfigError, match=message):
        portable_history([QUESTION], **given)
