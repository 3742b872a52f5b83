"""What a fallback layer adds to a call, beside its peers: microseconds, and the ratio to a peer.

Every competitor asks the same in-process fakes that take no time. On the happy path the primary
answers; on failover it raises an error with status 503, nobody waits, and the fallback answers.
"Added" is a competitor's figure minus that of the bare call of its kind in the same round. Each
family runs in a process of its own, so that none pays for another's imports.
"""

# pydantic-ai, backoff and Haystack are installed in the peers' environment only, and LiteLLM's
# and LangChain's objects have whatever shape they have.
# pyright: reportMissingImports=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false, reportUntypedFunctionDecorator=false
# pyright: reportUntypedClassDecorator=false, reportPrivateImportUsage=false
# ruff: noqa: PLC0415 # a family loads its own framework and no other

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import time
import tracemalloc
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measure import Figure, Job, added, added_ratio, number
from benchmarks.measure import measure as measure_rounds
from benchmarks.report import Bar, Result, bar, table
from honcho_fallback import FallbackConfig, FallbackPolicy, Target, check_response, classify
from tests.helpers.wire import chat_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from benchmarks.measure import Interval, Plan
    from honcho_fallback import FallbackObserver

HAPPY, FAILOVER = "happy", "failover"
SYNC, ASYNC, STREAM, ASTREAM = "sync", "async", "stream", "async stream"
PATHS = (HAPPY, FAILOVER)
BARE = "bare call"
OURS = "LangfuseCallbackHandler"


class Limit(NamedTuple):
    """What a row of ours has to reach on one path: microseconds, and the share of its peer."""

    microseconds: float | None = None
    share: float | None = None


# The contract.
MOST_BYTES = 2048
LIMITS = {
    ("policy.call", HAPPY): Limit(5.0, 1 / 4),
    ("policy.acall", HAPPY): Limit(12.0, 1 / 4),
    ("policy.call", FAILOVER): Limit(60.0),
    ("policy.acall", FAILOVER): Limit(60.0),
    (OURS, HAPPY): Limit(share=1.3),
    (f"{OURS}, host that hangs", HAPPY): Limit(share=1.3),
}


class OverloadedError(Exception):
    """Stand for an SDK's error, which knows its status itself."""

    def __init__(self) -> None:
        super().__init__("the model is overloaded")
        self.status_code = 503


class Fakes:
    """Answer; on the failover path fail first, so that every second request is the fallback's."""

    def __init__(self, path: str, answer: Any = "answer") -> None:
        self._fails = path == FAILOVER
        self._failed = False
        self._answer = answer

    def ask(self, *_: object) -> Any:
        if self._fails and not self._failed:
            self._failed = True
            raise OverloadedError
        self._failed = False
        return self._answer

    async def aask(self, *_: object) -> Any:
        return self.ask()

    def stream(self, *_: object) -> Iterator[str]:
        self.ask()
        yield from ("", "a", "b", "c")

    async def astream(self, *_: object) -> AsyncIterator[str]:
        self.ask()
        for chunk in ("", "a", "b", "c"):
            yield chunk


async def drained(chunks: AsyncIterator[str]) -> list[str]:
    return [chunk async for chunk in chunks]


def core() -> Iterator[Job]:
    """The policy beside retry libraries, whose function asks another model the second time."""
    import backoff
    import stamina
    import tenacity

    stamina.instrumentation.set_on_retry_hooks([])
    no_wait = {"wait_initial": 0, "wait_max": 0, "wait_jitter": 0}
    at_once: dict[str, Any] = {"interval": 0, "jitter": None}
    fakes = Fakes(HAPPY)
    yield Job(BARE, SYNC, HAPPY, fakes.ask)
    yield Job(BARE, ASYNC, HAPPY, fakes.aask)
    yield Job(BARE, STREAM, HAPPY, lambda: list(fakes.stream()))
    yield Job(BARE, ASTREAM, HAPPY, lambda: drained(fakes.astream()))
    for path in PATHS:
        yield from with_policy("", FallbackConfig(), Fakes(path), path)
        resilient = FallbackConfig.resilient(cooldown=None)
        yield from with_policy(", resilient()", resilient, Fakes(path), path)
        libraries: dict[str, Any] = {
            "tenacity": tenacity.retry(
                retry=tenacity.retry_if_exception_type(OverloadedError),
                stop=tenacity.stop_after_attempt(2),
                wait=tenacity.wait_none(),
            ),
            "stamina": stamina.retry(on=OverloadedError, attempts=2, timeout=None, **no_wait),
            "backoff": backoff.on_exception(
                backoff.constant, OverloadedError, max_tries=2, logger=None, **at_once
            ),
        }
        for row, retried in libraries.items():
            yield Job(row, SYNC, path, retried(Fakes(path).ask))
            yield Job(row, ASYNC, path, retried(Fakes(path).aask))


def with_policy(name: str, config: FallbackConfig, fakes: Fakes, path: str) -> Iterator[Job]:
    chain = [Target("big", provider="one"), Target("small", provider="two")]
    policy = FallbackPolicy(chain, config, agent="bench")
    yield Job(f"policy.call{name}", SYNC, path, lambda: policy.call(fakes.ask))
    yield Job(f"policy.acall{name}", ASYNC, path, lambda: policy.acall(fakes.aask))
    if name:
        return
    yield Job("policy.stream", STREAM, path, lambda: list(policy.stream(fakes.stream)))
    astream = lambda: drained(policy.astream(fakes.astream))  # noqa: E731 # a job takes it
    yield Job("policy.astream", ASTREAM, path, astream)


def langchain() -> Iterator[Job]:
    """Chat models, functions and agents, with this package's fallbacks and LangChain's own."""
    os.environ["LANGSMITH_TRACING"] = "false"
    from langchain.agents import create_agent
    from langchain.agents.middleware import ModelFallbackMiddleware
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.runnables import RunnableLambda

    from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable

    class FakeChat(GenericFakeChatModel):
        messages: Any = None
        fails: bool = False

        def _generate(self, *_args: Any, **_kwargs: Any) -> ChatResult:
            if self.fails:
                raise OverloadedError
            return ChatResult(generations=[ChatGeneration(message=AIMessage("answer"))])

        async def _agenerate(self, *_args: Any, **_kwargs: Any) -> ChatResult:
            return self._generate()

        def bind_tools(self, *_args: Any, **_kwargs: Any) -> Any:
            return self

    def both(row: str, kind: str, path: str, runnable: Any, given: Any) -> Iterator[Job]:
        yield Job(row, f"{kind}, sync", path, lambda: runnable.invoke(given))
        yield Job(row, f"{kind}, async", path, lambda: runnable.ainvoke(given))

    def fail(_: str) -> str:
        raise OverloadedError

    messages = [HumanMessage("hello")]
    question = {"messages": messages}
    good, backup, bad = FakeChat(), FakeChat(name="backup"), FakeChat(name="bad", fails=True)
    answer: Any = RunnableLambda(lambda _: "answer")
    yield from both(BARE, "model", HAPPY, good, messages)
    yield from both(BARE, "function", HAPPY, answer, "hello")
    yield from both(BARE, "agent", HAPPY, create_agent(good), question)
    for path, model, function in ((HAPPY, good, answer), (FAILOVER, bad, RunnableLambda(fail))):
        yield from both("with_fallbacks", "model", path, model.with_fallbacks([backup]), messages)
        ours: Any = FallbackChatModel(model, backup)
        yield from both("FallbackChatModel", "model", path, ours, messages)
        theirs = function.with_fallbacks([answer])
        yield from both("with_fallbacks", "function", path, theirs, "hello")
        ours = FallbackRunnable(function, answer)
        yield from both("FallbackRunnable", "function", path, ours, "hello")
        for row, middleware in (
            ("ModelFallbackMiddleware", ModelFallbackMiddleware(backup)),
            ("FallbackMiddleware", FallbackMiddleware(backup)),
            ("FallbackMiddleware, reset='turn'", FallbackMiddleware(backup, reset="turn")),
        ):
            agent = create_agent(model, middleware=[middleware])
            yield from both(row, "agent", path, agent, question)


def litellm() -> Iterator[Job]:
    """A Router with this package's strategy and with LiteLLM's own fallbacks."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    from litellm import Router

    from honcho_fallback_litellm import FallbackRoutingStrategy

    litellm.suppress_debug_info = True
    messages: list[Any] = [{"role": "user", "content": "hello"}]
    good = {"model": "openai/a", "api_key": "k", "mock_response": "hi"}
    bad = {**good, "mock_response": "litellm.InternalServerError"}

    def router(first: Any, group: str = "backup", **options: Any) -> Router:
        models = [
            {"model_name": name, "litellm_params": params, "model_info": {"fallback_rank": rank}}
            for rank, (name, params) in enumerate((("group", first), (group, good)))
        ]
        return Router(model_list=models, disable_cooldowns=True, **options)

    def ask(router: Router) -> Any:
        return lambda: router.acompletion(model="group", messages=messages)

    yield Job(BARE, ASYNC, HAPPY, ask(router(good)))
    for path, first in ((HAPPY, good), (FAILOVER, bad)):
        theirs = router(first, fallbacks=[{"group": ["backup"]}], num_retries=0)
        yield Job("Router fallbacks, num_retries=0", ASYNC, path, ask(theirs))
        ours = router(first, "group")
        FallbackRoutingStrategy().register(ours)
        yield Job("FallbackRoutingStrategy", ASYNC, path, ask(ours))


def pydantic_ai() -> Iterator[Job]:
    """pydantic-ai's FallbackModel, asked directly."""
    from pydantic_ai import ModelHTTPError
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    async def answer(_messages: Any, _info: Any) -> Any:
        usage = RequestUsage(input_tokens=1, output_tokens=1)
        return ModelResponse(parts=[TextPart("answer")], usage=usage)

    async def fail(_messages: Any, _info: Any) -> Any:
        raise ModelHTTPError(status_code=503, model_name="bad", body=None)

    messages, parameters = [ModelRequest.user_text_prompt("hello")], ModelRequestParameters()

    def job(row: str, path: str, model: Any) -> Job:
        call = lambda: model.request([*messages], None, parameters)  # noqa: E731 # a job takes it
        return Job(row, ASYNC, path, call)

    yield job(BARE, HAPPY, FunctionModel(answer))
    for path, first in ((HAPPY, answer), (FAILOVER, fail)):
        model = FallbackModel(FunctionModel(first), FunctionModel(answer))
        yield job("FallbackModel.request", path, model)


def haystack() -> Iterator[Job]:
    """Haystack's FallbackChatGenerator."""
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    from haystack import component
    from haystack.components.generators.chat import FallbackChatGenerator
    from haystack.dataclasses import ChatMessage

    answers = component.output_types(replies=list[ChatMessage])

    @component
    class Generator:
        def __init__(self, *, fails: bool = False) -> None:
            self.fails = fails

        @answers  # type: ignore[untyped-decorator] # see above
        def run(self, messages: Any, **given: Any) -> dict[str, Any]:  # noqa: ARG002 # the interface
            if self.fails:
                raise OverloadedError
            return {"replies": [ChatMessage.from_assistant("answer")]}

        @answers  # type: ignore[untyped-decorator] # see above
        async def run_async(self, messages: Any, **given: Any) -> dict[str, Any]:
            return dict(self.run(messages, **given))

    messages = [ChatMessage.from_user("hello")]
    good = Generator()
    yield Job(BARE, ASYNC, HAPPY, lambda: good.run_async(messages=messages))
    for path in PATHS:
        both = FallbackChatGenerator([Generator(fails=path == FAILOVER), Generator()])
        call = lambda both=both: both.run_async(messages)  # noqa: E731 # a job takes it
        yield Job("FallbackChatGenerator.run_async", ASYNC, path, call)


QUESTION = [
    {"role": "system", "content": "You are a polite assistant. " * 20},
    {"role": "user", "content": "Good morning! What is the weather like in Rome today?"},
]
ANSWER = chat_answer("Sunny, with a light breeze. " * 8)


def langfuse() -> Iterator[Job]:
    """The Langfuse handler beside one generation of the bare SDK with the same content.

    Counted is the calling thread's own processor time: the SDK's exporting threads would land on
    any call at random. The host that hangs takes connections and never answers.
    """
    for name in [name for name in os.environ if name.startswith("LANGFUSE_")]:
        del os.environ[name]
    import json

    from langfuse import Langfuse
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from honcho_fallback_langfuse import LangfuseCallbackHandler
    from honcho_fallback_otel import OpenTelemetryHandler

    class Nowhere(InMemorySpanExporter):
        def export(self, spans: Any) -> Any:
            self.clear()
            return super().export(spans)

    def client(name: str, url: str = "http://nowhere", **exporter: Any) -> Langfuse:
        provider = TracerProvider(shutdown_on_exit=False)
        keys: dict[str, Any] = {"public_key": f"pk-{name}", "secret_key": "sk"}
        return Langfuse(**keys, base_url=url, timeout=1, tracer_provider=provider, **exporter)

    def quiet(name: str) -> Langfuse:
        return client(name, span_exporter=Nowhere())

    target = Target("gpt-5.5", provider="openai", params={"temperature": 0.5})

    def observed(*observers: FallbackObserver) -> Callable[[], object]:
        policy = FallbackPolicy([target], agent="bench", observers=observers)

        def call() -> object:
            run = policy.start()
            run.report(input=QUESTION)
            return policy.call(lambda _: ANSWER, run=run)

        return call

    without_keys = LangfuseCallbackHandler()  # before there is any client that it could adopt
    without_keys.close(0)
    # The bare SDK writes the metadata that the handler writes.
    seen = Nowhere()
    first = client("first", span_exporter=seen)
    observed(LangfuseCallbackHandler(first))()
    first.flush()
    prefix = "langfuse.observation.metadata."
    metadata = {
        name.removeprefix(prefix): json.loads(str(value))
        for name, value in (seen.get_finished_spans()[0].attributes or {}).items()
        if name.startswith(prefix)
    }
    bare, sdk = observed(), quiet("bare")
    usage = {"input": 8, "output": 5, "total": 19}
    usage |= {"input_cached_tokens": 4, "output_reasoning_tokens": 2}

    def with_generation() -> object:
        answer = bare()
        generation = sdk.start_observation(name="bench", as_type="generation")
        generation.update(
            model="gpt-5.5",
            model_parameters={"temperature": 0.5},
            input=QUESTION,
            output=ANSWER["choices"][0]["message"],
            usage_details=usage,
            level="DEFAULT",
            metadata=metadata,
        )
        generation.end()
        return answer

    hanging = socket.create_server(("127.0.0.1", 0), backlog=512)
    url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
    provider = TracerProvider(shutdown_on_exit=False)
    handlers: dict[str, FallbackObserver] = {
        OURS: LangfuseCallbackHandler(quiet("one")),
        f"{OURS}, host that hangs": LangfuseCallbackHandler(client("hanging", url)),
        f"{OURS}, per_attempt": LangfuseCallbackHandler(quiet("attempts"), per_attempt=True),
        f"{OURS}, no keys": without_keys,
        "OpenTelemetryHandler": OpenTelemetryHandler(provider),
    }
    yield Job(BARE, SYNC, HAPPY, bare)
    yield Job("the bare SDK", SYNC, HAPPY, with_generation)
    for row, handler in handlers.items():
        yield Job(row, SYNC, HAPPY, observed(handler))


def observers() -> Iterator[Job]:
    """The package's observers: each by itself, and the four together.

    Counted is the calling thread's own processor time, as for Langfuse: what other threads write
    and send lands on no call.
    """
    import tempfile

    from langfuse import Langfuse
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from prometheus_client import CollectorRegistry

    from honcho_fallback.records import JsonlObserver
    from honcho_fallback_langfuse import LangfuseCallbackHandler
    from honcho_fallback_otel import OpenTelemetryMetrics
    from honcho_fallback_prometheus import PrometheusObserver

    class Nowhere(InMemorySpanExporter):
        def export(self, spans: Any) -> Any:
            self.clear()
            return super().export(spans)

    sdk = Langfuse(
        public_key="pk-observers",
        secret_key="sk",
        base_url="http://nowhere",
        tracer_provider=TracerProvider(shutdown_on_exit=False),
        span_exporter=Nowhere(),
    )
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    each: dict[str, FallbackObserver] = {
        "JsonlObserver": JsonlObserver(tempfile.TemporaryFile("w")),  # noqa: SIM115 # the observer keeps it
        "PrometheusObserver": PrometheusObserver(CollectorRegistry()),
        "OpenTelemetryMetrics": OpenTelemetryMetrics(meters),
        OURS: LangfuseCallbackHandler(sdk),
    }
    rows: dict[str, Iterable[FallbackObserver]] = {
        "no observer": (),
        **{f"with {name}": (observer,) for name, observer in each.items()},
        "with all four": each.values(),
    }
    chain = [Target("gpt-5.5", provider="openai"), Target("claude", provider="anthropic")]
    yield Job(BARE, SYNC, HAPPY, Fakes(HAPPY, ANSWER).ask)
    for row, chosen in rows.items():
        policy = FallbackPolicy(chain, agent="bench", observers=chosen)
        for path in PATHS:
            yield Job(row, SYNC, path, partial(policy.call, Fakes(path, ANSWER).ask))


def classifying() -> Iterator[Job]:
    """classify and check_response, by what they are given."""
    import httpx
    import openai

    request: Any = httpx.Request("POST", "https://provider.test/v1/chat")
    answers: Any = {number: httpx.Response(number, request=request) for number in (400, 429)}
    quota = {"message": "no credit", "code": "insufficient_quota"}
    long = {"message": f"{'The request could not be handled. ' * 18}the prompt is too long"}
    rows: dict[str, Callable[[], object]] = {
        BARE: lambda: None,
        "classify, 429, quota by its code": partial(
            classify, openai.APIStatusError(f"429 - {quota}", response=answers[429], body=quota)
        ),
        "classify, 400, a long text": partial(
            classify, openai.APIStatusError(f"400 - {long}", response=answers[400], body=long)
        ),
        "check_response, an answer": partial(check_response, ANSWER),
    }
    for row, call in rows.items():
        yield Job(row, SYNC, HAPPY, call)


# Rows that have a peer and are not this package's.
_OTHERS = frozenset({"stamina", "backoff"})

# Of these the calling thread's own processor time counts.
_IN_THREAD = frozenset({"langfuse", "observers"})

# By family: the jobs, and the rows that the others are compared with.
FAMILIES: dict[str, tuple[Callable[[], Iterable[Job]], frozenset[str]]] = {
    "core": (core, frozenset({"tenacity"})),
    "langchain": (langchain, frozenset({"with_fallbacks", "ModelFallbackMiddleware"})),
    "litellm": (litellm, frozenset({"Router fallbacks, num_retries=0"})),
    "pydantic-ai": (pydantic_ai, frozenset()),
    "haystack": (haystack, frozenset()),
    "langfuse": (langfuse, frozenset({"the bare SDK"})),
    "observers": (observers, frozenset({"no observer"})),
    "classify": (classifying, frozenset()),
}


def measure(family: str, plan: Plan, seconds: float = 0.1) -> Result:
    """Measure one family; its plot is of the ratios on the happy path to another package's."""
    # A log line is made and thrown away: a terminal is not what is measured.
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
    make, peers = FAMILIES[family]
    jobs = {(job.row, job.kind, job.path): job for job in make()}
    clock = time.thread_time_ns if family in _IN_THREAD else time.perf_counter_ns
    intervals: dict[tuple[str, ...], Interval] = {}
    with asyncio.Runner() as runner:
        # Beside each other in time are those that are compared: what is of one kind on one path.
        for kind, path in dict.fromkeys((kind, path) for _, kind, path in jobs):
            timers = {
                row: jobs[row, kind, path if row != BARE else HAPPY].timer(runner, seconds, clock)
                for row in dict.fromkeys(
                    (BARE, *(row for row, of, way in jobs if (of, way) == (kind, path)))
                )
            }
            measured = measure_rounds(timers, _figures([*timers], peers), plan)
            intervals |= {(kind, path, *name): one for name, one in measured.items()}
    head = "added microseconds", "bare call", HAPPY, "of its peer", FAILOVER, "of its peer"
    rows = list[list[str]]()
    ours: dict[str, Bar] = {}
    others: dict[str, Bar] = {}
    for row, kind, path in jobs:
        if row == BARE or path != HAPPY:
            continue
        cells, verdicts = [number(intervals[kind, HAPPY, "bare", ""].median)], list[str]()
        for way in PATHS:
            spent = intervals.get((kind, way, "added", row))
            share = intervals.get((kind, way, "share", row))
            cells.append(spent.as_difference() if spent else "-")
            cells.append(share.as_ratio() if share else "-")
            limit = LIMITS.get((row, way), Limit())
            for interval, most, unit in (
                (spent, limit.microseconds, "us"),
                (share, limit.share, "of its peer"),
            ):
                if interval and most is not None:
                    verdicts.append(f"{interval.verdict(most)}: {way}, {most:g} {unit}")
            if share and way == HAPPY and isfinite(share.high - share.low):
                drawn = others if row in _OTHERS else ours
                drawn[f"{row} ({kind})"] = bar(share)
        rows.append([f"{row} ({kind})", *cells, "; ".join(verdicts)])
    text = table((*head, "contract"), rows)
    if family == "observers":  # their peer is a policy of ours
        return Result(text)
    return Result(text, "overhead, of the peer's", ours, others)


def _figures(rows: Sequence[str], peers: frozenset[str]) -> dict[tuple[str, str], Figure]:
    """Return what is read out of a round of calls of one kind on one path."""
    figures: dict[tuple[str, str], Figure] = {("bare", ""): Figure((BARE,), float)}
    peer = next((row for row in rows if row in peers), None)
    for row in rows:
        if row != BARE:
            figures["added", row] = Figure((row, BARE), added)
        if peer and row not in {BARE, peer}:
            figures["share", row] = Figure((row, peer, BARE), added_ratio)
    return figures


async def memory(count: int = 2000) -> Result:
    """Count what a call in flight holds, in bytes: no time, hence no interval."""
    chain = [Target("big", provider="one"), Target("small", provider="two")]
    policy = FallbackPolicy(chain, agent="bench")

    async def bare_call(gate: asyncio.Event) -> None:
        await gate.wait()

    async def through_policy(gate: asyncio.Event) -> None:
        await policy.acall(lambda _: gate.wait())

    await _bytes_in_flight(through_policy, 100)
    full = await _bytes_in_flight(through_policy, count)
    added = full - await _bytes_in_flight(bare_call, count)
    verdict = "kept" if added <= MOST_BYTES else "**missed**"
    rows = [["policy.acall, beyond a bare task", f"{added:.0f}", verdict]]
    return Result(table((f"{count} calls in flight", "bytes of each", "contract"), rows))


async def _bytes_in_flight(ask: Callable[[asyncio.Event], Any], count: int) -> float:
    gate = asyncio.Event()
    gc.collect()
    tracemalloc.start()
    tasks = [asyncio.ensure_future(ask(gate)) for _ in range(count)]
    await asyncio.sleep(0)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gate.set()
    await asyncio.gather(*tasks)
    return size / count
