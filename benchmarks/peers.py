"""What a fallback layer adds to a call, beside every peer: one family, median microseconds.

Subjects and method are those of ``overhead.py``, ``langchain_calls.py`` and ``litellm_router.py``;
here are the peers that those do not measure, and one table for all. A family has a floor, the same
call without a fallback layer, and a process of its own, so that nobody pays for another's imports.
"""

# pydantic-ai, backoff and Haystack are installed in the peers' environment only.
# pyright: reportMissingImports=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false, reportUntypedFunctionDecorator=false
# pyright: reportUntypedClassDecorator=false
# ruff: noqa: PLC0415 # a family loads its own framework and no other

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING, Any

import overhead
from honcho_fallback import FallbackPolicy, Target
from overhead import ASYNC, FAILOVER, HAPPY, SYNC, Figures, Job, OverloadedError
from report.lines import write_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BARE = "bare call"
OURS = ("policy.", "FallbackChatModel", "FallbackRoutingStrategy")


def core() -> Iterator[Job]:
    chain = [Target("big", provider="one"), Target("small", provider="two")]
    policy = FallbackPolicy(chain, agent="bench")
    yield from overhead.bare()
    for path in (HAPPY, FAILOVER):
        yield from overhead.with_policy(policy, path)
        yield from overhead.with_tenacity(path)
        yield from overhead.with_stamina(path)
        yield from with_backoff(path)


def with_backoff(path: str) -> Iterator[Job]:
    import backoff

    first, afirst = (
        (overhead.good, overhead.agood) if path == HAPPY else (overhead.bad, overhead.abad)
    )
    tries = 0

    def note(_details: object) -> None:
        nonlocal tries
        tries += 1

    again = backoff.on_exception(
        backoff.constant,
        OverloadedError,
        max_tries=2,
        interval=0,
        jitter=None,
        on_backoff=note,
        logger=None,
    )

    @again
    def ask() -> str:
        return (first if tries == 0 else overhead.good)()

    @again
    async def aask() -> str:
        return await (afirst if tries == 0 else overhead.agood)()

    def call() -> str:
        nonlocal tries
        tries = 0
        return str(ask())

    async def acall() -> str:
        nonlocal tries
        tries = 0
        return str(await aask())

    yield Job("backoff", SYNC, path, call, None)
    yield Job("backoff", ASYNC, path, None, acall)


def langchain() -> Iterator[Job]:
    import langchain_calls

    for job in langchain_calls.models():
        subject = job.subject.removeprefix(f"{langchain_calls.MODEL}: ")
        if subject != "with_retry":
            yield job._replace(subject=BARE if subject == "bare" else f"LangChain {subject}")


def litellm() -> Iterator[Job]:
    import litellm_router

    good = {"model": "openai/a", "api_key": "k", "mock_response": "hi"}
    bad = {**good, "mock_response": litellm_router.BROKEN}

    def job(subject: str, path: str, mode: str, first: dict[str, Any]) -> Job:
        made = litellm_router.router(mode, first, good)
        question: dict[str, Any] = {"model": "group", "messages": litellm_router.MESSAGES}
        return Job(subject, ASYNC, path, None, lambda: made.acompletion(**question))

    yield job(BARE, HAPPY, "one deployment", good)
    for path, first in ((HAPPY, good), (FAILOVER, bad)):
        yield job("LiteLLM FallbackRoutingStrategy", path, "ours", first)
        own = "fallbacks, num_retries=0"
        yield job("LiteLLM Router fallbacks, num_retries=0", path, own, first)


def pydantic_ai() -> Iterator[Job]:
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

    good, backup, bad = FunctionModel(answer), FunctionModel(answer), FunctionModel(fail)
    asked, parameters = [ModelRequest.user_text_prompt("hello")], ModelRequestParameters()

    def job(subject: str, path: str, model: Any) -> Job:
        ask = lambda: model.request([*asked], None, parameters)  # noqa: E731 # a job takes it
        return Job(subject, ASYNC, path, None, ask)

    yield job(BARE, HAPPY, good)
    for path, first in ((HAPPY, good), (FAILOVER, bad)):
        yield job("pydantic-ai FallbackModel.request", path, FallbackModel(first, backup))


def haystack() -> Iterator[Job]:
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    from haystack import component
    from haystack.components.generators.chat import FallbackChatGenerator
    from haystack.dataclasses import ChatMessage

    @component
    class Generator:
        def __init__(self, *, fails: bool) -> None:
            self.fails = fails

        @component.output_types(replies=list[ChatMessage])  # type: ignore[untyped-decorator] # see above
        def run(self, messages: Any, **given: Any) -> dict[str, Any]:  # noqa: ARG002 # the interface
            if self.fails:
                raise OverloadedError
            return {"replies": [ChatMessage.from_assistant("answer")]}

        @component.output_types(replies=list[ChatMessage])  # type: ignore[untyped-decorator] # see above
        async def run_async(self, messages: Any, **given: Any) -> dict[str, Any]:
            return dict(self.run(messages, **given))

    asked = [ChatMessage.from_user("hello")]
    good, backup, bad = Generator(fails=False), Generator(fails=False), Generator(fails=True)
    yield Job(BARE, ASYNC, HAPPY, None, lambda: good.run_async(messages=asked))
    for path, first in ((HAPPY, good), (FAILOVER, bad)):
        both = FallbackChatGenerator([first, backup])
        ask = lambda both=both: both.run_async(asked)  # noqa: E731 # a job takes it
        yield Job("Haystack FallbackChatGenerator", ASYNC, path, None, ask)


FAMILIES: dict[str, Callable[[], Iterable[Job]]] = {
    "core": core,
    "langchain": langchain,
    "litellm": litellm,
    "pydantic-ai": pydantic_ai,
    "haystack": haystack,
}


def added(table: dict[tuple[str, str, str], Figures]) -> Iterator[dict[str, Any]]:
    """Tell what each subject adds to the bare call of its kind, on both paths.

    Args:
        table: From ``overhead.measure``.
    """
    for (subject, kind, path), figures in table.items():
        if path != HAPPY or subject == BARE:
            continue
        floor = table[BARE, kind, HAPPY].median
        yield {
            "subject": f"{subject} ({kind})",
            "ours": any(name in subject for name in OURS),
            "floor": floor,
            "happy": figures.median - floor,
            "failover": table[subject, kind, FAILOVER].median - floor,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--calls", type=int, default=2000, help="per cell (default 2000)")
    parser.add_argument("--rounds", type=int, default=20, help="interleaved (default 20)")
    parser.add_argument("--warm-up", type=int, default=300, help="calls per cell (default 300)")
    parser.add_argument("--json", action="store_true", help="one JSON document a line")
    options = parser.parse_args()
    os.environ["LANGSMITH_TRACING"] = "false"
    overhead.silence()
    jobs = [*FAMILIES[options.family]()]
    measured = overhead.measure(jobs, options.calls, options.rounds, options.warm_up)
    for one in added(asyncio.run(measured)):
        told = f"{one['subject']:<50}{one['happy']:10.1f}{one['failover']:10.1f}"
        print(write_lines([one]) if options.json else told)


if __name__ == "__main__":
    main()
