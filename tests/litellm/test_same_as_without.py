"""What worked on a Router before the strategy was registered works after.

Each case is run through two Routers over the same providers. The one without the strategy is the
honest counterpart: for a chain of one a plain group with `num_retries=0`, for a longer one the
same group with LiteLLM's `order`, which asks its members one after the other as well.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import AsyncMock, MagicMock, patch

import litellm
import openai
import pytest
from litellm import CustomStreamWrapper
from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

from honcho_fallback_litellm import FallbackRoutingStrategy
from tests.helpers.litellm_runs import (
    ASKED,
    ask_in,
    litellm_left_clean,
    run_async,
    text_of,
)
from tests.helpers.observers import Listener
from tests.helpers.provider import Reply
from tests.helpers.wire import chat_answer, chat_call, chat_word, openai_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


MESSAGES = [{"role": "user", "content": "hello"}]
TABLES: Any = tomllib.loads(Path(__file__).with_name("same_as_without.toml").read_text("utf-8"))
# Before, LiteLLM's sync streams start over for ever, and its sync embeddings take no fallback.
OLD = hasattr(litellm.router, "_set_cooldown_deployments")
WAYS = ("sync", "async", "sync stream", "async stream")
TWO_WAYS = ("async", "sync stream")  # where a table has many rows
ALONE = ("primary",)
PAIR = ("primary", "backup")
SPARES = [{"deriver": ["spares"]}]


class Seen(NamedTuple):
    """Tell what a caller and the providers saw of one request."""

    outcome: Any
    providers: str


def refused(status: int, message: str = "in our own words", code: str | None = None) -> Reply:
    """Answer with an error in OpenAI's form."""
    return Reply(status=status, body=openai_error(message, "invalid_request_error", code))


def outcome_of(error: BaseException) -> str:
    """Name an error as a caller tells it from others."""
    return f"{type(error).__name__} {getattr(error, 'status_code', None)}"


def asked(router: Any, way: str, request: Mapping[str, Any], judge: Callable[..., Any]) -> Any:
    """Ask in one of the ways, and judge the answer or name the error."""
    loop, _, stream = way.partition(" ")
    try:
        return judge(ask_in(loop, router, **request, stream=bool(stream)))
    except Exception as error:  # noqa: BLE001 # its name is the outcome
        return outcome_of(error)


class Twins:
    """Make the two Routers, and run a request through both.

    Attributes:
        listener: Of the one with the strategy.
    """

    def __init__(self, bench: Any) -> None:
        self._bench, self.providers = bench, bench.providers
        self.listener = Listener()

    def router(
        self,
        names: tuple[str, ...] = ALONE,
        per_deployment: Mapping[str, Mapping[str, Any]] | None = None,
        spare: Mapping[str, Any] | None = None,
        *,
        managed: bool = True,
        **options: Any,
    ) -> Any:
        """Make one of the two; each at its time, as callbacks reach every Router of a process."""
        options = {"num_retries": 0, "disable_cooldowns": True, **options}
        models = []
        for place, name in enumerate(names):
            more = copy.deepcopy(dict((per_deployment or {}).get(name, {})))
            if not managed and len(names) > 1:
                more["order"] = place + 1
            models.append(self._bench.deployment(name, place if managed else None, **more))
        models += [
            self._bench.deployment("spare", None, group="spares", **(spare or {})),
            self._bench.deployment("last", None, group="lasts"),
        ]
        router = self._bench.router(models, **copy.deepcopy(options))
        if managed:
            self.listener = Listener()
            FallbackRoutingStrategy(observers=[self.listener]).register(router, warm=False)
        return router

    def both(
        self,
        failures: Mapping[str, Reply],
        request: Mapping[str, Any] | None = None,
        *,
        names: tuple[str, ...] = ALONE,
        ways: tuple[str, ...] = TWO_WAYS,
        judge: Callable[..., Any] = text_of,
        **options: Any,
    ) -> list[dict[str, Seen]]:
        """Return what was seen without the strategy and with it, in each way to ask."""
        seen: list[dict[str, Seen]] = [{}, {}]
        for way in ways:
            for place, router in enumerate(self.each(failures, names, **options)):
                outcome = asked(router, way, copy.deepcopy(dict(request or {})), judge)
                seen[place][way] = Seen(outcome, " ".join(self.providers.order))
        return seen

    def are_alike(self, *args: Any, **options: Any) -> None:
        """Compare what was seen of both."""
        without, with_it = self.both(*args, **options)
        assert with_it == without

    def each(
        self, failures: Mapping[str, Reply], names: tuple[str, ...] = ALONE, **options: Any
    ) -> Iterator[Any]:
        """Hand out the one without the strategy, then the one with it; providers begin anew."""
        for managed in (False, True):
            self.providers.reset()
            for name, reply in failures.items():
                self.providers[name].standing = reply
            # Every Router adds its callbacks to LiteLLM's lists, which have a limit.
            with litellm_left_clean():
                yield self.router(names, managed=managed, **options)


@pytest.fixture
def twins(bench: Any) -> Twins:
    """Make pairs of Routers."""
    return Twins(bench)


# 1. The Router's own lists.

ERRORS = {
    "500": refused(500),
    "401": refused(401, code="invalid_api_key"),
    "400": refused(400),
    "overflow": refused(
        400, "here this model's maximum context length is five", "context_length_exceeded"
    ),
    # On openai 3 LiteLLM knows a refusal by its text alone.
    "refusal": refused(
        400, "invalid_request_error: content_policy_violation", "content_policy_violation"
    ),
}
OF_THE_ROUTER: dict[str, dict[str, Any]] = TABLES["of_the_router"]
OF_THE_REQUEST: dict[str, dict[str, Any]] = TABLES["of_the_request"]


@pytest.mark.parametrize("lists", [*OF_THE_ROUTER, *OF_THE_REQUEST])
@pytest.mark.parametrize("error", ERRORS)
def test_the_lists_take_the_same_errors(error: str, lists: str, twins: Twins) -> None:
    """An error that ends the call goes to LiteLLM's lists, or comes out where none names us."""
    twins.are_alike(
        {"primary": ERRORS[error]}, OF_THE_REQUEST.get(lists), **OF_THE_ROUTER.get(lists, {})
    )


@pytest.mark.parametrize("lists", [*OF_THE_ROUTER, "names in the request"])
@pytest.mark.parametrize("status", [429, 503])
def test_the_lists_stand_behind_an_exhausted_chain(status: int, lists: str, twins: Twins) -> None:
    """Each member is asked once, and then the lists apply as behind a group with `order`."""
    twins.are_alike(
        dict.fromkeys(PAIR, Reply(status=status)),
        OF_THE_REQUEST.get(lists),
        names=PAIR,
        ways=WAYS,
        **OF_THE_ROUTER.get(lists, {}),
    )


def test_an_unknown_error_goes_to_the_lists(twins: Twins) -> None:
    """What is no provider's error switches nothing, and is LiteLLM's to judge."""

    def broken(**_: Any) -> Any:
        raise ValueError("a bug")

    with patch("litellm.completion", broken), patch("litellm.acompletion", broken):
        # The spare meets the same bug, and the first error comes out.
        twins.are_alike({}, fallbacks=SPARES, judge=lambda _: None)


# 2. LiteLLM's own rehearsals.

MOCKS: dict[str, dict[str, Any]] = TABLES["rehearsals"]
MOCKS["an exception"] = {"mock_response": Exception("boom")}
_MOCKED_LISTS = ("no list", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks")


@pytest.mark.parametrize(
    ("mock", "lists", "names"),
    [
        *(
            (mock, lists, ALONE)
            for mock in MOCKS
            for lists in _MOCKED_LISTS
            # The spare would be given the short time as well, and from 1.110 on the flag.
            if lists != "fallbacks"
            or mock not in {"mock_timeout", "mock_testing_rate_limit_error"}
        ),
        # It stands for a failure of the primary.
        *(("mock_testing_fallbacks", lists, PAIR) for lists in ("no list", "fallbacks")),
    ],
)
def test_a_rehearsal_goes_the_same_way(
    mock: str, lists: str, names: tuple[str, ...], twins: Twins
) -> None:
    """`mock_testing_*` and `mock_response` take the lists that the real error would take."""
    twins.are_alike({}, MOCKS[mock], names=names, **OF_THE_ROUTER[lists])


def test_a_rehearsed_rate_limit_is_one_attempt(twins: Twins) -> None:
    """As in a plain group with one retry, the second attempt is a real one.

    A group with `order` hands the flag on from hop to hop, and nobody ever answers.
    """
    _, with_it = twins.both({}, MOCKS["mock_testing_rate_limit_error"], names=PAIR)
    assert {*with_it.values()} == {Seen("hello from backup", "backup")}


# 3. LiteLLM's selection.

TAGGED = {"primary": {"tags": ["paid"]}, "backup": {"tags": ["free"]}}


@pytest.mark.parametrize("lists", ["no list", "fallbacks"])
def test_where_nobody_else_may_be_asked_the_failure_stands(lists: str, twins: Twins) -> None:
    """The provider's 429 counts, not "Not allowed to access model due to tags"."""
    router = twins.router(
        PAIR,
        TAGGED,
        {"tags": ["paid"]},
        enable_tag_filtering=True,
        disable_cooldowns=False,  # what is left when the primary cools down is not allowed
        **OF_THE_ROUTER[lists],
    )
    twins.providers["primary"].fail(429)
    outcome = asked(router, "async", {"metadata": {"tags": ["paid"]}}, text_of)
    assert outcome == ("RateLimitError 429" if lists == "no list" else "hello from spare")
    assert [attempt.target for attempt in twins.listener.record.attempts] == ["primary"]


NOBODY: dict[str, dict[str, Any]] = {
    "paused": {"per_deployment": {"primary": {"info": {"blocked": True}}}},
    "too long": {
        "per_deployment": {"primary": {"info": {"max_input_tokens": 1}}},
        "enable_pre_call_checks": True,
    },
    "tags": {
        "per_deployment": TAGGED,
        "enable_tag_filtering": True,
        "spare": {"tags": ["default"]},
    },
}


# What LiteLLM's sync selection does not look at: tags.
@pytest.mark.parametrize("reason", NOBODY)
@pytest.mark.parametrize("is_listed", [False, True])
def test_nobody_may_be_asked_at_all(reason: str, twins: Twins, *, is_listed: bool) -> None:
    """The caller gets LiteLLM's own error, or the lists' answer."""
    name = "context_window_fallbacks" if reason == "too long" else "fallbacks"
    listed = {name: SPARES} if is_listed else {}
    twins.are_alike({}, {"metadata": {"tags": ["other"]}}, **NOBODY[reason], **listed)


STRATEGIES = (
    "simple-shuffle",
    "least-busy",
    "usage-based-routing-v2",
    "latency-based-routing",
)


@pytest.mark.parametrize("limit", ["rpm", "tpm", "max_parallel_requests"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_limits_of_a_deployment_are_kept(strategy: str, limit: str, twins: Twins) -> None:
    """What LiteLLM's routing strategy counts and refuses, it counts and refuses in a chain."""
    orders: list[str] = []
    options: Any = {"routing_strategy": strategy, "fallbacks": SPARES}
    for router in twins.each({}, per_deployment={"primary": {limit: 1}}, **options):

        async def thrice(router: Any = router) -> None:
            for _ in range(3):
                await router.acompletion(**ASKED)
                await GLOBAL_LOGGING_WORKER.flush()

        run_async(thrice())
        orders.append(" ".join(twins.providers.order))
        del router, thrice
    # LiteLLM's strategies leave event loops open: they warn here, where that is let pass.
    gc.collect()
    assert orders[0] == orders[1]


# 4. What an error says, and who hears of it.


class Notes(CustomLogger):
    """Note LiteLLM's events, with what spend is counted by."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, ...]] = []

    def log_success_event(self, kwargs: Any, *_: Any, **__: Any) -> None:
        metadata = kwargs["litellm_params"]["metadata"]
        payload = kwargs["standard_logging_object"]
        known = (payload["status"], payload["model_group"], payload["model_id"])
        failed = len(metadata.get("previous_models") or ())
        cost = round(kwargs.get("response_cost") or 0, 8)
        self.events.append((*known, metadata["mine"], failed, cost))

    async def async_log_success_event(self, kwargs: Any, *_: Any, **__: Any) -> None:
        self.log_success_event(kwargs)

    log_failure_event, async_log_failure_event = log_success_event, async_log_success_event


# With the number of events.
EVENTFUL: dict[str, tuple[int, dict[str, Any]]] = {
    "answered": (1, {"failures": {}}),
    "switched": (2, {"failures": {"primary": refused(500)}, "names": PAIR}),
    "dead": (1, {"failures": {"primary": refused(500)}}),
    "both dead": (2, {"failures": dict.fromkeys(PAIR, refused(429)), "names": PAIR}),
    "a wrong request": (1, {"failures": {"primary": refused(400)}}),
    "fallbacks": (2, {"failures": {"primary": refused(500)}, "fallbacks": SPARES}),
}
PRICED = {name: {"model": "openai/gpt-4o-mini"} for name in PAIR}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("case", EVENTFUL)
def test_callbacks_hear_the_same(case: str, way: str, twins: Twins) -> None:
    """One event per attempt, with its deployment, its cost, and the attempts before it."""
    count, options = EVENTFUL[case]
    request: dict[str, Any] = {**ASKED, "metadata": {"mine": 1}}
    heard: list[list[tuple[Any, ...]]] = []
    for router in twins.each(**options, per_deployment=PRICED):
        notes = Notes()
        litellm.callbacks.append(notes)

        async def inside(router: Any = router, notes: Notes = notes) -> None:
            # In a loop, LiteLLM's sync methods ask from a thread.
            with suppress(openai.APIError):
                if way == "async":
                    await router.acompletion(**copy.deepcopy(request))
                else:
                    router.completion(**copy.deepcopy(request))
            while len(notes.events) < count:  # noqa: ASYNC110 # LiteLLM logs in its own time
                await asyncio.sleep(0.01)

        run_async(inside())
        heard.append(sorted(notes.events))
    assert heard[1] == heard[0]


FAILS: dict[str, dict[str, Any]] = {
    "a deployment's cooldown_time": {"per_deployment": {"primary": {"cooldown_time": 60}}},
    "the router's cooldown_time": {"cooldown_time": 60},
    "allowed_fails": {"allowed_fails": 1, "cooldown_time": 60},
    "allowed_fails_policy": {
        "allowed_fails_policy": litellm.AllowedFailsPolicy(RateLimitErrorAllowedFails=1),
        "cooldown_time": 60,
    },
    "disable_cooldowns": {"disable_cooldowns": True},
}


@pytest.mark.parametrize("fails", FAILS)
def test_cooldowns_begin_at_the_same_failure(fails: str, twins: Twins, ask: Any) -> None:
    """The primary is left alone after as many failures as in a plain group."""
    orders: list[list[str]] = []
    options = {"disable_cooldowns": False, **FAILS[fails]}
    for router in twins.each({"primary": refused(429)}, PAIR, **options):
        for _ in range(4):
            ask(router)
        orders.append([*twins.providers.order])
    assert orders[1] == orders[0]


# 5. Answers of people's mocks.


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_mock_is_handed_out(way: str, twins: Twins) -> None:
    """Who patches `litellm.completion` with a MagicMock gets it back."""
    answer = MagicMock()
    router = twins.router()
    with (
        patch("litellm.completion", MagicMock(return_value=answer)),
        patch("litellm.acompletion", AsyncMock(return_value=answer)),
    ):
        assert asked(router, way, {}, lambda given: given is answer) is True


# 6. Names.

NAMES: dict[str, dict[str, Any]] = TABLES["names"]


@pytest.mark.parametrize("failing", [(), PAIR])
@pytest.mark.parametrize("name", NAMES)
def test_a_group_is_known_by_the_same_names(
    name: str, failing: tuple[str, ...], twins: Twins
) -> None:
    """Aliases, wildcards, teams and single deployments lead where they led."""
    row = NAMES[name]
    options = {
        "per_deployment": dict.fromkeys(PAIR, row.get("each", {})),
        **row.get("options", {}),
    }
    failures = dict.fromkeys(failing, refused(503))
    without, with_it = twins.both(failures, row.get("request"), names=PAIR, **options)
    if OLD and failing and name == "alias with options":
        # This LiteLLM does not find the group's `order` by such an alias; a chain is found.
        assert {seen.providers for seen in with_it.values()} == {" ".join(PAIR)}
        return
    assert with_it == without


def test_the_group_that_stands_in_for_an_unknown_name_is_a_chain(twins: Twins) -> None:
    """`default_fallbacks` name the group for a model that nobody has; its primary comes first."""
    router = twins.router(PAIR, default_fallbacks=["deriver"])
    for _ in range(16):  # LiteLLM shuffles
        asked(router, "sync", {"model": "nobody"}, text_of)
    assert {*twins.providers.order} == {"primary"}


@pytest.mark.parametrize(
    ("options", "request_options", "count"),
    [
        ({"num_retries": 2}, {}, 2),
        ({"num_retries": 0}, {}, 2),
        ({}, {"num_retries": 0}, 1),
        ({}, {"num_retries": 5}, 2),
        ({"per_deployment": {"primary": {"num_retries": 0}}}, {}, 2),
    ],
)
def test_retries_mean_requests_within_the_chain(
    options: dict[str, Any], request_options: dict[str, Any], count: int, twins: Twins
) -> None:
    """On purpose not as without: the policy says how often, a request may only ask for less."""
    options = {"names": PAIR, **options}
    _, with_it = twins.both(dict.fromkeys(PAIR, refused(503)), request_options, **options)
    assert {seen.providers for seen in with_it.values()} == {" ".join(PAIR[:count])}


# 7. Endpoints.

IMAGE = {"created": 1, "data": [{"url": "http://localhost/image"}]}
RANKED = {"id": "r", "results": [{"index": 0, "relevance_score": 0.5}], "meta": {}}
TEXT = {"id": "c", "choices": [{"text": "hi", "index": 0, "finish_reason": "stop"}]}
FLAGS = {"flagged": False, "categories": {}, "category_scores": {}}
FLAGGED = {**FLAGS, "category_applied_input_types": {}}
MODERATED = {"id": "m", "model": "m", "results": [FLAGGED]}
BATCHED = {"completion_window": "24h", "endpoint": "/v1/responses", "input_file_id": "f"}
BATCH = {"id": "b", "object": "batch", "status": "validating", "created_at": 1, **BATCHED}
CONTENTS = [{"role": "user", "parts": [{"text": "hello"}]}]
# By method: the model, what is asked, what is answered.
ENDPOINTS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "embedding": ("openai/m", {"input": ["hello"]}, None),
    "aembedding": ("openai/m", {"input": ["hello"]}, None),
    "image_generation": ("openai/dall-e-3", {"prompt": "a dog"}, IMAGE),
    "aimage_generation": ("openai/dall-e-3", {"prompt": "a dog"}, IMAGE),
    "arerank": ("cohere/m", {"query": "q", "documents": ["d"]}, RANKED),
    "atext_completion": ("openai/m", {"prompt": "p"}, TEXT),
    "amoderation": ("openai/m", {"input": "x"}, MODERATED),
    "aspeech": ("openai/m", {"input": "x", "voice": "alloy"}, "sound"),
    "responses": ("openai/m", {"input": "x"}, None),
    "aresponses": ("openai/m", {"input": "x"}, None),
    "aanthropic_messages": ("anthropic/m", {"messages": MESSAGES, "max_tokens": 16}, None),
    "agenerate_content": ("gemini/m", {"contents": CONTENTS}, None),
    "acreate_batch": ("openai/m", BATCHED, BATCH),
}
# The requests that LiteLLM's own retries cost, which its `max_retries=0` does not stop.
FEWER = {"embedding", "aembedding"}
# What LiteLLM asks nobody else for; a chain does.
SWITCHING = {
    "responses": ("ResponsesAPIResponse", [*PAIR]),
    "amoderation": ("OpenAIModerationResponse", ["primary"] * 3 + ["backup"]),
}


@pytest.mark.filterwarnings("ignore:.*its client made 2 retries")  # for a moderation it does
@pytest.mark.parametrize("failing", [(), ALONE])
@pytest.mark.parametrize("method", ENDPOINTS)
def test_each_endpoint_answers_alike(method: str, failing: tuple[str, ...], twins: Twins) -> None:
    """The same type comes out, of the same provider; a switch where LiteLLM would switch."""
    model, request, document = ENDPOINTS[method]
    seen: list[tuple[str, list[str]]] = []
    replies = dict.fromkeys(PAIR, Reply(body=document)) | dict.fromkeys(failing, refused(503))
    for router in twins.each(
        replies, PAIR, per_deployment={key: {"model": model} for key in PAIR}
    ):
        way = "async" if method.startswith("a") else "sync in a loop"
        try:
            answer = ask_in(way, router, method.removeprefix("a"), **copy.deepcopy(request))
            kind = type(answer).__name__
        except Exception as error:  # noqa: BLE001 # its name is compared
            kind = outcome_of(error)
        seen.append((kind, [*twins.providers.order]))
    (kind, order), ours = seen
    if OLD and not method.startswith("a") and failing:
        pytest.skip("this LiteLLM takes no fallback here; with a chain it switches")
    if method in FEWER and failing:
        order = [*PAIR]
    if failing:
        kind, order = SWITCHING.get(method, (kind, order))
    assert ours == (kind, order)


BATCHES: dict[str, dict[str, Any]] = {
    "abatch_completion": {"models": ["deriver", "spares"], "messages": MESSAGES},
    "abatch_completion_one_model_multiple_requests": {
        "model": "deriver",
        "messages": [MESSAGES, MESSAGES],
    },
    "schedule_acompletion": {**ASKED, "priority": 0},
}


@pytest.mark.parametrize("method", BATCHES)
def test_each_request_of_a_batch_is_a_call(method: str, twins: Twins) -> None:
    """LiteLLM makes it by the Router's endpoint, so it switches."""
    twins.providers["primary"].fail(503)
    router = twins.router(PAIR)
    answer = run_async(getattr(router, method)(**copy.deepcopy(BATCHES[method])))
    answers = answer if isinstance(answer, list) else [answer]
    assert "hello from backup" in {text_of(one) for one in answers}


# 8. Streams.

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALLING = Reply(body=chat_answer(None, chat_call("c1", "look", {"at": "it"})))
CUT_BEFORE = Reply(events=[chat_word("")], cut=True)
CUT_AFTER = Reply(events=[chat_word(""), chat_word("hel")], cut=True)
BROKEN: dict[str, dict[str, Reply]] = {
    "whole": {},
    "cut before content": {"primary": CUT_BEFORE},
    "an error before content": {"primary": Reply(text="", error="server_error")},
    "cut after content": {"primary": CUT_AFTER},
    "tool calls": {"primary": CALLING},
    "tool calls of the spare": {"primary": CUT_BEFORE, "spare": CALLING},
}
STREAMS = ("sync stream", "async stream")


def streamed(chunks: list[Any]) -> Any:
    """Return what a stream said and called, and what its chunks are."""
    deltas = [one.choices[0].delta for one in chunks if one.choices]
    calls = [call.function.name for delta in deltas for call in delta.tool_calls or ()]
    return text_of(chunks), calls, {type(one).__name__ for one in chunks}


@pytest.mark.parametrize("way", STREAMS)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_stream_goes_on_in_another_group(broken: str, way: str, twins: Twins) -> None:
    """Where the chain ends before content, LiteLLM's `fallbacks` stream; after it nobody does."""
    if OLD and way == "sync stream":
        pytest.skip("this LiteLLM starts a broken sync stream over for ever")
    twins.are_alike(
        BROKEN[broken], {"tools": [TOOL]}, ways=(way,), judge=streamed, fallbacks=SPARES
    )


@pytest.mark.parametrize("usage", [None, {"include_usage": True}, {"include_usage": False}])
def test_a_stream_has_the_chunks_that_were_asked_for(usage: Any, twins: Twins) -> None:
    """`stream_options` are the caller's: usage arrives where it was asked for, nowhere else."""

    def shape(chunks: list[Any]) -> Any:
        return [(bool(one.choices), getattr(one, "usage", None) is None) for one in chunks]

    request = {} if usage is None else {"stream_options": usage}
    twins.are_alike({}, request, ways=STREAMS, judge=shape)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_stream_is_what_litellms_callers_know(way: str, twins: Twins) -> None:
    """Its class and its attributes are LiteLLM's."""
    theirs, ours = (ask_in(way, one, received=[], stream=True) for one in twins.each({}))
    assert isinstance(ours, CustomStreamWrapper) == isinstance(theirs, CustomStreamWrapper)
    assert vars(theirs).keys() <= vars(ours).keys()
    assert ours.model == theirs.model
    assert theirs._hidden_params.keys() <= ours._hidden_params.keys()


# 9. What an answer carries.


@pytest.mark.parametrize("failing", [(), ALONE])
def test_an_answer_carries_the_same(failing: tuple[str, ...], twins: Twins) -> None:
    """Hidden parameters, cost and LiteLLM's headers; ours stand beside them."""

    def carried(answer: Any) -> Any:
        hidden = answer._hidden_params
        headers = hidden["additional_headers"]
        kept = {
            name: headers[name]
            for name in headers
            if not name.startswith(("x-honcho", "llm_provider"))
        }
        return (
            sorted(hidden.keys() - {"fallback"}),
            kept,
            hidden["response_cost"],
            hidden["model_id"],
        )

    twins.are_alike(
        dict.fromkeys(failing, refused(503)),
        ways=("sync", "async"),
        judge=carried,
        fallbacks=SPARES,
        per_deployment=PRICED,
    )


# 10. LiteLLM's own ways to fall back, beside the strategy.


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note LiteLLM's sleeps between attempts instead of sleeping."""
    noted: list[float] = []
    if not hasattr(litellm.Router, "_time_to_sleep_before_retry"):
        pytest.skip("this LiteLLM sleeps where nobody can look")
    own = litellm.Router._time_to_sleep_before_retry

    def note(self: Any, *args: Any, **kwargs: Any) -> float:
        noted.append(own(self, *args, **kwargs))
        return 0

    monkeypatch.setattr(litellm.Router, "_time_to_sleep_before_retry", note)
    return noted


THEIR_WAYS: dict[str, dict[str, Any]] = {
    "fallbacks": {"fallbacks": SPARES, "num_retries": None},
    "fallbacks, num_retries=0": {"fallbacks": SPARES},
    "order, num_retries=0": {"names": PAIR},
}


@pytest.mark.parametrize("mode", [*THEIR_WAYS, "ours"])
@pytest.mark.parametrize("status", [400, 429])
def test_beside_litellms_own_ways(
    status: int, mode: str, twins: Twins, request: pytest.FixtureRequest
) -> None:
    """Executable documentation: who is asked, and how long LiteLLM means to sleep.

    400: LiteLLM sends the caller's mistake to the fallback as well; the strategy does not. 429
    with Retry-After 3: LiteLLM's default waits it out, twice, before it asks the other.
    """
    slept = request.getfixturevalue("slept") if status == 429 else []
    twins.providers["primary"].fail(status, headers={"retry-after": "3"})
    options = THEIR_WAYS.get(mode, {"names": PAIR})
    said = asked(twins.router(**options, managed=mode == "ours"), "async", {}, text_of)
    waits, stays = (mode, status) == ("fallbacks", 429), (mode, status) == ("ours", 400)
    other = "spare" if "fallbacks" in options else "backup"
    assert said == ("BadRequestError 400" if stays else f"hello from {other}")
    assert twins.providers.order == ["primary"] * (3 if waits else 1) + [other] * (not stays)
    assert (sum(slept) >= 6, any(slept)) == (waits, waits)


def test_two_deployments_of_which_one_answers_500(bench: Any) -> None:
    """A plain group shuffles: it meets the bad one again and again, and sometimes only that one.

    A 500 does not cool down. The strategy meets it once per call, and always goes on.
    """
    bench["primary"].fail(500)
    plain = bench.router([bench.deployment(name, None) for name in ("primary", "backup")])

    async def ask_often(router: Any) -> int:
        asks = (router.acompletion(**ASKED) for _ in range(30))
        said = await asyncio.gather(*asks, return_exceptions=True)
        return sum(isinstance(one, litellm.InternalServerError) for one in said)

    run_async(ask_often(plain))
    met = len(bench["primary"].requests)
    assert met > 0
    bench.providers.reset()
    bench["primary"].fail(500)

    failed = run_async(ask_often(bench.managed(disable_cooldowns=True)[0]))

    assert failed == 0
    assert len(bench["primary"].requests) == len(bench["backup"].requests) == 30
