"""Whose a built-in error is: a library's that read an answer, a stale client's, the program's."""

from __future__ import annotations

import asyncio
import gc
import types
import warnings
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest
from openai.types.responses import ResponseError

from honcho_fallback import Failure, classify
from honcho_fallback import FailureKind as Kind
from tests.helpers.provider import ProviderServer

if TYPE_CHECKING:
    from collections.abc import Callable


def raising(module: str, source: str, *given: Any, **others: Any) -> BaseException:
    """Return what ``f`` raises, whose source stands in a module of that name."""
    place = types.ModuleType(module)
    place.__dict__.update(others)
    exec(compile(source, f"<{module}>", "exec"), place.__dict__)  # noqa: S102 # a library played by us
    try:
        place.__dict__["f"](*given)
    except Exception as error:  # noqa: BLE001 # whatever it raises is what is asked for
        return error
    raise AssertionError("nothing was raised")


READ = "def f(response):\n    return response.choices[0].message.content"
BUILD = "def f(messages):\n    return [message['content'] for message in messages]"


@pytest.mark.parametrize("module", ["langchain_openai.chat_models.base", "openai._base_client"])
@pytest.mark.parametrize(
    "response", [None, types.SimpleNamespace(choices=[]), types.SimpleNamespace(choices=None)]
)
def test_what_a_library_cannot_read_is_the_answers_fault(module: str, response: Any) -> None:
    """AttributeError, IndexError and TypeError, as its own function met them in an answer."""
    failure = classify(raising(module, READ, response))
    assert (failure.kind, failure.transient) == (Kind.MALFORMED_RESPONSE, True)


def test_what_a_library_makes_of_a_question_is_the_programs_fault() -> None:
    """None of its functions was given an answer yet."""
    error = raising("langchain_openai.chat_models.base", BUILD, [None])
    assert isinstance(error, TypeError)
    assert classify(error).kind is Kind.LOCAL
    assert classify(error, only_models=True).kind is Kind.LOCAL


def test_a_function_of_the_program_is_never_a_library() -> None:
    """Neither its own, nor one that a library calls while it reads an answer."""

    def validate(response: Any) -> Any:
        return response["choices"][0]["nothing"]

    called = "def f(chunk):\n    return validate(chunk)"
    answer: dict[str, Any] = {"choices": [{}]}
    inside = raising("langchain_core.runnables.base", called, answer, validate=validate)
    own = raising("house.llm", "def f(response):\n    return response.nothing", None)
    for error in (own, inside):
        assert classify(error).kind is Kind.LOCAL
        assert classify(error, only_models=True).kind is Kind.LOCAL


def test_the_standard_library_reads_for_whoever_called_it() -> None:
    """Its frames say nothing: the library's below them does."""
    source = "import base64\ndef f(chunk):\n    return base64.b64decode(chunk)"
    assert classify(raising("google.genai.live", source, 7)).kind is Kind.MALFORMED_RESPONSE
    assert classify(raising("house.files", source, 7)).kind is Kind.LOCAL


FAILED = "def f(chunk):\n    raise ValueError(chunk)"
STREAMS = "langchain_openai.chat_models.base"


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("rate_limit_exceeded: slow", Kind.RATE_LIMIT),
        ("server_error: sorry", Kind.SERVER_ERROR),
        ("insufficient_quota: sorry", Kind.QUOTA),
        ("context_length_exceeded: sorry", Kind.CONTEXT_OVERFLOW),
        ("code='server_error' message='sorry'", Kind.SERVER_ERROR),
        ("code='rate_limit_exceeded' message='sorry'", Kind.RATE_LIMIT),
        ("ResponseError(code='rate_limit_exceeded', message='sorry')", Kind.RATE_LIMIT),
        ("The server is overloaded", Kind.OVERLOADED),
        ("Response resp_1 failed.", Kind.MALFORMED_RESPONSE),
        (ResponseError(code="rate_limit_exceeded", message="sorry"), Kind.RATE_LIMIT),
        ({"code": "insufficient_quota", "message": "sorry"}, Kind.QUOTA),
        ({"code": 503, "message": "sorry"}, Kind.OVERLOADED),
    ],
)
def test_an_error_that_a_library_passes_on_as_a_text_is_read(what: Any, kind: Kind) -> None:
    """As langchain-openai raises a ValueError of what a Responses stream or a body said."""
    assert classify(raising(STREAMS, FAILED, what)).kind is kind


def test_a_code_in_a_text_counts_where_only_a_model_was_asked() -> None:
    """Elsewhere a ValueError that begins like that is the program's."""
    error = ValueError("rate_limit_exceeded: slow")
    assert classify(error).kind is Kind.LOCAL
    assert classify(error, only_models=True).kind is Kind.RATE_LIMIT
    assert classify(ValueError("port: 7"), only_models=True).kind is Kind.LOCAL


def test_a_router_without_a_deployment_has_asked_nobody() -> None:
    """LiteLLM's Router says so with a ValueError; another target may be there."""
    failure = classify(ValueError("No deployments available for selected model"))
    assert (failure.kind, failure.switchable) == (Kind.OVERLOADED, True)


# --- clients of this process


def under_a_loop(error: BaseException) -> Failure:
    async def judge() -> Failure:
        return classify(error)

    return asyncio.run(judge())


def sdk_error(cause: BaseException) -> BaseException:
    error = openai.APIConnectionError(request=httpx2.Request("POST", "https://a.example/v1"))
    error.__cause__ = cause
    return error


LOOPS = [
    "Event loop is closed",
    "<asyncio.locks.Event object at 0x7> is bound to a different event loop",
    "Task <Task pending> got Future <Future pending> attached to a different loop",
]


@pytest.mark.parametrize("wrap", [lambda error: error, sdk_error], ids=["bare", "in an SDK's"])
@pytest.mark.parametrize("text", LOOPS)
def test_a_connection_of_a_loop_that_is_over_is_a_lost_one(
    text: str, wrap: Callable[[BaseException], BaseException]
) -> None:
    """Nobody rests for it. The request may have gone out: the socket takes it before the loop."""
    failure = under_a_loop(wrap(RuntimeError(text)))
    assert (failure.kind, failure.transient) == (Kind.CONNECTION, True)
    assert (failure.scope, failure.reached) == ("client", "unknown")
    assert classify(wrap(RuntimeError(text))).kind is Kind.LOCAL  # no loop runs: it is a mistake


def test_a_client_that_is_closed_asks_nobody() -> None:
    """Under a loop somebody else closed it, as a cache does; elsewhere the program did."""
    error = RuntimeError("Cannot send a request, as the client has been closed.")
    for one in (error, sdk_error(error)):
        failure = under_a_loop(one)
        assert (failure.kind, failure.scope, failure.reached) == (Kind.CONNECTION, "client", "no")
        assert classify(one).kind is Kind.LOCAL


@pytest.mark.filterwarnings("ignore::UserWarning")  # LiteLLM's import warns of its own types
@pytest.mark.parametrize("text", LOOPS)
def test_litellm_wraps_it_into_a_text(text: str) -> None:
    """Its connection error and its 500 both say what happened in this process."""
    litellm = pytest.importorskip("litellm")
    facts = {"message": f"OpenAIException - {text}", "llm_provider": "openai", "model": "m"}
    for error in (litellm.APIConnectionError(**facts), litellm.APIError(status_code=500, **facts)):
        failure = under_a_loop(error)
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
    with ProviderServer() as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # nobody can close what a loop left
        first, failure = ask_in_two_loops(server["house"].url)
        gc.collect()
        assert len(server["house"].requests) == 2
    assert first is None
    assert failure is not None
    assert (failure.kind, failure.scope, failure.reached) == (Kind.CONNECTION, "client", "unknown")
