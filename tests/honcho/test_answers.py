"""What Honcho's own answers and chunks hold is read as what the SDKs' do."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from honcho_fallback import FallbackPolicy, Target, check_response, has_content, read_answer
from honcho_fallback_honcho import policy_from
from tests.helpers.honcho import HonchoLLMCallResponse, HonchoLLMCallStreamChunk
from tests.honcho.test_policy_from import pair

CALL = {"id": "call_1", "name": "search", "input": {"query": "tea"}}


def chunk(content: str = "", **fields: Any) -> HonchoLLMCallStreamChunk:
    return HonchoLLMCallStreamChunk(content=content, **fields)


@pytest.mark.parametrize("plain", [False, True])
def test_only_a_chunk_with_text_settles_a_target(plain: bool) -> None:
    """An empty first chunk and the final one carry nothing; a dict of the shape likewise."""
    chunks = [chunk(), chunk("tea"), chunk(is_done=True, finish_reasons=["stop"], output_tokens=3)]
    given: list[Any] = [one.model_dump() for one in chunks] if plain else chunks
    assert [has_content(one) for one in given] == [False, True, False]


class Facts(BaseModel):
    """A structured answer."""

    facts: list[str]


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
    """Text, tokens and the end; of an answer that is more, all of it; of a stream, its text."""
    text = HonchoLLMCallResponse[str](
        content="tea", input_tokens=9, output_tokens=4, finish_reasons=["stop"]
    )
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    assert read_answer(text)[:3] == ("tea", usage, "stop")
    calls = HonchoLLMCallResponse[str](content="", tool_calls_made=[CALL])
    assert read_answer(calls).content is calls
    chunks = [chunk(), chunk("te"), chunk("a"), chunk(is_done=True, finish_reasons=["stop"])]
    assert read_answer(chunks)[:3:2] == ("tea", "stop")


def test_other_classes_of_these_fields_are_left_alone() -> None:
    """A program's own class may use the same names for something else."""

    class Report(BaseModel):
        content: str
        finish_reasons: list[str]

    assert check_response(Report(content="", finish_reasons=["error"])) is None


async def test_an_empty_stream_of_the_primary_switches() -> None:
    """Nothing of the primary's is handed out before its first content: the fallback answers."""
    policy = policy_from(pair())

    async def ask(attempt: Any) -> Any:
        yield chunk()
        if not attempt.is_fallback:
            raise TimeoutError
        yield chunk("tea")
        yield chunk(is_done=True, finish_reasons=["stop"])

    got = [one.content async for one in policy.astream(ask)]
    assert got == ["", "tea", ""]


def test_an_answer_that_failed_under_200_switches() -> None:
    """An error for an ending asks the fallback, as an error's status would."""
    endings = iter(["error", "stop"])

    def ask(_: Any) -> Any:
        return HonchoLLMCallResponse(content="te", finish_reasons=[next(endings)])

    policy = FallbackPolicy([Target("a"), Target("b")])
    assert policy.call(ask).finish_reasons == ["stop"]
