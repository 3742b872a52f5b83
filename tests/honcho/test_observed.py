"""Observers and metadata of Honcho's agents, under each of the loaders."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("litellm")
pytest.importorskip("pydantic_settings")

from honcho_fallback import FallbackConfigError, set_observers
from honcho_fallback.testing import StatusError
from honcho_fallback_honcho import load_chat_models, load_policies
from tests.helpers.litellm_runs import THEIRS, litellm_left_clean
from tests.helpers.observers import HOOKS, WRONG, Listener, Noting, every_way, one_hook
from tests.honcho.chat_models import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.helpers.provider import ProviderServer

pytestmark = [
    pytest.mark.timeout(180),  # the first test to touch LiteLLM imports all of it
    *(pytest.mark.filterwarnings(warning) for warning in THEIRS),
]

MESSAGES: Any = [{"role": "user", "content": "hello"}]
MINE = {"workspace": "acme", "namespace": "team-a", "run_id": "r-17", "purpose": "summary"}
EVENTS = ["CallContent", "CallStart", "Switch", "CallRecord"]


def ask_policy(policies: Any, is_async: bool) -> None:
    policy = policies["deriver"]

    def answer(attempt: Any) -> str:
        if attempt.position == 0:
            raise StatusError(503)
        return "hello"

    async def in_a_task(attempt: Any) -> str:
        return answer(attempt)

    run = policy.start(metadata=MINE)
    run.report(input=MESSAGES)
    if is_async:
        asyncio.run(policy.acall(in_a_task, run=run))
    else:
        policy.call(answer, run=run)


def ask_chat_model(models: Any, is_async: bool) -> None:
    model, config = models["deriver"], {"metadata": MINE}
    if is_async:
        asyncio.run(model.ainvoke("hello", config))
    else:
        model.invoke("hello", config)


LOADERS: dict[str, tuple[Callable[..., Any], Callable[[Any, bool], None]]] = {
    "policies": (load_policies, ask_policy),
    "chat models": (load_chat_models, ask_chat_model),
}
EACH = pytest.mark.parametrize("loader", LOADERS)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Leave LiteLLM as it was, and the process without observers."""
    with litellm_left_clean():
        yield
    set_observers(None)


@pytest.fixture
def source(providers: ProviderServer) -> dict[str, str]:
    """Return settings whose primary is down."""
    providers["openai"].fail(503, times=9)
    return settings(providers, "openai", "anthropic")


@EACH
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("way", every_way)
def test_it_sees_the_same_and_each_once(
    loader: str, is_async: bool, way: str, source: dict[str, str]
) -> None:
    """Given to the loader, set once before or after, or both: the events are the same."""
    load, ask = LOADERS[loader]
    observer = Noting()
    ask(every_way[way](observer, lambda options: load(source, **options)), is_async)
    assert observer.kinds == EVENTS


@EACH
@pytest.mark.parametrize("hook", ["on_start", "on_content", "on_switch", "on_finish"])
def test_one_hook_makes_an_observer(loader: str, hook: str, source: dict[str, str]) -> None:
    """It hears that one alone."""
    load, ask = LOADERS[loader]
    observer = one_hook(hook)
    ask(load(source, observers=[observer]), False)
    assert {*observer.kinds} == {HOOKS[hook]}


@EACH
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_one_is_refused_where_it_is_given(
    loader: str, wrong: str, source: dict[str, str]
) -> None:
    """The message is the core's."""
    with pytest.raises(FallbackConfigError, match="observers: got "):
        LOADERS[loader][0](source, observers=WRONG[wrong])


@EACH
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_call_says_of_itself_is_in_its_record(
    loader: str, is_async: bool, source: dict[str, str]
) -> None:
    """Workspace, namespace, run and purpose come through, beside the agent's own name."""
    load, ask = LOADERS[loader]
    listener = Listener()
    ask(load(source, observers=[listener]), is_async)
    assert listener.record.metadata == MINE
    assert listener.starts[0].metadata == MINE
    assert listener.record.agent == "deriver"
