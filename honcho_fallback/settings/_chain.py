"""From one agent's slot to its chain of targets, and to what is wrong with it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from honcho_fallback import FallbackConfigError, Target
from honcho_fallback.settings._credentials import find_credential
from honcho_fallback.settings._endpoint import Endpoint
from honcho_fallback.settings._names import nearest
from honcho_fallback.settings._notices import Notice
from honcho_fallback.settings._params import render
from honcho_fallback.settings._slots import DEFAULT_MODEL, DEFAULT_TRANSPORT, TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback.settings._models import ModelSettings, Section
    from honcho_fallback.settings._slots import Slot
    from honcho_fallback.settings._sources import Sources

_logger = logging.getLogger("honcho_fallback.settings")
_SMALLEST_BUDGET = 1024  # Anthropic's; 0 switches thinking off


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """Hold one target, and where it was configured.

    Args:
        target: The target; its client is the endpoint.
        endpoint: Where it is.
        path: Of its table below the agent's, such as ``("fallback", "fallback")``.
        env: The prefix of its variables, without the last two underscores.
    """

    target: Target
    endpoint: Endpoint
    path: tuple[str, ...]
    env: str


class _Node(NamedTuple):
    settings: ModelSettings
    path: tuple[str, ...]
    env: str

    @property
    def is_fallback(self) -> bool:
        return bool(self.path)


def build_chain(slot: Slot, sources: Sources) -> tuple[tuple[PlannedTarget, ...], list[Notice]]:
    """Build an agent's chain without unusable targets, and list what is wrong with it."""
    chain: list[PlannedTarget] = []
    notices: list[Notice] = []
    for node in _nodes(sources.model_of(slot), slot.env):
        notices += _unknown(node)
        named = _named(node, notices)
        if named is None:
            continue
        planned = _planned(node, *named, sources, notices)
        if planned is None:
            continue
        twin = next((one for one in chain if _identity(one) == _identity(planned)), None)
        if twin is None:
            chain.append(_with_own_name(planned, chain))
        else:
            problem = f"the same model at the same address with the same key as {twin.env}"
            fix = "name another model or address"
            notices.append(Notice("target", planned.env, problem, fix, breaks_fallback=True))
    return tuple(chain), [notice._replace(agents=(slot.name,)) for notice in notices]


def _nodes(settings: ModelSettings, env: str) -> Iterator[_Node]:
    path: tuple[str, ...] = ()
    node: ModelSettings | None = settings
    while node is not None and (not path or not node.is_empty):
        yield _Node(node, path, "__".join((env, *(part.upper() for part in path))))
        node, path = node.fallback, (*path, "fallback")


def _named(node: _Node, notices: list[Notice]) -> tuple[str, str] | None:
    transport, model = node.settings.transport, node.settings.model
    prefix, slash, rest = (model or "").partition("/")
    shorthand = transport is None and bool(slash and rest) and prefix in TRANSPORTS
    if not node.is_fallback:
        if shorthand:
            problem = f"read as a model of transport {DEFAULT_TRANSPORT}, as Honcho reads it"
            fix = f"set {node.env}__TRANSPORT={prefix} and take the prefix off, if that is meant"
            notices.append(Notice("target", f"{node.env}__MODEL", problem, fix))
        elif transport not in {None, DEFAULT_TRANSPORT} and model is None:
            problem = f"missing, so {transport} is asked for Honcho's default, {DEFAULT_MODEL}"
            notices.append(Notice("target", f"{node.env}__MODEL", problem, "name the model"))
        return transport or DEFAULT_TRANSPORT, model or DEFAULT_MODEL
    if shorthand:
        return prefix, rest
    if transport is not None and model is not None:
        return transport, model
    missing = " and ".join(
        f"{node.env}__{name}"
        for name, value in (("TRANSPORT", transport), ("MODEL", model))
        if value is None
    )
    problem = f"the fallback is ignored, {missing} is missing"
    fix = "set both TRANSPORT and MODEL, or MODEL=transport/model, or neither"
    notices.append(Notice("partial", node.env, problem, fix, breaks_fallback=True))
    return None


def _planned(
    node: _Node, transport: str, model: str, sources: Sources, notices: list[Notice]
) -> PlannedTarget | None:
    settings = node.settings
    credential = find_credential(settings, transport, node.env, sources)
    notices += [
        notice._replace(breaks_fallback=notice.breaks_fallback and node.is_fallback)
        for notice in credential.notices
    ]
    if credential.base_url is None:
        notices.append(
            Notice(
                "target",
                f"{node.env}__OVERRIDES__BASE_URL",
                f"missing, and {transport} has no address of its own",
                "set it",
                breaks_fallback=True,
            )
        )
        if node.is_fallback:
            return None
        raise FallbackConfigError(str(notices[-1]))
    params = settings.overrides.provider_params
    endpoint = Endpoint(
        transport,
        credential.base_url,
        credential.key,
        params.timeout or sources.timeout,
        settings.structured_output_mode or "json_schema",
    )
    _check(settings, endpoint, node.env)
    rendered = render(settings, endpoint, sources.max_tokens)
    for name in rendered.dropped:
        _logger.debug("%s__%s: %s has no such parameter", node.env, name.upper(), transport)
    target = Target(model, transport, client=endpoint, params=rendered.params)
    return PlannedTarget(target, endpoint, node.path, node.env)


def _check(settings: ModelSettings, endpoint: Endpoint, env: str) -> None:
    budget, room = settings.thinking_budget_tokens, settings.max_output_tokens
    if endpoint.wire == "anthropic" and budget is not None and 0 < budget < _SMALLEST_BUDGET:
        raise FallbackConfigError.about(
            f"{env}__THINKING_BUDGET_TOKENS",
            f"Anthropic refuses fewer than {_SMALLEST_BUDGET}",
            "raise it, or set 0 to switch thinking off",
        )
    if endpoint.wire == "anthropic" and budget and room is not None and room <= budget:
        raise FallbackConfigError.about(
            f"{env}__MAX_OUTPUT_TOKENS",
            "no more than the THINKING_BUDGET_TOKENS, which count towards it",
            "raise it above the budget",
        )
    if endpoint.wire != "openai" and settings.structured_output_mode is not None:
        raise FallbackConfigError.about(
            f"{env}__STRUCTURED_OUTPUT_MODE",
            f"{endpoint.transport} has no such mode",
            "leave it out, or use a transport with OpenAI's wire",
        )


def _unknown(node: _Node) -> Iterator[Notice]:
    settings = node.settings
    tables: dict[str, Section | None] = {
        node.env: settings,
        f"{node.env}__OVERRIDES": settings.overrides,
        f"{node.env}__OVERRIDES__PROVIDER_PARAMS": settings.overrides.provider_params,
        f"{node.env}__CACHE_POLICY": settings.cache_policy,
    }
    for env, table in tables.items():
        for key in () if table is None else table.unknown:
            wrong = f"{env}__{key.upper()}"
            right = nearest(key, _keys(table))
            fix = f"the name is {env}__{right.upper()}" if right else "check its spelling"
            breaks = node.is_fallback or right == "fallback"
            yield Notice("ignored", wrong, "nothing reads it", fix, breaks_fallback=breaks)


def _keys(table: Section | None) -> list[str]:
    names = list(type(table).model_fields) if table is not None else []
    return [*names, "reasoning_effort"] if "thinking_effort" in names else names


def _identity(planned: PlannedTarget) -> tuple[object, ...]:
    endpoint = planned.endpoint
    return planned.target.model, endpoint.wire, endpoint.base_url.rstrip("/"), endpoint.api_key


def _with_own_name(planned: PlannedTarget, chain: list[PlannedTarget]) -> PlannedTarget:
    taken = {one.target.name for one in chain}
    name = planned.target.name
    if name in taken:
        name = f"{name}@{planned.endpoint.host}"
    if name in taken:  # the same host, another key
        name = f"{name}#{len(chain) + 1}"
    return replace(planned, target=replace(planned.target, name=name))
