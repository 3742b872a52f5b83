"""The cells of a property's table: each way in that can do it, and a verb of it."""

from __future__ import annotations

import asyncio
import threading
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import FallbackConfig
from tests.contract.ways.way import Place
from tests.helpers import wire
from tests.helpers.observers import ContentListener
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import CallRecord
    from tests.contract.ways.way import Way
    from tests.helpers.provider import Provider, ProviderServer, SeenRequest

# The lowest versions of some frameworks exclude others.
NEEDS = {
    "core": ("openai",),
    "langchain": ("langchain",),
    "litellm": ("litellm",),
    "agent_sdks": ("agents", "pydantic_ai"),
}
WAYS: list[Way] = [
    way
    for module, needed in NEEDS.items()
    if all(map(find_spec, needed))
    for way in import_module(f"tests.contract.ways.{module}").WAYS
]
ELSEWHERE = "localhost"  # another name of this machine: another host to whoever shares a failure


class Cell:
    """Ask a chain of two scripted providers by one verb of one way in.

    Args:
        way: The way in.
        verb: How it is asked.
        providers: Serves the providers.

    Attributes:
        primary: The first provider.
        backup: The second.
        places: Where the chain is asked; a test may change them before it builds.
        listener: The chain's observer.
    """

    def __init__(self, way: Way, verb: str, providers: ProviderServer) -> None:
        self.way, self.verb, self.providers = way, verb, providers
        self.primary, self.backup = providers.new("primary"), providers.new("backup")
        self.places = [Place(self.primary), Place(self.backup, host=ELSEWHERE)]
        self.listener = ContentListener()
        self._chain: Any = None

    def build(self, config: FallbackConfig | None = None, **options: Any) -> None:
        """Build the chain, whose observer is the cell's unless there are others in the options.

        Args:
            config: The options as a whole.
            **options: Of FallbackConfig, or ``observers``.
        """
        observers = options.pop("observers", [self.listener])
        config = (config or FallbackConfig()).replace(**options)
        self._chain = self.way.chain(self.places, config, observers)

    async def ask(self, question: str = "hi", metadata: Any = None) -> str:
        return await self.way.ask(self._chain, self.verb, question, metadata)

    async def fails(self, how: str) -> BaseException:
        """Ask the chain, which raises what the way has for this; return it."""
        with pytest.raises(self.way.raises[how]) as caught:
            await self.ask()
        return caught.value

    async def is_cancelled_at_the_primary(self) -> None:
        """Ask, and leave while the primary says nothing; then it does as before."""
        was_asked, healthy = threading.Event(), self.primary.standing

        def hangs(_: SeenRequest) -> Reply:
            was_asked.set()
            return Reply(hang=True)

        self.primary.standing = hangs
        task = asyncio.create_task(self.ask())
        await asyncio.to_thread(was_asked.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        self.primary.standing = healthy

    async def is_answered_by(self, provider: Provider) -> bool:
        return await self.ask() == f"hello from {provider.name}"

    @property
    def asked(self) -> tuple[int, int]:
        return len(self.primary.requests), len(self.backup.requests)

    @property
    def record(self) -> CallRecord:
        return self.listener.records[-1]

    @property
    def kinds(self) -> list[str | None]:
        """Return what went wrong in each attempt of the last call, None for an answer."""
        return self.listener.kinds


def after_content(**what: bool) -> Callable[[SeenRequest], Reply]:
    """Return a reply that says ``hello`` in the form of the request, and then breaks.

    Args:
        **what: Of the reply: whether it is cut, or hangs.
    """

    def reply(request: SeenRequest) -> Reply:
        form = wire.form_of(request.path)
        answer, error = form.answer("hello", "gpt-next", False), form.error("never sent", None)
        *events, _ = form.events(answer, request.body, error)
        return Reply(events=events, cut=what.get("cut", False), hang=what.get("hang", False))

    return reply


def rows(
    *needed: str,
    every: bool = False,
    streamed: bool | None = None,
    asynchronous: bool | None = None,
) -> list[tuple[Way, str]]:
    """List ways in with their verbs.

    Args:
        *needed: What a way has to offer.
        every: Whether with all verbs, or with the few that differ most.
        streamed: Whether those that read a stream; None for both.
        asynchronous: Whether those of a task; None for both.
    """
    return [
        (way, verb)
        for way in WAYS
        if way.offers.issuperset(needed)
        for verb in (way.verbs if every else way.few)
        if streamed in {None, "stream" in verb or "transform" in verb}
        and asynchronous in {None, verb.startswith("a") or way.verbs == ("run", "stream")}
    ]


def cells(*needed: str, **which: Any) -> pytest.MarkDecorator:
    found = rows(*needed, **which)
    ids = [f"{way.name}-{verb}" for way, verb in found]
    return pytest.mark.parametrize("cell", found, indirect=True, ids=ids)


def one_each(*needed: str, **which: Any) -> pytest.MarkDecorator:
    """Return a mark for ``cell``: each way in with one of its verbs, as for ``rows``."""
    found = {way.name: (way, verb) for way, verb in rows(*needed, **which)}
    return pytest.mark.parametrize("cell", found.values(), indirect=True, ids=[*found])


def in_turn(**values: dict[str, Any]) -> pytest.MarkDecorator:
    """Return a mark for ``cell`` and a case: each way with every verb, and with every case.

    Args:
        **values: The cases by their keys, under the name by which the test takes a key; what has
            an attribute ``forms`` is for ways of those alone.
    """
    ((name, cases),) = values.items()
    found: list[Any] = []
    for way in WAYS:
        fit = [key for key, one in cases.items() if way.form in getattr(one, "forms", way.form)]
        for number in range(max(len(way.verbs), len(fit))):
            verb, key = way.verbs[number % len(way.verbs)], fit[number % len(fit)]
            found.append(pytest.param((way, verb), key, id=f"{way.name}-{verb}-{key}"))
    return pytest.mark.parametrize(("cell", name), found, indirect=["cell"])
