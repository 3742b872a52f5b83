"""What a chain has to know of the SDK's requests and models, and how each is asked."""

from __future__ import annotations

from collections import OrderedDict
from copy import copy
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple

from agents import FunctionTool, Model, ModelSettings, MultiProvider, OpenAIResponsesModel
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.tool import CustomTool
from openai.types.responses import ResponseCompletedEvent

from honcho_fallback import FallbackConfigError, Target
from honcho_fallback.providers import (
    bound_to,
    can_think,
    distinct_name,
    owner_of,
    portable,
    route_in,
    with_place,
    without_retries,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

    from agents import TResponseInputItem
    from agents.items import TResponseStreamEvent
    from agents.tool import Tool

    Candidate = Model | Target | str

# What stands in settings for one provider: its keys and its words. A target's own are its params.
_EXTRA = ("extra_args", "extra_body", "extra_headers", "extra_query")
_OF_THE_PRIMARY: dict[str, Any] = dict.fromkeys((*_EXTRA, "metadata", "response_include"))

# The events that end a response, and what of it is whole before.
_ENDS = {f"response.{end}" for end in ("completed", "failed", "incomplete", "error")} | {"error"}
_ITEM_DONE = "response.output_item.done"

# Whose a response or an item is, by the id that its server gave it. For the process, as the ids
# are: a session outlives the runs and chains that wrote it, and the agents of one run may have a
# chain each. It is a fact about the servers, no state of a call, and the oldest ids are forgotten.
_PLACES: OrderedDict[str, Place] = OrderedDict()
_MOST_IDS = 20_000


class Place(NamedTuple):
    """Say whose what a server keeps, or encrypts, is: all share it who share these three."""

    is_responses: bool  # the API
    address: str
    account: str | None


class Request(NamedTuple):
    """Hold what every model of the SDK is asked with, in its order and under its names."""

    system_instructions: str | None
    input: str | list[TResponseInputItem]
    model_settings: ModelSettings
    tools: list[Tool]
    output_schema: Any
    handoffs: list[Any]
    tracing: Any
    previous_response_id: str | None = None
    conversation_id: str | None = None
    prompt: Any = None

    def shown(self) -> list[Any]:
        """Return what is asked, for observers."""
        first = self.system_instructions
        items = [{"role": "system", "content": first}] if first else list[Any]()
        is_text = isinstance(self.input, str)
        return [*items, *([{"role": "user", "content": self.input}] if is_text else self.input)]


def targets_of(candidates: Iterable[Candidate]) -> list[Target]:
    """Describe candidates, the primary first; a name that is taken gets a number."""
    targets: list[Target] = []
    for one in candidates:
        model: Any = one.client if isinstance(one, Target) else one
        model = MultiProvider().get_model(model) if isinstance(model, str) else model
        if not isinstance(model, Model):
            problem = f"got a {type(model).__name__}"
            raise FallbackConfigError.about("candidates", problem, "pass models, or their names")
        client = next((value for value in vars(model).values() if owner_of(value) is value), None)
        name = str(getattr(model, "model", "") or type(model).__name__)
        provider = None if client is None else "openai"
        known = Target(name, provider)
        known = replace(known, name=distinct_name(known.name, [each.name for each in targets]))
        # Of a copy of the model the client sends one request; the model is left as it is.
        copied = copy(model)
        for key, value in vars(model).items():
            if value is client is not None:
                vars(copied)[key] = without_retries(client)
        target = replace(one if isinstance(one, Target) else known, client=copied)
        targets.append(with_place(target, client, provider=provider))
    return targets


def note_maker(maker: Target, made: Any) -> None:
    """Remember who made a response, or what an event of a stream brings."""
    whole = getattr(made, "response", made)
    items = getattr(whole, "output", None) or [getattr(made, "item", whole)]
    response_id = str(getattr(whole, "response_id", None) or _id_of(whole))
    for one in {response_id, *map(_id_of, items)} - {"", FAKE_RESPONSES_ID}:
        _PLACES[one] = _place_of(maker)
    while len(_PLACES) > _MOST_IDS:
        _PLACES.popitem(last=False)


def unfit_for(
    request: Request, targets: Sequence[Target], required: frozenset[str]
) -> dict[int, str] | None:
    """Say who of a chain cannot take a request: what it names is kept, or leads, elsewhere."""
    places = [*map(_place_of, targets)]
    # A response that nobody here made is taken for the primary's.
    keeper = _PLACES.get(request.previous_response_id or "")
    keeper = keeper if keeper in places else places[0]
    kept = {
        "previous_response_id": request.previous_response_id,
        "conversation": request.conversation_id,
        "prompt": request.prompt,
        "input": request.input,
    }
    reasons = dict[int, str]()
    for position, (target, place) in enumerate(zip(targets, places, strict=True)):
        why = None
        if place != keeper:
            allowed = (FunctionTool, CustomTool) if place.is_responses else (FunctionTool,)
            tools = [{"type": one.name} for one in request.tools if not isinstance(one, allowed)]
            why = bound_to({**kept, "tools": tools})
        if why is None and required and place == places[0]:
            settings = {name: getattr(request.model_settings, name) for name in _EXTRA}
            if route := route_in(settings, target.model):
                why = f"it lacks the label {min(required)!r} where {route} may lead elsewhere"
        if why is not None:
            reasons[position] = why
    return reasons or None


def input_for(items: Any, target: Target, primary: Target) -> Any:
    """Return a history as a target takes it: elsewhere without what only its maker can read.

    What nobody here is known to have made is taken for the primary's.
    """
    # A text has nothing that would have to be left out.
    if isinstance(items, str):
        return items
    here, unknown = _place_of(target), _place_of(primary)
    if all(_PLACES.get(_id_of(one), unknown) == here for one in items):
        return items
    if all(isinstance(one.get("content"), str) for one in items):
        return items
    return portable(items, made_by="openai-responses", for_="openai-responses")


def settings_for(
    settings: ModelSettings, target: Target, primary: Target, items: Any
) -> ModelSettings:
    """Return the primary's settings as a target takes them, its own params on top.

    Anthropic's model refuses to think in a turn whose tools another model has called.
    """
    if _place_of(target) != _place_of(primary):
        settings = replace(settings, **_OF_THE_PRIMARY)
    settings = settings.resolve(ModelSettings(**target.params)) if target.params else settings
    is_claude = "claude" in str(getattr(target.client, "model", target.model)).lower()
    if settings.reasoning is None or isinstance(items, str) or not is_claude:
        return settings
    is_free = can_think(items, made_by="openai-responses")
    return settings if is_free else replace(settings, reasoning=None)


async def in_order(
    events: AsyncIterator[TResponseStreamEvent], maker: Target, *, is_replaceable: bool
) -> AsyncGenerator[TResponseStreamEvent, None]:
    """Hand on a model's events, and what settles the answer not before its end is known.

    The Runner raises at a failure's event, where the SDK's models raise, too, if one reads on; of
    an answer that names no items it takes those that were done, so that in a response that may
    still be replaced none is done before the response is.
    """
    late: list[Any] = []
    has_begun = False
    try:
        try:
            async for event in events:
                kind = getattr(event, "type", None)
                if kind in _ENDS or kind == _ITEM_DONE:
                    note_maker(maker, event)
                if kind in _ENDS or (is_replaceable and kind == _ITEM_DONE):
                    late.append(event)
                    continue
                has_begun = True
                yield event
        except Exception:
            # A connection that is lost after the whole answer has cost nothing.
            if not late or not isinstance(late[-1], ResponseCompletedEvent):
                raise
        for event in late:
            # The SDK makes up an empty answer where a provider sent nothing at all.
            is_empty = isinstance(event, ResponseCompletedEvent) and not event.response.output
            if has_begun or not is_empty:
                yield event
    finally:
        # Generators have aclose; a model may as well hand on an SDK's stream, which has close.
        close: Any = getattr(events, "aclose", None) or getattr(events, "close", bool)
        if isawaitable(closing := close()):
            await closing


def _place_of(target: Target) -> Place:
    where = target.endpoint or target.identity  # one whose address is not known is its own place
    is_responses = isinstance(target.client, OpenAIResponsesModel)
    return Place(is_responses, where, target.keys.get("credential"))


def _id_of(item: Any) -> str:
    """Return the id of an item; what a chat completion brought has that of the whole answer."""
    extra = getattr(item, "model_extra", None) or {}
    fields = item if isinstance(item, dict) else {**getattr(item, "__dict__", {}), **extra}
    origin = fields.get("provider_data") or {"response_id": fields.get("id")}
    return str(origin.get("response_id") or "")
