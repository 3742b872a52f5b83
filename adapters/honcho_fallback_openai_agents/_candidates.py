"""What a chain has to know of the SDK's models, and how each is asked."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agents import FunctionTool, Model, ModelSettings, MultiProvider, OpenAIResponsesModel
from agents.tool import CustomTool

from honcho_fallback import ApiKey, FallbackConfigError, Target
from honcho_fallback.providers import bound_to, owner_of, portable, without_retries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents import TResponseInputItem
    from agents.tool import Tool

    Candidate = Model | Target | str

# What stands in settings for one provider: its keys and its words. A target's own are its params.
_OF_THE_PRIMARY: dict[str, Any] = dict.fromkeys(
    ("extra_args", "extra_body", "extra_headers", "extra_query", "metadata", "response_include")
)


def targets_of(candidates: Iterable[Candidate]) -> list[Target]:
    """Describe candidates, each over a client that sends one request per attempt.

    Args:
        candidates: The primary first; a name that is taken gets a number.

    Raises:
        FallbackConfigError: One is neither a model, nor a name, nor a target with a model.
    """
    targets: list[Target] = []
    names = MultiProvider()
    for one in candidates:
        model: Any = one.client if isinstance(one, Target) else one
        model = names.get_model(model) if isinstance(model, str) else model
        if not isinstance(model, Model):
            problem = f"got a {type(model).__name__}"
            raise FallbackConfigError.about("candidates", problem, "pass models, or their names")
        model = _asking_once(model)
        if isinstance(one, Target):
            targets.append(replace(one, client=model))
            continue
        client = _client_of(model)
        key, address = getattr(client, "api_key", None), getattr(client, "base_url", None)
        target = Target(
            str(getattr(model, "model", "") or type(model).__name__),
            "openai" if client is not None else None,
            client=model,
            endpoint=str(address) if address else None,
            credential=ApiKey(key) if key and isinstance(key, str) else None,
        )
        same = [other.name for other in targets].count(target.name)
        targets.append(replace(target, name=f"{target.name}#{len(targets)}") if same else target)
    return targets


def is_same_place(one: Target, other: Target) -> bool:
    """Tell whether what one target's server keeps, or encrypts, is there for the other.

    Args:
        one: A target.
        other: A target.
    """
    known = one.endpoint is not None and one.endpoint == other.endpoint
    same_account = one.keys.get("credential") == other.keys.get("credential")
    same_api = _speaks_responses(one) == _speaks_responses(other)
    return one is other or (known and same_account and same_api)


def why_bound(target: Target, tools: Iterable[Tool], **request: Any) -> str | None:
    """Say what of a request a target at another place cannot take, or None.

    Args:
        target: Whom it would be sent to.
        tools: The agent's.
        **request: What else may name what a server keeps, as the Responses API calls it.
    """
    allowed = (FunctionTool, CustomTool) if _speaks_responses(target) else (FunctionTool,)
    foreign = [{"type": tool.name} for tool in tools if not isinstance(tool, allowed)]
    return bound_to({"tools": foreign, **request})


def input_for(
    items: str | list[TResponseInputItem], *, at_home: bool
) -> str | list[TResponseInputItem]:
    """Return a history as a target takes it: elsewhere without what only its maker can read.

    Args:
        items: The history.
        at_home: Whether all of it was made where it is sent.
    """
    if at_home or isinstance(items, str) or all(isinstance(_content(one), str) for one in items):
        return items
    moved: Any = portable(items, made_by="openai-responses", for_="openai-responses")
    return moved


def settings_for(settings: ModelSettings, target: Target, *, at_home: bool) -> ModelSettings:
    """Return settings as a target takes them, its own params on top.

    Args:
        settings: The agent's and the run's, which are the primary's.
        target: Who is asked.
        at_home: Whether it is at the primary's place.
    """
    if not at_home:
        settings = replace(settings, **_OF_THE_PRIMARY)
    return settings.resolve(ModelSettings(**target.params)) if target.params else settings


def _content(item: Any) -> Any:
    return item.get("content") if isinstance(item, dict) else None


def _speaks_responses(target: Target) -> bool:
    return isinstance(target.client, OpenAIResponsesModel)


def _client_of(model: Model) -> Any:
    """Return the SDK's client that a model holds, under whatever name, or None."""
    return next((one for one in vars(model).values() if owner_of(one) is one), None)


def _asking_once(model: Model) -> Model:
    """Return a copy of a model whose client sends one request; the model is left as it is."""
    copied, client = copy(model), _client_of(model)
    if client is not None:
        held = {name: without_retries(client) for name, one in vars(model).items() if one is client}
        vars(copied).update(held)
    return copied
