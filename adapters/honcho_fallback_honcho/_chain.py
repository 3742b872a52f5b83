"""From one agent's slot to its chain of targets, and to what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import ApiKey, FallbackConfigError, Target
from honcho_fallback_honcho._endpoint import Endpoint
from honcho_fallback_honcho._keys import NO_KEY, find_key
from honcho_fallback_honcho._notices import Notice, nearest
from honcho_fallback_honcho._parameters import read_parameters
from honcho_fallback_honcho._slots import DEFAULT_MODEL, DEFAULT_TRANSPORT, TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import Credential
    from honcho_fallback_honcho._keys import KeyState
    from honcho_fallback_honcho._model_settings import ModelSettings, Section
    from honcho_fallback_honcho._slots import Slot
    from honcho_fallback_honcho._sources import Sources

_SMALLEST_BUDGET = 1024  # Anthropic's; 0 switches thinking off


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """Hold one target, and where it was configured.

    Args:
        target: The target; its client is the endpoint.
        endpoint: Where it is.
        key: What is known of its key.
        path: Of its table below the agent's, such as ``("fallback", "fallback")``.
        env: The prefix of its variables, without the last two underscores.
    """

    target: Target
    endpoint: Endpoint
    key: KeyState
    path: tuple[str, ...]
    env: str


class _Node(NamedTuple):
    settings: ModelSettings
    path: tuple[str, ...]
    env: str

    @property
    def is_fallback(self) -> bool:
        return bool(self.path)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Hold one agent's chain.

    Args:
        slot: Where it is configured.
        chain: The targets in order, the primary first, without unusable ones.
        ignored: Why each unusable one is not among them.
        notices: All that is wrong.
    """

    slot: Slot
    chain: tuple[PlannedTarget, ...]
    ignored: tuple[Notice, ...]
    notices: tuple[Notice, ...]


def read_agent(slot: Slot, sources: Sources) -> AgentSettings:
    """Build an agent's chain, and list what is wrong with it."""
    chain: list[PlannedTarget] = []
    ignored: list[Notice] = []
    notices: list[Notice] = []
    for node in _nodes(sources.model_of(slot), slot.env):
        notices += _unknown(node)
        named = _named(node, notices)
        planned = None if named is None else _planned(node, *named, sources, notices)
        if planned is not None:
            twin = next((one for one in chain if _identity(one) == _identity(planned)), None)
            if twin is None:
                chain.append(_with_own_name(planned, chain))
                continue
            problem = f"the same model at the same address with the same key as {twin.env}"
            fix = "name another model or address"
            notices.append(Notice("target", planned.env, problem, fix, breaks_fallback=True))
        ignored.append(notices[-1])
    by_agent = [notice._replace(agents=(slot.name,)) for notice in notices]
    return AgentSettings(slot, tuple(chain), tuple(ignored), tuple(by_agent))


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
    key = find_key(settings, transport, node.env, sources)
    notices += [
        notice._replace(breaks_fallback=notice.breaks_fallback and node.is_fallback)
        for notice in key.notices
    ]
    if key.base_url is None:
        name = f"{node.env}__OVERRIDES__BASE_URL"
        problem = f"missing, and {transport} has no address of its own"
        notices.append(Notice("target", name, problem, "set it", breaks_fallback=True))
        if node.is_fallback:
            return None
        raise FallbackConfigError(str(notices[-1]))
    more = settings.overrides.provider_params
    endpoint = Endpoint(
        transport,
        key.base_url,
        more.timeout or sources.timeout,
        more.extra_body or {},
        more.extra_headers or {},
        more.extra_query or {},
    )
    _check(settings, endpoint, node.env)
    params = read_parameters(settings)
    if "max_output_tokens" not in params:
        # Where there is a budget for thinking, it counts towards the length of the answer.
        budget = 0 if endpoint.wire == "openai" else settings.thinking_budget_tokens or 0
        params["max_output_tokens"] = sources.max_tokens + budget
    target = make_target(model, endpoint, key.credential, params)
    return PlannedTarget(target, endpoint, key.state, node.path, node.env)


def make_target(
    model: str,
    endpoint: Endpoint,
    credential: Credential | None,
    params: dict[str, Any],
    client: Any = None,
) -> Target:
    """Make a target; what is shown of its address is the host.

    Its identity is made of the whole address, so that two accounts at one host are two targets;
    and one whose key somebody else holds is the same target whenever it is made.
    """
    provider = endpoint.transport
    address, key = endpoint.base_url or "the provider's own", credential or ApiKey(NO_KEY)
    known = Target(model, provider, endpoint=address, credential=key)
    return Target(
        model,
        provider,
        client=endpoint if client is None else client,
        params=params,
        endpoint=endpoint.public_url or None,
        credential=credential,
        identity=f"honcho:{known.identity}",
    )


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
    endpoint, key = planned.endpoint, getattr(planned.target.credential, "fingerprint", None)
    return planned.target.model, endpoint.wire, endpoint.base_url.rstrip("/"), key


def _with_own_name(planned: PlannedTarget, chain: list[PlannedTarget]) -> PlannedTarget:
    taken = [one.target for one in chain]
    return replace(planned, target=with_own_name(planned.target, planned.endpoint.host, taken))


def with_own_name(target: Target, host: str, taken: list[Target]) -> Target:
    """Return a target under a name that no other has: with its host, or with its number."""
    names = {one.name for one in taken}
    name = target.name
    if name in names:
        name = f"{name}@{host}"
    if name in names:  # the same host, another key
        name = f"{name}#{len(taken) + 1}"
    return target if name == target.name else replace(target, name=name)
