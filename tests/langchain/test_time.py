"""The time of an attempt reaches the SDK, by whatever candidate is around its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.prompts import ChatPromptTemplate

from honcho_fallback_langchain import FallbackChatModel, FallbackRunnable
from tests.helpers.chat_models import (
    Joke,
    asked_of,
    groq,
    look_up,
    model_at,
    read_timeouts,
    serve,
    with_fallbacks,
)
from tests.helpers.pairwise import in_turn

if TYPE_CHECKING:
    from tests.helpers.provider import ProviderServer

JOKE = '{"setup": "knock knock"}'


def chain_over(one: Any) -> Any:
    return ChatPromptTemplate.from_template("{word}") | one


TIMED: dict[str, Any] = {
    "chat model": lambda models, **options: FallbackChatModel(*models, **options),
    "chains": lambda models, **options: with_fallbacks(
        chain_over(models[0]), [chain_over(models[1])], **options
    ),
    "structured": lambda models, **options: FallbackChatModel(
        *models, **options
    ).with_structured_output(Joke, include_raw=True, method="function_calling"),
    "tools": lambda models, **options: FallbackChatModel(*models, **options).bind_tools([look_up]),
    "bound": lambda models, **options: FallbackChatModel(
        *(model.bind(stop=["x"]) for model in models), **options
    ),
    "retried": lambda models, **options: FallbackChatModel(
        *(model.with_retry(stop_after_attempt=1) for model in models), **options
    ),
    "nested": lambda models, **options: FallbackChatModel(
        FallbackChatModel(models[0], max_attempts=1), models[1], **options
    ),
}


@in_turn(kind=TIMED, name=["openai", "anthropic"])
def test_an_attempts_time_reaches_the_sdk(providers: ProviderServer, name: str, kind: str) -> None:
    """Of 60 s a third is kept for the fallback; what the SDK would wait for is what is left."""
    down, up = serve(providers, name, status=503), serve(providers, name, JOKE)
    made = TIMED[kind]([model_at(down), model_at(up)], deadline=60)
    given: Any = {"word": "hi"} if kind == "chains" else "hi"
    made.invoke(given)
    list(made.stream(given))
    first, second = read_timeouts(down), read_timeouts(up)
    assert [round(seconds or 0) for seconds in first] == [40, 40]
    assert [round(seconds or 0) for seconds in second] == [60, 60]
    assert all(0 < seconds < 60 for seconds in second if seconds)


@pytest.mark.parametrize("name", ["openai", "anthropic", "groq"])
@pytest.mark.parametrize(
    ("own", "option", "expected"),
    [(7, 30, 7), (40, 30, 30), (None, 30, 30), (None, None, None), (7, None, 7)],
)
def test_the_shorter_time_counts(
    providers: ProviderServer, name: str, own: float | None, option: float | None, expected: Any
) -> None:
    """The model's own timeout, or the attempt's."""
    up = serve(providers, "openai" if name == "groq" else name, "hello")
    if name == "groq":
        given: Any = groq(base_url=up.url, timeout=own)
    else:
        given = model_at(up, timeout=own)
    model = FallbackChatModel(given, timeout=option)
    assert model.invoke("hi").text == "hello"
    assert read_timeouts(up) == [expected]


def test_a_request_that_is_none_of_ours_keeps_its_time(providers: ProviderServer) -> None:
    """The user's own object is untouched, and with "keep" the candidates are, too."""
    up = serve(providers, "openai", "hello")
    given = model_at(up, timeout=70)
    model = FallbackChatModel(given, timeout=30)
    model.invoke("hi")
    given.invoke("hi")
    asked_of(model)[0].invoke("hi")
    model.with_fallback_config(sdk_retries="keep").invoke("hi")
    assert read_timeouts(up) == [30, 70, 70, 70]


def test_the_time_of_an_inner_chain_is_within_that_of_the_outer(providers: ProviderServer) -> None:
    """A candidate may be a chain of its own, with more patience."""
    up = serve(providers, "openai", "hello")
    inner = FallbackChatModel(model_at(up), timeout=100)
    FallbackRunnable(inner, timeout=10).invoke("hi")
    FallbackRunnable(inner, timeout=100).with_fallback_config(timeout=200).invoke("hi")
    assert read_timeouts(up) == [10, 100]
