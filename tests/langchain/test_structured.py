"""Answers that are judged, by a schema or a validator, and answers that are none.

Of what never switches, too: each error says whose fault it is.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser, StrOutputParser
from langchain_core.runnables import RunnableLambda
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.types import Command
from pydantic import BaseModel, ValidationError

from honcho_fallback import (
    Cooldown,
    FailureKind,
    FallbackConfig,
    FallbackExhausted,
    OutcomeUnknown,
    StreamInterrupted,
)
from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable
from tests.helpers.agents import agent, calls, last, run
from tests.helpers.chat_models import (
    Joke,
    alive,
    chat,
    claude,
    gemini,
    gpt,
    groq,
    look_up,
    mistral,
    model_at,
    serve,
    with_fallbacks,
)
from tests.helpers.chat_runs import VERBS, Runs, parts_by
from tests.helpers.observers import Listener
from tests.helpers.own_rules import of_program, of_provider
from tests.helpers.pairwise import in_pairs
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_answer, chat_call, event

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable

    from tests.helpers.provider import Provider, ProviderServer, SeenRequest


# Single calls outside of turns are meant to stand alone here.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect outside of a turn:UserWarning")


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
FOUR = ["invoke", "ainvoke", "stream", "astream"]
FIVE = [*FOUR, "batch"]
STREAMING_GEMINI = partial(gemini, max_retries=1, streaming=True)  # in invoke, too


def saying(providers: ProviderServer, text: str | None, *, calls: bool = False) -> Provider:
    """Serve OpenAI's form: a text, or the same as the arguments of the schema's tool."""
    provider = providers.new("openai")
    call = chat_call("c1", "City", json.loads(text)) if text and calls else None
    body = chat_answer(None, call) if call else chat_answer(text)
    provider.standing = Reply(body=body)
    return provider


async def ask(chain: Runnable[Any, Any], verb: str, asked: Any = "Paris?") -> Any:
    """Ask by a verb, and return the answer, or what a stream brought in the end."""
    return (await parts_by(verb, chain, asked))[-1]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # LangChain's own, of `parsed`
@in_pairs(method=METHODS, misfit=MISFITS, shape=SHAPES, verb=FIVE)
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


@pytest.mark.parametrize("verb", FIVE)
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


@in_pairs(parser=PARSERS, verb=FIVE)
async def test_a_chains_own_parser_counts(parser: str, verb: str) -> None:
    """A chain that a user wrote is as good as one of with_structured_output's.

    Who wants a parser's error at once says so by a rule.
    """
    chains = [chat(name, text) | PARSERS[parser] for name, text in (("a", "prose"), ("b", GOOD))]
    answer = await ask(with_fallbacks(chains[0], [chains[1]]), verb)
    assert City.model_validate(answer) == PARIS
    backup, rules = alive(), of_program(OutputParserException)
    with pytest.raises(OutputParserException):
        with_fallbacks(chains[0], [backup | StrOutputParser()], rules=rules).invoke("Paris?")
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


JOKE = calls("Joke", 1, setup="Why?")


PATHS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "agent": lambda one, two, no: run("ainvoke", agent(one, FallbackMiddleware(two, validate=no))),
    "bound": lambda one, two, no: ask(
        FallbackChatModel(one, two, validate=no).bind_tools([Joke]), "ainvoke"
    ),
    "raw": lambda one, two, no: ask(
        FallbackChatModel(one, two, validate=no).with_structured_output(Joke, include_raw=True),
        "ainvoke",
    ),
    "raw, by the call": lambda one, two, no: parts_by(
        "ainvoke",
        FallbackChatModel(one, two).with_structured_output(Joke, include_raw=True),
        "hi",
        {"configurable": {"fallback_config": FallbackConfig(validate=no)}},
    ),
    "stream": lambda one, two, no: ask(FallbackChatModel(one, two, validate=no), "astream"),
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


# Answers without an answer, and errors that never switch: each says whose fault it is.


_HEAD = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
NULL: Any = {**_HEAD, "choices": None}
EMPTY: Any = {**_HEAD, "choices": []}
DOCUMENT: Any = {"error": {"message": "try again", "type": "server_error", "code": "server_error"}}
# What Gemini sends in place of a stream's events.
BUSY = '{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}'
COUNT = '{"usageMetadata": {"promptTokenCount": 3}, "responseId": "r"}'
UNANSWERED: dict[str, tuple[Any, Any, str]] = {
    "null for choices": (gpt, NULL, "malformed_response"),
    "an error": (gpt, DOCUMENT, "server_error"),
    "no event": (partial(gpt, streaming=True), json.dumps(NULL), "malformed_response"),
    "an error of Gemini's": (STREAMING_GEMINI, BUSY, "overloaded"),
    "a count of Gemini's alone": (STREAMING_GEMINI, COUNT, "malformed_response"),
}


def answering(providers: ProviderServer, body: Any, make: Any = gpt) -> BaseChatModel:
    """Make a real model whose provider answers with status 200 and nothing that can be read."""
    provider = providers.new("openai")

    def answer(request: SeenRequest) -> Reply:
        events = [body if isinstance(body, str) else event(body)]
        return Reply(events=events) if request.wants_stream else Reply(body=body)

    provider.standing = answer
    made: BaseChatModel = make(base_url=provider.url)
    return made


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("verb", [*FOUR, "generate", "agenerate"])
@pytest.mark.parametrize("what", UNANSWERED)
async def test_a_good_status_over_no_answer_switches(
    providers: ProviderServer, what: str, verb: str
) -> None:
    """What is raised says that there was no answer, or holds the provider's error document."""
    make, body, kind = UNANSWERED[what]
    model = FallbackChatModel(answering(providers, body, make), alive())
    (failed, _) = (await ask(model, verb, "hi")).response_metadata["fallback"]["attempts"]
    assert failed["kind"] == kind


async def test_so_it_does_in_a_chain_and_in_an_agent(providers: ProviderServer) -> None:
    """Whatever stands around the model, its exception is the same.

    No choices are an IndexError, which means nothing else where a chat model raised it.
    """
    first, empty = answering(providers, NULL), answering(providers, EMPTY)
    for one in (first, empty):
        chain = FallbackRunnable(one | StrOutputParser(), alive() | StrOutputParser())
        assert chain.invoke("hi") == "from backup"
    for verb in ("invoke", "ainvoke", "generate"):
        assert (await ask(FallbackChatModel(empty, alive()), verb, "hi")).text == "from backup"
    for one in (first, empty):
        made = agent(one, FallbackMiddleware(alive()), tools=[])
        for verb in ("invoke", "ainvoke"):
            assert last(await run(verb, made)).text == "from backup"


# What an integration's code trips over: of an answer, and of the first chunk of one.
UNREADABLE: dict[str, Any] = {
    "invoke": (gpt, {"body": {**chat_answer("hi"), "usage": []}}),
    "ainvoke": (gpt, {"body": {**chat_answer("hi"), "usage": ""}}),
    "stream": (groq, {"events": [event(NULL)]}),
    "astream": (mistral, {"events": ["data: 3"]}),
}


@pytest.mark.parametrize("verb", UNREADABLE)
async def test_an_answer_that_an_integration_cannot_read_was_an_answer(
    providers: ProviderServer, verb: str
) -> None:
    """The next one is asked, but never where a request that was made may not be made again."""
    make, reply = UNREADABLE[verb]
    odd, well = serve(providers, "odd", **reply), serve(providers, "openai", "heard")
    model = FallbackChatModel(make(base_url=odd.url), model_at(well))
    answer = await ask(model, verb, "hi")
    assert answer.response_metadata["fallback"]["attempts"][0]["kind"] == "malformed_response"
    alone = make(base_url=odd.url)
    for chain in (model.with_fallback_config(replay="safe"), FallbackChatModel(alone)):
        with pytest.raises((OutcomeUnknown, AttributeError, TypeError)):
            await ask(chain, verb, "hi")
    assert (len(odd.requests), len(well.requests)) == (3, 1)


def test_a_streams_answer_from_a_cache_is_an_answer(providers: ProviderServer) -> None:
    """LangChain keeps it with a usage of its own making, which no message could be made of."""
    heard = serve(providers, "openai", "heard")
    kept = model_at(heard, streaming=True, cache=InMemoryCache())
    model = FallbackChatModel(kept, alive())
    assert [model.invoke("hi").text for _ in range(2)] == ["heard", "heard"]
    assert len(heard.requests) == 1


class _OddMessage(BaseMessage):
    type: str = "odd"


class _Fails(BaseCallbackHandler):
    raise_error = run_inline = True

    def on_chat_model_start(self, *_: Any, **_run: Any) -> None:
        raise KeyError("a bug")


def _fails_for_key() -> str:
    raise KeyError("a bug")


def _key_from_function(model: Any) -> BaseChatModel:
    return gpt(base_url=model.openai_api_base, api_key=_fails_for_key)


def _first_of_none(_said: Any) -> Any:
    return list[Any]()[0]


def _validate(_: Any) -> City:
    return City.model_validate({"a bug": True})


def _raise(_: Any) -> Any:
    raise ValueError("a bug")


LOCAL: dict[str, tuple[Callable[[BaseChatModel], Runnable[Any, Any]], Any, type[Exception]]] = {
    "a parser": (lambda model: model | RunnableLambda(_first_of_none), "hi", IndexError),
    "before the model": (lambda model: RunnableLambda(_first_of_none) | model, "hi", IndexError),
    "behind the model": (lambda model: model | _validate, "hi", ValidationError),
    "before it": (lambda model: RunnableLambda(_raise) | model, "hi", ValueError),
    "behind a parser": (lambda model: model | JsonOutputParser() | _raise, "hi", ValueError),
    "behind one": (lambda model: model | JsonOutputParser() | _validate, "hi", ValidationError),
    "a callback": (lambda model: model.with_config(callbacks=[_Fails()]), "hi", KeyError),
    "a key's function": (_key_from_function, "hi", KeyError),
    "an input that is none": (lambda model: model, 3, ValueError),
    "a message that nobody knows": (lambda model: model, [_OddMessage(content="hi")], TypeError),
}


@pytest.mark.parametrize("where", LOCAL)
@pytest.mark.parametrize("verb", FIVE)
async def test_a_mistake_of_the_program_stays_its_own(
    providers: ProviderServer, verb: str, where: str
) -> None:
    """The same errors raised by the user's own code, or for it, ask nobody else, wherever."""
    make, asked, kind = LOCAL[where]
    primary, backup = serve(providers, "openai", GOOD), serve(providers, "openai", GOOD)
    chain = FallbackRunnable(make(model_at(primary)), make(model_at(backup)))
    with pytest.raises((kind, StreamInterrupted)) as raised:
        await ask(chain, verb, asked)
    error = raised.value
    cause = error.__cause__ if isinstance(error, StreamInterrupted) else error  # a word was out
    assert isinstance(cause, kind)
    assert len(backup.requests) == 0


SYSTEM = [SystemMessage("a"), HumanMessage("hi"), AIMessage("yes"), SystemMessage("b")]
SOUND = [HumanMessage([{"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"}])]
REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception]]] = {
    "a system message in between": (SYSTEM, {}, ValueError),
    "sound": (SOUND, {}, ValueError),
    "a keyword": ("hi", {"logprobs": True}, TypeError),
    "a format": ("hi", {"response_format": {"type": "json_object"}}, AssertionError),
    "a keyword of Gemini's": ("hi", {"max_completion_tokens": 9}, ValidationError),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("verb", FOUR)
async def test_what_an_integration_does_not_send_goes_to_the_next(
    providers: ProviderServer, verb: str, case: str
) -> None:
    """Its own code or its SDK's raises before a request: it lacks what is asked for, no rest.

    In an agent the frames between the candidates and their models are none of the program's.
    """
    asked, bound, kind = REFUSED[case]
    down, other = serve(providers, "openai", status=503), serve(providers, "openai", "heard")
    strict = serve(providers, "google" if kind is ValidationError else "anthropic", "no")
    model = gemini(base_url=strict.url) if kind is ValidationError else model_at(strict)
    refused: FallbackChatModel
    for models in ([model_at(down), model], [model]):
        refused = FallbackChatModel(*models, model_at(other))
        answer = await ask(refused.bind(**bound), verb, asked)
        marks = [one.get("kind") for one in answer.response_metadata["fallback"]["attempts"]]
        assert marks[-2:] == ["unsupported", None]
    if asked is SYSTEM and "stream" not in verb:
        made = agent(model_at(down), FallbackMiddleware(model, model_at(other)), tools=[])
        state = await run(verb, made, {"messages": [*SYSTEM, HumanMessage("hi")]})
        assert last(state).text == "heard"
    assert not strict.requests
    refused = FallbackChatModel(model_at(down), model)
    with pytest.raises(FallbackExhausted) as exhausted:
        await ask(refused.bind(**bound), verb, asked)
    (_, last_attempt) = exhausted.value.record.attempts
    assert (last_attempt.kind, last_attempt.reached) == ("unsupported", "no")
    assert isinstance(exhausted.value.__cause__, kind)
    with pytest.raises(kind):  # nobody takes it: it comes out as it is
        await ask(FallbackChatModel(model).bind(**bound), verb, asked)


# What never switches, and whose an error of HTTP is.

SWITCHABLE = frozenset(FailureKind) - {FailureKind.CANCELLED}
CONTROL: list[tuple[BaseException, str]] = [
    (GraphInterrupt(), "invoke"),
    (GraphBubbleUp(), "ainvoke"),
    (ParentCommand(Command(goto="x")), "stream"),
    (GraphInterrupt(), "astream"),
    (StopIteration(), "invoke"),
    (KeyboardInterrupt(), "invoke"),
    (SystemExit(1), "stream"),
    (asyncio.CancelledError(), "batch"),
]


@pytest.mark.parametrize(("error", "verb"), CONTROL)
async def test_control_flow_and_signals_never_switch(error: BaseException, verb: str) -> None:
    """Whatever the config says, a graph's interrupt comes out, and a stray StopIteration.

    Ctrl-C and an exit are for the program; the run is closed all the same.
    """

    def raise_it(_asked: Any) -> Any:
        raise error

    runs, backup = Runs(), alive()
    primary = RunnableLambda(raise_it) if isinstance(error, Exception) else chat("primary", error)
    rules = of_provider(Exception)
    model = with_fallbacks(primary, [backup], fallback_on=SWITCHABLE, rules=rules)
    config: Any = {"callbacks": [runs]}
    with pytest.raises(type(error)):
        _ = model.invoke("hi", config) if verb == "invoke" else None
        await VERBS[verb](model, "hi", config)
    assert backup.asked == []
    (root,) = runs.roots
    assert root.ends == ["error"]
    assert not isinstance(error, Exception) or runs.check() is root


@pytest.mark.parametrize("verb", ["ainvoke", "astream", "abatch"])
async def test_a_cancellation_of_something_below_is_no_cancelled_call(verb: str) -> None:
    """Nobody cancelled the task: the backup is asked, though LangChain takes it for an answer."""
    model: Any = FallbackChatModel(chat("primary", asyncio.CancelledError()), alive())
    assert await VERBS[verb](model, "hi") == "from backup"


def down() -> httpx.ConnectError:
    page = httpx.Request("GET", "https://gateway.example/run")
    return httpx.ConnectError("All connection attempts failed", request=page)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("own", [None, FallbackConfig(timeout=5)])
def test_a_chat_models_own_client_is_the_models(bound: bool, own: Any) -> None:
    """In-house chat models talk to gateways of any address; a config for the call leaves it so."""
    primary: Any = chat("primary", down())
    model = with_fallbacks(primary.bind(stop=["."]) if bound else primary, [alive()])
    config: Any = {"configurable": {"fallback_config": own}} if own else {}
    assert isinstance(model.invoke("hi", config), AIMessage)


def test_a_chain_may_ask_another_service() -> None:
    """What a step of it asks over HTTP is looked at as anywhere else."""

    def look_up(_: Any) -> Any:
        raise down()

    asking, backup = RunnableLambda(look_up), alive()
    with pytest.raises(httpx.ConnectError):
        with_fallbacks(asking | chat("primary", "hi"), [backup]).invoke("hi")
    assert backup.asked == []
    assert with_fallbacks(asking, [backup], only_models=True).invoke("hi").text == "from backup"
