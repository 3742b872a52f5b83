"""What is wrong with a configuration, fit to be shown: names, hosts and advice, never values."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from honcho_fallback_honcho._slots import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Families that Honcho's documents or their readers made up, each with the prefixes that are read
# in their place.
_DREAM = ("DREAM_DEDUCTION_MODEL_CONFIG", "DREAM_INDUCTION_MODEL_CONFIG")
_FAMILIES = {
    "DIALECTIC_MODEL_CONFIG": tuple(
        slot.env for slot in SLOTS if slot.env.startswith("DIALECTIC_")
    ),
    "DREAM_MODEL_CONFIG": _DREAM,
    "DREAMER_MODEL_CONFIG": _DREAM,
    "FALLBACK_MODEL_CONFIG": tuple(f"{slot.env}__FALLBACK" for slot in SLOTS),
    "MCP_MODEL_CONFIG": (),
}

Kind = Literal["ignored", "partial", "key", "target", "note"]


class Notice(NamedTuple):
    """Say what is wrong, where, and what to do.

    Args:
        kind: ``ignored``: a name that nothing reads; ``partial``: a fallback that is not complete;
            ``key``: a key that is missing or withheld; ``target``: a target that cannot help;
            ``note``: nothing is wrong.
        name: The variable.
        problem: What is wrong.
        fix: What to do.
        agents: The agents that it concerns.
        breaks_fallback: Whether a fallback could not work for it.
    """

    kind: Kind
    name: str
    problem: str
    fix: str
    agents: tuple[str, ...] = ()
    breaks_fallback: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}; {self.fix}"


def merged(notices: list[Notice]) -> tuple[Notice, ...]:
    """Merge equal notices into one, for all the agents that they concern."""
    by_text: dict[tuple[str, str, str], Notice] = {}
    for notice in notices:
        key = (notice.name, notice.problem, notice.fix)
        known = by_text.get(key)
        if known is not None:
            agents = tuple(dict.fromkeys((*known.agents, *notice.agents)))
            breaks = known.breaks_fallback or notice.breaks_fallback
            notice = known._replace(agents=agents, breaks_fallback=breaks)  # noqa: PLW2901 # the union of both
        by_text[key] = notice
    return tuple(by_text.values())


def find_misnamed(names: Iterable[str]) -> Iterator[Notice]:
    """Name each variable of a family that nothing reads, and those that are read instead."""
    for name in sorted({name.upper() for name in names}):
        family, underscores, rest = name.partition("__")
        if family not in _FAMILIES:
            continue
        right = [f"{prefix}{underscores}{rest}" for prefix in _FAMILIES[family]]
        fix = "the MCP server asks no model of its own; remove it"
        if right:
            others = f", and likewise {', '.join(right[1:])}"
            fix = f"the name is {right[0]}{others}"
        yield Notice("ignored", name, "Honcho ignores it", fix, breaks_fallback=True)


def toml_names(file: Mapping[str, Any]) -> Iterator[str]:
    """Name the variables that stand for the tables of a ``config.toml``."""
    for section, table in file.items():
        if isinstance(table, Mapping):
            for key in cast("Mapping[str, Any]", table):
                yield f"{section}_{key}"


def nearest(wrong: str, names: Sequence[str]) -> str | None:
    """Find the name that was probably meant, or None."""
    begun = [name for name in names if name.startswith(f"{wrong}_")]
    return next(iter([*get_close_matches(wrong, names, n=1, cutoff=0.75), *begun]), None)
