"""Answers that are judged: by their schema, and by a validator, which is handed the message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser, StrOutputParser
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel, ValidationError

from honcho_fallback import Cooldown, FallbackConfig, FallbackExhausted, StreamInterrupted
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware
from tests.helpers.agents import agent, calls, run
from tests.helpers.chat_models import Joke, alive, chat, claude, look_up, model_at, with_fallbacks
from tests.helpers.chat_runs import parts_by
from tests.helpers.observers import Listener
from tests.helpers.own_rules import of_program
from tests.helpers.pairwise import in_pairs
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_answer, chat_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.runnables import Runnable

    from tests.helpers.provider import Provider, ProviderServer


class City(BaseModel):
    """A city."""

    name: str
    people: int


PARIS = City(name="Paris", people=2)
GOOD = PARIS.model_dump_json()
MISFITS: dict[str, str | None] = {
    "prose": "Paris is the capital.",
    "the schema": json.dumps(City.model_json_schema()),
    "other keys": '{"city": "Paris", "population": 2}',
    "fenced": f"```json\n{GOOD}\n```",
    "null": None,
    "the word null": "null",
}
METHODS = ["json_schema", "function_calling", "json_mode"]
SHAPES: dict[str, Callable[..., Runnable[Any, Any]]] = {
    "model": lambda a, b, **how: FallbackChatModel(a, b).with_structured_output(City, **how),
    "chains": lambda a, b, **how: with_fallbacks(
        a.with_structured_output(City, **how), [b.with_structured_output(City, **how)]
    ),
}
VERBS = ["invoke", "ainvoke", "stream", "astream", "batch"]


def saying(providers: ProviderServer, text: str | None, *, calls: bool = False) -> Provider:
    """Serve OpenAI's form: a text, or the same as the arguments of the schema's tool."""
    provider = providers.new("openai")
    call = chat_call("c1", "City", json.loads(text)) if text and calls else None
    body = chat_answer(None, call) if call else chat_answer(text)
    provider.standing = Reply(body=body)
    return provider


async def ask(chain: Runnable[Any, Any], verb: str) -> Any:
    """Ask by a verb, and return the answer, or what a stream brought in the end."""
    return (await parts_by(verb, chain, "Paris?"))[-1]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # LangChain's own, of `parsed`
@in_pairs(method=METHODS, misfit=MISFITS, shape=SHAPES, verb=VERBS)
async def test_an_answer_that_does_not_fit_goes_to_the_next(
    providers: ProviderServer, method: str, misfit: str, shape: str, verb: str
) -> None:
    """Whatever the candidate's own chain makes of it: an error of any class, or None."""
    first = saying(providers, MISFITS[misfit])
    second = saying(providers, GOOD, calls=method == "function_calling")
    chain = SHAPES[shape](model_at(first), model_at(second), method=method)
    if (method, misfit) == ("json_mode", "fenced"):  # LangChain's parser reads it
        second = first
    assert await ask(chain, verb) == PARIS
    assert (len(first.requests), len(second.requests)) == (1, 1)


@in_pairs(method=METHODS, shape=SHAPES, verb=["invoke", "ainvoke"])
async def test_with_include_raw_as_well(
    providers: ProviderServer, method: str, shape: str, verb: str
) -> None:
    """Nothing is raised there: a parsing error, or nothing parsed, says the same."""
    first = saying(providers, "null" if method == "json_mode" else "prose")
    if method == "json_schema":  # OpenAI's SDK raises before there is a message
        first = saying(providers, None)
    second = saying(providers, GOOD, calls=method == "function_calling")
    chain = SHAPES[shape](model_at(first), model_at(second), method=method, include_raw=True)
    answer = await ask(chain, verb)
    assert (answer["parsed"], answer["parsing_error"]) == (PARIS, None)
    assert answer["raw"].response_metadata["fallback"]["is_fallback"]


@in_pairs(second=["prose", "a 503"], verb=["invoke", "ainvoke"])
async def test_what_langchain_hands_out_unparsed_it_still_does(
    providers: ProviderServer, second: str, verb: str
) -> None:
    """None, or the message with the parser's error, where nobody did better; nobody twice."""
    first, other = saying(providers, "prose"), saying(providers, "prose")
    if second != "prose":
        other.standing = Reply(status=503)
    chain = FallbackChatModel(model_at(first), model_at(other), max_attempts=2)
    how: Any = {"method": "function_calling"}
    assert await ask(chain.with_structured_output(City, **how), verb) is None
    raw = await ask(chain.with_structured_output(City, **how, include_raw=True), verb)
    assert (raw["parsed"], raw["raw"].text) == (None, "prose")
    assert (len(first.requests), len(other.requests)) == (2, 2)


@pytest.mark.parametrize("verb", VERBS)
async def test_where_nobody_answers_in_the_schema_each_says_why(
    providers: ProviderServer, verb: str
) -> None:
    """The group holds what the parsers raised, and no text of an answer is in the record.

    A stream has nothing to hand out: one that just ends would hide it.
    """
    prose, listener = saying(providers, "SECRET-PROSE"), Listener()
    models = [model_at(prose), model_at(prose, model="b")]
    chain = FallbackChatModel(*models, observers=[listener], max_attempts=2)
    structured = chain.with_structured_output(City, method="json_mode")
    with pytest.raises(FallbackExhausted, match="malformed_response") as raised:
        await ask(structured, verb)
    if "stream" not in verb:
        assert [type(error) for error in raised.value.exceptions] == [OutputParserException] * 2
        errors = [one.error for one in listener.record.attempts]
        assert errors == ["OutputParserException"] * 2
    assert "SECRET" not in json.dumps(listener.record.to_dict())


@pytest.mark.parametrize("options", [{"on_exhausted": "last"}, {}])
def test_one_model_alone_or_the_last_error_comes_out_as_it_was(
    providers: ProviderServer, options: Any
) -> None:
    """A program that catches the parser's error goes on to catch it."""
    prose = saying(providers, "prose")
    fallbacks = [model_at(prose, model="b")] if options else []
    model = FallbackChatModel(model_at(prose), *fallbacks, max_attempts=2, wait=0, **options)
    with pytest.raises(ValidationError):
        model.with_structured_output(City).invoke("Paris?")


def test_a_tool_that_was_called_beside_the_schema_is_an_answer(
    providers: ProviderServer,
) -> None:
    """Nothing is parsed then, and nothing is wrong."""
    calling, other = providers.new("openai"), saying(providers, GOOD)
    body = chat_answer(None, chat_call("c1", "look_up", {"city": "Paris"}))
    calling.standing = Reply(body=body)
    chain: Any = SHAPES["chains"](
        model_at(calling), model_at(other), tools=[look_up], include_raw=True, strict=True
    )
    answer = chain.invoke("Paris?")
    assert answer["raw"].tool_calls[0]["name"] == "look_up"
    assert len(other.requests) == 0


PARSERS: dict[str, Any] = {
    "pydantic": PydanticOutputParser(pydantic_object=City),
    "json": JsonOutputParser(),
    "json, then a function": JsonOutputParser() | RunnableLambda(City.model_validate),
}


@in_pairs(parser=PARSERS, verb=VERBS)
async def test_a_chains_own_parser_counts(parser: str, verb: str) -> None:
    """A chain that a user wrote is as good as one of with_structured_output's."""
    chains = [chat(name, text) | PARSERS[parser] for name, text in (("a", "prose"), ("b", GOOD))]
    answer = await ask(with_fallbacks(chains[0], [chains[1]]), verb)
    assert City.model_validate(answer) == PARIS


def _validate(_: Any) -> City:
    return City.model_validate({"a bug": True})


def _raise(_: Any) -> Any:
    raise ValueError("a bug")


@in_pairs(
    step=[_validate, _raise],
    where=["after the model", "before it", "after the parser"],
    verb=VERBS,
)
async def test_a_step_of_the_programs_own_stays_its_own(step: Any, where: str, verb: str) -> None:
    """The same classes from a user's function ask nobody else, wherever it stands.

    Who wants a parser's error at once as well says so by a rule.
    """
    own, first, parser = RunnableLambda(step), chat("primary", GOOD), JsonOutputParser()
    chains = {
        "after the model": first | own,
        "before it": own | first | parser,
        "after the parser": first | parser | own,
    }
    backup = alive()
    chain = with_fallbacks(chains[where], [backup | StrOutputParser()])
    with pytest.raises(ValueError) as raised:  # each step raises another
        await ask(chain, verb)
    assert type(raised.value) in {ValueError, ValidationError}
    strict = chat("primary", "prose") | PARSERS["pydantic"]
    rules = of_program(OutputParserException)
    with pytest.raises(OutputParserException):
        with_fallbacks(strict, [backup | StrOutputParser()], rules=rules).invoke("Paris?")
    assert backup.asked == []


def test_a_schema_bound_to_a_model_is_one(providers: ProviderServer) -> None:
    """OpenAI's SDK fits the answer into the class that was bound, and raises inside the model."""
    first, second = saying(providers, "prose"), saying(providers, GOOD)
    models = [model_at(one).bind(response_format=City) for one in (first, second)]
    answer = FallbackChatModel(*models).invoke("Paris?")
    assert answer.additional_kwargs["parsed"] == PARIS


@pytest.mark.parametrize("verb", ["invoke", "ainvoke"])
async def test_a_history_is_written_anew_for_the_schemas_model(
    providers: ProviderServer, verb: str
) -> None:
    """A chain that begins with its model takes messages as the model alone would."""
    down, up = providers.new("openai"), saying(providers, GOOD)
    down.standing = Reply(status=503)
    chain = FallbackChatModel(claude(base_url=down.url), model_at(up)).with_structured_output(City)
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    given: Any = [
        HumanMessage("Paris?"),
        AIMessage([thought], id="msg_1", response_metadata={"model_provider": "anthropic"}),
        HumanMessage("So?"),
    ]
    _ = chain.invoke(given) if verb == "invoke" else await chain.ainvoke(given)
    assert [one["role"] for one in up.bodies[0]["messages"]] == ["user", "user"]


def test_a_model_whose_answers_do_not_fit_rests_for_nobody(providers: ProviderServer) -> None:
    """One program's schema says nothing about the model's other calls."""
    first, second = saying(providers, "prose"), saying(providers, GOOD)
    model = FallbackChatModel(model_at(first), model_at(second), cooldown=Cooldown(after=1))
    for _ in range(2):
        assert model.with_structured_output(City).invoke("Paris?") == PARIS
    assert model.invoke("Paris?").text == "prose"
    assert len(first.requests) == 3


# What a validator is handed: a message on every path that has one.


# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")

JOKE = calls("Joke", 1, setup="Why?")


async def invoke(model: Any, config: Any = None) -> Any:
    return await model.ainvoke("hi", config)


async def stream(model: Any) -> Any:
    return [chunk async for chunk in model.astream("hi")]


PATHS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "agent": lambda one, two, no: run("ainvoke", agent(one, FallbackMiddleware(two, validate=no))),
    "bound": lambda one, two, no: invoke(
        FallbackChatModel(one, two, validate=no).bind_tools([Joke])
    ),
    "raw": lambda one, two, no: invoke(
        FallbackChatModel(one, two, validate=no).with_structured_output(Joke, include_raw=True)
    ),
    "raw, by the call": lambda one, two, no: invoke(
        FallbackChatModel(one, two).with_structured_output(Joke, include_raw=True),
        {"configurable": {"fallback_config": FallbackConfig(validate=no)}},
    ),
    "stream": lambda one, two, no: stream(FallbackChatModel(one, two, validate=no)),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_a_validator_is_handed_a_message(path: str, is_async: bool) -> None:
    """In whatever form the answer is handed out; where it refuses one, the next is asked."""
    looked_at: list[Any] = []

    def validate(message: Any) -> bool:
        looked_at.append(message)
        return bool(message.tool_calls or message.content == "from backup")

    async def validate_async(message: Any) -> bool:
        return validate(message)

    is_raw = path.startswith("raw")
    says = JOKE if is_raw else "no"
    good = JOKE if is_raw or path == "bound" else "from backup"
    primary, backup = chat("primary", says), chat("backup", good)
    answer = PATHS[path](primary, backup, validate_async if is_async else validate)
    if path == "stream":  # its words are out
        with pytest.raises(StreamInterrupted):
            await answer
    else:
        await answer
    assert {isinstance(one, AIMessage) for one in looked_at} == {True}
    assert len(backup.asked) == (not is_raw and path != "stream")


def test_what_a_parser_made_is_all_there_is() -> None:
    """An object in a schema has no message any more; ``include_raw`` keeps it."""
    looked_at: list[Any] = []
    model = FallbackChatModel(chat("primary", JOKE), alive(), validate=looked_at.append)
    assert model.with_structured_output(Joke).invoke("hi") == Joke(setup="Why?")
    model.with_structured_output(Joke, include_raw=True).invoke("hi")
    assert looked_at[0] == Joke(setup="Why?")
    assert isinstance(looked_at[1], AIMessage)


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
