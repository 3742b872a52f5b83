"""A policy as data: a TOML file with a preset and the options of FallbackConfig."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from honcho_fallback import (
    Cooldown,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    RetryBudget,
    TransportRecovery,
)
from honcho_fallback.testing.simulate._peers import LangChainLike, LiteLLMLike
from honcho_fallback.testing.simulate._scenario import read_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from honcho_fallback.testing.simulate._scenario import Scenario
    from honcho_fallback.testing.simulate._simulate import Contender

_PRESETS: Mapping[str, Callable[..., FallbackConfig]] = {
    "resilient": FallbackConfig.resilient,
    "honcho": FallbackConfig.honcho,
    "honcho_main": FallbackConfig.honcho_main,
    "hermes": FallbackConfig.hermes,
}
_PEERS: Mapping[str, Callable[[], Contender]] = {
    "litellm-like": LiteLLMLike,
    "langchain-like": LangChainLike,
}
# Options that are objects: in a file they are tables with the arguments of these.
_OBJECTS: Mapping[str, Callable[..., object]] = {
    "cooldown": Cooldown,
    "retry_budget": RetryBudget,
    "transport_recovery": TransportRecovery,
}
_CODE = frozenset({"local_errors", "provider_errors", "validate"})
_OWN = ("name", "preset", "targets")
_NAMES: TypeAdapter[list[str] | None] = TypeAdapter(list[str] | None)


def named_policies() -> tuple[str, ...]:
    """Name the policies that need no file."""
    return ("default", *_PRESETS, *_PEERS)


def load_policy(source: str | Path, scenario: Scenario) -> tuple[str, Contender]:
    """Read a policy: a preset or a peer by name, or a TOML file.

    A file holds ``name`` (default: the file's), ``preset`` (such as ``"resilient"``), ``targets``
    (names of the scenario's, in order; default: all) and options of FallbackConfig. ``cooldown``,
    ``retry_budget`` and ``transport_recovery`` are tables; ``false`` takes out what a preset has.

    Args:
        source: Such as ``"resilient"`` or ``"policy.toml"``.
        scenario: Where it is going to be played.

    Returns:
        Its name, and the policy.

    Raises:
        FallbackConfigError: There is none, or a key or value is wrong.
    """
    name = str(source)
    if name in _PEERS:
        return name, _PEERS[name]()
    if name in named_policies():
        return name, FallbackPolicy(scenario.chain(), _preset(name, name)(), agent=name)
    options = _read(source)
    own = {key: options.pop(key) for key in _OWN if key in options}
    name = own.get("name", Path(source).stem)
    if not isinstance(name, str) or not name:
        raise _about(source, "name", f"got {name!r}", "pass a text or leave it out")
    preset = _preset(own.get("preset", "default"), f"{source}: preset")
    try:
        targets = _NAMES.validate_python(own.get("targets"))
    except ValidationError:
        raise _about(source, "targets", "no list of texts", "pass names in order") from None
    try:
        config = preset(**{key: _option(key, value) for key, value in options.items()})
        return name, FallbackPolicy(scenario.chain(targets), config, agent=name)
    except FallbackConfigError as error:
        message = "\n".join(f"{source}: {line}" for line in str(error).splitlines())
        raise FallbackConfigError(message) from None


def _read(source: str | Path) -> dict[str, Any]:
    try:
        return read_toml(source, "policy")
    except FallbackConfigError as error:
        if Path(source).exists():
            raise
        names = ", ".join(named_policies())
        raise FallbackConfigError(f"{error} or a name: {names}") from None


def _preset(name: Any, where: str) -> Callable[..., FallbackConfig]:
    if name == "default":
        return FallbackConfig
    if not isinstance(name, str) or name not in _PRESETS:
        fix = f"choose from default, {', '.join(_PRESETS)}"
        raise FallbackConfigError.about(where, f"got {name!r}", fix)
    return _PRESETS[name]


def _option(key: str, value: Any) -> Any:
    if key in _CODE:
        raise FallbackConfigError.about(key, "it is code", "leave it out, or simulate in Python")
    make = _OBJECTS.get(key)
    field = FallbackConfig.model_fields.get(key)
    if value is False and field is not None and not isinstance(field.default, bool):
        return None
    if make is None or value is None:
        return value
    if value is True:
        return make()
    if not isinstance(value, dict):
        fix = f"pass a table, such as {key} = {{}}, or false"
        raise FallbackConfigError.about(key, f"got {value!r}", fix)
    try:
        return make(**value)
    except TypeError as error:
        problem = str(error).partition("() ")[2]
        raise FallbackConfigError.about(key, problem, "correct its table") from None


def _about(source: str | Path, field: str, problem: str, fix: str) -> FallbackConfigError:
    return FallbackConfigError.about(f"{source}: {field}", problem, fix)
