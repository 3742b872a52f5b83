"""Whose error it is: by the package of its class, an address, words, and who raised it."""

from __future__ import annotations

import asyncio
import gc
import threading
import types
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pydantic
import pytest
from openai.types.responses import ResponseError

from honcho_fallback import Failure, FallbackConfig, FallbackPolicy, Target, classify
from honcho_fallback._classify._tables import ORIGINS, WORDS
from honcho_fallback._values.failure import FailureKind as Kind
from tests.helpers.answers import answered_in_turn
from tests.helpers.errors import EXAMPLES, REQUEST, classified_in_a_task, raised_from, stand_in
from tests.helpers.provider import ProviderServer, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = "Rate limit exceeded."


def answered(
    url: str, status: int = 503, method: str = "POST", sent: Any = (), **answer: Any
) -> Exception:
    """Return what httpx raises for an answer."""
    request = httpx.Request(method, url, **dict(sent))
    response = httpx.Response(status, request=request, **answer)
    with pytest.raises(httpx.HTTPStatusError) as caught:
        response.raise_for_status()
    return caught.value


# --- addresses


@pytest.mark.parametrize("method", ["POST", "GET"])  # some poll for an answer
def test_each_endpoint_is_a_models(method: str) -> None:
    """A step of the path, also after a colon, in any case, with or without a query."""
    for entry in WORDS["endpoints"]:
        step = entry.replace("*", "-x")
        for url in (f"/{step}", f"/x/{step}/9", f"/v1/m:{step}?a=b", f"/{step.upper()}#c"):
            error = answered(f"https://host.example{url}", method=method)
            assert classify(error).kind is Kind.OVERLOADED, url
    for step in WORDS["versioned_endpoints"]:
        for before, kind in (("v1", "overloaded"), ("openai", "overloaded"), ("repos", "local")):
            error = answered(f"https://host.example/{before}/{step}", method=method)
            assert classify(error).kind == kind, (before, step)


def test_a_word_of_the_host_is_enough() -> None:
    """Each label but the last, which many services have that are no model's."""
    for label in WORDS["hosts"]:
        for host in (f"{label}.example", f"api.{label}.example:8080", f"{label}-gateway.example"):
            assert classify(answered(f"https://{host}/run")).kind is Kind.OVERLOADED, host
            assert classify(answered(f"https://{host}/issues")).kind is Kind.OVERLOADED, host
            assert classify(answered(f"https://key@{host}/issues")).kind is Kind.OVERLOADED
        assert classify(answered(f"https://host.{label}/issues")).kind is Kind.LOCAL, label
        assert classify(answered(f"https://host.example/my-{label}/issues")).kind is Kind.LOCAL
    assert classify(answered("http://vllm:8000/issues")).kind is Kind.OVERLOADED
    assert classify(answered("http://qdrant:6333/run")).kind is Kind.LOCAL


PAGE, INFERENCE = "https://tickets.example/issues/7", "https://host.example/v1/chat/completions"


@pytest.mark.parametrize(
    "url",
    ["http://gateway/primary", "http://gateway.example:8080/v2/run?tenant=acme", "http://h/"],
)
@pytest.mark.parametrize("answer", [{}, {"json": {"error": {"message": "no", "code": "e17"}}}])
def test_an_address_that_nobody_knows_is_a_models(url: str, answer: Any) -> None:
    """A gateway has any path, and nothing speaks of another service: the next target is asked."""
    error = answered(url, **answer)
    assert classify(error).switchable
    run = FallbackPolicy([Target("one"), Target("two")]).start()
    assert run.fail(error).is_fallback
    assert classify(answered(url, method="GET", **answer)).kind is Kind.LOCAL


def test_the_address_of_another_service_is_called_after_it() -> None:
    """Its host or its path has a word of such a service, or the name of one's library."""
    for word in (*WORDS["resources"], *WORDS["services"], "stripe", "wikipedia"):
        place = word.replace("*", "s").replace(" ", "/")
        for url in (
            f"https://host.example/v2/{place}/7",
            f"https://{place.replace('/', '.')}/run",
        ):
            assert classify(answered(url)).kind is Kind.LOCAL, url
            model = answered(url, json={"error": "the model is overloaded"})
            assert classify(model).kind is Kind.OVERLOADED, url
    # Beside a message and a type OpenAI's document names a parameter, also where there is none.
    document = {"message": "no", "type": "unavailable"}
    for sent, kind in ((document, Kind.LOCAL), ({**document, "param": None}, Kind.OVERLOADED)):
        assert classify(answered("https://stripe.example/run", json=sent)).kind is kind
    assert classify(answered("http://host.docker.internal/run")).kind is Kind.OVERLOADED


@pytest.mark.parametrize("name", WORDS["collections"])
def test_what_is_made_at_the_end_of_an_address_is_another_services(name: str) -> None:
    """Below it an agent's gateway may be asked for an answer: the next target is asked."""
    error = answered(f"https://host.example/v1/{name}")
    assert classify(error).kind is Kind.LOCAL
    below = answered(f"https://host.example/v1/{name}/7/messages")
    assert classify(below).kind is Kind.OVERLOADED


@pytest.mark.parametrize("field", WORDS["asking"])
def test_a_request_that_asks_a_model_is_a_models(field: str) -> None:
    """Whatever its address is called; of a long request the beginning is read."""
    for content in (f'{{"{field}": 1}}', f"{{'{field}' : 1}}", f'{{"{field}": "{"x" * 9000}"}}'):
        assert classify(answered(PAGE, sent={"content": content})).kind is Kind.OVERLOADED
    other = {"title": "The fallback", "labels": ["bug"]}
    assert classify(answered(PAGE, sent={"json": other})).kind is Kind.LOCAL


@pytest.mark.parametrize("name", ["response", "_response"])  # azure-core's and google-api-core's
def test_a_clouds_answer_holds_the_request(name: str) -> None:
    """Their errors know the request only by the answer to it."""
    for method, url, kind in (
        ("GET", "https://store.example/blobs/7", Kind.LOCAL),
        ("POST", "https://host.example/v1/models/m:predict", Kind.PERMISSION),
    ):
        error: Any = stand_in("HttpResponseError", "azure.core.exceptions", Exception)(
            "The model is locked"
        )
        error.status_code = 403
        request = SimpleNamespace(method=method, url=url)
        setattr(error, name, SimpleNamespace(request=request, url=None))
        assert classify(error).kind is kind


def test_what_holds_the_address_may_be_hostile() -> None:
    """A request that cannot be read counts as absent; an answer's content would be fetched."""

    class URL:
        def __str__(self) -> str:
            raise ValueError

    class Answer:
        url = PAGE

        @property
        def content(self) -> bytes:
            pytest.fail("it was fetched")

    for response, kind in (
        (SimpleNamespace(url=URL(), method=5), "overloaded"),
        (Answer(), "local"),
    ):
        error: Any = httpx.HTTPError("Error code: 503")
        error.response = response
        if kind == "overloaded":
            error._request = response  # as httpx keeps it
        assert classify(error).kind == kind


def test_a_400_without_a_word_is_a_gateways() -> None:
    """Who finds a request bad says why: an error whose body is known to be empty does not."""

    def refused(status: int, **answer: Any) -> Any:
        error: Any = stand_in("BadRequestError", "openai", Exception)("Bad Request")
        error.response = httpx.Response(status, **answer)
        error.status_code = status
        return error

    failure = classify(refused(400, content=b""))
    assert (failure.kind, failure.transient) == (Kind.SERVER_ERROR, True)
    assert classify(refused(400, content=b"no")).kind is Kind.INVALID_REQUEST
    assert classify(refused(422, content=b"")).kind is Kind.INVALID_REQUEST
    assert classify(refused(400, stream=httpx.ByteStream(b""))).kind is Kind.INVALID_REQUEST
    assert classify(answered(INFERENCE, 400, content=b"")).kind is Kind.SERVER_ERROR


def test_words_of_other_services_tell_where_there_is_no_address() -> None:
    """Each, in a text of a built-in class or a client's, unless it speaks of models, too."""
    for entry in WORDS["services"]:
        text = f"Error code: 503 - {entry.replace('*', 's')} failed"
        for cls in (RuntimeError, httpx.HTTPError):
            assert classify(cls(text)).kind is Kind.LOCAL, entry
            assert classify(cls(f"{text} for this model")).kind is not Kind.LOCAL, entry
        assert classify(stand_in("APIError", "openai", Exception)(text)).kind is not Kind.LOCAL, (
            entry
        )


# --- packages


@pytest.mark.parametrize("sort", ["sdks", "clients", "frameworks"])
def test_words_count_of_what_asks_models(sort: str) -> None:
    """Classes of models' SDKs, of general clients and of frameworks; their subclasses, too."""
    for package in WORDS[sort]:
        error = stand_in("OddError", f"{package}.errors", Exception)(LIMIT)
        assert classify(error).kind is Kind.RATE_LIMIT, package
        assert classify(stand_in("MyError", "acme", type(error))(LIMIT)).kind is Kind.RATE_LIMIT


def test_an_sdks_error_that_is_a_clients_too_is_the_sdks() -> None:
    """Some SDKs derive theirs from the client's, whose address is not looked at then."""
    error = answered(PAGE)
    error.__class__ = type("ApiError", (httpx.HTTPStatusError,), {"__module__": "together.error"})
    assert classify(error).kind is Kind.OVERLOADED


def test_each_origin_decides_before_a_status() -> None:
    """Another service's library, a tool's failure, a limit of the program, a cancellation."""
    for place, row in ORIGINS.items():
        module, _, name = place.rpartition(".")
        if not name[:1].isupper():
            module, name = place, "OddError"
        if module and module != "builtins":
            error: Any = stand_in(name, f"{module}.errors", Exception)(LIMIT)
            error.status_code = 429
            assert classify(error).kind is row.kind, place


def test_where_only_models_are_asked_everything_is_theirs() -> None:
    """Whoever asks models alone says so: an address and a tool's words tell nothing then."""
    for error, kind in (
        (answered(PAGE), Kind.OVERLOADED),
        (ExceptionGroup("of a task group", [answered(PAGE)]), Kind.OVERLOADED),
        (stand_in("OddError", "acme.weather", Exception)(LIMIT), Kind.RATE_LIMIT),
        (stand_in("WeatherRateLimitError", "acme", Exception)(""), Kind.RATE_LIMIT),
        (RuntimeError("Error code: 503 - the database failed"), Kind.OVERLOADED),
        (ValueError(LIMIT), Kind.LOCAL),
        # A code in a text: elsewhere a ValueError that begins like that is the program's.
        (ValueError("rate_limit_exceeded: slow"), Kind.RATE_LIMIT),
        (ValueError("port: 7"), Kind.LOCAL),
        (stand_in("OddError", "redis", Exception)(LIMIT), Kind.LOCAL),
    ):
        assert classify(error).kind is Kind.LOCAL
        assert classify(error, only_models=True).kind is kind
        run = FallbackPolicy([Target("one"), Target("two")], only_models=True).start()
        if kind is Kind.LOCAL:
            with pytest.raises(type(error)):
                run.fail(error)
        else:
            assert run.fail(error).is_fallback


def test_users_rules_come_before_an_address() -> None:
    """Who knows an odd gateway says so in a line."""
    rule = {"kind": "overloaded", "status": 503, "text": "for url 'https://tickets.example"}
    rules = FallbackConfig(rules=[rule]).rules
    assert classify(answered(PAGE)).kind is Kind.LOCAL
    assert classify(answered(PAGE), rules=rules).kind is Kind.OVERLOADED


# --- built-in errors that a library raised while it read an answer


def validate(response: Any) -> Any:
    return response["choices"][0]["nothing"]


def raising(module: str, source: str, given: Any) -> BaseException:
    """Return what ``f`` raises, whose source stands in a module of that name."""
    place = types.ModuleType(module)
    place.__dict__["validate"] = validate  # of the program
    exec(compile(source, f"<{module}>", "exec"), place.__dict__)  # noqa: S102 # a library played by us
    try:
        place.__dict__["f"](given)
    except Exception as error:  # noqa: BLE001 # whatever it raises is what is asked for
        return error
    raise AssertionError("nothing was raised")


LANGCHAIN, PROGRAM = "langchain_openai.chat_models.base", "house.llm"
READ = "def f(response):\n    return response.choices[0].message.content"
STRIP = f"{READ}.strip()"
LOADS = f"import json\n{READ.replace('return ', 'return json.loads(')})"
JOINED = READ.replace("return ", "return 'so: ' + ")
GOOGLES = "def f(client):\n    return client.generate_content().text.strip()"
BUILD = "def f(messages):\n    return [message['content'] for message in messages]"
DECODE = "def f(chunk):\n    return chunk.decode()"
BASE64 = "import base64\ndef f(chunk):\n    return base64.b64decode(chunk)"
FAILED = "def f(chunk):\n    raise ValueError(chunk)"
EMPTY = [SimpleNamespace(choices=[]), SimpleNamespace(choices=None)]
WITHOUT_TEXT, HOLDING_A_NUMBER = (
    SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=content))])
    for content in (None, 7)
)
AN_OBJECT = ResponseError(code="rate_limit_exceeded", message="sorry")
RAISED: list[tuple[str, str, Any, str]] = [
    # What a library cannot read: AttributeError, IndexError and TypeError, met in an answer.
    *((LANGCHAIN, READ, answer, "malformed_response") for answer in [None, *EMPTY]),
    *(("openai._base_client", READ, answer, "malformed_response") for answer in [None, *EMPTY]),
    # What it makes of a question: none of its functions was given an answer yet.
    (LANGCHAIN, BUILD, [None], "local"),
    # A function of the program is never a library, nor is one that a library calls as it reads.
    (PROGRAM, "def f(response):\n    return response.nothing", None, "local"),
    (
        "langchain_core.runnables.base",
        "def f(chunk):\n    validate(chunk)",
        {"choices": [{}]},
        "local",
    ),
    # Without choices it is no answer to the program either, which writes what everybody does.
    *((PROGRAM, READ, answer, "malformed_response") for answer in EMPTY),
    # Nor does one that holds a None have what the program does with a text.
    *((PROGRAM, source, WITHOUT_TEXT, "malformed_response") for source in (STRIP, LOADS, JOINED)),
    (
        PROGRAM,
        GOOGLES,
        SimpleNamespace(generate_content=lambda: SimpleNamespace(text=None)),
        "malformed_response",
    ),
    (PROGRAM, "def f(page):\n    return page.title.strip()", SimpleNamespace(title=None), "local"),
    (PROGRAM, STRIP, HOLDING_A_NUMBER, "local"),
    (PROGRAM, "def f(path):\n    return path.names[0]", SimpleNamespace(names=[]), "local"),
    # Bytes that are no text: in a client they came from the server, elsewhere from the program.
    # The standard library's own frames say nothing: it reads for whoever called it.
    ("httpx._decoders", DECODE, b"\xff", "malformed_response"),
    ("google.genai.live", BASE64, 7, "malformed_response"),
    (PROGRAM, DECODE, b"\xff", "local"),
    (PROGRAM, BASE64, 7, "local"),
    # What a Responses stream or a body said is passed on as a text: langchain-openai's ValueError.
    *((LANGCHAIN, FAILED, row["says"], row["kind"]) for row in EXAMPLES["passed_on"]["errors"]),
    (LANGCHAIN, FAILED, AN_OBJECT, "rate_limit"),
]


@pytest.mark.parametrize(("module", "source", "given", "kind"), RAISED)
def test_a_built_in_error_is_an_answers_where_it_was_met_in_one(
    module: str, source: str, given: Any, kind: str
) -> None:
    """By whose function raised it, and what that was given; whoever else is asked."""
    error = raising(module, source, given)
    for only_models in (False, True):
        failure = classify(error, only_models=only_models)
        assert failure.kind == kind
        assert failure.transient or kind != "malformed_response"


class City(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize("text", ["Rome, of course", '{"name": "Ro', '{"city": "Rome"}'])
def test_json_that_does_not_fit_is_a_models(text: str) -> None:
    """Whoever has pydantic read JSON was given it, in OpenAI's ``parse`` as in the program."""
    answer = {"choices": [{"message": {"role": "assistant", "content": text}, "index": 0}]}
    client = answered_in_turn(openai.OpenAI, answer)
    asks: list[Callable[[], object]] = [
        lambda: client.chat.completions.parse(model="m", messages=[], response_format=City),
        lambda: City.model_validate_json(text),
        lambda: pydantic.TypeAdapter(City).validate_json(text),
    ]
    for ask in asks:
        with pytest.raises(pydantic.ValidationError) as caught:
            ask()
        assert classify(caught.value).kind is Kind.MALFORMED_RESPONSE
    with pytest.raises(pydantic.ValidationError) as own:
        City()  # type: ignore[call-arg] # settings of the program's
    assert classify(own.value).kind is Kind.LOCAL


# --- clients of this process


def sdk_error(cause: BaseException) -> BaseException:
    return raised_from(openai.APIConnectionError(request=REQUEST), cause)


LOOPS = [
    "Event loop is closed",
    "<asyncio.locks.Event object at 0x7> is bound to a different event loop",
    "Task <Task pending> got Future <Future pending> attached to a different loop",
    "Session is closed",  # aiohttp's
]
CLOSED = "Cannot send a request, as the client has been closed."


@pytest.mark.parametrize("wrap", [lambda error: error, sdk_error], ids=["bare", "in an SDK's"])
@pytest.mark.parametrize("text", [*LOOPS, CLOSED])
def test_a_connection_of_a_loop_that_is_over_is_a_lost_one(
    text: str, wrap: Callable[[BaseException], BaseException]
) -> None:
    """Nobody rests for it. The request may have gone out: the socket takes it before the loop.

    A client that is closed asks nobody: under a loop somebody else closed it, as a cache does.
    """
    failure = classified_in_a_task(wrap(RuntimeError(text)))
    assert (failure.kind, failure.transient) == (Kind.CONNECTION, True)
    assert (failure.scope, failure.reached) == ("client", "no" if text == CLOSED else "unknown")
    assert classify(wrap(RuntimeError(text))).kind is Kind.LOCAL  # no loop runs: it is a mistake


@pytest.mark.filterwarnings("ignore::UserWarning")  # LiteLLM's import warns of its own types
@pytest.mark.parametrize("text", LOOPS)
def test_litellm_wraps_it_into_a_text(text: str) -> None:
    """Its connection error and its 500 both say what happened in this process."""
    litellm = pytest.importorskip("litellm")
    facts = {"message": f"OpenAIException - {text}", "llm_provider": "openai", "model": "m"}
    for error in (litellm.APIConnectionError(**facts), litellm.APIError(status_code=500, **facts)):
        failure = classified_in_a_task(error)
        assert (failure.kind, failure.scope) == (Kind.CONNECTION, "client")


def ask_in_two_loops(url: str) -> list[Failure | None]:
    """Ask with one client in a loop and then in another; return what each meant."""
    client = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)

    async def ask() -> Failure | None:
        try:
            await client.models.list()
        except Exception as error:  # noqa: BLE001 # whatever the client makes of it
            return classify(error)
        return None

    return [asyncio.run(ask()), asyncio.run(ask())]


def test_a_real_client_over_two_loops_has_sent_its_request() -> None:
    """The connection that it kept belongs to the first loop; the server saw the second one."""
    seen = threading.Semaphore(0)

    def note(_: object) -> Reply:
        seen.release()
        return Reply()

    with ProviderServer() as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # nobody can close what a loop left
        server["house"].standing = note
        first, failure = ask_in_two_loops(server["house"].url)
        gc.collect()
        assert seen.acquire(timeout=10)
        assert seen.acquire(timeout=10)
    assert first is None
    assert failure is not None
    assert (failure.kind, failure.scope, failure.reached) == (Kind.CONNECTION, "client", "unknown")
