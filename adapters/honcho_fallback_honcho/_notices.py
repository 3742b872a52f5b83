"""What is wrong with a configuration, fit to be shown: names, hosts and advice, never values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from honcho_fallback_honcho._slots import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Families that Honcho's documents or their readers made up, each with the prefixes that are read
# in their place.
_DREAM = ("DREAM_DEDUCTION_MODEL_CONFIG", "DREAM_INDUCTION_MODEL_CONFIG")
_FAMILIES = {
    "DIALECTIC_MODEL_CONFIG": tuple(env for env in SLOTS.values() if env.startswith("DIALECTIC_")),
    "DREAM_MODEL_CONFIG": _DREAM,
    "DREAMER_MODEL_CONFIG": _DREAM,
    "FALLBACK_MODEL_CONFIG": tuple(f"{env}__FALLBACK" for env in SLOTS.values()),
    "MCP_MODEL_CONFIG": (),
}


# What comes of it, the worst first: Honcho sends data elsewhere, something cannot work, nothing.
Effect = Literal["elsewhere", "fails", "hint"]


class Notice(NamedTuple):
    """Say which variable is wrong, why, and what to do."""

    name: str
    problem: str
    fix: str
    agents: tuple[str, ...] = ()  # that it concerns; none where it is nobody's in particular
    effect: Effect = "fails"

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}; {self.fix}"


def merged(notices: list[Notice]) -> tuple[Notice, ...]:
    """Merge equal notices into one, for all the agents that they concern."""
    agents_by_text: dict[Notice, dict[str, None]] = {}
    for notice in notices:
        agents = agents_by_text.setdefault(notice._replace(agents=()), {})
        agents.update(dict.fromkeys(notice.agents))
    return tuple(one._replace(agents=tuple(agents)) for one, agents in agents_by_text.items())


def find_misnamed(names: Iterable[str]) -> Iterator[Notice]:
    """Name each variable of a family that nothing reads, and those that are read instead."""
    for name in sorted({name.upper() for name in names}):
        family, underscores, rest = name.partition("__")
        if family not in _FAMILIES:
            continue
        right = [f"{prefix}{underscores}{rest}" for prefix in _FAMILIES[family]]
        fix = "the MCP server asks no model of its own; remove it"
        if right:
            fix = f"the name is {right[0]}, and likewise {', '.join(right[1:])}"
        yield Notice(name, "Honcho ignores it", fix)
