"""What is told of a call, whatever the framework: to observers, and to Langfuse one generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from langchain_core.runnables import RunnableLambda
from langfuse.langchain import CallbackHandler

from honcho_fallback import FallbackConfig, set_observers
from honcho_fallback_langfuse import LangfuseCallbackHandler
from tests.contract.ways.cells import WAYS, after_content, cells, in_turn, rows
from tests.contract.ways.way import CONTENT, EXHAUSTED, INTERRUPTED, METADATA, REJECTED
from tests.helpers.observers import Noting
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.ways.cells import Cell
    from tests.helpers.langfuse_server import Memory


# What observers hear.


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    """Leave the process without observers."""
    yield
    set_observers(None)


# Whether one is set for the process before, given to the chain, set for the process afterwards.
GIVEN = {
    "per policy": (False, True, False),
    "set before": (True, False, False),
    "set after": (False, False, True),
    "both": (True, True, False),
}


@in_turn(given=GIVEN)
async def test_it_sees_the_same_and_each_once(cell: Cell, given: str) -> None:
    """Given to the chain, set once before or after, or both: the events are the same."""
    cell.primary.fail(503)
    observer, (before, own, after) = Noting(), GIVEN[given]
    set_observers([observer] if before else None)
    cell.build(observers=[observer] if own else [])
    if after:
        set_observers([observer])
    assert await cell.is_answered_by(cell.backup)
    turn = {"Restore", "TurnEnd"}  # where a run is one
    events = [kind for kind in observer.kinds if kind not in turn]
    assert events == ["CallContent", "CallStart", "Switch", "CallRecord"]


@cells(CONTENT)
async def test_content_goes_to_who_asks_for_it(cell: Cell) -> None:
    """What was asked and what was answered; the record holds no word of it."""
    cell.primary.fail(503)
    cell.build()
    assert await cell.is_answered_by(cell.backup)
    (asked,) = [one.input for one in cell.listener.contents if one.input is not None]
    assert "hi" in str(asked)
    (answered,) = [one.output for one in cell.listener.contents if one.output is not None]
    assert answered is not None
    assert "hello from" not in str(cell.record.to_dict())


MINE = {"workspace": "acme", "wave": 12, "paid": True, "nothing": None}


@cells(METADATA)
@pytest.mark.parametrize("status", [200, 503])
async def test_a_record_says_what_the_call_says(cell: Cell, status: int) -> None:
    """One dict goes with three calls; frameworks write into it, and the record is the caller's."""
    cell.primary.fail(status)
    cell.build()
    metadata = {**MINE}
    for _ in range(3):
        await cell.ask(metadata=metadata)
    assert [one.metadata for one in cell.listener.records] == [MINE] * 3
    assert [one.metadata for one in cell.listener.starts] == [MINE] * 3
    await cell.ask()
    assert cell.record.metadata is None


# What Langfuse stores, however a call ends.

WORDS = "the prompt was too much"  # of a provider
TOTALS = {"openai": 19, "anthropic": 22}  # tokens that the tests' providers count
BUSY = Reply(status=503, error="overloaded_error", message=WORDS)


class Ending(NamedTuple):
    """Say how a call goes and what is stored of it.

    Args:
        primary: What the primary replies.
        backup: What the fallback replies.
        level: The generation's.
        raises: What comes out, in the words of ``Way``; nothing where somebody answers.
        which: The verbs that can end so.
        said: What was said before it ended.
    """

    primary: Any
    backup: Any = Reply()
    level: str = "ERROR"
    raises: str = ""
    which: dict[str, bool] = {}  # noqa: RUF012 # never written to
    said: str | None = None


ENDINGS = {
    "no fallback": Ending(Reply(), level="DEFAULT", said="hello from {primary}"),
    "fallback": Ending(BUSY, level="WARNING", said="hello from {backup}"),
    "exhausted": Ending(BUSY, BUSY, raises=EXHAUSTED),
    "rejected": Ending(Reply(status=400, message=WORDS), raises=REJECTED),
    "cancelled": Ending(Reply(), level="WARNING", which={"asynchronous": True}),
    "interrupted": Ending(
        BUSY, after_content(cut=True), raises=INTERRUPTED, which={"streamed": True}, said="hello"
    ),
}


def each_way_and_ending() -> Iterator[Any]:
    """Yield each ending of each way in, by its verbs in turn; of the core by all of them."""
    for number, (name, ending) in enumerate(ENDINGS.items()):
        for way in WAYS:
            every = rows(every=True, **ending.which)
            verbs = [verb for one, verb in every if one is way]
            for verb in verbs if way.name == "core" else [verbs[number % len(verbs)]]:
                yield pytest.param((way, verb), name, id=f"{way.name}-{verb}-{name}")


@pytest.mark.parametrize(("cell", "name"), [*each_way_and_ending()], indirect=["cell"])
async def test_one_generation_tells_the_call(cell: Cell, name: str, memory: Memory) -> None:
    """Who answered, what it cost, where it lies; of a failure a fact, and no provider's text.

    HON-061 to HON-066, HON-068; HON-069: is_fallback is asserted, both ways; HON-075.
    """
    ending, handler = ENDINGS[name], LangfuseCallbackHandler(memory.client)
    cell.primary.standing, cell.backup.standing = ending.primary, ending.backup
    cell.build(observers=[handler, cell.listener], max_attempts=2)
    with memory.client.start_as_current_observation(name="request") as request:
        if ending.raises:
            await cell.fails(ending.raises)
        elif name == "cancelled":
            await cell.is_cancelled_at_the_primary()
        else:
            await cell.ask()
    stored = memory.stored()
    (one,) = [each for each in stored if each.type == "GENERATION"]
    others = {each.id: each.type for each in stored if each is not one}
    record, said = cell.record, one.metadata
    assert (one.level, one.trace_id) == (ending.level, request.trace_id)
    assert others.pop(request.id) == "SPAN"
    assert [*others.values()] in ([], ["AGENT"])  # where a run is a turn
    assert one.parent_id in (others or {request.id})
    assert (said["outcome"], said["is_fallback"]) == (record.outcome, record.is_fallback)
    assert ("fallback_model" in said) is record.is_fallback
    assert [each.get("kind") for each in said["attempts"]] == cell.kinds
    assert one.model == record.attempts[-1].model
    if cell.way.name in {"agent", "router"}:  # messages, as everybody writes them
        assert one.input[-1] == {"role": "user", "content": "hi"}
        assert one.parameters["top_p"] == 0.9
    elif CONTENT in cell.way.offers:
        assert "hi" in repr(one.input)
    names = {"primary": cell.primary.name, "backup": cell.backup.name}
    expected = ending.said and {"role": "assistant", "content": ending.said.format(**names)}
    assert one.output == expected
    assert (one.first_token is None) is (record.time_to_first_token is None)
    if record.usage is not None:
        total = one.usage.pop("total")  # every token stands in one bucket
        assert (total, sum(one.usage.values())) == (TOTALS[cell.way.form],) * 2
        assert said["usage_source"] == "provider"
    else:
        nothing = {"input": 0, "output": 0, "total": 0} if ending.said is None else {}
        assert (one.usage, said["usage_source"]) == (nothing, "none")
    shown = repr(memory.spans())
    assert not any(secret in shown for secret in (WORDS, *(each.secret for each in cell.places)))
    assert len(handler._calls) == 0


OF_LANGCHAIN = [(way, verb) for way, verb in rows() if "chat model" in way.name]


@pytest.mark.parametrize("cell", OF_LANGCHAIN, indirect=True)
@pytest.mark.parametrize("name", ["fallback", "exhausted"])
async def test_it_takes_its_place_under_langfuses_own_run(
    cell: Cell, name: str, memory: Memory
) -> None:
    """In a chain that Langfuse's handler traces, the one generation is a child of its run."""
    ending = ENDINGS[name]
    cell.primary.standing, cell.backup.standing = ending.primary, ending.backup
    cell.build(observers=[LangfuseCallbackHandler(memory.client)], max_attempts=2)

    async def step(_: str) -> None:
        await (cell.fails(ending.raises) if ending.raises else cell.ask())

    own = CallbackHandler(public_key="pk-memory")
    await RunnableLambda(step).with_config(run_name="chain").ainvoke("go", {"callbacks": [own]})
    one, outer = memory.stored()
    assert (outer.type, outer.name) == ("CHAIN", "chain")
    assert (one.type, one.trace_id, one.parent_id) == ("GENERATION", outer.trace_id, outer.id)
    assert one.level == ending.level


@pytest.mark.parametrize(
    "cell", [one for one in OF_LANGCHAIN if "stream" in one[1]], indirect=True
)
async def test_a_reader_that_leaves_has_seen_what_is_told(cell: Cell, memory: Memory) -> None:
    """An abandoned call's output is what was handed out; Langfuse's own handler adds nothing."""
    cell.primary.standing = BUSY
    handler = LangfuseCallbackHandler(memory.client)
    chain = cell.way.chain(cell.places, FallbackConfig(), [handler])
    asked: Any = ("hi", {"callbacks": [CallbackHandler(public_key="pk-memory")]})
    seen = ""
    if cell.verb == "stream":
        chunks = chain.stream(*asked)
        while not seen:
            seen = next(chunks).text
        chunks.close()
    else:
        chunks = chain.astream(*asked)
        while not seen:
            seen = (await anext(chunks)).text
        await chunks.aclose()
    one = memory.only()
    assert (one.parent_id, one.trace_name) == (None, "LLM Call")
    assert (one.level, one.metadata["outcome"]) == ("WARNING", "abandoned")
    assert one.output["content"] == seen != f"hello from {cell.backup.name}"
