"""From one agent's settings to its chain of targets, and to what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import ApiKey, FallbackConfigError, Target
from honcho_fallback.providers import distinct_name
from honcho_fallback_honcho._keys import NO_KEY, find_key
from honcho_fallback_honcho._model_settings import read_parameters
from honcho_fallback_honcho._notices import Notice
from honcho_fallback_honcho._slots import DEFAULT_TRANSPORT, SLOTS, TRANSPORTS, Endpoint, host_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from honcho_fallback import Credential
    from honcho_fallback_honcho._model_settings import ModelSettings, Section
    from honcho_fallback_honcho._settings import Settings


class Node(NamedTuple):
    """Hold what is configured of one target, and under which prefix."""

    settings: ModelSettings
    env: str
    is_fallback: bool


def read_chain(agent: str, settings: Settings) -> tuple[tuple[Target, ...], list[Notice]]:
    """Build an agent's chain without unusable targets, and list what is wrong with it.

    The client of each target is its Endpoint.
    """
    chain: list[Target] = []
    notices: list[Notice] = []
    for node in nodes_of(agent, settings):
        notices += _unknown(node)
        named = named_by(node, notices)
        target = None if named is None else _target(node, *named, settings, notices)
        if target is None:
            continue
        if _identity_of(target) not in map(_identity_of, chain):
            chain.append(with_own_name(target, target.client.host, chain))
        else:
            problem = "the same model with the same key, address and parameters as one before"
            fix = "name another model or address"
            notices.append(Notice(node.env, problem, fix))
    return tuple(chain), [notice._replace(agents=(agent,)) for notice in notices]


def nodes_of(agent: str, settings: Settings) -> Iterator[Node]:
    """Yield what is configured of an agent's model, and of its fallbacks in order."""
    primary, env = settings.model_of(agent), SLOTS[agent]
    yield Node(primary, env, is_fallback=False)
    node = primary.fallback
    while node is not None and not node.is_empty:
        env = f"{env}__FALLBACK"
        yield Node(node, env, is_fallback=True)
        node = node.fallback


def named_by(node: Node, notices: list[Notice]) -> tuple[str, str] | None:
    """Return transport and model; a fallback that lacks one of them is ignored, and noted."""
    transport, model = node.settings.transport, node.settings.model
    if not node.is_fallback:
        return transport or DEFAULT_TRANSPORT, model or "gpt-5.4-mini"
    prefix, slash, rest = (model or "").partition("/")
    if transport is None and slash and rest and prefix in TRANSPORTS:
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
    notices.append(Notice(node.env, problem, fix))
    return None


def _target(
    node: Node, transport: str, model: str, defaults: Settings, notices: list[Notice]
) -> Target | None:
    settings = node.settings
    base_url, credential = find_key(settings, transport, node.env, defaults, notices)
    if base_url is None:
        name = f"{node.env}__OVERRIDES__BASE_URL"
        problem = f"missing, and {transport} has no address of its own"
        notices.append(Notice(name, problem, "set it"))
        if node.is_fallback:
            return None
        raise FallbackConfigError(str(notices[-1]))
    prefix = "" if settings.transport or node.is_fallback else model.partition("/")[0]
    if prefix in TRANSPORTS and base_url == TRANSPORTS[transport].base_url:
        problem = f"without TRANSPORT the data goes to {host_of(base_url)}"
        fix = f"set {node.env}__TRANSPORT, and MODEL without {prefix}/"
        notices.append(Notice(f"{node.env}__MODEL", problem, fix, effect="elsewhere"))
    more = settings.overrides.provider_params
    endpoint = Endpoint(
        transport,
        base_url,
        more.timeout or defaults.llm_default_timeout,
        more.extra_body or {},
        {name: str(value) for name, value in (more.extra_headers or {}).items()},
        more.extra_query or {},
    )
    params = read_parameters(settings)
    if "max_output_tokens" not in params:
        # Where there is a budget for thinking, it counts towards the length of the answer.
        budget = 0 if endpoint.wire == "openai" else settings.thinking_budget_tokens or 0
        params["max_output_tokens"] = defaults.llm_default_max_tokens + budget
    return make_target(model, endpoint, credential, params)


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
    address, key = endpoint.base_url or f"{provider}'s own", credential or ApiKey(NO_KEY)
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


def _unknown(node: Node) -> Iterator[Notice]:
    settings = node.settings
    tables: dict[str, Section | None] = {
        node.env: settings,
        f"{node.env}__OVERRIDES": settings.overrides,
        f"{node.env}__OVERRIDES__PROVIDER_PARAMS": settings.overrides.provider_params,
        f"{node.env}__CACHE_POLICY": settings.cache_policy,
    }
    for env, table in tables.items():
        for key in () if table is None else table.unknown:
            name = f"{env}__{key.upper()}"
            yield Notice(name, "nothing reads it", "check its spelling")


def _identity_of(target: Target) -> tuple[object, ...]:
    """Return what tells whether two targets are one, whatever transport they are asked over."""
    endpoint, key = target.client, getattr(target.credential, "fingerprint", None)
    return target.model, endpoint.wire, endpoint.base_url.rstrip("/"), key, target.params


def with_own_name(target: Target, host: str, taken: list[Target]) -> Target:
    """Return a target under a name that no other has: with its host, or with its number."""
    names = [one.name for one in taken]
    name = target.name
    if host and name in names:
        name = f"{name}@{host}"
    name = distinct_name(name, names)  # the same host, another key or other parameters
    return target if name == target.name else replace(target, name=name)
