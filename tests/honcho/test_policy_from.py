"""Honcho's own objects: its configurations as policies, its answers, chunks and histories."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    check_response,
    classify,
    has_content,
    read_answer,
)
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import policy_from, portable_history
from tests.helpers.honcho import (
    CachePolicy,
    ConfiguredModelSettings,
    HonchoLLMCallResponse,
    HonchoLLMCallStreamChunk,
    ModelConfig,
    Overrides,
    append_tool_results,
    format_assistant_tool_message,
)
from tests.helpers.own_rules import of_program


def model(name: str, transport: str, fallback: Any = None, **options: Any) -> ModelConfig:
    """Make a configuration of the shape that a call gets."""
    return ModelConfig(model=name, transport=transport, fallback=fallback, **options)


def pair(**options: Any) -> ModelConfig:
    return model("gpt", "openai", model("claude", "anthropic"), **options)


def requests(policy: FallbackPolicy, *errors: Exception | None, **options: Any) -> list[str]:
    """Return who is asked, where the first answers in order are these errors."""
    left, order = [*errors], list[str]()

    def ask(attempt: Any) -> str:
        order.append(attempt.target.model)
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return "hello"

    policy.call(ask, **options)
    return order


def test_each_target_carries_the_object_that_it_was_made_of() -> None:
    """HON-009, HON-016: who executes a call gets the object complete; nothing is inherited."""
    config = pair(temperature=0.5, api_key="own", base_url="https://u:pw@llm.example/v1")
    primary, fallback = policy_from(config, agent="deriver").targets
    assert (primary.client, fallback.client) == (config, config.fallback)
    assert primary.params == {"temperature": 0.5}
    assert fallback.params == {}
    assert (primary.endpoint, fallback.endpoint) == ("https://llm.example", None)
    assert primary.credential is not None
    assert primary.credential.get() == "own"
    # Its key and its address are Honcho's registry's to know.
    assert fallback.credential is None
    assert "pw" not in repr(primary)


def test_the_settings_shape_is_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOM-001, HOM-008, HOM-009: overrides, a key by the name of its variable, both of them."""
    monkeypatch.setenv("SPARE_KEY", "from-the-variable")
    spare = ConfiguredModelSettings(
        model="claude",
        transport="anthropic",
        thinking_effort="low",
        stop_sequences=["a"],
        cache_policy=CachePolicy(mode="prefix"),
        overrides=Overrides(api_key_env="SPARE_KEY", provider_params={"timeout": 600}),
    )
    config = ConfiguredModelSettings(
        model="gpt", transport="openai", fallback=spare, cache_policy=CachePolicy()
    )
    policy = policy_from(config)
    primary, fallback = policy.targets
    assert primary.params == {}
    assert fallback.params == {
        "thinking_effort": "low",
        "stop_sequences": ["a"],
        "cache_policy": {"mode": "prefix", "ttl_seconds": None, "key_version": "v1"},
        "provider_params": {"timeout": 600},
    }
    assert fallback.credential is not None
    assert fallback.credential.get() == "from-the-variable"
    assert policy.config.timeout == 600
    monkeypatch.delenv("SPARE_KEY")
    assert policy_from(config).targets[1].credential is None


class LLMError(Exception):
    """Honcho's, of a response that Gemini blocked."""


class StructuredOutputError(ValueError):
    """Honcho's, of an answer that is no JSON object."""


class Facts(BaseModel):
    """What a deriver's answer is read into."""

    facts: list[str]


def invalid(model: type[BaseModel], given: str | dict[str, Any]) -> Exception:
    read = model.model_validate_json if isinstance(given, str) else model.model_validate
    with pytest.raises(ValidationError) as caught:
        read(given)  # type: ignore[arg-type] # each its own
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        StructuredOutputError("Unsupported payload: list"),
        LLMError("blocked (finish_reason=SAFETY)"),
        invalid(Facts, "I cannot do that: context length exceeded"),
        invalid(Facts, '{"facts": "invalid api key"}'),
        TypeError("'NoneType' object is not subscriptable"),
        IndexError("list index out of range"),
    ],
)
@pytest.mark.parametrize("config", [None, FallbackConfig.honcho(), FallbackConfig()])
def test_junk_switches(error: Exception, config: FallbackConfig | None) -> None:
    """What Honcho raises for an answer that it cannot use engages the fallback, as it is meant to.

    What the answer says is not read as an error's words.
    """
    policy = policy_from(pair(), config=config)
    run = policy.start()
    assert requests(policy, error, run=run) == ["gpt", "claude"]
    assert run.record.attempts[0].kind == "malformed_response"


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (invalid(ModelConfig, {}), {}),
        (invalid(Facts, {}), {"config": FallbackConfig(rules=of_program(ValidationError))}),
    ],
)
def test_the_programs_own_validation_stays_local(error: Exception, options: Any) -> None:
    """A settings object that is wrong would be wrong for the fallback, too; options come first."""
    with pytest.raises(ValidationError):
        requests(policy_from(pair(), **options), error)
    assert classify(error).kind == "local"


def test_other_options_are_kept() -> None:
    """A config of one's own takes the place of the preset, and its own timeout stays."""
    config = FallbackConfig(fallback_on={"invalid_request"}, timeout=7)
    policy = policy_from(pair(provider_params={"timeout": 9}), config=config, retry_attempts=4)
    assert policy.config.timeout == 7
    assert requests(policy, StatusError(400)) == ["gpt", "claude"]


@pytest.mark.parametrize("key", [None, "own"])
def test_policies_made_for_each_call_share_a_cooldown(key: str | None) -> None:
    """HRC-042: equal objects are one target, although each call makes its policy anew."""
    config = FallbackConfig.honcho(cooldown=Cooldown(after=1, base=60))
    down = [StatusError(503)]
    assert requests(policy_from(pair(api_key=key), config=config), *down) == ["gpt", "claude"]
    assert requests(policy_from(pair(api_key=key), config=config)) == ["claude"]
    assert requests(policy_from(pair(api_key="another"), config=config)) == ["gpt"]
    elsewhere = pair(api_key=key, base_url="https://llm.example/v1")
    assert requests(policy_from(elsewhere, config=config)) == ["gpt"]


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ({"api_key": "second", "base_url": "https://llm.example/v1"}, "openai/gpt@llm.example"),
        ({"temperature": 0.2}, "openai/gpt#2"),
        ({"provider_params": {"extra_body": {}}}, "openai/gpt#2"),
    ],
)
def test_the_same_model_elsewhere_or_asked_otherwise_is_a_fallback(
    own: dict[str, Any], name: str
) -> None:
    """HRC-014: Honcho asks it, too; it may answer where the other did not, under its own name."""
    policy = policy_from(model("gpt", "openai", model("gpt", "openai", **own)))
    record = policy.start()
    assert requests(policy, StatusError(503), run=record) == ["gpt", "gpt"]
    assert [one.target for one in record.record.attempts] == ["openai/gpt", name]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "model_config: got None; pass Honcho's ModelConfig"),
        (model("gpt", "OpenAI"), "transport 'OpenAI' and model 'gpt'; name a model and one of"),
        (object(), "model_config: a object with transport None and model None"),
        (model("gpt", "openai", api_key="a b"), "the key of gpt: .*a sign no key has"),
    ],
)
def test_what_is_no_model_is_refused(config: Any, message: str) -> None:
    """Bad input is named at once, and no key is shown."""
    with pytest.raises(FallbackConfigError, match=message) as caught:
        policy_from(config)
    assert "a b" not in str(caught.value)


CALL = {"id": "call_1", "name": "search", "input": {"query": "tea"}}


def chunk(content: str = "", **fields: Any) -> HonchoLLMCallStreamChunk:
    return HonchoLLMCallStreamChunk(content=content, **fields)


@pytest.mark.parametrize("plain", [False, True])
def test_only_a_chunk_with_text_settles_a_target(plain: bool) -> None:
    """An empty first chunk and the final one carry nothing; a dict of the shape likewise."""
    chunks = [chunk(), chunk("tea"), chunk(is_done=True, finish_reasons=["stop"], output_tokens=3)]
    given: list[Any] = [one.model_dump() for one in chunks] if plain else chunks
    assert [has_content(one) for one in given] == [False, True, False]


@pytest.mark.parametrize(
    ("content", "fields", "kind"),
    [
        ("tea", {"finish_reasons": ["stop"]}, None),
        ("", {"finish_reasons": ["stop"]}, None),
        ("", {"finish_reasons": ["tool_calls"], "tool_calls_made": [CALL]}, None),
        (Facts(facts=[]), {"finish_reasons": ["stop"]}, None),
        ("", {"finish_reasons": ["content_filter"]}, "refusal"),
        ("", {"finish_reasons": ["SAFETY"]}, "refusal"),
        ("tea", {"finish_reasons": ["SAFETY"]}, None),
        ("te", {"finish_reasons": ["error"]}, "server_error"),
        ("", {"finish_reasons": ["MALFORMED_FUNCTION_CALL"]}, "malformed_response"),
    ],
)
def test_an_ending_says_what_became_of_an_answer(
    content: Any, fields: Any, kind: str | None
) -> None:
    """A filter's word counts where nothing came, an error's whatever came; in streams, too."""
    answers: list[Any] = [HonchoLLMCallResponse(content=content, **fields)]
    if isinstance(content, str) and "tool_calls_made" not in fields:
        answers.append([chunk(content), chunk(is_done=True, **fields)])
    for answer in answers:
        failure = check_response(answer)
        assert (failure and failure.kind) == kind


def test_what_an_answer_says_is_read() -> None:
    """Text, tokens and the end; of an answer with calls, a message; of a stream, its text."""
    text = HonchoLLMCallResponse[str](
        content="tea", input_tokens=9, output_tokens=4, finish_reasons=["stop"]
    )
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    assert read_answer(text)[:3] == ("tea", usage, "stop")
    calls = HonchoLLMCallResponse[str](content="", tool_calls_made=[CALL])
    called = {"name": "search", "arguments": {"query": "tea"}}
    message = {"role": "assistant", "content": "", "tool_calls": [called]}
    assert read_answer(calls).content == message
    chunks = [chunk(), chunk("te"), chunk("a"), chunk(is_done=True, finish_reasons=["stop"])]
    assert read_answer(chunks)[:3:2] == ("tea", "stop")


def test_other_classes_of_these_fields_are_left_alone() -> None:
    """A program's own class may use the same names for something else."""

    class Report(BaseModel):
        content: str
        finish_reasons: list[str]

    assert check_response(Report(content="", finish_reasons=["error"])) is None


SYSTEM = {"role": "system", "content": "Be kind."}
QUESTION = {"role": "user", "content": "What tea?"}


def called(transport: str) -> list[dict[str, Any]]:
    """Return a call and its result, as Honcho writes them."""
    if transport == "gemini":
        call = {"function_call": {"name": "search", "args": {"leaf": "green"}}}
        result = {"function_response": {"name": "search", "response": {"result": "much"}}}
        return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
    made = {"id": "call_1", "name": "search", "input": {"leaf": "green"}}
    turn = [format_assistant_tool_message(transport, "", [made], [])]
    append_tool_results(transport, [{"tool_id": "call_1", "result": "much"}], turn)
    return turn


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
